//! One walk: makes the calls that the input selects, then destroys everything.

use std::ffi::c_int;

use uroce_fuzz::Input;

use super::model::{Handle, Kind, Model};
use super::traffic::{Traffic, is_of};
use crate::abi::*;
use crate::handle::Object;
use crate::ibv::{
    ah, channel, cq, device, flow, gid, modify, mr, mw, pd, poll, port, qp, srq, xrcd,
};
use crate::objects;

/// Largest number of calls in a walk.
const STEPS: usize = 400;
/// Largest number of objects in a walk.
const OBJECTS: usize = 100;

pub(super) fn walk(input: &mut Input<'_>) {
    let mut walk = Walk { model: Model::default(), traffic: Traffic::default() };
    walk.open();
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let what = input.u8();
        input.reach(u32::from(what % 32), walk.model.len() as u32);
        walk.step(what, input);
    }
    walk.end();
}

struct Walk {
    model: Model,
    traffic: Traffic,
}

impl Walk {
    fn step(&mut self, what: u8, input: &mut Input<'_>) {
        let makes = matches!(what % 32, 0..12 | 30..);
        if self.model.len() >= OBJECTS && makes {
            return;
        }
        match what % 32 {
            0 => self.open(),
            1 | 2 => self.alloc_pd(input),
            3 => self.reg_mr(input),
            4 => self.alloc_mw(input),
            5 | 6 => self.create_cq(input),
            7 => self.create_srq(input),
            8 => self.create_channel(input),
            9 => self.create_ah(input),
            10 | 11 => self.create_qp(input),
            12..16 => self.traffic.connect(&self.model, input),
            16 | 17 => self.traffic.post_recv(&self.model, input),
            18 => self.traffic.post_srq_recv(&self.model, input),
            19..23 => self.traffic.post_send(&self.model, input),
            23..26 => self.traffic.poll(&self.model, input),
            26 => self.modify(input),
            27 => self.change(input),
            28 => self.query(input),
            30 => self.open_xrcd(input),
            31 => match input.below(6) {
                0 => self.create_xrc_srq(input),
                1 => self.open_qp(input),
                2 | 3 => self.create_target(input),
                _ => self.create_flow(input),
            },
            _ => {
                let kind = input.pick(&Kind::ALL);
                let handle = self.model.any(kind, input);
                self.destroy(kind, handle);
            }
        }
    }

    fn open(&mut self) {
        let mut count: c_int = 0;
        // SAFETY: `count` is a local. The list is freed below.
        let list = unsafe { device::ibv_get_device_list(&raw mut count) };
        assert!(!list.is_null() && count == 1);
        // SAFETY: the list has one device.
        let device = unsafe { *list };
        // SAFETY: `device` comes from the list.
        let context = unsafe { device::ibv_open_device(device) };
        assert!(!context.is_null());
        self.model.made(Kind::Context, context, &[]);
        // SAFETY: the list comes from the call above and is freed once.
        unsafe { device::ibv_free_device_list(list) };
    }

    fn alloc_pd(&mut self, input: &mut Input<'_>) {
        let context = self.model.any(Kind::Context, input);
        // SAFETY: any handle is allowed.
        let pd = unsafe { pd::ibv_alloc_pd(context.pointer.cast()) };
        let made = self.model.made(Kind::Pd, pd, &[context]);
        assert_eq!(made, context.thing.is_some());
    }

    fn reg_mr(&mut self, input: &mut Input<'_>) {
        let pd = self.model.any(Kind::Pd, input);
        let (addr, len) = self.traffic.memory(input);
        let access = c_int::from(input.u8());
        // SAFETY: any handle is allowed. The memory is never freed, or the address is NULL.
        let mr = unsafe { mr::ibv_reg_mr(pd.pointer.cast(), addr, len, access) };
        if self.model.made(Kind::Mr, mr, &[pd]) {
            assert!(!addr.is_null(), "a region where no memory is");
            self.traffic.note_region(mr);
        }
    }

    fn alloc_mw(&mut self, input: &mut Input<'_>) {
        let pd = self.model.any(Kind::Pd, input);
        let kind = u32::from(input.u8() % 4);
        // SAFETY: any handle is allowed.
        let mw = unsafe { mw::alloc_mw(pd.pointer.cast(), kind) };
        self.model.made(Kind::Mw, mw, &[pd]);
    }

    fn create_channel(&mut self, input: &mut Input<'_>) {
        let context = self.model.any(Kind::Context, input);
        // SAFETY: any handle is allowed.
        let channel = unsafe { channel::ibv_create_comp_channel(context.pointer.cast()) };
        let made = self.model.made(Kind::Channel, channel, &[context]);
        assert_eq!(made, context.thing.is_some());
    }

