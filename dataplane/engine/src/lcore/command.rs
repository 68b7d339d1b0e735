//! Commands of the control plane to an lcore, and their replies, each through a ring.
//!
//! Each command is a type that carries the type of its reply ([`LcoreCommand`]), so that no command
//! can be answered with the reply of another.
//!
//! Invariants
//! - One command is under way at a time, so a ring never fills, and a reply belongs to the last
//!   command.
//! - What an lcore gives up travels back in the reply, and the control plane frees it.
//!
//! Not here: waiting for a reply ([`crate::control`]).

use crate::lane::binding::{PortAddresses, PortSet};
use crate::lane::bottleneck::slow::Bottleneck;
use crate::lane::faults::Faults;
use crate::lane::forward::Forward;
use crate::lane::sniffed::Sniffed;
use crate::lane::tap::Tap;
use crate::port::QueuePair;
use crate::qp::context::{Migrated, PathLoader, QpContext, QpTraffic, Resized};
use crate::qp::env::TurnContext;
use crate::qp::shard::Shard;
use uroce_shared::sync::{Consumer, Producer, RingBuffer};
use uroce_transport::{
    AltPath, MigrationStats, ModifyError, QpAttr, QpChange, QpState, RoundTripStats,
    SelectiveRepeat,
};

/// A command, and what the lcore does for it. `None` in a reply means that the lcore has no such QP
/// or port.
pub(crate) trait LcoreCommand: Into<Command> {
    /// The reply to this command.
    type Reply;

    /// Carries the command out, in a turn of the lcore.
    fn obey(self, shard: &mut Shard, turn: &mut TurnContext<'_>) -> Self::Reply;

    /// Returns the reply to this command; `None` if it is one to another command.
    fn reply(reply: Reply) -> Option<Self::Reply>;
}

macro_rules! commands {
    ($($name:ident)*) => {
        /// Any command, as it goes through the ring. None is boxed, since an lcore would free the
        /// box; the rings have few places.
        #[derive(Debug)]
        pub(crate) enum Command {
            $($name($name),)*
        }

        /// The reply to any command, as it goes through the ring. No reply is boxed, since an lcore
        /// does not allocate.
        #[derive(Debug)]
        #[allow(clippy::large_enum_variant)]
        pub(crate) enum Reply {
            $($name(<$name as LcoreCommand>::Reply),)*
        }

        impl Command {
            /// Carries the command out.
            pub(crate) fn obey(self, shard: &mut Shard, turn: &mut TurnContext<'_>) -> Reply {
                match self {
                    $(Command::$name(command) => Reply::$name(command.obey(shard, turn)),)*
                }
            }
        }

        $(impl From<$name> for Command {
            fn from(command: $name) -> Command {
                Command::$name(command)
            }
        })*
    };
}

macro_rules! reply {
    ($name:ident: $reply:ty) => {
        type Reply = $reply;

        fn reply(reply: Reply) -> Option<$reply> {
            match reply {
                Reply::$name(reply) => Some(reply),
                _ => None,
            }
        }
    };
}

commands! {
    CreateQp ModifyQp QueryQp ResizeQp DestroyQp ClearRoundTrips
    AdoptAlternate Nudge MigratePort
    SetAddresses SetFaults SetBottleneck SetRate SetLink SetForward
    CountUnforwarded SetTap SetSniffed TakeQueuePair GiveQueuePair
}

/// Takes a QP into a free slot; the reply is the QP itself if the slot is not free. All commands
/// name a QP by its slot, `index`.
#[derive(Debug)]
pub(crate) struct CreateQp {
    pub(crate) index: u32,
    pub(crate) context: Box<QpContext>,
}

impl LcoreCommand for CreateQp {
    reply!(CreateQp: Result<(), Box<QpContext>>);

    fn obey(self, shard: &mut Shard, _: &mut TurnContext<'_>) -> Result<(), Box<QpContext>> {
        shard.insert(self.index, self.context)
    }
}

/// Modify QP: changes the attributes of a QP.
#[derive(Debug)]
pub(crate) struct ModifyQp {
    pub(crate) index: u32,
    pub(crate) change: QpChange,
    /// The memory of selective repeat, if the change sets it.
    pub(crate) memory: Option<SelectiveRepeat>,
}

/// The reply to [`ModifyQp`].
#[derive(Debug)]
pub(crate) struct Modified {
    /// `None` if the lcore has no such QP.
    pub(crate) result: Option<Result<(), ModifyError>>,
    /// The memory of selective repeat if the QP did not need it. The control plane frees it.
    pub(crate) rest: Option<SelectiveRepeat>,
}

impl LcoreCommand for ModifyQp {
    reply!(ModifyQp: Modified);

