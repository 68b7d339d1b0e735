//! Several senders of WRITEs through one shared link to one receiver.

use core::net::Ipv4Addr;
use core::time::Duration;

use uroce_sim::{At, Bottleneck, Settings, Step, World};
use uroce_transport::{
    AccessFlags, Congestion, Notification, Pd, QpCaps, QpChange, QpInit, QpType, RtrAttr, RtsAttr,
    SendOp, SendWr, Sge,
};
use uroce_wire::{Encap, Gid, Lkey, Mac, PathMtu, Psn, Rkey, Va, udp_source_port};

/// The receiver's node.
pub(crate) const RECEIVER: u16 = 0;

/// Length of each WRITE.
pub(crate) const MESSAGE: u32 = 64 << 10;

/// WRITEs that each sender keeps posted.
const DEPTH: u32 = 8;

const PD: Pd = Pd(1);

/// Rate of the shared link in Gb/s.
pub(crate) const GBPS: u64 = 100;

/// Length of the queue at which marking begins.
pub(crate) const KMIN: u64 = 100_000;

/// The shared link: marks between 100 and 300 kB, drops above 16 MB. A frame without a queue needs
/// 10 µs to the receiver and back.
pub(crate) const LINK: Bottleneck = Bottleneck {
    gbps: GBPS,
    capacity: 16_000_000,
    kmin: KMIN,
    kmax: 300_000,
    pmax: 0.2,
    latency: Duration::from_micros(2),
};

/// A sender: its QP, what it has completed, and whether it posts more.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) at: At,
    pub(crate) bytes: u64,
    posted: u32,
    lkey: Lkey,
    target: (Va, Rkey),
}

/// A world with senders at nodes 1, 2 and so on.
#[derive(Debug)]
pub(crate) struct Incast {
    pub(crate) world: World,
    pub(crate) senders: Vec<Sender>,
    /// Length of the shared link's queue, at equal times.
    pub(crate) queue: Vec<u64>,
}

fn gid(node: u16) -> Gid {
    Ipv4Addr::new(10, 0, 0, node as u8 + 1).into()
}

impl Incast {
    pub(crate) fn new(seed: u64) -> Incast {
        Incast::behind(LINK, seed)
    }

    /// Makes a world in which this link leads to the receiver.
    pub(crate) fn behind(link: Bottleneck, seed: u64) -> Incast {
        let latency = Duration::from_micros(4);
        let settings = Settings { seed, latency, gbps: GBPS, ..Settings::default() };
        let mut world = World::new(settings);
        world.add_node(gid(0), Mac([2, 0, 0, 0, 0, 1]));
        world.narrow(RECEIVER, link);
        Incast { world, senders: Vec::new(), queue: Vec::new() }
    }