    fn create_cq(&mut self, input: &mut Input<'_>) {
        let context = self.model.any(Kind::Context, input);
        let channel = match input.below(3) {
            0 => Some(self.model.any(Kind::Channel, input)),
            _ => None,
        };
        let cqe = input.pick(&[256, 1, 0, -1, c_int::MAX, 16]);
        let vector = input.pick(&[0, 0, 0, 0, 1, -1]);
        let pointer = channel.map_or(std::ptr::null_mut(), |channel| channel.pointer);
        // SAFETY: any handle is allowed.
        let cq = unsafe {
            cq::ibv_create_cq(
                context.pointer.cast(),
                cqe,
                std::ptr::null_mut(),
                pointer.cast(),
                vector,
            )
        };
        let channel = channel.filter(|channel| !channel.pointer.is_null());
        let of: Vec<Handle> = [context].into_iter().chain(channel).collect();
        if self.model.made(Kind::Cq, cq, &of) {
            assert!(cqe > 0 && vector == 0);
        }
    }

    fn create_srq(&mut self, input: &mut Input<'_>) {
        let pd = self.model.any(Kind::Pd, input);
        let attr = ibv_srq_attr {
            max_wr: input.pick(&[64, 1, 0, u32::MAX]),
            max_sge: input.pick(&[2, 1, 0, u32::MAX]),
            srq_limit: 0,
        };
        let mut init = ibv_srq_init_attr { srq_context: std::ptr::null_mut(), attr };
        // SAFETY: any handle is allowed; `init` is a local.
        let srq = unsafe { srq::ibv_create_srq(pd.pointer.cast(), &raw mut init) };
        self.model.made(Kind::Srq, srq, &[pd]);
    }

    fn create_ah(&mut self, input: &mut Input<'_>) {
        let pd = self.model.any(Kind::Pd, input);
        let mut attr = self.traffic.address(input);
        // SAFETY: any handle is allowed; `attr` is a local.
        let ah = unsafe { ah::ibv_create_ah(pd.pointer.cast(), &raw mut attr) };
        self.model.made(Kind::Ah, ah, &[pd]);
    }

    fn create_qp(&mut self, input: &mut Input<'_>) {
        let pd = self.model.any(Kind::Pd, input);
        let send_cq = self.model.any(Kind::Cq, input);
        let recv_cq = self.model.any(Kind::Cq, input);
        let srq = (input.below(4) == 0).then(|| self.model.any(Kind::Srq, input));
        // SAFETY: a C structure of numbers and of pointers that may be NULL, for which zeros are
        // valid.
        let mut init: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        init.send_cq = send_cq.pointer.cast();
        init.recv_cq = recv_cq.pointer.cast();
        init.srq = srq.map_or(std::ptr::null_mut(), |srq| srq.pointer).cast();
        init.cap.max_send_wr = input.pick(&[32, 32, 1, 0, u32::MAX]);
        init.cap.max_recv_wr = input.pick(&[32, 32, 1, 0, u32::MAX]);
        init.cap.max_send_sge = input.pick(&[2, 2, 1, 0, u32::MAX]);
        init.cap.max_recv_sge = input.pick(&[2, 2, 1, 0, u32::MAX]);
        init.cap.max_inline_data = input.pick(&[0, 64, 1024, u32::MAX]);
        let asked = init.cap;
        init.qp_type = input.pick(&[
            IBV_QPT_RC,
            IBV_QPT_RC,
            IBV_QPT_UC,
            IBV_QPT_UD,
            IBV_QPT_RAW_PACKET,
            IBV_QPT_XRC_SEND,
            99,
        ]);
        init.sq_sig_all = c_int::from(input.u8() % 2);
        // SAFETY: any handle is allowed; `init` is a local.
        let qp = unsafe { qp::ibv_create_qp(pd.pointer.cast(), &raw mut init) };
        let srq = srq.filter(|srq| !srq.pointer.is_null());
        // An initiator receives nothing.
        let receives = [recv_cq].into_iter().chain(srq);
        let receives = receives.filter(|_| init.qp_type != IBV_QPT_XRC_SEND);
        let of: Vec<Handle> = [pd, send_cq].into_iter().chain(receives).collect();
        if self.model.made(Kind::Qp, qp, &of) {
            check_sizes(&asked, &init.cap);
        }
    }

