//! Errors of ports and queue pairs, with the name of the device and DPDK's log.

use crate::dpdk::eal::errnos_of;
use std::io;
use std::path::PathBuf;

/// The reason why a port was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// No driver has the name, or the driver refuses the arguments.
    #[error("no device {device:?}: {error}: {log}")]
    NoDevice {
        /// The name, without arguments.
        device: String,
        /// DPDK's errno.
        error: io::Error,
        /// DPDK's log of the attempt.
        log: String,
    },
    /// The driver has no argument of that name.
    #[error(
        "{device}: {driver} has no argument {argument:?}: leave it out, or give one of {known}"
    )]
    Argument {
        /// The name of the device, without arguments.
        device: String,
        /// The driver.
        driver: &'static str,
        /// The unknown argument.
        argument: String,
        /// The arguments that the driver has.
        known: String,
    },
    /// This process has the port open already.
    #[error("{device:?} is already open")]
    AlreadyOpen {
        /// The name, without arguments.
        device: String,
    },
    /// A thread has a queue pair of the device.
    #[error("{device:?} is in use")]
    InUse {
        /// The name.
        device: String,
    },
    /// The device was removed.
    #[error("{device:?} is gone, and its port has no device")]
    Removed {
        /// The name.
        device: String,
    },
    /// The device has another end, so it cannot be put in place of a NIC.
    #[error("{device:?} is no NIC, and only a NIC can take the place of one")]
    NoNic {
        /// The name.
        device: String,
    },
    /// The device has no queue pair, or none was requested.
    #[error("{asked} queue pairs asked for, the device has {max}")]
    QueuePairs {
        /// Requested pairs.
        asked: u16,
        /// Pairs of the device.
        max: u16,
    },
    /// The device does not carry frames of this size.
    #[error("MTU {asked} asked for, the device takes {min} to {max}")]
    Mtu {
        /// Requested bytes.
        asked: u16,
        /// Least bytes.
        min: u16,
        /// Largest number of bytes.
        max: u16,
    },
    /// A frame would not fit into one mbuf.
    #[error("the mempool's mbufs hold {room} bytes, a frame needs {needed}")]
    PoolRoom {
        /// Data bytes of an mbuf.
        room: u16,
        /// Bytes of the longest frame.
        needed: u32,
    },
    /// net_af_packet was given rings that do not hold the port's frames.
    #[error("{device} cannot have MTU {mtu} with its arguments: {remedy}")]
    Slots {
        /// The name, without arguments.
        device: String,
        /// Largest Ethernet payload of the port, bytes.
        mtu: u16,
        /// Arguments that would work.
        remedy: String,
    },
    /// A memif link cannot be made.
    #[error("no such memif link can be: {reason}: {error}")]
    Memif {
        /// The reason.
        reason: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// A vhost-user switch cannot be reached.
    #[error("no switch at {}: {reason}: {error}", socket.display())]
    Switch {
        /// The socket at which the port and the switch meet.
        socket: PathBuf,
        /// The reason.
        reason: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// Another port uses the socket of a vhost-user switch.
    #[error(
        "the switch's port {} is in use by {holder}: give each program another port of the switch",
        socket.display()
    )]
    SwitchTaken {
        /// The socket at which the port and the switch meet.
        socket: PathBuf,
        /// The process that has the port, as text.
        holder: String,
    },
    /// A ring's name or size is not possible.
    #[error("no such ring pair can be: {reason}")]
    Ring {
        /// The reason.
        reason: &'static str,
    },
    /// The driver has no flow control of that kind, or refuses it.
    #[error(
        "{driver} does not take `{what}`: {cause}. Leave it out, and set it with the NIC's own \
         tool if there is one (`ethtool --pause`, `mlnx_qos --pfc`)"
    )]
    FlowControl {
        /// The option: `pause` or `pfc`.
        what: &'static str,
        /// The driver.
        driver: String,
        /// The step that failed.
        cause: String,
    },
    /// DPDK or the driver failed at a step.
    #[error("{step} failed: {error}: {log}")]
    Step {
        /// The step that failed.
        step: &'static str,
        /// DPDK's errno.
        error: io::Error,
        /// DPDK's log of the attempt.
        log: String,
    },
}

impl PortError {
    /// The errnos behind the error, of the operating system or named in DPDK's log.
    pub fn errnos(&self) -> Vec<i32> {
        match self {
            Self::NoDevice { error, log, .. } | Self::Step { error, log, .. } => {
                errnos_of(Some(error), log)
            }
            Self::Memif { error, .. } | Self::Switch { error, .. } => errnos_of(Some(error), ""),
            Self::Argument { .. } => vec![libc::EINVAL],
            Self::AlreadyOpen { .. }
            | Self::InUse { .. }
            | Self::Removed { .. }
            | Self::NoNic { .. }
            | Self::QueuePairs { .. }
            | Self::Mtu { .. }
            | Self::PoolRoom { .. }
            | Self::Slots { .. }
            | Self::SwitchTaken { .. }
            | Self::FlowControl { .. }
            | Self::Ring { .. } => Vec::new(),
        }
    }

    pub(super) fn probe(device: &str, errno: i32, log: String) -> Self {
        let error = match errno {
            // The bus accepted the device, but no driver made a port of it.
            0 => io::Error::from(io::ErrorKind::NotFound),
            errno => io::Error::from_raw_os_error(errno),
        };
        Self::NoDevice { device: device.to_owned(), error, log }
    }

    pub(super) fn step(step: &'static str, errno: i32, log: String) -> Self {
        Self::Step { step, error: io::Error::from_raw_os_error(errno), log }
    }
}

/// The reason why a queue pair was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The port has fewer queue pairs.
    #[error("no queue pair {index}: the port has {pairs}")]
    OutOfRange {
        /// The requested pair.
        index: u16,
        /// Pairs of the port.
        pairs: usize,
    },
    /// The queue pair is taken.
    #[error("queue pair {index} is taken")]
    Taken {
        /// The requested pair.
        index: u16,
    },
}
