//! Commands of the control plane to an lcore, and their replies, each through a ring.
//!
//! Invariants
//! - One command is under way at a time, so a ring never fills, and a reply belongs to the last
//!   command.
//! - What an lcore gives up travels back in the reply, and the control plane frees it.
//!
//! Not here: waiting for a reply ([`crate::control`]).

use crate::config::PortAddresses;
use crate::context::{QpContext, Resized};
use crate::fault::Loss;
use uroce_shared::sync::{Consumer, Producer, RingBuffer};
use uroce_transport::{MigrationStats, ModifyError, QpAttr, QpChange};

/// A command to an lcore. QPs are named by their slots.
#[derive(Debug)]
pub(crate) enum Command {
    /// Takes this QP; the slot is free.
    CreateQp { index: u32, context: Box<QpContext> },
    /// Modify QP.
    ModifyQp { index: u32, change: QpChange },
    /// Query QP.
    QueryQp { index: u32 },
    /// Exchanges the QP's queues for these if both are empty.
    ResizeQp { index: u32, queues: Box<Resized> },
    /// Migrates each armed QP that sends through the port (counted from 0), unless its alternate
    /// path uses the same port.
    MigratePort { port: usize },
    /// Gives the QP back.
    DestroyQp { index: u32 },
    /// Sets the addresses of the port (counted from 0).
    SetAddresses { port: usize, addresses: Box<PortAddresses> },
    /// Sets the injected loss of the port (counted from 0).
    SetLoss { port: usize, rx: Loss, tx: Loss },
    /// Sets the link of the port (counted from 0) up or down.
    SetLink { port: usize, up: bool },
}

/// The reply to a command.
#[derive(Debug)]
pub(crate) enum Reply {
    /// The command was carried out.
    Done,
    /// The result of Modify QP.
    Modified(Result<(), ModifyError>),
    /// The result of Query QP; `draining` is true in SQD until the send queue is drained.
    Queried { attr: QpAttr, migration: MigrationStats, draining: bool, sends: u32 },
    /// If true, the QP's old queues, which were replaced; if false, the new ones, which were not
    /// taken.
    Resized(Box<Resized>, bool),
    /// The number of QPs that have migrated.
    Migrated(u32),
    /// The QP, which the lcore has removed.
    Destroyed(Box<QpContext>),
    /// The addresses that were replaced.
    Addresses(Box<PortAddresses>),
    /// The lcore has no QP in that slot, or no such port.
    Unknown,
}

/// The control plane's ends of the rings.
#[derive(Debug)]
pub(crate) struct CommandSender {
    pub(crate) commands: Producer<Command>,
    pub(crate) replies: Consumer<Reply>,
}

/// The lcore's ends of the rings.
#[derive(Debug)]
pub(crate) struct CommandReceiver {
    pub(crate) commands: Consumer<Command>,
    pub(crate) replies: Producer<Reply>,
}

/// Makes a pair of rings.
pub(crate) fn command_rings() -> (CommandSender, CommandReceiver) {
    const DEPTH: usize = 4;
    let (command_producer, command_consumer) = RingBuffer::new(DEPTH);
    let (reply_producer, reply_consumer) = RingBuffer::new(DEPTH);
    (
        CommandSender { commands: command_producer, replies: reply_consumer },
        CommandReceiver { commands: command_consumer, replies: reply_producer },
    )
}
