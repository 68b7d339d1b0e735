//! Posts work requests and checks that each completes at most once.

use std::collections::HashSet;
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use uroce_fuzz::Input;

use super::model::{Kind, Model};
use crate::abi::*;
use crate::ibv::{modify, poll, post, srq};

/// Bytes of the memory that regions are registered in.
const MEMORY: usize = 1 << 16;
/// Largest number of work requests in one list.
const LIST: usize = 4;

/// The keys of a region. They are kept after the region was destroyed.
#[derive(Clone, Copy, Debug)]
struct Keys {
    lkey: u32,
    rkey: u32,
}

#[derive(Debug)]
pub(super) struct Traffic {
    memory: *mut u8,
    keys: Vec<Keys>,
    /// Numbers of XRC shared receive queues. They are kept after the queue was destroyed.
    queues: Vec<u32>,
    /// Numbers of the work requests that were posted and have not completed.
    outstanding: HashSet<u64>,
    posted: u64,
}

impl Default for Traffic {
    fn default() -> Traffic {
        // The memory is never freed, because regions may outlive the walk.
        static MEMORY_OF: OnceLock<usize> = OnceLock::new();
        let make =
            || Box::leak(vec![0; MEMORY].into_boxed_slice()).as_mut_ptr().expose_provenance();
        let memory = std::ptr::with_exposed_provenance_mut(*MEMORY_OF.get_or_init(make));
        let (keys, queues) = (Vec::new(), Vec::new());
        Traffic { memory, keys, queues, outstanding: HashSet::new(), posted: 0 }
    }
}

impl Traffic {
    /// Chooses a part of the memory, or NULL with a length.
    pub(super) fn memory(&self, input: &mut Input<'_>) -> (*mut c_void, usize) {
        let from = usize::from(input.u16()) % MEMORY;
        let len = usize::from(input.u16()) % (MEMORY - from);
        match input.below(16) {
            0 => (std::ptr::null_mut(), 4096),
            _ => (self.memory.wrapping_add(from).cast(), len),
        }
    }

    pub(super) fn note_region(&mut self, mr: *mut ibv_mr) {
        // SAFETY: `mr` is a live region that was just made.
        let (lkey, rkey) = unsafe { ((*mr).lkey, (*mr).rkey) };
        self.keys.push(Keys { lkey, rkey });
    }

    pub(super) fn note_queue(&mut self, srq: *mut ibv_srq) {
        let mut number = 0;
        // SAFETY: the queue was just made; `number` is a local.
        let code = unsafe { srq::get_srq_num(srq, &raw mut number) };
        assert!(code == 0 && number != 0 && !self.queues.contains(&number));
        self.queues.push(number);
    }

    /// A file by which XRC domains are opened.
    pub(super) fn file(&self) -> c_int {
        static FILE: OnceLock<File> = OnceLock::new();
        FILE.get_or_init(|| File::open("/").expect("a directory")).as_raw_fd()
    }

    /// Chooses a path: to our own address, to a group, or to an invalid one.
    pub(super) fn address(&self, input: &mut Input<'_>) -> ibv_ah_attr {
        // SAFETY: a C structure of numbers, for which zeros are valid.
        let mut attr: ibv_ah_attr = unsafe { std::mem::zeroed() };
        attr.is_global = input.pick(&[1, 1, 1, 0]);
        attr.port_num = input.pick(&[1, 1, 1, 0, 2]);
        attr.grh.sgid_index = input.pick(&[0, 0, 0, 1, 200]);
        attr.grh.hop_limit = 64;
        attr.grh.traffic_class = input.u8();
        attr.sl = input.pick(&[0, 0, 7, 8]);
        attr.static_rate = input.pick(&[0, 0, 2, 99]);
        attr.grh.dgid.raw = input.pick(&[own(), own(), own(), group(), [0; 16]]);
        attr
    }