    fn obey(mut self, shard: &mut Shard, turn: &mut TurnContext<'_>) -> Modified {
        let result = shard.modify(self.index, &self.change, &mut self.memory, turn);
        Modified { result, rest: self.memory }
    }
}

/// Query QP: asks for the attributes and the state of a QP.
#[derive(Debug)]
pub(crate) struct QueryQp {
    pub(crate) index: u32,
}

/// The reply to [`QueryQp`]: a QP's attributes and state.
#[derive(Debug)]
pub(crate) struct Queried {
    pub(crate) attr: QpAttr,
    pub(crate) migration: MigrationStats,
    /// True in SQD until the send queue is drained.
    pub(crate) draining: bool,
    /// Send requests that were posted and have not left the QP.
    pub(crate) sends: u32,
    /// Packets of the QP since it was created.
    pub(crate) traffic: QpTraffic,
    /// Round trips of the QP's requests, if any was measured.
    pub(crate) round_trips: Option<RoundTripStats>,
    /// The side that has loaded an alternate path last.
    pub(crate) loader: PathLoader,
}

impl LcoreCommand for QueryQp {
    reply!(QueryQp: Option<Queried>);

    fn obey(self, shard: &mut Shard, _: &mut TurnContext<'_>) -> Option<Queried> {
        let context = shard.get(self.index)?;
        let qp = &context.qp;
        let draining = qp.state() == QpState::Sqd && !qp.is_drained();
        let sends = context.sends();
        let (attr, migration, traffic) = (qp.attr(), qp.migration(), context.path.traffic);
        let (round_trips, loader) = (qp.round_trips(), context.path.loader);
        Some(Queried { attr, migration, draining, sends, traffic, round_trips, loader })
    }
}

/// Forgets the round trips that a QP has measured; `None` if there is no such QP.
#[derive(Debug)]
pub(crate) struct ClearRoundTrips {
    pub(crate) index: u32,
}

impl LcoreCommand for ClearRoundTrips {
    reply!(ClearRoundTrips: Option<()>);

    fn obey(self, shard: &mut Shard, _: &mut TurnContext<'_>) -> Option<()> {
        shard.get_mut(self.index)?.qp.clear_round_trips();
        Some(())
    }
}

/// Loads an alternate path of the control plane into a QP and arms it, unless the application has
/// loaded one. The reply is whether the QP has taken it, `None` if there is no QP.
#[derive(Debug)]
pub(crate) struct AdoptAlternate {
    pub(crate) index: u32,
    pub(crate) alternate: AltPath,
}

impl LcoreCommand for AdoptAlternate {
    reply!(AdoptAlternate: Option<bool>);

    fn obey(self, shard: &mut Shard, _: &mut TurnContext<'_>) -> Option<bool> {
        let context = shard.get_mut(self.index)?;
        let is_taken = context.path.loader != PathLoader::Application
            && context.qp.adopt_alternate(&self.alternate);
        if is_taken {
            context.path.loader = PathLoader::ControlPlane;
        }
        Some(is_taken)
    }
}

/// Has a QP send one packet without effect if nothing of it is outstanding. The reply is whether it
/// was sent, `None` if there is no QP.
#[derive(Debug)]
pub(crate) struct Nudge {
    pub(crate) index: u32,
}

impl LcoreCommand for Nudge {
    reply!(Nudge: Option<bool>);

    fn obey(self, shard: &mut Shard, turn: &mut TurnContext<'_>) -> Option<bool> {
        let now = turn.now;
        if shard.is_rd(self.index) {
            // Their packets are part of messages.
            return Some(false);
        }
        shard.input(self.index, turn, |qp, _, env| qp.nudge(now, env))
    }
}

/// Exchanges a QP's queues for `queues` if both old ones are empty.
#[derive(Debug)]
pub(crate) struct ResizeQp {
    pub(crate) index: u32,
    pub(crate) queues: Box<Resized>,
}

impl LcoreCommand for ResizeQp {
    // The reply is the old queues and `Some(true)` if they were replaced. Otherwise it is the new
    // queues, with `Some(false)`, or with `None` if there is no such QP.
    reply!(ResizeQp: (Box<Resized>, Option<bool>));

