//! What the thread tells the control socket: ports, QPs, neighbours.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use uroce_engine::port::{Capabilities, Feature, Link, Negotiated, Port, PortStats};
use uroce_engine::{BottleneckConfig, ControlError, QpInfo};
use uroce_wire::{Gid, Mac, Qpn};

use super::Thread;
use crate::call::RequestError;
use crate::path::PathError;
use crate::path::neighbour::Reach;
use crate::rdma_cm::{CmId, ConnSeen};

/// Largest number of QPs in a page.
const PAGE: usize = 256;
/// Time after which a page ends: other calls wait meanwhile.
const PAGE_TIME: Duration = Duration::from_micros(500);

/// A page of QPs, and the slot at which the next page begins if there may be more.
pub(crate) type QpPage = (Vec<(Qpn, QpInfo)>, Option<u32>);

/// A port at one moment.
#[derive(Clone, Debug)]
pub(crate) struct PortSeen {
    /// Number at the device, from 1.
    pub(crate) number: u8,
    /// Number in the process, from 0.
    pub(crate) id: u16,
    pub(crate) queue_pairs: u16,
    /// Whether its device is closed, so that another may be attached.
    pub(crate) is_removed: bool,
    pub(crate) capabilities: Capabilities,
    pub(crate) features: Vec<Feature>,
    pub(crate) link: Link,
    pub(crate) negotiated: Option<Negotiated>,
    pub(crate) stats: PortStats,
    pub(crate) bottleneck: Option<BottleneckConfig>,
}

impl Thread {
    pub(crate) fn ports_seen(&self) -> Vec<PortSeen> {
        let of_port = |number: u8| {
            let port: &Port = self.control.port(number)?;
            Some(PortSeen {
                number,
                id: port.id(),
                queue_pairs: port.queue_pairs(),
                is_removed: port.is_removed(),
                capabilities: port.capabilities().clone(),
                features: self.control.features(number).unwrap_or_default(),
                link: port.link(),
                negotiated: port.negotiated(),
                stats: port.stats(),
                bottleneck: self.control.bottleneck(number),
            })
        };
        self.ports.numbers().filter_map(of_port).collect()
    }

    pub(crate) fn port_xstats(&self, port: u8) -> Result<Vec<(String, u64)>, RequestError> {
        let port = self.control.port(port).ok_or(PathError::NoPort(port))?;
        Ok(port.xstats())
    }

    /// Returns the queues of a port's RSS table, if its driver tells them.
    pub(crate) fn port_rss_table(&self, port: u8) -> Result<Option<Vec<u16>>, RequestError> {
        let port = self.control.port(port).ok_or(PathError::NoPort(port))?;
        Ok(port.rss_table())
    }

    pub(crate) fn qps_of_lcores(&self) -> Vec<u32> {
        self.control.qps_of_lcores().collect()
    }

    /// Returns QPs from slot `from` on.
    pub(crate) fn page_of_qps(&mut self, from: u32) -> Result<QpPage, RequestError> {
        let listed: Vec<(u32, Qpn)> = self.control.qps_from(from).take(PAGE).collect();
        let mut next = listed.last().map(|(slot, _)| slot + 1);
        let begin = Instant::now();
        let mut page = Vec::with_capacity(listed.len());
        for (slot, qpn) in listed {
            page.push((qpn, self.control.query_qp(qpn)?));
            if begin.elapsed() > PAGE_TIME {
                next = Some(slot + 1);
                break;
            }
        }
        Ok((page, next))
    }

    /// Forgets the round trips of QPs from slot `from` on; returns the slot at which to go on, if
    /// there may be more.
    pub(crate) fn clear_round_trips(&mut self, from: u32) -> Result<Option<u32>, RequestError> {
        let listed: Vec<(u32, Qpn)> = self.control.qps_from(from).take(PAGE).collect();
        let begin = Instant::now();
        for (slot, qpn) in &listed {
            self.control.clear_round_trips(*qpn)?;
            if begin.elapsed() > PAGE_TIME {
                return Ok(Some(slot + 1));
            }
        }
        Ok(listed.last().map(|(slot, _)| slot + 1))
    }

    /// Returns the QP of this number, if there is one.
    pub(crate) fn one_qp(&mut self, number: u32) -> Result<Option<(Qpn, QpInfo)>, RequestError> {
        let qpn = Qpn::new(number);
        if qpn.value() != number {
            return Ok(None);
        }
        match self.control.query_qp(qpn) {
            Ok(info) => Ok(Some((qpn, info))),
            Err(ControlError::UnknownQp(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns up to `most` ids of the connection manager from `from` on.
    pub(crate) fn connections_seen(&self, from: CmId, most: usize) -> Vec<ConnSeen> {
        self.service.ids_seen(from, most)
    }

    /// Returns the id of the connection manager with this number, if there is one.
    pub(crate) fn connection_seen(&self, id: CmId) -> Option<ConnSeen> {
        self.service.id_seen(id)
    }

    /// Returns the QPs that are attached to multicast groups, the groups, and their ports.
    pub(crate) fn groups_seen(&self) -> Vec<(Qpn, Gid, u8)> {
        self.members.iter().map(|((qpn, group), port)| (*qpn, *group, *port)).collect()
    }

    /// Returns the index of one of a port's addresses.
    pub(crate) fn gid_index(&self, port: u8, own: IpAddr) -> Option<u8> {
        let neighbours = self.ports.neighbours.get(usize::from(port).checked_sub(1)?)?;
        neighbours.routes().own().index(own)
    }

    /// Returns the neighbours of a port, counted from 0, and whether there is a next port.
    pub(crate) fn neighbours_of(&self, port: usize) -> (Vec<(IpAddr, Option<Mac>, Reach)>, bool) {
        let ports = &self.ports.neighbours;
        let entries = ports.get(port).map(|port| port.entries(self.now()).collect());
        (entries.unwrap_or_default(), port + 1 < ports.len())
    }
}