    /// Chooses any values for the attributes of Modify QP, with paths from
    /// [`address`](Self::address).
    pub(super) fn attributes(&self, input: &mut Input<'_>) -> ibv_qp_attr {
        // SAFETY: a C structure of numbers, for which zeros are valid.
        let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
        attr.qp_state = u32::from(input.u8() % 9);
        attr.cur_qp_state = u32::from(input.u8() % 9);
        attr.path_mtu = u32::from(input.u8() % 8);
        attr.path_mig_state = u32::from(input.u8() % 4);
        attr.qkey = input.u32();
        attr.rq_psn = input.u32();
        attr.sq_psn = input.u32();
        attr.dest_qp_num = input.u32();
        attr.qp_access_flags = input.u32();
        attr.ah_attr = self.address(input);
        attr.alt_ah_attr = self.address(input);
        attr.pkey_index = u16::from(input.u8() % 3);
        attr.port_num = input.u8() % 3;
        attr.timeout = input.u8() % 40;
        attr.retry_cnt = input.u8() % 10;
        attr.rnr_retry = input.u8() % 10;
        attr.min_rnr_timer = input.u8() % 40;
        attr.max_rd_atomic = input.u8();
        attr.max_dest_rd_atomic = input.u8();
        attr.cap.max_send_wr = input.u32();
        attr
    }

    /// Modifies two queue pairs to RTS, connected to each other, as far as their states allow.
    pub(super) fn connect(&self, model: &Model, input: &mut Input<'_>) {
        let pair = [model.own(Kind::Qp, input), model.own(Kind::Qp, input)];
        let [Some(_), Some(_)] = pair.map(|qp| qp.thing) else { return };
        for (own, peer) in [(pair[0], pair[1]), (pair[1], pair[0])] {
            let (own, peer) = (own.pointer.cast::<ibv_qp>(), peer.pointer.cast::<ibv_qp>());
            // SAFETY: both queue pairs are live.
            let (kind, peer_qpn) = unsafe { ((*own).qp_type, (*peer).qp_num) };
            for (mask, attr) in steps(kind, peer_qpn) {
                let mut attr = attr;
                // SAFETY: `own` is a live queue pair, and `attr` is a local.
                unsafe { modify::ibv_modify_qp(own, &raw mut attr, mask.cast_signed()) };
            }
        }
    }

    fn sge(&self, input: &mut Input<'_>) -> ibv_sge {
        let keys = self.key(input);
        let addr = self.memory.addr() as u64 + u64::from(input.u16());
        let length = input.pick(&[8, 8, 64, 4000, 0, u32::MAX, 1 << 31]);
        ibv_sge { addr, length, lkey: keys.lkey }
    }

    fn key(&self, input: &mut Input<'_>) -> Keys {
        match self.keys.len() {
            0 => Keys { lkey: input.u32(), rkey: input.u32() },
            count => self.keys[usize::from(input.u8()) % count],
        }
    }