    fn obey(mut self, shard: &mut Shard, _: &mut TurnContext<'_>) -> (Box<Resized>, Option<bool>) {
        let is_done = shard.resize(self.index, &mut self.queues);
        (self.queues, is_done)
    }
}

/// Takes a QP out of its slot; the reply is the QP. Posted packets of a service without
/// acknowledgements are sent first, as far as the port has room.
#[derive(Debug)]
pub(crate) struct DestroyQp {
    pub(crate) index: u32,
}

impl LcoreCommand for DestroyQp {
    reply!(DestroyQp: Option<Box<QpContext>>);

    fn obey(self, shard: &mut Shard, turn: &mut TurnContext<'_>) -> Option<Box<QpContext>> {
        if shard.is_rd(self.index) {
            return shard.remove_rd(self.index, turn);
        }
        shard.send_rest(self.index, turn);
        turn.held.free(self.index);
        shard.remove(self.index)
    }
}

/// Migrates each armed QP that sends through a port (counted from 0) and has an alternate path
/// through one of the ports `to`. The reply is how many have migrated and stayed.
#[derive(Debug)]
pub(crate) struct MigratePort {
    pub(crate) port: usize,
    pub(crate) to: PortSet,
}

impl LcoreCommand for MigratePort {
    reply!(MigratePort: Migrated);

    fn obey(self, shard: &mut Shard, turn: &mut TurnContext<'_>) -> Migrated {
        shard.migrate_port(self.port, self.to, turn)
    }
}

/// Sets the addresses of a port (counted from 0). The reply is the addresses that it had before.
#[derive(Debug)]
pub(crate) struct SetAddresses {
    pub(crate) port: usize,
    pub(crate) addresses: Box<PortAddresses>,
}

impl LcoreCommand for SetAddresses {
    reply!(SetAddresses: Option<Box<PortAddresses>>);

    fn obey(self, _: &mut Shard, turn: &mut TurnContext<'_>) -> Option<Box<PortAddresses>> {
        let lane = turn.lanes.get_mut(self.port)?;
        Some(std::mem::replace(&mut lane.addresses, self.addresses))
    }
}

/// Sets the faults that a port (counted from 0) injects into received and sent frames; `None`
/// injects none. The reply is the faults that the port had before.
#[derive(Debug)]
pub(crate) struct SetFaults {
    pub(crate) port: usize,
    pub(crate) faults: [Option<Box<Faults>>; 2],
}

impl LcoreCommand for SetFaults {
    reply!(SetFaults: Option<[Option<Box<Faults>>; 2]>);

    fn obey(
        self,
        shard: &mut Shard,
        turn: &mut TurnContext<'_>,
    ) -> Option<[Option<Box<Faults>>; 2]> {
        Some(turn.lanes.get_mut(self.port)?.set_faults(self.faults, &shard.counters))
    }
}

/// Sets the bottleneck of a port (counted from 0), or removes it. The reply is the bottleneck that
/// the port had before.
#[derive(Debug)]
pub(crate) struct SetBottleneck {
    pub(crate) port: usize,
    pub(crate) bottleneck: Option<Box<Bottleneck>>,
}

impl LcoreCommand for SetBottleneck {
    reply!(SetBottleneck: Option<Option<Box<Bottleneck>>>);

    fn obey(
        self,
        shard: &mut Shard,
        turn: &mut TurnContext<'_>,
    ) -> Option<Option<Box<Bottleneck>>> {
        let lane = turn.lanes.get_mut(self.port)?;
        Some(lane.set_bottleneck(self.bottleneck, turn.now, &shard.counters))
    }
}

/// Sets the rate of the bottleneck of a port (counted from 0), or takes it away. The reply is
/// whether the port has a bottleneck.
#[derive(Debug)]
pub(crate) struct SetRate {
    pub(crate) port: usize,
    pub(crate) rate_mbps: Option<u32>,
    /// Whether this lcore is the first that the change reaches.
    pub(crate) is_first: bool,
}

impl LcoreCommand for SetRate {
    reply!(SetRate: Option<bool>);

    fn obey(self, _: &mut Shard, turn: &mut TurnContext<'_>) -> Option<bool> {
        let lane = turn.lanes.get_mut(self.port)?;
        Some(lane.set_rate(self.rate_mbps, self.is_first, turn.now))
    }
}

/// Sets the link of a port (counted from 0) up or down.
#[derive(Debug)]
pub(crate) struct SetLink {
    pub(crate) port: usize,
    pub(crate) up: bool,
}

impl LcoreCommand for SetLink {
    reply!(SetLink: Option<()>);

