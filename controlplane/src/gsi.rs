//! General services interface (GSI): QP 1 of each port, and the dispatch of MADs that arrive there.
//!
//! Read first: IBA 13 for MADs, IBA 16 for the GSI.
//!
//! ```text
//!   frames for QPN 1 ──> QP 1 (the core's) ──> MAD header ──┬─> class 7: connection management
//!                                                           ├─> failover's class
//!                                                           ├─> any Get or Set: "unsupported"
//!   frame <── QP 1 <── MAD <────────────────────────────────┘
//! ```
//!
//! Invariants
//! - A MAD that is dispatched has 256 bytes and arrived in one datagram with the GSI's Q_Key and a
//!   matching P_Key.
//! - A MAD that is dropped is counted by reason. A response is never answered.
//!
//! Not here: contents of the management classes; resolution of the next hop.

mod service;

use uroce_transport::{DropReason, Instant, ModifyError};
use uroce_wire::cm::MGMT_CLASS;
use uroce_wire::mad::{MAD_LEN, Mad, MadHeader};
use uroce_wire::{Encap, Frame, Gid, Psn, Qpn};

use crate::call::Count;
use crate::failover::Failover;
pub(crate) use service::GSI;
use service::Service;

/// Methods that call for an answer, and the method of the answer.
const GET: u8 = 0x01;
const SET: u8 = 0x02;
const GET_RESP: u8 = 0x81;
/// MAD status: the combination of method and attribute is not supported.
const UNSUPPORTED: u16 = 3 << 2;

uroce_transport::counted! {
    /// Reason for which a datagram to QP 1 was dropped.
    pub enum MadFault {
        Frame "gsi_malformed" "A datagram to QP 1 that the transport's checks refuse."
        Pkey "gsi_bad_pkey" "A datagram to QP 1 with a P_Key that does not match."
        Qkey "gsi_qkey_viol" "A datagram to QP 1 without the interface's Q_Key."
        Length "gsi_bad_length" "A management datagram that is not 256 bytes long."
        BaseVersion "gsi_bad_version" "A management datagram of an unknown base version."
        Class "gsi_unknown_class" "A management datagram of a class that is not supported."
        Method "gsi_unknown_method" "A management datagram of a method that its class lacks."
    }
}

/// A received MAD with its source and destination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    /// Port that it arrived on, from 1.
    pub(crate) port: u8,
    pub(crate) src: Gid,
    pub(crate) dst: Gid,
    pub(crate) src_qpn: Qpn,
    pub(crate) mad: Mad,
}

/// Action for a received MAD.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verdict {
    /// Hand the MAD to the connection manager.
    Connection(Arrived),
    /// Hand the MAD to the agreement on alternate paths.
    Failover(Arrived),
    /// Send the MAD in it back to the source.
    Answer(Arrived),
}

/// QP 1 of every port.
#[derive(Debug)]
pub(crate) struct Gsi {
    ports: Vec<Service>,
    /// Whether the device has failover, and so the class of its messages.
    has_failover: bool,
    received: u64,
    sent: u64,
    faults: [u64; MadFault::ALL.len()],
}

impl Gsi {
    /// Creates QP 1 of `ports` ports, with `psn` as the first PSN of each.
    ///
    /// # Errors
    /// If the transport refuses an attribute.
    pub(crate) fn new(ports: usize, psn: Psn, has_failover: bool) -> Result<Gsi, ModifyError> {
        let ports = (0..ports).map(|_| Service::new(psn)).collect::<Result<_, _>>()?;
        let faults = [0; MadFault::ALL.len()];
        Ok(Gsi { ports, has_failover, received: 0, sent: 0, faults })
    }

