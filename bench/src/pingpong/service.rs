//! Differences between the ping-pongs: the service, its connection, its work requests.

use super::address::Address;
use crate::error::{BenchError, Step};
use crate::node::{Node, PORT};
use uroce::{
    AddressHandle, AddressVector, ConnectOptions, GRH_LEN, MemorySlice, ProtectionDomain, Qkey,
    QpType, Qpn, QueuePair, SendWr,
};

/// Q_Key of the stock program.
const QKEY: Qkey = Qkey(0x1111_1111);

/// Transport service of a ping-pong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// Service of `rc_pingpong`.
    Rc,
    /// Service of `uc_pingpong`.
    Uc,
    /// Service of `ud_pingpong`.
    Ud,
}

impl Service {
    /// Returns the name of the program.
    pub(super) fn test(self) -> &'static str {
        match self {
            Self::Rc => "rc_pingpong",
            Self::Uc => "uc_pingpong",
            Self::Ud => "ud_pingpong",
        }
    }

    /// Returns the type of the queue pairs.
    pub(super) fn qp_type(self) -> QpType {
        match self {
            Self::Rc => QpType::Rc,
            Self::Uc => QpType::Uc,
            Self::Ud => QpType::Ud,
        }
    }

    /// Returns the bytes in front of a received message.
    pub(super) fn ahead(self) -> usize {
        match self {
            Self::Rc | Self::Uc => 0,
            Self::Ud => GRH_LEN,
        }
    }

    /// Checks that a datagram is not longer than a packet.
    pub(super) fn check_size(self, size: u32, mtu: u32) -> Result<(), BenchError> {
        if self == Self::Ud && size > mtu {
            return Err(BenchError::usage("-s must not be more than -m: a datagram is one packet"));
        }
        Ok(())
    }

    /// Prepares a queue pair for messages from and to a peer.
    pub(super) fn connect(
        self,
        node: &Node,
        pd: &ProtectionDomain,
        qp: &mut QueuePair,
        to: &Address,
        options: &ConnectOptions,
    ) -> Result<Way, BenchError> {
        if self != Self::Ud {
            qp.connect(&to.0, options).step("connecting")?;
            return Ok(Way::Connection);
        }
        qp.start_datagrams(QKEY, options).step("starting the queue pair")?;
        let vector = AddressVector { sgid_index: node.gid_index, ..AddressVector::to(to.0.gid) };
        let handle = pd.create_ah(PORT, &vector).step("creating an address handle")?;
        Ok(Way::Datagrams { handle, qpn: to.0.qpn })
    }
}

/// Path of messages to the peer.
pub(super) enum Way {
    /// The queue pair is connected to the peer's.
    Connection,
    /// Every message carries its destination.
    Datagrams {
        /// Address handle of the peer.
        handle: AddressHandle,
        /// Queue pair of the peer.
        qpn: Qpn,
    },
}

impl Way {
    /// Builds a SEND of `local` to the peer.
    pub(super) fn send<'a>(&'a self, local: &'a [MemorySlice<'a>]) -> SendWr<'a> {
        match self {
            Self::Connection => SendWr::send(local),
            Self::Datagrams { handle, qpn } => SendWr::send_to(local, handle, *qpn, QKEY),
        }
    }
}