    /// Opens an XRC domain: one of its own, or one by a file, which may be opened already.
    fn open_xrcd(&mut self, input: &mut Input<'_>) {
        let context = self.model.any(Kind::Context, input);
        let mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        let mut attr = ibv_xrcd_init_attr {
            comp_mask: input.pick(&[mask, mask, mask, mask, IBV_XRCD_INIT_ATTR_FD, u32::MAX]),
            fd: input.pick(&[-1, self.traffic.file(), self.traffic.file(), -2, c_int::MAX]),
            oflags: input.pick(&[libc::O_CREAT, 0, libc::O_CREAT | libc::O_EXCL, c_int::MAX]),
        };
        // SAFETY: any handle is allowed; `attr` is a local.
        let xrcd = unsafe { xrcd::open_xrcd(context.pointer.cast(), &raw mut attr) };
        if self.model.made(Kind::Xrcd, xrcd, &[context]) {
            assert!(attr.comp_mask == mask && (attr.fd == -1 || attr.fd == self.traffic.file()));
        }
    }

    fn create_xrc_srq(&mut self, input: &mut Input<'_>) {
        let [context, pd, xrcd, cq] =
            [Kind::Context, Kind::Pd, Kind::Xrcd, Kind::Cq].map(|kind| self.model.any(kind, input));
        // SAFETY: a C structure of numbers and of pointers that may be NULL, for which zeros are
        // valid.
        let mut init: ibv_srq_init_attr_ex = unsafe { std::mem::zeroed() };
        init.attr.max_wr = input.pick(&[64, 1, 0, u32::MAX]);
        init.attr.max_sge = input.pick(&[2, 1, 0]);
        init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE
            | IBV_SRQ_INIT_ATTR_PD
            | IBV_SRQ_INIT_ATTR_XRCD
            | IBV_SRQ_INIT_ATTR_CQ;
        init.srq_type = IBV_SRQT_XRC;
        init.pd = pd.pointer.cast();
        init.xrcd = xrcd.pointer.cast();
        init.cq = cq.pointer.cast();
        // SAFETY: any handle is allowed; `init` is a local.
        let srq = unsafe { srq::create_srq_ex(context.pointer.cast(), &raw mut init) };
        if self.model.made(Kind::Srq, srq, &[pd, xrcd, cq]) {
            self.traffic.note_queue(srq);
        }
    }

    fn create_target(&mut self, input: &mut Input<'_>) {
        let [context, xrcd] = [Kind::Context, Kind::Xrcd].map(|kind| self.model.any(kind, input));
        // SAFETY: a C structure of numbers and of pointers that may be NULL, for which zeros are
        // valid.
        let mut init: ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
        init.qp_type = IBV_QPT_XRC_RECV;
        init.comp_mask = input.pick(&[IBV_QP_INIT_ATTR_XRCD, IBV_QP_INIT_ATTR_XRCD, 0]);
        init.xrcd = xrcd.pointer.cast();
        // SAFETY: any handle is allowed; `init` is a local.
        let qp = unsafe { qp::create_qp_ex(context.pointer.cast(), &raw mut init) };
        self.model.made(Kind::Qp, qp, &[xrcd]);
    }

    /// Opens an XRC target again by its number. Each handle is an object of its own.
    fn open_qp(&mut self, input: &mut Input<'_>) {
        let [context, xrcd] = [Kind::Context, Kind::Xrcd].map(|kind| self.model.any(kind, input));
        let target = self.model.own(Kind::Qp, input);
        let qp_num = match target.thing {
            // SAFETY: the queue pair is live, so its structure is ours.
            Some(_) => unsafe { (*target.pointer.cast::<ibv_qp>()).qp_num },
            None => input.u32(),
        };
        let needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
        let mut attr = ibv_qp_open_attr {
            comp_mask: input.pick(&[needed, needed | IBV_QP_OPEN_ATTR_CONTEXT, needed, u32::MAX]),
            qp_num,
            xrcd: xrcd.pointer.cast(),
            qp_context: target.pointer,
            qp_type: input.pick(&[IBV_QPT_XRC_RECV, IBV_QPT_XRC_RECV, IBV_QPT_RC]),
        };
        // SAFETY: any handle is allowed; `attr` is a local.
        let qp = unsafe { xrcd::open_qp(context.pointer.cast(), &raw mut attr) };
        if self.model.made(Kind::Qp, qp, &[xrcd]) {
            assert!(target.thing.is_some() && qp.addr() != target.pointer.addr());
        }
    }

