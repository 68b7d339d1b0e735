//! Answers about injected faults. Each is made at once, for all devices.

use std::sync::Arc;

use uroce_command::answer::Fault;
use uroce_command::{Answer, Reply, Select, SetFault};
use uroce_engine::FaultConfig;
use uroce_wire::Qpn;

use super::super::{Served, or_nothing};
use super::capture::{failed, find, no_port};
use super::port;
use crate::call::RequestError;

/// Changes the faults of a port.
pub(super) fn set(change: &SetFault, devices: &[Arc<Served>]) -> Result<Reply, RequestError> {
    let SetFault { port, loss, dup, reorder, corrupt, delay, seed, qp, .. } = change;
    if [loss, dup, reorder, corrupt].iter().all(|share| share.is_none())
        && (delay, seed, qp) == (&None, &None, &None)
    {
        return Ok(failed("which fault? Name one: loss, dup, reorder, corrupt or delay".into()));
    }
    if let Some(number) = qp.filter(|qp| Qpn::new(*qp).value() != *qp) {
        return Ok(failed(format!("no QP {number:#08x}")));
    }
    let Some((served, port)) = find(*port, devices)? else { return Ok(no_port(*port)) };
    let change = change.clone();
    served.calls.call(move |thread| thread.change_faults(port.number, &change))?;
    Ok(Reply::Last(Answer::Done))
}

/// Returns the faults of all ports.
pub(super) fn show(devices: &[Arc<Served>]) -> Result<Reply, RequestError> {
    let mut all = Vec::new();
    for served in devices {
        let ports = or_nothing(port::seen(served, Select::All))?;
        for (number, faults) in or_nothing(served.calls.call(|thread| Ok(thread.all_faults())))? {
            let Some(port) = ports.iter().find(|port| port.number == number) else { continue };
            for (tx, of) in [(false, faults.rx), (true, faults.tx)] {
                all.push(told(served, port.id.into(), tx, &of));
            }
        }
    }
    Ok(Reply::Last(Answer::Fault(all)))
}

/// Ends all faults.
pub(super) fn clear(devices: &[Arc<Served>]) -> Result<Reply, RequestError> {
    for served in devices {
        or_nothing(served.calls.call(|thread| thread.clear_faults()))?;
    }
    Ok(Reply::Last(Answer::Done))
}

fn told(served: &Served, port: u32, tx: bool, of: &FaultConfig) -> Fault {
    Fault {
        port,
        device: served.config.name.clone(),
        tx,
        loss: of.loss,
        dup: of.duplicate,
        reorder: of.reorder,
        corrupt: of.corrupt,
        delay: of.delay_us,
        seed: of.seed,
        qp: of.qp.map(Qpn::value),
    }
}
