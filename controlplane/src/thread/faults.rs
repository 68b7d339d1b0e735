//! Injected faults of the device's ports.

use uroce_command::{SetFault, Share};
use uroce_engine::{FaultConfig, PortFaults};
use uroce_wire::Qpn;

use super::Thread;
use crate::call::RequestError;

impl Thread {
    /// Changes the faults of a port, numbered from 1.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]. Unless an lcore does not answer, nothing has changed.
    pub(crate) fn change_faults(
        &mut self,
        port: u8,
        change: &SetFault,
    ) -> Result<(), RequestError> {
        let mut faults = self.control.faults(port).copied().unwrap_or_default();
        for direction in [&mut faults.rx, &mut faults.tx] {
            // The faults of a QP end with it.
            if direction.qp.is_some_and(|qp| self.control.query_qp(qp).is_err()) {
                *direction = FaultConfig::default();
            }
        }
        Ok(self.control.set_faults(port, &changed(faults, change))?)
    }

    /// Returns the faults of each port, with its number from 1.
    pub(crate) fn all_faults(&self) -> Vec<(u8, PortFaults)> {
        let of_port = |port| Some((port, *self.control.faults(port)?));
        self.ports.numbers().filter_map(of_port).collect()
    }

    /// Ends the faults of all ports.
    ///
    /// # Errors
    ///
    /// That of the first port that keeps its faults.
    pub(crate) fn clear_faults(&mut self) -> Result<(), RequestError> {
        for port in self.ports.numbers() {
            self.control.set_faults(port, &PortFaults::default())?;
        }
        Ok(())
    }
}

/// Returns the faults with a change made to them. Without a direction it concerns both.
fn changed(faults: PortFaults, change: &SetFault) -> PortFaults {
    let PortFaults { mut rx, mut tx } = faults;
    if change.rx || !change.tx {
        change_one(&mut rx, change);
    }
    if change.tx || !change.rx {
        change_one(&mut tx, change);
    }
    PortFaults { rx, tx }
}

fn change_one(of: &mut FaultConfig, change: &SetFault) {
    let set = |to: &mut f64, share: Option<Share>| *to = share.map_or(*to, f64::from);
    set(&mut of.loss, change.loss);
    set(&mut of.duplicate, change.dup);
    set(&mut of.reorder, change.reorder);
    set(&mut of.corrupt, change.corrupt);
    of.delay_us = change.delay.unwrap_or(of.delay_us);
    of.seed = change.seed.unwrap_or(of.seed);
    of.qp = change.qp.map(Qpn::new).or(of.qp);
}
