//! Control plane → lcore: commands and their replies, each through a ring.
//!
//! Invariants
//! - One command is under way at a time, so a ring never fills and a reply is that of the last
//!   command.
//! - What an lcore has to let go of travels back in the reply, to be freed by the control plane.
//!
//! Not here: who waits for a reply, and how ([`crate::control`]).

use crate::config::PortAddresses;
use crate::context::{QpContext, Resized};
use crate::fault::Loss;
use crate::sync::{Consumer, Producer, RingBuffer};
use uroce_transport::{MigrationStats, ModifyError, QpAttr, QpChange};

/// What an lcore is asked to do. QPs are named by their slot.
#[derive(Debug)]
pub(crate) enum Command {
    /// Take this QP; the slot is free.
    CreateQp { index: u32, context: Box<QpContext> },
    /// Modify QP.
    ModifyQp { index: u32, change: QpChange },
    /// Query QP.
    QueryQp { index: u32 },
    /// Exchange the QP's queues for these if both are empty.
    ResizeQp { index: u32, queues: Box<Resized> },
    /// Migrate each armed QP that leaves by the port (counted from 0) and would not on its
    /// alternate path.
    MigratePort { port: usize },
    /// Give the QP back.
    DestroyQp { index: u32 },
    /// Frames to these addresses are the port's (counted from 0) from now on.
    SetAddresses { port: usize, addresses: Box<PortAddresses> },
    /// The port (counted from 0) loses such frames from now on.
    SetLoss { port: usize, rx: Loss, tx: Loss },
    /// The link of a port (counted from 0) is up or down.
    SetLink { port: usize, up: bool },
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Done.
    Done,
    /// Modify QP's answer.
    Modified(Result<(), ModifyError>),
    /// Query QP's answer; `draining` is true in SQD until the send queue is drained.
    Queried { attr: QpAttr, migration: MigrationStats, draining: bool, sends: u32 },
    /// The queues that the QP had and whether it has others now; the given ones if it has not.
    Resized(Box<Resized>, bool),
    /// QPs that have migrated.
    Migrated(u32),
    /// The QP, which the lcore does not know any more.
    Destroyed(Box<QpContext>),
    /// The addresses that the new ones have replaced.
    Addresses(Box<PortAddresses>),
    /// The lcore has no QP in that slot, or no such port.
    Unknown,
}

/// The control plane's ends.
#[derive(Debug)]
pub(crate) struct CommandSender {
    pub(crate) commands: Producer<Command>,
    pub(crate) replies: Consumer<Reply>,
}

/// The lcore's ends.
#[derive(Debug)]
pub(crate) struct CommandReceiver {
    pub(crate) commands: Consumer<Command>,
    pub(crate) replies: Producer<Reply>,
}

/// A pair of rings.
pub(crate) fn command_rings() -> (CommandSender, CommandReceiver) {
    const DEPTH: usize = 4;
    let (command_producer, command_consumer) = RingBuffer::new(DEPTH);
    let (reply_producer, reply_consumer) = RingBuffer::new(DEPTH);
    (
        CommandSender { commands: command_producer, replies: reply_consumer },
        CommandReceiver { commands: command_consumer, replies: reply_producer },
    )
}