    /// Makes a flow: any attributes, and specifications of which one may have a wrong size.
    fn create_flow(&mut self, input: &mut Input<'_>) {
        const SPECS: [(u32, usize); 7] = [
            (IBV_FLOW_SPEC_ETH, size_of::<ibv_flow_spec_eth>()),
            (IBV_FLOW_SPEC_IPV4, size_of::<ibv_flow_spec_ipv4>()),
            (IBV_FLOW_SPEC_IPV4_EXT, size_of::<ibv_flow_spec_ipv4_ext>()),
            (IBV_FLOW_SPEC_IPV6, size_of::<ibv_flow_spec_ipv6>()),
            (IBV_FLOW_SPEC_UDP, size_of::<ibv_flow_spec_tcp_udp>()),
            (IBV_FLOW_SPEC_TCP, size_of::<ibv_flow_spec_tcp_udp>()),
            (IBV_FLOW_SPEC_GRE, size_of::<ibv_flow_spec_gre>()),
        ];
        /// Attributes with room for three specifications.
        #[repr(C)]
        struct Flow {
            attr: ibv_flow_attr,
            specs: [u8; 384],
        }
        let qp = self.model.any(Kind::Qp, input);
        // SAFETY: C structures of numbers, for which zeros are valid.
        let mut flow: Flow = unsafe { std::mem::zeroed() };
        flow.attr.comp_mask = input.pick(&[0, 0, 0, 0, 0, 1]);
        flow.attr.type_ = u32::from(input.u8() % 5);
        flow.attr.priority = input.pick(&[0, 1, 15, 16, u16::MAX]);
        flow.attr.port = input.pick(&[1, 1, 1, 1, 0, 2]);
        flow.attr.flags = input.pick(&[0, 0, 0, 0, 1, 2, 4]);
        let (count, mut at) = (input.below(4), 0);
        // With too many specifications none is read.
        flow.attr.num_of_specs = if input.below(32) == 0 { 11 } else { count as u8 };
        for _ in 0..count {
            let (kind, size) = input.pick(&SPECS);
            let said = size + usize::from(input.below(16) == 0);
            let place = &mut flow.specs[at..at + size];
            // Mostly zeros, as a mask of them fits every other layer.
            let is_any = input.below(4) > 0;
            place.iter_mut().for_each(|byte| *byte = if is_any { 0 } else { input.u8() });
            place[..4].copy_from_slice(&kind.to_ne_bytes());
            place[4..6].copy_from_slice(&(said as u16).to_ne_bytes());
            at += size;
        }
        // SAFETY: any handle is allowed; `flow` is a local. A specification that is not as long as
        // it says is the last that is read.
        let made = unsafe { flow::create_flow(qp.pointer.cast(), (&raw mut flow).cast()) };
        if self.model.made(Kind::Flow, made, &[qp]) {
            assert!(is_of(IBV_QPT_RAW_PACKET, qp.pointer.cast(), qp.thing.is_some()));
            assert!(flow.attr.port == 1 && flow.attr.priority < 16 && flow.attr.flags == 0);
        }
    }

    /// Calls Modify QP with any attributes. Afterwards Query QP must succeed.
    fn modify(&mut self, input: &mut Input<'_>) {
        let handle = self.model.any(Kind::Qp, input);
        let qp = handle.pointer.cast::<ibv_qp>();
        let mut attr = self.traffic.attributes(input);
        let mask = match input.below(4) {
            0 => IBV_QP_STATE.cast_signed(),
            1 => (IBV_QP_STATE | IBV_QP_CUR_STATE).cast_signed(),
            2 => input.u16().into(),
            _ => input.u32().cast_signed(),
        };
        // SAFETY: any handle is allowed; `attr` is a local.
        let code = unsafe { modify::ibv_modify_qp(qp, &raw mut attr, mask) };
        if handle.thing.is_none() {
            return assert_eq!(code, libc::EINVAL);
        }
        // SAFETY: a C structure of numbers and of pointers that may be NULL, for which zeros are
        // valid.
        let mut now: ibv_qp_attr = unsafe { std::mem::zeroed() };
        // SAFETY: a C structure of numbers and of pointers that may be NULL, for which zeros are
        // valid.
        let mut init: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        let state = IBV_QP_STATE as c_int;
        // SAFETY: the queue pair is live; `now` and `init` are locals.
        let code = unsafe { modify::ibv_query_qp(qp, &raw mut now, state, &raw mut init) };
        assert_eq!(code, 0);
    }

