//! Terms of a pair: how its two ends are connected.

use core::net::{Ipv4Addr, Ipv6Addr};

use uroce_wire::{Gid, Mac, PathMtu, Psn, Qkey};

use crate::world::Settings;
use crate::world::names::Rail;
use uroce_transport::{AccessFlags, Congestion, Notification, Pd, QpCaps, QpInit, QpType};

/// Attributes of one end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Half {
    /// First PSN that this end sends.
    pub sq_psn: Psn,
    /// Access that this end grants its peer.
    pub access: AccessFlags,
    /// READs and ATOMICs that this end may have outstanding.
    pub max_rd_atomic: u8,
    /// READs and ATOMICs that this end accepts at a time.
    pub max_dest_rd_atomic: u8,
    /// RNR NAK timer code that this end sends.
    pub min_rnr_timer: u8,
    /// Local ACK timeout code.
    pub timeout: u8,
    /// Transport retries.
    pub retry_cnt: u8,
    /// RNR retries.
    pub rnr_retry: u8,
    /// Silence of the peer after which it is asked for a sign of life, in milliseconds; 0: never.
    pub keepalive_ms: u32,
    /// Q_Key of a UD QP.
    pub qkey: Qkey,
    /// Receives come from the node's shared receive queue, which is of this protection domain.
    pub srq: Option<Pd>,
}

/// Number and ports of each end's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rails {
    /// One address, at port 1.
    #[default]
    One,
    /// Two addresses, each at a port of its own.
    TwoPorts,
    /// Two addresses, both at port 1.
    OnePort,
}

/// Terms of a [`Pair`](super::Pair).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Terms {
    /// Transport service of both ends. With [`QpType::XrcSend`] end 0 is the initiator, end 1 the
    /// target. With [`QpType::Eec`] both ends are EECs, for the RD QPs of
    /// [`Pair::add_rd`](super::Pair::add_rd).
    pub qp_type: QpType,
    /// Packets are IPv6 instead of IPv4.
    pub is_ipv6: bool,
    /// Addresses of each end.
    pub rails: Rails,
    /// Path MTU of both ends.
    pub mtu: PathMtu,
    /// Queue capacities of both ends.
    pub caps: QpCaps,
    /// Length of each of the two regions of an end, in bytes.
    pub region: u32,
    /// Frames are recorded.
    pub is_recorded: bool,
    /// The independent checker is attached.
    pub is_tapped: bool,
    /// Settings of the world: links and turns.
    pub settings: Settings,
    /// Congestion control of both ends.
    pub congestion: Congestion,
    /// Both ends use selective repeat.
    pub selective_repeat: bool,
    /// With selective repeat: number of UDP source ports of each end.
    pub udp_source_ports: u8,
    /// CNPs of both ends.
    pub notification: Notification,
    /// Attributes of the two ends.
    pub half: [Half; 2],
}

impl Terms {
    /// Type of the QP of an end.
    pub(crate) fn type_of(&self, end: usize) -> QpType {
        match self.qp_type {
            QpType::XrcSend if end == 1 => QpType::XrcRecv,
            qp_type => qp_type,
        }
    }

    /// Protection domain of the QP of an end.
    pub(crate) fn pd(&self, end: u16) -> Pd {
        let qp_type = self.type_of(usize::from(end));
        if qp_type == QpType::XrcRecv { super::NO_PD } else { super::PD }
    }

    /// Parameters of the QP of an end.
    pub(crate) fn init(&self, end: u16) -> QpInit {
        let srq = self.half[usize::from(end)].srq.filter(|_| self.qp_type != QpType::Eec);
        let Terms { congestion, notification, .. } = *self;
        QpInit {
            srq,
            rdd: super::RDD,
            congestion,
            notification,
            ..QpInit::new(self.type_of(usize::from(end)), self.caps)
        }
    }

    /// Address of an end on a rail: 10.rail.0.end or fd00:rail::end, with ends counted from 1.
    pub(crate) fn gid(&self, end: u8, rail: u8) -> Gid {
        let (net, host) = (u16::from(rail), u16::from(end) + 1);
        match self.is_ipv6 {
            true => Ipv6Addr::new(0xfd00, net, 0, 0, 0, 0, 0, host).into(),
            false => Ipv4Addr::new(10, rail, 0, end + 1).into(),
        }
    }

    /// Second address of an end, if it has one.
    pub(crate) fn second_rail(&self, end: u8) -> Option<Rail> {
        let (mac, port) = match self.rails {
            Rails::One => return None,
            Rails::TwoPorts => (Mac([2, 0, 0, 0, 1, end + 1]), 2),
            Rails::OnePort => (Mac([2, 0, 0, 0, 0, end + 1]), 1),
        };
        Some(Rail { gid: self.gid(end, 1), mac, port })
    }
}

impl Default for Terms {
    /// Small packets, deep queues, all rights, a timeout of about 1 ms.
    fn default() -> Terms {
        let half = Half {
            sq_psn: Psn::new(1000),
            access: AccessFlags::all() | AccessFlags::FLUSH_PERSISTENT,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            min_rnr_timer: 6,
            timeout: 8,
            retry_cnt: 7,
            rnr_retry: 7,
            keepalive_ms: 0,
            qkey: Qkey(0x1111_1111),
            srq: None,
        };
        let caps = QpCaps {
            max_send_wr: 256,
            max_recv_wr: 256,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 1024,
        };
        Terms {
            qp_type: QpType::Rc,
            is_ipv6: false,
            rails: Rails::One,
            mtu: PathMtu::B256,
            caps,
            region: 1 << 18,
            is_recorded: true,
            is_tapped: false,
            settings: Settings::default(),
            congestion: Congestion::None,
            selective_repeat: false,
            udp_source_ports: 1,
            notification: Notification::default(),
            half: [half, Half { sq_psn: Psn::new(70_000), ..half }],
        }
    }
}