    /// Handles a frame for QP 1 that arrived on `port`, from 1. Its invariant CRC is already
    /// verified. `None`: the frame was dropped and counted.
    pub(crate) fn receive(&mut self, now: Instant, port: u8, frame: &[u8]) -> Option<Verdict> {
        let has_failover = self.has_failover;
        let verdict =
            self.take(now, port, frame).and_then(|arrived| dispatch(arrived, has_failover));
        match verdict {
            Ok(_) => self.received += 1,
            Err(fault) => self.faults[fault as usize] += 1,
        }
        verdict.ok()
    }

    //= check J11 — another Q_Key, P_Key or length: dropped and counted
    fn take(&mut self, now: Instant, port: u8, frame: &[u8]) -> Result<Arrived, MadFault> {
        let Ok(Frame::Roce(datagram)) = Frame::parse(frame) else { return Err(MadFault::Frame) };
        let service = self.ports.get_mut(usize::from(port).wrapping_sub(1));
        let received = service.ok_or(MadFault::Frame)?.receive(now, &datagram);
        let received = received.map_err(|reason| match reason {
            DropReason::BadQkey => MadFault::Qkey,
            DropReason::BadPkey => MadFault::Pkey,
            _ => MadFault::Frame,
        })?;
        let mad = received.payload.try_into().map_err(|_| MadFault::Length)?;
        let src_qpn = received.src_qpn;
        Ok(Arrived { port, src: datagram.src, dst: datagram.dst, src_qpn, mad })
    }

    /// Builds the frame of a MAD from `port`, counted from 1, to QP `to` at the end of `path`.
    /// `None` if there is no such port.
    pub(crate) fn frame(
        &mut self,
        now: Instant,
        port: u8,
        path: &Encap,
        to: Qpn,
        mad: &Mad,
    ) -> Option<&[u8]> {
        let service = self.ports.get_mut(usize::from(port).wrapping_sub(1))?;
        self.sent += 1;
        Some(service.frame(now, path, to, mad))
    }

    /// Returns all counters.
    pub(crate) fn counts(&self) -> Vec<Count> {
        let mut counts = vec![
            Count::new("gsi_rx_mads", "A management datagram received by QP 1.", self.received),
            Count::new("gsi_tx_mads", "A management datagram sent by QP 1.", self.sent),
        ];
        let fault = |fault: &MadFault| {
            Count::new(fault.name(), fault.description(), self.faults[*fault as usize])
        };
        counts.extend(MadFault::ALL.iter().map(fault));
        counts
    }
}

//= check J11 — another base version, class or method: answered if an answer is due, else dropped
fn dispatch(arrived: Arrived, has_failover: bool) -> Result<Verdict, MadFault> {
    let header = MadHeader::parse(first(&arrived.mad));
    if header.base_version != MadHeader::BASE_VERSION {
        return Err(MadFault::BaseVersion);
    }
    if header.mgmt_class == MGMT_CLASS && header.method == MadHeader::SEND {
        return Ok(Verdict::Connection(arrived));
    }
    if has_failover && Failover::takes(&arrived.mad) {
        return Ok(Verdict::Failover(arrived));
    }
    match header.method {
        GET | SET => {
            let mad = unsupported(&header, &arrived.mad);
            Ok(Verdict::Answer(Arrived { mad, ..arrived }))
        }
        _ if header.mgmt_class == MGMT_CLASS => Err(MadFault::Method),
        _ => Err(MadFault::Class),
    }
}

/// Builds the answer to an unsupported MAD: a copy with an error status.
fn unsupported(header: &MadHeader, mad: &Mad) -> Mad {
    let header = MadHeader { method: GET_RESP, status: UNSUPPORTED, ..*header };
    let mut answer = *mad;
    if let Some(place) = answer.first_chunk_mut() {
        header.emit(place);
    }
    answer
}

fn first(mad: &Mad) -> &[u8; MadHeader::LEN] {
    const { assert!(MadHeader::LEN <= MAD_LEN) };
    mad.first_chunk().expect("a MAD is longer than its header")
}

#[cfg(test)]
mod tests;
