//! Look-ups of paths, which an application starts before it connects.

use std::sync::Arc;
use std::time::Duration;

use uroce_engine::multicast_mac;
use uroce_transport::Instant;
use uroce_wire::Mac;

use super::Service;
use crate::call::RequestError;
use crate::path::PathError;
use crate::rdma_cm::context::ServiceContext;
use crate::rdma_cm::source::{Way, choose, choose_for_group};
use crate::rdma_cm::{CmId, CmSink, ConnEvent, PathSpec, ResolvedPath};

/// A look-up with an unresolved next hop.
#[derive(Debug)]
pub(super) struct LookUp {
    pub(super) id: CmId,
    pub(super) channel: Arc<dyn CmSink>,
    way: Way,
    due: Instant,
}

impl Service {
    /// Starts the look-up of a path. The channel receives its result, also if it is known at once.
    pub(crate) fn resolve(
        &mut self,
        channel: Arc<dyn CmSink>,
        spec: &PathSpec,
        timeout: Duration,
        context: &mut ServiceContext<'_>,
    ) -> Result<CmId, RequestError> {
        let group = multicast_mac(spec.destination.into());
        let way = match group {
            Some(_) => choose_for_group(context.ports, spec)?,
            None => choose(context.ports, spec)?,
        };
        let id = self.new_id()?;
        if let Some(mac) = group {
            // The group's Ethernet address is derived from its IP address.
            channel.give(id, resolved(&way, mac));
            return Ok(id);
        }
        let look_up = LookUp { id, channel, way, due: context.now + timeout };
        self.look_ups.extend(look_up.step(context));
        Ok(id)
    }

    /// Ends the look-ups with a resolved next hop, and those that have timed out.
    pub(super) fn step_look_ups(&mut self, context: &mut ServiceContext<'_>) {
        let all = std::mem::take(&mut self.look_ups);
        self.look_ups = all.into_iter().filter_map(|look_up| look_up.step(context)).collect();
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

    /// Reports the result of the look-up. Returns the look-up if there is no result yet.
    fn step(self, context: &mut ServiceContext<'_>) -> Option<LookUp> {
        let LookUp { id, way, .. } = self;
        let event = match context.next_hop(&way) {
            Ok(None) if context.now < self.due => return Some(self),
            Ok(None) => {
                let dst = way.vector.dgid.to_ip();
                ConnEvent::AddressError(PathError::NoAnswer { dst, next_hop: dst }.into())
            }
            Ok(Some(mac)) => resolved(&way, mac),
            Err(error) => ConnEvent::AddressError(error.into()),
        };
        tracing::debug!(id = id.0, ?event, "path looked up");
        self.channel.give(id, event);
        None
    }
}

fn resolved(way: &Way, mac: Mac) -> ConnEvent {
    let (port, source) = (way.port, way.addresses().0);
    ConnEvent::AddressResolved(ResolvedPath { port, source, vector: way.vector, mac })
}
