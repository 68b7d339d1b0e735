//! QP 1 of a port: a QP of `uroce-transport`, with arrays as its memory and packet sink.
//!
//! Invariants
//! - A receive is posted whenever a frame is handled, and its buffer holds any datagram that the QP
//!   accepts, so that no frame takes the QP out of RTS.
//!
//! Not here: contents of a MAD.

use uroce_transport::{
    AccessKind, Accessor, Ah, AsyncEvent, AtomicOp, BindMw, Counter, Cqe, DropReason, Env, Flush,
    Found, Inbound, Key, Memory, MemoryFault, Outbound, Output, PacketSink, Pd, Piece, Qp, QpCaps,
    QpChange, QpInit, QpType, RecvWr, Region, SendOp, SendWr, Sge, SharedReceives, Side,
    TransmitError,
};
use uroce_transport::{Instant, ModifyError};
use uroce_wire::mad::{GSI_QKEY, MAD_LEN, Mad};
use uroce_wire::{
    Datagram, Encap, ICRC_LEN, Lkey, Packet, PathMtu, Psn, Qpn, Rkey, Va, emit_headers,
    headers_len, seal,
};

/// QPN of the general services interface on every port.
pub(crate) const GSI: Qpn = Qpn::GSI;
/// Bytes of the GRH in front of a received datagram.
const GRH_LEN: usize = 40;
/// L_Key of the receive buffer, the only memory region.
const BUFFER: Lkey = Lkey(1);

/// A datagram accepted by QP 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received<'a> {
    pub(super) src_qpn: Qpn,
    /// Payload, at most 256 bytes.
    pub(super) payload: &'a [u8],
}

/// QP 1 of one port.
#[derive(Debug)]
pub(super) struct Service {
    qp: Qp,
    around: Surroundings,
}

impl Service {
    /// Creates QP 1 of a port, in RTS.
    ///
    /// # Errors
    /// If the transport refuses an attribute.
    pub(super) fn new(psn: Psn) -> Result<Service, ModifyError> {
        let caps = QpCaps {
            max_send_wr: 1,
            max_send_sge: 1,
            max_recv_wr: 1,
            max_recv_sge: 1,
            max_inline_data: MAD_LEN as u32,
        };
        let init = QpInit::new(QpType::Gsi, caps);
        let mut qp = Qp::new(GSI, Pd(0), &init);
        qp.set_port_mtu(PathMtu::B256);
        let mut around = Surroundings::default();
        let [to_init, to_rtr, to_rts] = QpChange::datagram_steps(1, GSI_QKEY, psn);
        // QP 1 belongs to its port.
        for change in [QpChange { port: None, ..to_init }, to_rtr, to_rts] {
            qp.modify(Instant::ZERO, &change, &mut around)?;
        }
        Ok(Service { qp, around })
    }

    /// Handles a datagram. Its invariant CRC is already verified.
    ///
    /// # Errors
    /// The reason for which the transport dropped it.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        datagram: &Datagram<'_>,
    ) -> Result<Received<'_>, DropReason> {
        let packet = Packet::parse(datagram.transport)?;
        let Self { qp, around } = self;
        if qp.recv_wrs() == 0 {
            let sge = Sge { va: Va(0), len: around.buffer.len() as u32, lkey: BUFFER };
            // The queue has room for one receive, and RTS allows it.
            let _ = qp.post_recv(&RecvWr { wr_id: 0 }, &[sge], around);
        }
        let Datagram { src, dst, l3, .. } = *datagram;
        qp.handle_packet(
            now,
            &Inbound { src, dst, port: qp.attr().port, l3, frame: &[], packet },
            around,
        )?;
        let cqe = around.received.take().ok_or(DropReason::NoReceiveWqe)?;
        let end = (cqe.byte_len as usize).clamp(GRH_LEN, around.buffer.len());
        Ok(Received { src_qpn: cqe.src_qpn, payload: &around.buffer[GRH_LEN..end] })
    }

    /// Builds the frame of a MAD to QP `to` at the end of `path`, with its invariant CRC.
    pub(super) fn frame(&mut self, now: Instant, path: &Encap, to: Qpn, mad: &Mad) -> &[u8] {
        let Self { qp, around } = self;
        around.path = *path;
        around.frame.clear();
        let op = SendOp::SendTo { ah: Ah(0), dest_qpn: to, qkey: GSI_QKEY, imm: None };
        let wr = SendWr {
            wr_id: 0,
            op,
            signaled: false,
            solicited: false,
            fence: false,
            srqn: Default::default(),
        };
        let posted = qp.post_inline(&wr, mad, around);
        debug_assert!(posted.is_ok(), "one send at a time, in RTS: {posted:?}");
        qp.poll_transmit(now, 1, around);
        &around.frame
    }
}

