//! `trace`.

use std::sync::Arc;

use rustix::io::Errno;
use uroce_command::Answer;
use uroce_command::request::{PACKETS_MAX, Trace};

use super::{Console, Failure, Served};

impl Console {
    pub(super) fn trace(&self, trace: &Trace, devices: &[Arc<Served>]) -> Result<Answer, Failure> {
        let Trace::Qp { qp, packets } = *trace;
        if !(1..=PACKETS_MAX).contains(&packets) {
            let cause = format!("a trace cannot have {packets} packets");
            return Err(Failure::new(Errno::INVAL, cause, format!("choose 1 to {PACKETS_MAX}")));
        }
        let found = self.find_qp(qp, devices)?;
        let (qpn, calls) = (found.qpn, found.served.calls.clone());
        let started = found
            .served
            .calls
            .call(move |thread| Ok(thread.start_trace(qpn, usize::from(packets), calls)))?;
        let busy = |cause| Failure::new(Errno::BUSY, cause, "`show capture` lists captures");
        started.map(|()| Answer::Done).map_err(busy)
    }
}
