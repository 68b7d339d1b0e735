//! Models of the state that lcores, the control plane and applications share, explored by loom.
//!
//! ```text
//! models                      every model; then every memory order and every write lost in turn
//! models --explore            every model, with nothing lost
//! models NAME                 one model
//! models NAME --weaken SITE   one model with what is at SITE (`qsbr.rs:60:Fence`) lost
//! ```
//!
//! With `--cfg loom` the other modules take loom's atomics, locks and threads from [`crate::sync`],
//! and are unchanged otherwise. loom runs a model once for each order of its threads' steps, up to
//! a number of preemptions, and for each value that a load may see under the rules of C11.
//!
//! What loom does not see
//! - It treats sequentially consistent loads and stores as acquiring and releasing ones, but fences
//!   as they are. So it may report an execution that is impossible, but does not miss one for this
//!   reason.
//! - It does not reorder a load with a later store of the same thread (load buffering).
//! - It does not model out-of-thin-air values of compilers and processors, nor torn accesses to
//!   data that is neither an atomic nor one of its cells.
//! - It does not cover more threads, operations or preemptions than a model has. Each model states
//!   its own.

#![allow(unsafe_code)]

mod channel;
mod cq;
mod events;
mod lcore;
mod mr_table;
mod notices;
mod published;
mod qp_table;
mod queue;
mod run;
mod srq;

pub use run::main;

use uroce_transport::{Cqe, WcOpcode, WcStatus};
use uroce_wire::Qpn;

/// A completion with `wr_id` of QP `qpn`.
fn cqe(qpn: Qpn, wr_id: u64) -> Cqe {
    Cqe::new(wr_id, WcStatus::Success, WcOpcode::Recv, qpn)
}

/// One model: a small concurrent program that loom explores.
pub(crate) struct Model {
    pub(crate) name: &'static str,
    /// The property that holds in every execution.
    pub(crate) about: &'static str,
    /// Number of preemptions explored, in addition to switches at waiting threads.
    pub(crate) preemptions: usize,
    /// Runs one execution.
    pub(crate) run: fn(),
}