    pub(super) fn post_send(&mut self, model: &Model, input: &mut Input<'_>) {
        let qp = model.own(Kind::Qp, input);
        let mut sges = [0; LIST].map(|_| self.sge(input));
        // SAFETY: C structures of numbers and of pointers that may be NULL, for which zeros are
        // valid.
        let mut list: [ibv_send_wr; LIST] = unsafe { std::mem::zeroed() };
        let count = 1 + input.below(LIST);
        for (at, wr) in list[..count].iter_mut().enumerate() {
            wr.wr_id = self.posted + at as u64;
            wr.sg_list = input.pick(&[sges.as_mut_ptr(), sges.as_mut_ptr(), std::ptr::null_mut()]);
            let counts: &[c_int] =
                if wr.sg_list.is_null() { &[0, 1] } else { &[1, 1, 2, 4, 0, -1] };
            wr.num_sge = input.pick(counts);
            wr.opcode = u32::from(input.u8() % 16);
            wr.send_flags = u32::from(input.u8() % 64);
            let (rkey, remote_addr) = (self.key(input).rkey, self.memory.addr() as u64);
            wr.wr.atomic.remote_addr = remote_addr + u64::from(input.u16());
            wr.wr.atomic.rkey = rkey;
            if input.below(3) == 0 {
                let ah = model.own(Kind::Ah, input).pointer.cast();
                wr.wr.ud = ibv_send_wr__bindgen_ty_2__bindgen_ty_3 {
                    ah,
                    remote_qpn: input.u32(),
                    remote_qkey: 0x1111_1111,
                };
            } else if wr.opcode == IBV_WR_BIND_MW {
                // The call would follow the pointer to the window.
                wr.opcode = IBV_WR_SEND;
            }
            if is_of(IBV_QPT_UD, qp.pointer.cast(), qp.thing.is_some()) {
                let ah = model.own(Kind::Ah, input).pointer.cast();
                wr.wr.ud = ibv_send_wr__bindgen_ty_2__bindgen_ty_3 {
                    ah,
                    remote_qpn: input.u32(),
                    remote_qkey: 0x1111_1111,
                };
            }
            if is_of(IBV_QPT_XRC_SEND, qp.pointer.cast(), qp.thing.is_some()) {
                let queues = self.queues.len();
                let chosen = usize::from(input.u8()) % (queues + 1);
                wr.qp_type.xrc.remote_srqn = self.queues.get(chosen).copied().unwrap_or(0);
            }
            wr.opcode = if wr.opcode == IBV_WR_BIND_MW { IBV_WR_SEND } else { wr.opcode };
        }
        link(&mut list[..count]);
        let mut bad: *mut ibv_send_wr = std::ptr::null_mut();
        // SAFETY: the queue pair is one of ours, live or destroyed, or NULL. The list is a local;
        // its elements may name memory that is not registered.
        let code = unsafe { post::post_send(qp.pointer.cast(), list.as_mut_ptr(), &raw mut bad) };
        let accepted = accepted(code, qp.thing.is_some(), list.as_ptr().addr(), bad.addr(), count);
        self.note(accepted / size_of::<ibv_send_wr>(), count, code);
    }

    pub(super) fn post_recv(&mut self, model: &Model, input: &mut Input<'_>) {
        let qp = model.own(Kind::Qp, input);
        self.post_receives(input, qp.thing.is_some(), |list, bad| {
            // SAFETY: the queue pair is one of ours, live or destroyed, or NULL. The list is a
            // local.
            unsafe { post::post_recv(qp.pointer.cast(), list, bad) }
        });
    }

    pub(super) fn post_srq_recv(&mut self, model: &Model, input: &mut Input<'_>) {
        let srq = model.own(Kind::Srq, input);
        self.post_receives(input, srq.thing.is_some(), |list, bad| {
            // SAFETY: the queue is one of ours, live or destroyed, or NULL. The list is a local.
            unsafe { post::post_srq_recv(srq.pointer.cast(), list, bad) }
        });
    }