    fn obey(self, shard: &mut Shard, turn: &mut TurnContext<'_>) -> Option<()> {
        turn.lanes.get_mut(self.port)?.set_link(self.up, &shard.counters);
        Some(())
    }
}

/// Sets the tap of a port (counted from 0), or removes it. The reply is the tap that the port had
/// before.
#[derive(Debug)]
pub(crate) struct SetTap {
    pub(crate) port: usize,
    pub(crate) tap: Option<Box<Tap>>,
}

impl LcoreCommand for SetTap {
    reply!(SetTap: Option<Option<Box<Tap>>>);

    fn obey(self, _: &mut Shard, turn: &mut TurnContext<'_>) -> Option<Option<Box<Tap>>> {
        Some(turn.lanes.get_mut(self.port)?.set_tap(self.tap))
    }
}

/// Sets whether the frames that a port (counted from 0) sends are copied for sniffers. The reply is
/// the place of the copies that the port had before.
#[derive(Debug)]
pub(crate) struct SetSniffed {
    pub(crate) port: usize,
    pub(crate) sniffed: Option<Box<Sniffed>>,
}

impl LcoreCommand for SetSniffed {
    reply!(SetSniffed: Option<Option<Box<Sniffed>>>);

    fn obey(self, _: &mut Shard, turn: &mut TurnContext<'_>) -> Option<Option<Box<Sniffed>>> {
        Some(turn.lanes.get_mut(self.port)?.set_sniffed(self.sniffed))
    }
}

/// Sets where the frames that a port (counted from 0) receives are forwarded to; `None` ends
/// forwarding.
#[derive(Debug)]
pub(crate) struct SetForward {
    pub(crate) port: usize,
    pub(crate) forward: Option<Forward>,
}

impl LcoreCommand for SetForward {
    reply!(SetForward: Option<()>);

    fn obey(self, _: &mut Shard, turn: &mut TurnContext<'_>) -> Option<()> {
        turn.lanes.get_mut(self.port)?.set_forward(self.forward);
        Some(())
    }
}

/// Asks for the number of frames that were to be forwarded through a port (counted from 0) but were
/// dropped.
#[derive(Debug)]
pub(crate) struct CountUnforwarded {
    pub(crate) port: usize,
}

impl LcoreCommand for CountUnforwarded {
    reply!(CountUnforwarded: Option<u64>);

    fn obey(self, _: &mut Shard, turn: &mut TurnContext<'_>) -> Option<u64> {
        Some(turn.lanes.get(self.port)?.unforwarded())
    }
}

/// Takes the queue pair of a port (counted from 0). The lcore does not touch the port from then on.
/// `None` if it has no queue pair.
#[derive(Debug)]
pub(crate) struct TakeQueuePair {
    pub(crate) port: usize,
}

impl LcoreCommand for TakeQueuePair {
    reply!(TakeQueuePair: Option<QueuePair>);

    fn obey(self, _: &mut Shard, turn: &mut TurnContext<'_>) -> Option<QueuePair> {
        turn.lanes.get_mut(self.port)?.queue.give_away()
    }
}

/// Gives an lcore a queue pair of a port (counted from 0) in place of the one that was taken. The
/// reply is the queue pair if none was.
#[derive(Debug)]
pub(crate) struct GiveQueuePair {
    pub(crate) port: usize,
    pub(crate) pair: QueuePair,
}

impl LcoreCommand for GiveQueuePair {
    reply!(GiveQueuePair: Option<QueuePair>);

    fn obey(self, _: &mut Shard, turn: &mut TurnContext<'_>) -> Option<QueuePair> {
        match turn.lanes.get_mut(self.port) {
            Some(lane) => lane.queue.take_back(self.pair),
            None => Some(self.pair),
        }
    }
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

/// Makes the rings of an lcore: one for commands, one for replies.
pub(crate) fn command_rings() -> (CommandSender, CommandReceiver) {
    const DEPTH: usize = 4;
    let (command_producer, command_consumer) = RingBuffer::new(DEPTH);
    let (reply_producer, reply_consumer) = RingBuffer::new(DEPTH);
    (
        CommandSender { commands: command_producer, replies: reply_consumer },
        CommandReceiver { commands: command_consumer, replies: reply_producer },
    )
}