/// Memory and packet sink of QP 1.
#[derive(Debug)]
struct Surroundings {
    buffer: [u8; GRH_LEN + MAD_LEN],
    received: Option<Cqe>,
    path: Encap,
    frame: Vec<u8>,
}

impl Default for Surroundings {
    fn default() -> Surroundings {
        Surroundings {
            buffer: [0; GRH_LEN + MAD_LEN],
            received: None,
            path: Encap::default(),
            frame: Vec::new(),
        }
    }
}

impl Env for Surroundings {
    type Memory = Surroundings;

    type Other<'o> = Surroundings;

    fn memory(&mut self) -> &mut Surroundings {
        self
    }
}

impl Memory for Surroundings {
    fn check(&self, _: Accessor, region: Region, _: AccessKind) -> Result<(), MemoryFault> {
        self.place(&region).map(|_| ())
    }

    fn write(&mut self, _: Accessor, region: Region, bytes: &[u8]) -> Result<(), MemoryFault> {
        let place = self.place(&region)?;
        self.buffer[place].copy_from_slice(bytes);
        Ok(())
    }

    fn atomic(&mut self, _: Accessor, _: Rkey, _: Va, _: AtomicOp) -> Result<u64, MemoryFault> {
        Err(MemoryFault::NotGranted)
    }

    fn write_word(&mut self, _: Accessor, _: Rkey, _: Va, _: [u8; 8]) -> Result<(), MemoryFault> {
        Err(MemoryFault::NotGranted)
    }

    fn flush(&mut self, _: Accessor, _: &Flush) -> Result<(), MemoryFault> {
        Err(MemoryFault::NotGranted)
    }

    fn bind(&mut self, _: Accessor, _: &BindMw) -> Result<(), MemoryFault> {
        Err(MemoryFault::NotAWindow)
    }

    fn invalidate(&mut self, _: Accessor, _: Rkey) -> Result<(), MemoryFault> {
        Err(MemoryFault::NotAWindow)
    }
}

impl Surroundings {
    fn place(&self, region: &Region) -> Result<std::ops::Range<usize>, MemoryFault> {
        if region.key != Key::Local(BUFFER) {
            return Err(MemoryFault::UnknownKey);
        }
        let start = usize::try_from(region.va.0).map_err(|_| MemoryFault::OutOfRange)?;
        let place = start..start.saturating_add(region.len as usize);
        self.buffer.get(place.clone()).map(|_| place).ok_or(MemoryFault::OutOfRange)
    }
}

impl SharedReceives for Surroundings {
    fn take_receive(&mut self, _: u32, _: impl FnOnce(&RecvWr, &[Sge])) -> Found {
        Found::Nothing
    }

    fn receives_waiting(&self) -> u32 {
        0
    }
}

impl PacketSink for Surroundings {
    fn transmit(&mut self, packet: &Outbound<'_>) -> Result<u32, TransmitError> {
        const TOO_LONG: TransmitError = TransmitError::Memory(MemoryFault::OutOfRange);
        let headers = headers_len(packet.bth.opcode).ok_or(TOO_LONG)?;
        let pad = usize::from(packet.bth.pad_count);
        let transport_len = headers + packet.payload.len() as usize + pad + ICRC_LEN;
        let template = self.path.template();
        let mut frame = vec![0; usize::from(template.len) + transport_len];
        let mut at = template.emit(&mut frame, transport_len);
        at += emit_headers(&packet.bth, &packet.ext, &mut frame[at..]).ok_or(TOO_LONG)?;
        for piece in packet.payload.clone() {
            let Piece::Bytes(bytes) = piece else {
                return Err(TransmitError::Memory(MemoryFault::UnknownKey));
            };
            frame[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        }
        seal(&mut frame[usize::from(template.l3_offset)..]).ok_or(TOO_LONG)?;
        self.frame = frame;
        Ok(self.frame.len() as u32)
    }
}

impl Output for Surroundings {
    fn complete(&mut self, side: Side, cqe: Cqe) {
        if side == Side::Recv {
            self.received = Some(cqe);
        }
    }

    /// The caller of [`Service::receive`] counts the datagrams that QP 1 drops, by reason.
    fn count(&mut self, _: Counter) {}

    /// Events of QP 1 are not reported to applications.
    fn event(&mut self, _: AsyncEvent) {}
}

#[cfg(test)]
mod tests;