/// All models.
pub(crate) const MODELS: &[Model] = &[
    Model {
        name: "qpn-reuse",
        about: "a QPN is found at its owner, and never after the QP is destroyed",
        preemptions: 2,
        run: qp_table::reuse,
    },
    Model {
        name: "published",
        about: "a value that was returned is not read any more",
        preemptions: 3,
        run: published::replace,
    },
    Model {
        name: "mr-register",
        about: "an lcore that finds a region sees what was written before it was registered",
        preemptions: 4,
        run: mr_table::register_beside_a_turn,
    },
    Model {
        name: "mr-register-anew",
        about: "an lcore sees what a region's new memory holds, and the former memory is released",
        preemptions: 3,
        run: mr_table::register_anew,
    },
    Model {
        name: "mr-deregister",
        about: "after deregistration no lcore accesses the memory",
        preemptions: 3,
        run: mr_table::deregister,
    },
    Model {
        name: "mr-two-lcores",
        about: "deregistration waits for each lcore",
        preemptions: 2,
        run: mr_table::two_lcores,
    },
    Model {
        name: "mr-reuse",
        about: "an old key does not grant access to the region that reuses its slot",
        preemptions: 2,
        run: mr_table::reuse,
    },
    Model {
        name: "mr-deregister-twice",
        about: "of two deregistrations one succeeds, and nothing is freed twice",
        preemptions: 2,
        run: mr_table::twice,
    },
    Model {
        name: "mw-invalidate",
        about: "after its region's deregistration nothing is reached through a window",
        preemptions: 1,
        run: mr_table::window,
    },
    Model {
        name: "mw-bind",
        about: "a window is bound, or its region deregistered, not both",
        preemptions: 2,
        run: mr_table::window_bind,
    },
    Model {
        name: "mw-fields",
        about: "the fields of a window that are read belong to one binding",
        preemptions: 1,
        run: mr_table::window_fields,
    },
    Model {
        name: "sq-doorbell",
        about: "posted requests reach the lcore whole, in order, and with the doorbell rung",
        preemptions: 2,
        run: queue::post_and_ring,
    },
    Model {
        name: "doorbell-two-threads",
        about: "no doorbell ring of two QPs is lost",
        preemptions: 2,
        run: queue::two_ringers,
    },
    Model {
        name: "sq-polled",
        about: "a place is free and its slot empty once its completion is polled, and not before",
        preemptions: 4,
        run: queue::polled_is_free,
    },
    Model {
        name: "qp-state",
        about: "a thread that reads a state sees the writes before it",
        preemptions: 5,
        run: queue::state_tells_of_what_led_to_it,
    },
    Model {
        name: "rq-flush",
        about: "a receive posted on the way to ERR is flushed",
        preemptions: 5,
        run: queue::receive_meets_error,
    },
    Model {
        name: "cq-produce",
        about: "each completion is polled once, in its lcore's order",
        preemptions: 2,
        run: cq::two_producers,
    },
    Model {
        name: "cq-pollers",
        about: "two pollers share completions without loss or copy",
        preemptions: 2,
        run: cq::two_pollers,
    },
    Model {
        name: "cq-overrun",
        about: "an overrun is reported after all earlier completions, without a gap",
        preemptions: 2,
        run: cq::overrun,
    },
    Model {
        name: "cq-grow",
        about: "completions added while a queue grows are polled once, in order",
        preemptions: 2,
        run: cq::grow,
    },
    Model {
        name: "cq-grow-asleep",
        about: "a thread that sleeps while a queue grows is woken",
        preemptions: 2,
        run: channel::grow_beside_a_sleeper,
    },
    Model {
        name: "cq-arm",
        about: "arm, poll, sleep: no wake-up is lost",
        preemptions: 5,
        run: channel::arm_and_sleep,
    },
    Model {
        name: "cq-arm-twice",
        about: "one event for each arming, and a second arming gives a second",
        preemptions: 2,
        run: channel::arm_again,
    },
    Model {
        name: "channel-discard",
        about: "discarding one queue's event loses no other's",
        preemptions: 3,
        run: channel::discard_beside_a_sleeper,
    },
    Model {
        name: "channel-retire",
        about: "a queue that is let go gives no event afterwards, and makes room",
        preemptions: 3,
        run: channel::retire_beside_an_lcore_and_a_taker,
    },
    Model {
        name: "srq-takers",
        about: "each shared receive is taken once, whole",
        preemptions: 2,
        run: srq::two_takers,
    },
    Model {
        name: "srq-too-small",
        about: "a shared receive that is too small is left, whole",
        preemptions: 2,
        run: srq::too_small,
    },
    Model {
        name: "srq-limit",
        about: "a limit armed beside a taker gives one event",
        preemptions: 4,
        run: srq::limit,
    },
    Model {
        name: "srq-limit-twice",
        about: "two lcores cross a limit and give one event",
        preemptions: 3,
        run: srq::limit_crossed_twice,
    },
    Model {
        name: "events-raise",
        about: "no event is lost, none comes twice",
        preemptions: 3,
        run: events::raise_and_take,
    },
    Model {
        name: "events-port-up",
        about: "the last event of a port that comes up again is PORT_ACTIVE",
        preemptions: 3,
        run: events::up_and_down_and_up,
    },
    Model {
        name: "events-port-down",
        about: "the last event of a port that goes down is PORT_ERR",
        preemptions: 3,
        run: events::up_and_down,
    },
    Model {
        name: "events-close",
        about: "no event comes after its source's end",
        preemptions: 2,
        run: events::close,
    },
    Model {
        name: "waker",
        about: "a flag set before a thread goes to sleep wakes it",
        preemptions: 3,
        run: notices::put_and_sleep,
    },
    Model {
        name: "notices",
        about: "no notice of two QPs is lost, and each wakes the control plane",
        preemptions: 2,
        run: notices::raise_and_take,
    },
    Model {
        name: "lcore-destroy",
        about: "nothing of a QP runs once its destruction is acknowledged",
        preemptions: 2,
        run: lcore::destroy,
    },
    Model {
        name: "lcore-adopt",
        about: "one thread drives an lcore at a time, and its own thread continues afterwards",
        preemptions: 4,
        run: lcore::adopt,
    },
    Model {
        name: "lcore-poll",
        about: "one poller drives at a time, and the lcore's thread when no poller does",
        preemptions: 3,
        run: lcore::poll_idle,
    },
    Model {
        name: "lcore-poll-busy",
        about: "a poller gets to drive even if the lcore's thread always has work",
        preemptions: 0,
        run: lcore::poll_busy,
    },
    Model {
        name: "lcore-leave",
        about: "the lcore's thread continues at once when a poller goes to sleep",
        preemptions: 2,
        run: lcore::leave,
    },
    Model {
        name: "lcore-sleep",
        about: "what is put before an lcore that goes to sleep wakes it, and its end does",
        preemptions: 2,
        run: lcore::sleep,
    },
];
