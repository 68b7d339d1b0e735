//! The two nodes and their links.

use super::traffic::{End, Shape};
use crate::cli::FailoverArgs;
use crate::error::{BenchError, Step};
use std::time::{Duration, Instant};
use uroce::config::{Config, DeviceConfig, Idle, Lcores, LossConfig, PortConfig};
use uroce::{
    AddressVector, AlternateVector, ConnectOptions, Context, PathMigState, Pkey, QpControl,
    QueuePair,
};

/// Addresses of the ports of each node.
const ADDRESSES: [[&str; 2]; 2] =
    [["198.18.1.1/24", "198.18.2.1/24"], ["198.18.1.2/24", "198.18.2.2/24"]];
/// MTU of the ports; a path MTU of 4096 fits.
const PORT_MTU: u16 = 4200;
/// Frames that a ring holds: more than can be in flight, so that only the cut loses frames.
const RING: u16 = 4096;
/// The ports, by number.
const PRIMARY: u8 = 1;
const ALTERNATE: u8 = 2;
/// Longest wait for the queue pairs to be armed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Loss configuration of a cut link.
const TOTAL: LossConfig = LossConfig { rx: 1.0, tx: 1.0, seed: 0 };

/// Two devices with two links between them.
pub(super) struct Nodes {
    pub(super) left: Context,
    pub(super) right: Context,
}

impl Nodes {
    pub(super) fn open(shape: Shape) -> Result<Nodes, BenchError> {
        let device = |name: &str, addresses: [&str; 2]| {
            let mut device = DeviceConfig::new(name).lcores(Lcores::Count(1)).idle(Idle::Sleep);
            device.max_qps = shape.qps + 16;
            for (address, link) in addresses.into_iter().zip(["link 1", "link 2"]) {
                let mut port = PortConfig::ring(link).mtu(PORT_MTU);
                (port.rx_descriptors, port.tx_descriptors) = (RING, RING);
                device = device.port(port.ip(address).step("an address")?);
            }
            Ok::<_, BenchError>(device)
        };
        let [left, right] = ADDRESSES;
        let config = Config::new().device(device("left", left)?).device(device("right", right)?);
        let open = |name| Context::open(&config, name).step("opening a device");
        Ok(Nodes { left: open("left")?, right: open("right")? })
    }

    /// Connects each queue pair to its peer over link 1, with link 2 as alternate path.
    pub(super) fn connect(
        &self,
        from: &End,
        to: &End,
        args: &FailoverArgs,
    ) -> Result<Vec<QpControl>, BenchError> {
        for (left, right) in from.qps.iter().zip(&to.qps) {
            join(left, right, args)?;
            join(right, left, args)?;
        }
        let all: Vec<QpControl> =
            from.qps.iter().chain(&to.qps).map(|qp| qp.control().clone()).collect();
        for qp in &all {
            qp.rearm().step("arming")?;
        }
        Ok(all)
    }

    /// Cuts link 1 in both directions.
    pub(super) fn cut(&self, reported: bool) -> Result<(), BenchError> {
        self.left.set_loss(PRIMARY, TOTAL).step("cutting the link")?;
        if reported {
            for node in [&self.left, &self.right] {
                node.set_link(PRIMARY, false).step("taking the link down")?;
            }
        }
        Ok(())
    }
}

fn join(near: &QueuePair, far: &QueuePair, args: &FailoverArgs) -> Result<(), BenchError> {
    let peer = far.endpoint(PRIMARY, 0).step("an address")?;
    let other = far.endpoint(ALTERNATE, 0).step("an address")?;
    let options = ConnectOptions {
        timeout: args.qp_timeout,
        retry_cnt: args.retry_count,
        alternate: Some(AlternateVector {
            vector: AddressVector::to(other.gid),
            port: ALTERNATE,
            pkey: Pkey::DEFAULT,
            timeout: args.qp_timeout,
        }),
        ..ConnectOptions::default()
    };
    near.control().connect(&peer, &options).step("connecting")
}

/// Waits until all queue pairs are armed, which takes a packet of each peer.
pub(super) fn await_armed(qps: &[QpControl]) -> Result<(), BenchError> {
    let end = Instant::now() + PATIENCE;
    for qp in qps {
        while qp.query().step("Query QP")?.attr.path_mig_state != PathMigState::Armed {
            if Instant::now() > end {
                let waiting = "waiting for queue pairs to be armed";
                return Err(BenchError::TimedOut { waiting, limit: PATIENCE });
            }
        }
    }
    Ok(())
}

/// Returns the time without acknowledgements around each queue pair's migration.
pub(super) fn silences(qps: &[QpControl]) -> Result<Vec<Duration>, BenchError> {
    let silence = |qp: &QpControl| Ok(qp.query().step("Query QP")?.migration.failover);
    qps.iter().filter_map(|qp| silence(qp).transpose()).collect()
}
