//! Assembly: makes and connects the parts of an engine before anything runs.

use crate::control::config::EngineConfig;
use crate::control::engine::EngineError;
use crate::control::{ControlParts, LcoreLink};
use crate::counters::CounterBlock;
use crate::lane::binding::PortBinding;
use crate::lane::bottleneck::backlog::Backlog;
use crate::lane::{Lane, queues};
use crate::lcore::command::command_rings;
use crate::lcore::profile::{Profile, ProfileBlock};
use crate::lcore::{Duties, Fatal, Lcore};
use crate::qp::held::HeldPackets;
use crate::qp::shard::Shard;
use crate::qp::tables::Tables;
use crate::rx::{Exits, Receiver};
use rtrb::RingBuffer;
use std::sync::Arc;
use uroce_shared::memory::mr_table::{MrReader, MrTable};
use uroce_shared::queue::xrc::XrcTable;
use uroce_shared::table::ah_table::AhTable;
use uroce_shared::table::flows::FlowTable;
use uroce_shared::table::key::Numbers;
use uroce_shared::table::mcast::{GroupBook, GroupTable};
use uroce_shared::table::qp_table::QpTable;
use uroce_shared::time::clock::Clock;
use uroce_shared::wake::bell::Bell;
use uroce_shared::wake::doorbell::{Doorbell, DoorbellReader};
use uroce_shared::wake::events::{EventChannel, Subject};
use uroce_shared::wake::notices::Notices;
use uroce_shared::wake::waker::Waker;

/// Largest number of frames of the control plane that wait for a port.
const INJECTED: usize = 64;
/// Sources of asynchronous events besides those of QPs and their queues.
const SPARE_SOURCES: usize = 1024;

/// All parts of an engine except its threads.
pub(crate) struct Parts {
    /// The lcores, each with its bell.
    pub(crate) lcores: Vec<(Lcore, Arc<Bell>)>,
    pub(crate) regions: Arc<MrTable>,
    pub(crate) tables: Tables,
    pub(crate) events: Arc<EventChannel>,
    pub(crate) counters: Vec<Arc<CounterBlock>>,
    pub(crate) profiles: Vec<Arc<ProfileBlock>>,
    pub(crate) control: ControlParts,
}

/// Makes the parts. The configuration has been checked.
///
/// # Errors
/// [`EngineError`].
pub(crate) fn assemble(
    config: &EngineConfig,
    ports: Vec<PortBinding>,
) -> Result<Parts, EngineError> {
    let count = config.lcores.len();
    let max_qps = config.max_qps;
    let numbers = Numbers::random(max_qps).map_err(EngineError::Random)?;
    let table = Arc::new(QpTable::new(max_qps, numbers.clone()));
    let keys = Numbers::random(config.max_mrs).map_err(EngineError::Random)?;
    let regions = Arc::new(MrTable::new(config.max_mrs, count, keys));
    let waker = Waker::new().map_err(EngineError::Events)?;
    let tables = tables(config, &regions, &waker);
    // Each QP may have two CQs and an SRQ of its own.
    let sources = 4 * max_qps as usize + SPARE_SOURCES + 1 + ports.len();
    let events = EventChannel::new(sources).map_err(EngineError::Events)?;
    // There are at most 255 ports, and the channel has room for them.
    let port_events = (1..=ports.len() as u8).filter_map(|port| events.admit(Subject::Port(port)));
    let port_events = port_events.collect();
    let fatal = events.admit(Subject::Device).map(|guard| Fatal::new(guard, &waker));
    let bells: Box<[Arc<Bell>]> = (0..count).map(|_| Arc::default()).collect();
    let exits = Arc::new(Exits::new(bells.clone(), waker));
    let (inject, mut injected): (_, Vec<_>) =
        ports.iter().map(|_| RingBuffer::new(INJECTED)).unzip();
    let clock = Clock::new();
    let backlogs: Vec<Arc<Backlog>> = ports.iter().map(|_| Arc::default()).collect();
    let mut lanes = lanes(&bells, &ports, &backlogs)?.into_iter();

    let (mut lcores, mut ways) = (Vec::new(), Vec::new());
    let (mut counters, mut profiles) = (Vec::new(), Vec::new());
    for number in 0..count {
        let doorbell = Arc::new(Doorbell::new(max_qps, Arc::clone(&bells[number])));
        let (block, profile) = (Arc::new(CounterBlock::new()), Arc::new(ProfileBlock::new()));
        let (sender, receiver) = command_rings();
        let duties = Duties {
            clock,
            commands: receiver,
            receiver: Receiver::new(number, ports.len(), Arc::clone(&table), Arc::clone(&exits)),
            doorbell: DoorbellReader::new(Arc::clone(&doorbell)),
            shard: Shard::new(number, ports.len(), max_qps, Arc::clone(&table), Arc::clone(&block)),
            held: HeldPackets::for_lcore(&ports, count),
            lanes: lanes.next().unwrap_or_default(),
            tables: tables.clone(),
            // Lcore 0 sends the control plane's frames.
            injected: std::mem::take(&mut injected),
        };
        let reader = MrReader::new(Arc::clone(&regions), number);
        let measured = Profile::new(Arc::clone(&profile), Arc::clone(&block));
        let lcore = Lcore::new(reader, duties, measured, fatal.clone());
        lcores.push((lcore, Arc::clone(&bells[number])));
        ways.push(LcoreLink { rings: sender, doorbell, qps: 0, owes_reply: false });
        counters.push(block);
        profiles.push(profile);
    }
    let control = ControlParts {
        ports,
        backlogs,
        lcores: ways,
        numbers,
        max_qps,
        groups: GroupBook::new(Arc::clone(&tables.groups)),
        exits,
        inject,
        port_events,
        fatal,
        congestion: config.congestion,
        udp_source_ports: config.udp_source_ports,
        notification: config.notification,
    };
    Ok(Parts { lcores, regions, tables, events, counters, profiles, control })
}

/// Makes the tables that lcores and the control plane share.
fn tables(config: &EngineConfig, regions: &MrTable, waker: &Arc<Waker>) -> Tables {
    let turns = regions.turns();
    Tables {
        handles: Arc::new(AhTable::new(config.max_ahs, Arc::clone(turns))),
        groups: Arc::new(GroupTable::new(Arc::clone(turns))),
        flows: Arc::new(FlowTable::new(Arc::clone(turns))),
        xrc: Arc::new(XrcTable::new(Arc::clone(turns))),
        notices: Arc::new(Notices::new(config.max_qps, Arc::clone(waker))),
    }
}

/// Makes the lanes of each lcore, one for each port; `bells` are the lcores' bells.
fn lanes(
    bells: &[Arc<Bell>],
    ports: &[PortBinding],
    backlogs: &[Arc<Backlog>],
) -> Result<Vec<Vec<Lane>>, EngineError> {
    let mut lanes: Vec<Vec<Lane>> = bells.iter().map(|_| Vec::new()).collect();
    for ((binding, backlog), port) in ports.iter().zip(backlogs).zip(1..) {
        let queues = queues(binding, bells);
        let queues = queues.map_err(|error| EngineError::Queue { port, error })?;
        for (lcore, queue) in queues.into_iter().enumerate() {
            lanes[lcore].push(Lane::new(queue, lcore, binding, backlog));
        }
    }
    Ok(lanes)
}