    /// Resizes a CQ, modifies an SRQ, and arms a CQ.
    fn change(&mut self, input: &mut Input<'_>) {
        let cq = self.model.any(Kind::Cq, input);
        let cqe = input.pick(&[1, 32, 512, 0, -1, c_int::MAX]);
        // SAFETY: any handle is allowed.
        let code = unsafe { cq::ibv_resize_cq(cq.pointer.cast(), cqe) };
        assert!(code != 0 || (cq.thing.is_some() && cqe > 0));
        let srq = self.model.any(Kind::Srq, input);
        let mut attr = ibv_srq_attr {
            max_wr: input.u32(),
            max_sge: input.u32(),
            srq_limit: input.pick(&[0, 1, 63, u32::MAX]),
        };
        let mask = input.pick(&[IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, 0, u32::MAX]) as c_int;
        // SAFETY: any handle is allowed; `attr` is a local.
        let code = unsafe { srq::ibv_modify_srq(srq.pointer.cast(), &raw mut attr, mask) };
        assert!(code != 0 || srq.thing.is_some());
        let cq = self.model.own(Kind::Cq, input);
        // SAFETY: the queue is one of ours, live or destroyed, or NULL.
        let code = unsafe { poll::req_notify_cq(cq.pointer.cast(), c_int::from(input.u8() % 2)) };
        assert_eq!(code == 0, cq.thing.is_some());
    }

    fn query(&mut self, input: &mut Input<'_>) {
        let handle = self.model.any(Kind::Context, input);
        let context = handle.pointer.cast::<ibv_context>();
        let number = input.pick(&[1, 1, 0, 2, 255]);
        let at = input.pick(&[0, 1, -1, 17, c_int::MAX]);
        let mut gid = ibv_gid { raw: [0; 16] };
        // SAFETY: any handle is allowed; `gid` is a local.
        let code = unsafe { gid::ibv_query_gid(context, number, at, &raw mut gid) };
        assert!(code == -1 || (code == 0 && handle.thing.is_some() && number == 1 && at >= 0));
        // SAFETY: a C structure of numbers, for which zeros are valid.
        let mut attr: ibv_port_attr = unsafe { std::mem::zeroed() };
        // SAFETY: any handle is allowed; `attr` is a local of the size that is passed.
        let code =
            unsafe { port::query_port(context, number, &raw mut attr, size_of::<ibv_port_attr>()) };
        assert_eq!(code == 0, handle.thing.is_some() && number == 1);
    }

    /// Destroys the object and compares the result with the model's.
    fn destroy(&mut self, kind: Kind, handle: Handle) {
        let pointer = handle.pointer;
        // SAFETY: any handle is allowed.
        let code = unsafe {
            match kind {
                Kind::Context => device::ibv_close_device(pointer.cast()),
                Kind::Pd => pd::ibv_dealloc_pd(pointer.cast()),
                Kind::Mr => mr::ibv_dereg_mr(pointer.cast()),
                Kind::Mw => mw::dealloc_mw(pointer.cast()),
                Kind::Channel => channel::ibv_destroy_comp_channel(pointer.cast()),
                Kind::Cq => cq::ibv_destroy_cq(pointer.cast()),
                Kind::Srq => srq::ibv_destroy_srq(pointer.cast()),
                Kind::Qp => qp::ibv_destroy_qp(pointer.cast()),
                Kind::Ah => ah::ibv_destroy_ah(pointer.cast()),
                Kind::Xrcd => xrcd::close_xrcd(pointer.cast()),
                Kind::Flow => flow::destroy_flow(pointer.cast()),
            }
        };
        assert_eq!(code, self.model.verdict(handle), "{kind:?} {handle:?}");
        if code == 0 {
            self.model.gone(handle);
        }
    }

    fn end(&mut self) {
        let order = [
            Kind::Flow,
            Kind::Qp,
            Kind::Srq,
            Kind::Xrcd,
            Kind::Ah,
            Kind::Mw,
            Kind::Mr,
            Kind::Cq,
            Kind::Channel,
            Kind::Pd,
            Kind::Context,
        ];
        for kind in order {
            for handle in self.model.live(kind) {
                self.destroy(kind, handle);
            }
        }
        assert_eq!(self.model.len(), 0);
        assert!(objects::qp::Qp::registry().all().is_empty());
        assert!(objects::cq::Cq::registry().all().is_empty());
        assert!(objects::xrcd::Xrcd::registry().all().is_empty());
        assert!(objects::flow::Flow::registry().all().is_empty());
        assert!(objects::context::Context::registry().all().is_empty());
    }
}

/// Checks the reported sizes of a new queue pair: at least what was asked for, and powers of two.
fn check_sizes(asked: &ibv_qp_cap, reported: &ibv_qp_cap) {
    assert!(reported.max_send_wr >= asked.max_send_wr && reported.max_send_wr.is_power_of_two());
    let recvs = reported.max_recv_wr;
    assert!(recvs == 0 || recvs >= asked.max_recv_wr && recvs.is_power_of_two());
    assert!(reported.max_inline_data >= asked.max_inline_data.max(64));
}
