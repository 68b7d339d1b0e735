//! What `ucmatose` and `udaddy` exchange over one connection: a number of messages one way, then as
//! many the other way.
//!
//! All receives are posted before anybody may send. Messages over an RC connection are SENDs;
//! datagrams carry the sender's QPN as immediate data, which is how the stock tool's server learns
//! whom to answer. The stock tools do not look at the bytes; two ends of ours do.

use super::PATIENCE;
use super::completions::Completions;
use crate::error::{BenchError, Step};
use uroce::{
    AccessFlags, AddressHandle, Context, GRH_LEN, ImmDt, MemoryRegion, ProtectionDomain, Qkey,
    QpCaps, QpInit, QpType, Qpn, QueuePair, RecvWr, SendWr,
};

/// Where datagrams go.
pub(super) struct Way {
    /// The peer's address.
    pub(super) handle: AddressHandle,
    /// The peer's queue pair.
    pub(super) qpn: Qpn,
    /// What opens it.
    pub(super) qkey: Qkey,
}

/// One end of a connection, or of a pair of queue pairs that exchange datagrams.
pub(super) struct Messages {
    qp: QueuePair,
    completions: Completions,
    /// What is sent, then what is received: all receives have the same place.
    region: MemoryRegion,
    size: usize,
    count: u32,
    /// Bytes that a receive has in front of the message.
    ahead: usize,
}

impl Messages {
    /// A queue pair that is to be connected, and its memory.
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

    /// The queue pair, to be connected.
    pub(super) fn qp(&mut self) -> &mut QueuePair {
        &mut self.qp
    }

    /// Posts the receives, once the queue pair is in INIT.
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

    /// Returns when all messages are acknowledged, or of datagrams sent; or when the connection has
    /// ended: a peer that has all of them may leave before its last acknowledgement has come.
    pub(super) fn wait_until_sent(&mut self) -> Result<(), BenchError> {
        self.completions.sent(u64::from(self.count), PATIENCE).map(|_| ())
    }

    /// Takes all messages of the peer; the QPN that the last one says it comes from, of datagrams.
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

/// What the peer did instead of going on.
const ENDED: &str = "it disconnected before the last message";