    /// Adds a sender at a node of its own. It posts when it is [`started`](Incast::start).
    pub(crate) fn add(&mut self, congestion: Congestion) -> usize {
        let world = &mut self.world;
        let number = self.senders.len() as u16 + 1;
        world.add_node(gid(number), Mac([2, 0, 0, 0, 0, number as u8 + 1]));
        let caps = QpCaps {
            max_send_wr: 2 * DEPTH,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let notification = Notification::default();
        let init = QpInit { congestion, notification, ..QpInit::new(QpType::Rc, caps) };
        let ends = [number, RECEIVER];
        let ats = ends.map(|node| world.add_qp(node, 0x1000 + u32::from(number), PD, &init));
        world.join(ats[0], ats[1]);
        let qpns = ats.map(|at| world.qp(at).qpn());
        for side in [0, 1] {
            let [here, there] = [ends[side], ends[1 - side]];
            let path = Encap {
                src_mac: Mac([2, 0, 0, 0, 0, here as u8 + 1]),
                dst_mac: Mac([2, 0, 0, 0, 0, there as u8 + 1]),
                src: gid(here),
                dst: gid(there),
                hop_limit: 64,
                src_port: udp_source_port(0, qpns[side], qpns[1 - side]),
                ..Encap::default()
            };
            let rtr = RtrAttr {
                path_mtu: PathMtu::B4096,
                dest_qpn: qpns[1 - side],
                rq_psn: Psn::new(5),
                max_dest_rd_atomic: 1,
                min_rnr_timer: 12,
            };
            let sq_psn = Psn::new(5);
            let rts = RtsAttr { sq_psn, timeout: 14, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 1 };
            let changes = [
                QpChange { access: Some(AccessFlags::all()), ..QpChange::to_init(1) },
                QpChange { path: Some(path.into()), ..QpChange::to_rtr(QpType::Rc, &rtr) },
                QpChange::to_rts(QpType::Rc, &rts),
            ];
            for change in &changes {
                world.modify(ats[side], change).expect("a legal change");
            }
        }
        let mut register = |node| {
            let bytes = vec![0; MESSAGE as usize];
            let memory = &mut world.node_mut(node).memory;
            memory.register(PD, AccessFlags::all(), 0x10_0000, 7, bytes)
        };
        let [local, remote] = ends.map(&mut register);
        let (lkey, target) = (local.sge(0, MESSAGE).lkey, (remote.va(0), remote.rkey()));
        self.senders.push(Sender { at: ats[0], bytes: 0, posted: 0, lkey, target });
        self.senders.len() - 1
    }

    /// Lets a sender keep WRITEs posted from now on.
    pub(crate) fn start(&mut self, sender: usize) {
        (0..DEPTH).for_each(|_| self.post(sender));
    }

    fn post(&mut self, sender: usize) {
        let Sender { at, lkey, target: (va, rkey), posted, .. } = &mut self.senders[sender];
        *posted += 1;
        let op = SendOp::Write { va: *va, rkey: *rkey, imm: None };
        let wr = SendWr {
            wr_id: u64::from(*posted),
            op,
            signaled: true,
            solicited: false,
            fence: false,
            srqn: Default::default(),
        };
        let sge = Sge { va: Va(0x10_0000), len: MESSAGE, lkey: *lkey };
        self.world.post_send(*at, &wr, &[sge]).expect("room in the queue");
    }

    /// Runs for a span of virtual time, and notes the queue's length each microsecond.
    pub(crate) fn run_for(&mut self, span: Duration) {
        let end = self.world.now() + span;
        self.world.wake(end, 1);
        self.world.wake(self.world.now(), 0);
        let mut done = Vec::new();
        loop {
            match self.world.step() {
                Step::Wake(1) => return,
                Step::Wake(_) => {
                    self.queue.push(self.world.queued_bytes(RECEIVER));
                    self.world.wake(self.world.now() + Duration::from_micros(1), 0);
                }
                Step::Done => {}
                Step::Idle => unreachable!("the next alarm is set"),
            }
            self.world.take_completions(&mut done);
            for completed in done.drain(..) {
                let number = usize::from(completed.at.node) - 1;
                assert_eq!(completed.cqe.status, uroce_transport::WcStatus::Success);
                self.senders[number].bytes += u64::from(MESSAGE);
                self.post(number);
            }
        }
    }

    /// Runs for a span, and returns the bytes that each sender has completed in it.
    pub(crate) fn shares(&mut self, span: Duration) -> Vec<f64> {
        let before: Vec<u64> = self.senders.iter().map(|sender| sender.bytes).collect();
        self.queue.clear();
        self.run_for(span);
        let done = self.senders.iter().zip(before);
        done.map(|(sender, before)| (sender.bytes - before) as f64).collect()
    }

    /// Median of the noted queue lengths.
    pub(crate) fn median_queue(&self) -> u64 {
        let mut queue = self.queue.clone();
        queue.sort_unstable();
        queue[queue.len() / 2]
    }
}

/// Jain's index of fairness: 1 if all shares are equal, 1/n if one has all.
pub(crate) fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (shares.len() as f64 * squares)
}

/// Part of the link's rate that these bytes are, as payload of full frames.
pub(crate) fn used(shares: &[f64], span: Duration) -> f64 {
    const FRAME: f64 = 4096.0 + 58.0 + 4.0;
    let bits = shares.iter().sum::<f64>() * 8.0 * FRAME / 4096.0;
    bits / (GBPS as f64 * span.as_nanos() as f64)
}
