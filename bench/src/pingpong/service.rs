//! What differs between the ping-pongs: the service, its connection, its work requests.

use super::address::Address;
use crate::error::{BenchError, Step};
use crate::node::{Node, PORT};
use uroce::{
    AddressHandle, AddressVector, ConnectOptions, GRH_LEN, MemorySlice, ProtectionDomain, Qkey,
    QpType, Qpn, QueuePair, SendWr,
};

/// The stock tool's Q_Key.
const QKEY: Qkey = Qkey(0x1111_1111);

/// A transport service, named as its program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// `rc_pingpong`.
    Rc,
    /// `uc_pingpong`.
    Uc,
    /// `ud_pingpong`.
    Ud,
}

impl Service {
    /// The program's name.
    pub(super) fn test(self) -> &'static str {
        match self {
            Self::Rc => "rc_pingpong",
            Self::Uc => "uc_pingpong",
            Self::Ud => "ud_pingpong",
        }
    }

    /// As a queue pair has it.
    pub(super) fn qp_type(self) -> QpType {
        match self {
            Self::Rc => QpType::Rc,
            Self::Uc => QpType::Uc,
            Self::Ud => QpType::Ud,
        }
    }

    /// Bytes that a receive buffer has in front of the message.
    pub(super) fn ahead(self) -> usize {
        match self {
            Self::Rc | Self::Uc => 0,
            Self::Ud => GRH_LEN,
        }
    }

    /// Refuses a datagram that is longer than a packet.
    pub(super) fn check_size(self, size: u32, mtu: u32) -> Result<(), BenchError> {
        if self == Self::Ud && size > mtu {
            return Err(BenchError::usage("-s must not be more than -m: a datagram is one packet"));
        }
        Ok(())
    }

    /// Makes a queue pair ready for messages from and to a peer.
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

/// How messages get to the peer.
pub(super) enum Way {
    /// The queue pair is connected to the peer's.
    Connection,
    /// Every message says where it goes.
    Datagrams {
        /// The peer's address.
        handle: AddressHandle,
        /// The peer's queue pair.
        qpn: Qpn,
    },
}

impl Way {
    /// A SEND of this memory to the peer.
    pub(super) fn send<'a>(&'a self, local: &'a [MemorySlice<'a>]) -> SendWr<'a> {
        match self {
            Self::Connection => SendWr::send(local),
            Self::Datagrams { handle, qpn } => SendWr::send_to(local, handle, *qpn, QKEY),
        }
    }
}
