//! Messages of `ucmatose` and `udaddy` over one connection: a number of messages one way, then the
//! same number the other way.
//!
//! All receives are posted before the peer may send. Over an RC connection messages are SENDs.
//! Datagrams carry the sender's QPN as immediate data, from which the stock program's server takes
//! the destination of its answers. The stock programs do not check the bytes; two ends of ours do.

use super::PATIENCE;
use super::completions::Completions;
use crate::error::{BenchError, Step};
use uroce::{
    AccessFlags, AddressHandle, Context, GRH_LEN, ImmDt, MemoryRegion, ProtectionDomain, Qkey,
    QpCaps, QpInit, QpType, Qpn, QueuePair, RecvWr, SendWr,
};

/// Destination of datagrams.
pub(super) struct Way {
    /// Address handle of the peer.
    pub(super) handle: AddressHandle,
    /// Queue pair of the peer.
    pub(super) qpn: Qpn,
    /// Q_Key of that queue pair.
    pub(super) qkey: Qkey,
}

/// One end of a connection, or of two queue pairs that exchange datagrams.
pub(super) struct Messages {
    qp: QueuePair,
    completions: Completions,
    /// Memory of the sent messages, followed by that of the received ones. All receives share it.
    region: MemoryRegion,
    size: usize,
    count: u32,
    /// Bytes in front of a received message.
    ahead: usize,
}

impl Messages {
    /// Creates a queue pair, to be connected, and its memory.
    pub(super) fn new(
        context: &Context,
        pd: &ProtectionDomain,
        qp_type: QpType,
        count: u32,
        size: u32,
    ) -> Result<Self, BenchError> {
        let size = size as usize;
        let ahead = if qp_type == QpType::Ud { GRH_LEN } else { 0 };
        let room = 2 * size + ahead;
        let region = pd.allocate(room, AccessFlags::LOCAL_WRITE).step("registering memory")?;
        let depth = count.max(1);
        let cq = context.create_cq(2 * depth).step("creating a CQ")?;
        let caps = QpCaps {
            max_send_wr: depth,
            max_recv_wr: depth,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let init = QpInit { caps, ..QpInit::new(&cq).qp_type(qp_type) };
        let qp = pd.create_qp(&init).step("creating a QP")?;
        Ok(Self { qp, completions: Completions::of(cq), region, size, count, ahead })
    }

    /// Returns the queue pair, to be connected.
    pub(super) fn qp(&mut self) -> &mut QueuePair {
        &mut self.qp
    }

    /// Posts the receives. Called when the queue pair is in INIT.
    pub(super) fn post_receives(&mut self) -> Result<(), BenchError> {
        let place = [self.region.slice(self.size..).step("a slice of memory")?];
        for _ in 0..self.count {
            self.qp.post_recv(&RecvWr::new(&place)).step("posting a receive request")?;
        }
        Ok(())
    }

    /// Posts all messages over the connection, or as datagrams.
    pub(super) fn send(&mut self, way: Option<&Way>) -> Result<(), BenchError> {
        let pattern: Vec<u8> = (0..=u8::MAX).cycle().take(self.size).collect();
        self.region.write_at(0, &pattern).step("filling memory")?;
        let local = [self.region.slice(..self.size).step("a slice of memory")?];
        let ours = ImmDt(self.qp.qpn().value());
        for _ in 0..self.count {
            let message = match way {
                None => SendWr::send(&local),
                Some(way) => SendWr::send_to_with_imm(&local, &way.handle, way.qpn, way.qkey, ours),
            };
            self.qp.post_send(&message.signaled()).step("posting")?;
        }
        Ok(())
    }

    /// Waits until all messages are acknowledged (datagrams: sent), or the connection has ended. A
    /// peer that has all messages may end it before its last acknowledgement arrives.
    pub(super) fn wait_until_sent(&mut self) -> Result<(), BenchError> {
        self.completions.sent(u64::from(self.count), PATIENCE).map(|_| ())
    }

    /// Receives all messages of the peer. Returns the QPN from which the last datagram came.
    pub(super) fn receive(&mut self) -> Result<Option<Qpn>, BenchError> {
        let mut from = None;
        for number in 0..self.count {
            let Some(message) = self.completions.receive(PATIENCE)? else {
                return Err(BenchError::Peer(ENDED.to_owned()));
            };
            if message.byte_len as usize != self.ahead + self.size {
                let (len, wanted) = (message.byte_len as usize - self.ahead, self.size);
                let what = format!("message {number} has {len} bytes instead of {wanted}");
                return Err(BenchError::Corrupt(what));
            }
            if self.ahead > 0 {
                let said = message.imm.map(|imm| imm.0);
                if said != Some(message.src_qpn.value()) {
                    let sender = message.src_qpn.value();
                    let what = format!("QP {sender:#x} says in its message that it is {said:x?}");
                    return Err(BenchError::Corrupt(what));
                }
                from = Some(message.src_qpn);
            }
        }
        Ok(from)
    }
}

/// Error text: the peer has disconnected early.
const ENDED: &str = "it disconnected before the last message";
