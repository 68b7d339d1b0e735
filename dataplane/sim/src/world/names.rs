//! What names a QP of a world, and a path of a node.

use uroce_wire::{Gid, Mac};

/// Identifies a QP of a world.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct At {
    /// Number of the node.
    pub node: u16,
    /// Number of the QP in the node; not its QPN.
    pub qp: u16,
}

/// An address of a node, and the port that has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rail {
    /// IP address.
    pub gid: Gid,
    /// MAC address of the port.
    pub mac: Mac,
    /// Port, counted from 1.
    pub port: u8,
}