    fn post_receives(
        &mut self,
        input: &mut Input<'_>,
        is_live: bool,
        post: impl Fn(*mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
    ) {
        let mut sges = [0; LIST].map(|_| self.sge(input));
        // SAFETY: C structures of numbers and of pointers that may be NULL, for which zeros are
        // valid.
        let mut list: [ibv_recv_wr; LIST] = unsafe { std::mem::zeroed() };
        let count = 1 + input.below(LIST);
        for (at, wr) in list[..count].iter_mut().enumerate() {
            wr.wr_id = self.posted + at as u64;
            wr.sg_list = sges.as_mut_ptr();
            wr.num_sge = input.pick(&[1, 1, 2, 4, 0, -1]);
        }
        for at in 1..count {
            list[at - 1].next = &raw mut list[at];
        }
        let mut bad: *mut ibv_recv_wr = std::ptr::null_mut();
        let code = post(list.as_mut_ptr(), &raw mut bad);
        let accepted = accepted(code, is_live, list.as_ptr().addr(), bad.addr(), count);
        self.note(accepted / size_of::<ibv_recv_wr>(), count, code);
    }

    /// Records that the first `accepted` requests of a list were posted, or all if `code` is 0.
    fn note(&mut self, accepted: usize, count: usize, code: c_int) {
        let accepted = if code == 0 { count } else { accepted };
        self.outstanding.extend(self.posted..self.posted + accepted as u64);
        self.posted += count as u64;
    }

    pub(super) fn poll(&mut self, model: &Model, input: &mut Input<'_>) {
        let cq = model.own(Kind::Cq, input);
        // SAFETY: C structures of numbers, for which zeros are valid.
        let mut places: [ibv_wc; 8] = unsafe { std::mem::zeroed() };
        let room = input.pick(&[8, 8, 1, 0, -1]);
        // SAFETY: the queue is one of ours, live or destroyed, or NULL. `room` is at most the
        // number of places.
        let count = unsafe { poll::poll_cq(cq.pointer.cast(), room, places.as_mut_ptr()) };
        assert!(count <= room.max(0) && (count <= 0 || cq.thing.is_some()));
        for wc in places.iter().take(usize::try_from(count).unwrap_or(0)) {
            assert!(self.outstanding.remove(&wc.wr_id), "completed, not outstanding: {}", wc.wr_id);
            input.reach(100 + wc.status, wc.opcode);
        }
    }
}

/// Offset in bytes at which the call stopped in a list. Panics if it is not in the list.
fn accepted(code: c_int, is_live: bool, list: usize, bad: usize, count: usize) -> usize {
    assert!(code >= 0 && (code > 0 || is_live));
    if code == 0 || bad == 0 {
        return 0;
    }
    let at = bad.checked_sub(list).expect("the bad one is of the list");
    assert!(at < count * size_of::<ibv_send_wr>());
    at
}

fn link(list: &mut [ibv_send_wr]) {
    for at in 1..list.len() {
        list[at - 1].next = &raw mut list[at];
    }
}

pub(super) fn is_of(kind: ibv_qp_type, qp: *const ibv_qp, is_live: bool) -> bool {
    // SAFETY: the queue pair is live, so its structure is ours.
    is_live && unsafe { (*qp).qp_type } == kind
}

/// The GID of 192.0.2.1.
fn own() -> [u8; 16] {
    std::net::Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped().octets()
}

/// The GID of 239.1.1.1.
fn group() -> [u8; 16] {
    std::net::Ipv4Addr::new(239, 1, 1, 1).to_ipv6_mapped().octets()
}

/// The attributes and masks that take a queue pair from RESET to RTS.
fn steps(kind: ibv_qp_type, peer: u32) -> [(u32, ibv_qp_attr); 3] {
    // SAFETY: a C structure of numbers, for which zeros are valid.
    let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
    attr.port_num = 1;
    attr.qkey = 0x1111_1111;
    attr.qp_access_flags = 0xf;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer;
    attr.max_dest_rd_atomic = 4;
    attr.max_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.timeout = 8;
    attr.retry_cnt = 2;
    attr.rnr_retry = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid.raw = own();
    attr.ah_attr.grh.hop_limit = 64;
    let ud = kind == IBV_QPT_UD;
    // Each end of XRC may be given all of RC's attributes.
    let rc = matches!(kind, IBV_QPT_RC | IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV);
    let either = |of_ud: u32, of_others: u32| if ud { of_ud } else { of_others };
    let state = |mut attr: ibv_qp_attr, state| {
        attr.qp_state = state;
        attr
    };
    if kind == IBV_QPT_RAW_PACKET {
        let masks = [IBV_QP_STATE | IBV_QP_PORT, IBV_QP_STATE, IBV_QP_STATE];
        let states = [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS];
        return std::array::from_fn(|at| (masks[at], state(attr, states[at])));
    }
    let init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    let connected = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    let responder = if rc { IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER } else { 0 };
    let retries = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    [
        (init | either(IBV_QP_QKEY, IBV_QP_ACCESS_FLAGS), state(attr, IBV_QPS_INIT)),
        (IBV_QP_STATE | either(0, connected | responder), state(attr, IBV_QPS_RTR)),
        (IBV_QP_STATE | IBV_QP_SQ_PSN | if rc { retries } else { 0 }, state(attr, IBV_QPS_RTS)),
    ]
}
