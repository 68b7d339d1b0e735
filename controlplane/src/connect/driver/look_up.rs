//! Look-ups of paths before an application connects.

use std::sync::Arc;
use std::time::Duration;

use uroce_engine::multicast_mac;
use uroce_transport::Instant;
use uroce_wire::Mac;

use super::Driver;
use crate::call::RequestError;
use crate::connect::around::Around;
use crate::connect::source::{Way, choose, choose_for_group};
use crate::connect::{CmEvent, CmEventKind, CmId, CmSink, PathSpec, ResolvedPath};
use crate::path::PathError;

/// A look-up with an unresolved next hop.
#[derive(Debug)]
pub(super) struct LookUp {
    pub(super) id: CmId,
    pub(super) channel: Arc<dyn CmSink>,
    way: Way,
    due: Instant,
}

impl Driver {
    pub(crate) fn resolve(
        &mut self,
        channel: Arc<dyn CmSink>,
        spec: &PathSpec,
        timeout: Duration,
        around: &mut Around<'_>,
    ) -> Result<CmId, RequestError> {
        let group = multicast_mac(spec.destination.into());
        let way = match group {
            Some(_) => choose_for_group(around.ports, spec)?,
            None => choose(around.ports, spec)?,
        };
        let id = self.new_id()?;
        if let Some(mac) = group {
            // The group's Ethernet address follows from its IP address.
            channel.give(CmEvent { id, kind: resolved(&way, mac) });
            return Ok(id);
        }
        let look_up = LookUp { id, channel, way, due: around.now + timeout };
        self.look_ups.extend(look_up.step(around));
        Ok(id)
    }

    /// Ends the look-ups with a resolved next hop, and those that have timed out.
    pub(super) fn step_look_ups(&mut self, around: &mut Around<'_>) {
        let all = std::mem::take(&mut self.look_ups);
        self.look_ups = all.into_iter().filter_map(|look_up| look_up.step(around)).collect();
    }

    /// Cancels a look-up. Returns whether `id` was one.
    pub(super) fn stop_look_up(&mut self, id: CmId) -> bool {
        let Some(at) = self.look_ups.iter().position(|look_up| look_up.id == id) else {
            return false;
        };
        self.look_ups.swap_remove(at).channel.forget(id);
        true
    }
}

impl LookUp {
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Reports the result of the look-up, or returns it while there is none.
    fn step(self, around: &mut Around<'_>) -> Option<LookUp> {
        let LookUp { id, way, .. } = self;
        let kind = match around.next_hop(&way) {
            Ok(None) if around.now < self.due => return Some(self),
            Ok(None) => {
                let dst = way.vector.dgid.to_ip();
                CmEventKind::AddressError(PathError::NoAnswer { dst, next_hop: dst }.into())
            }
            Ok(Some(mac)) => resolved(&way, mac),
            Err(error) => CmEventKind::AddressError(error.into()),
        };
        self.channel.give(CmEvent { id, kind });
        None
    }
}

fn resolved(way: &Way, mac: Mac) -> CmEventKind {
    let (port, source) = (way.port, way.addresses().0);
    CmEventKind::AddressResolved(ResolvedPath { port, source, vector: way.vector, mac })
}
