//! Why a port or a queue pair cannot be had, by name, with DPDK's own words.

use std::io;

/// Why a port was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// No driver knows the name, or the driver refuses the arguments.
    #[error("no device {device:?}: {error}: {log}")]
    NoDevice {
        /// The name, without arguments.
        device: String,
        /// DPDK's errno.
        error: io::Error,
        /// What DPDK logged.
        log: String,
    },
    /// This process has the port open already.
    #[error("{device:?} is already open")]
    AlreadyOpen {
        /// The name, without arguments.
        device: String,
    },
    /// The device has no queue pair, or none were asked for.
    #[error("{asked} queue pairs asked for, the device has {max}")]
    QueuePairs {
        /// Pairs asked for.
        asked: u16,
        /// Pairs the device has.
        max: u16,
    },
    /// The device does not carry frames of that size.
    #[error("MTU {asked} asked for, the device takes {min} to {max}")]
    Mtu {
        /// Bytes asked for.
        asked: u16,
        /// Least bytes.
        min: u16,
        /// Most bytes.
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
        /// What to give instead.
        remedy: String,
    },
    /// A memif link cannot be made.
    #[error("no such memif link can be: {reason}: {error}")]
    Memif {
        /// What is wrong.
        reason: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// A ring's name or size is not possible.
    #[error("no such ring pair can be: {reason}")]
    Ring {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// DPDK or the driver failed at a step.
    #[error("{step} failed: {error}: {log}")]
    Step {
        /// What was being done.
        step: &'static str,
        /// DPDK's errno.
        error: io::Error,
        /// What DPDK logged.
        log: String,
    },
}

impl PortError {
    pub(super) fn probe(device: &str, errno: i32, log: String) -> Self {
        let error = match errno {
            // The bus took the device and no driver made a port of it.
            0 => io::Error::from(io::ErrorKind::NotFound),
            errno => io::Error::from_raw_os_error(errno),
        };
        Self::NoDevice { device: device.to_owned(), error, log }
    }

    pub(super) fn step(step: &'static str, errno: i32, log: String) -> Self {
        Self::Step { step, error: io::Error::from_raw_os_error(errno), log }
    }
}

/// Why a queue pair cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The port has fewer.
    #[error("no queue pair {index}: the port has {pairs}")]
    OutOfRange {
        /// The pair asked for.
        index: u16,
        /// Pairs of the port.
        pairs: usize,
    },
    /// Somebody has it.
    #[error("queue pair {index} is taken")]
    Taken {
        /// The pair asked for.
        index: u16,
    },
}
