//! One end's queue pair, its memory and its way to the other end.

use super::{Setting, Word};
use crate::error::{BenchError, Step};
use crate::node::{Node, PORT};
use crate::perf::plan::Service;
use crate::rendezvous::{Link, pause};
use serde::{Deserialize, Serialize};
use uroce::{
    AccessFlags, AddressHandle, AddressVector, CompletionQueue, ConnectOptions, Endpoint, GRH_LEN,
    Gid, MemoryRegion, MemorySlice, PathMtu, ProtectionDomain, Psn, Qkey, QpCaps, QpInit, Qpn,
    QueuePair, SendWr, WorkCompletion,
};

/// Q_Key of datagrams.
const QKEY: Qkey = Qkey(0x1111_1111);
/// Completions polled at once.
pub(super) const POLL_BATCH: usize = 64;

/// Queue pair of an end.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct End {
    gid: [u8; 16],
    qpn: u32,
    psn: u32,
}

/// Connected queue pair of one end.
pub(super) struct Wire {
    pub(super) qp: QueuePair,
    pub(super) send_cq: CompletionQueue,
    pub(super) recv_cq: CompletionQueue,
    pub(super) memory: MemoryRegion,
    /// Destination of datagrams.
    way: Option<(AddressHandle, Qpn)>,
    _pd: ProtectionDomain,
}

impl Wire {
    /// Creates the queue pair and connects it with the other end's, which does the same.
    pub(super) fn connect(
        node: &Node,
        link: &mut Link,
        setting: &Setting,
    ) -> Result<Self, BenchError> {
        let mut wire = Self::create(node, setting)?;
        let ours = wire.qp.endpoint(PORT, node.gid_index).step("our address")?;
        let end = End { gid: ours.gid.0, qpn: ours.qpn.value(), psn: ours.psn.value() };
        link.send(&Word::End(end))?;
        let theirs = match link.receive("waiting for the other end's queue pair", pause)? {
            Word::End(end) => end,
            _ => return Err(out_of_step()),
        };
        let options = ConnectOptions {
            sgid_index: node.gid_index,
            path_mtu: PathMtu::from_bytes(setting.mtu),
            ..ConnectOptions::default()
        };
        let (gid, qpn) = (Gid(theirs.gid), Qpn::new(theirs.qpn));
        if setting.service == Service::Ud {
            wire.qp.start_datagrams(QKEY, &options).step("starting")?;
            let path = AddressVector { sgid_index: node.gid_index, ..AddressVector::to(gid) };
            let handle = wire._pd.create_ah(PORT, &path).step("making an address handle")?;
            wire.way = Some((handle, qpn));
        } else {
            let end = Endpoint { gid, qpn, psn: Psn::new(theirs.psn) };
            wire.qp.connect(&end, &options).step("connecting")?;
        }
        // Neither end sends before the other is connected.
        link.send(&Word::Ready)?;
        match link.receive("waiting for the other end to connect", pause)? {
            Word::Ready => Ok(wire),
            _ => Err(out_of_step()),
        }
    }

    fn create(node: &Node, setting: &Setting) -> Result<Self, BenchError> {
        let pd = node.context.allocate_pd();
        let (depth, rx_depth) = (setting.depth(), setting.rx_depth);
        let send_cq = node.context.create_cq(depth).step("creating a CQ")?;
        let recv_cq = node.context.create_cq(rx_depth).step("creating a CQ")?;
        let caps = QpCaps {
            max_send_wr: depth,
            max_recv_wr: rx_depth,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let init = QpInit { recv_cq: &recv_cq, caps, ..QpInit::new(&send_cq) };
        let init = init.qp_type(setting.service.qp_type());
        let qp = pd.create_qp(&init).step("creating a QP")?;
        let memory = pd.allocate(GRH_LEN + setting.longest() as usize, AccessFlags::all());
        let memory = memory.step("registering memory")?;
        memory.fill(.., 0xa5).step("filling memory")?;
        Ok(Self { qp, send_cq, recv_cq, memory, way: None, _pd: pd })
    }
}

/// Returns the work request of a message.
#[inline]
pub(super) fn request<'a>(
    way: &'a Option<(AddressHandle, Qpn)>,
    local: &'a [MemorySlice<'a>; 1],
) -> SendWr<'a> {
    match way {
        None => SendWr::send(local),
        Some((handle, qpn)) => SendWr::send_to(local, handle, *qpn, QKEY),
    }
}

/// Parts of a wire that are used at the same time.
pub(super) struct Parts<'a> {
    pub(super) qp: &'a mut QueuePair,
    pub(super) memory: &'a MemoryRegion,
    pub(super) send_cq: &'a CompletionQueue,
    pub(super) way: &'a Option<(AddressHandle, Qpn)>,
}

impl Wire {
    /// Returns the parts.
    pub(super) fn parts(&mut self) -> Parts<'_> {
        let Self { qp, send_cq, memory, way, .. } = self;
        Parts { qp, memory, send_cq, way }
    }
}

/// Polls completions. The first with an error is returned as the error.
#[inline]
pub(super) fn poll<'a>(
    cq: &CompletionQueue,
    completions: &'a mut [WorkCompletion],
) -> Result<&'a [WorkCompletion], BenchError> {
    let count = cq.poll(completions).step("polling a CQ")?;
    let polled = &completions[..count];
    for completion in polled {
        let failed = |status| BenchError::Completion { operation: "SEND", status };
        completion.ok().map_err(failed)?;
    }
    Ok(polled)
}

/// Returns the error of an end that sends what is not due.
pub(super) fn out_of_step() -> BenchError {
    BenchError::Peer("it sent an unexpected message".to_owned())
}
