//! Answers about traces.

use uroce_command::Answer;

use super::super::Served;
use crate::call::RequestError;

/// Answers with the trace of a device, if it has one.
pub(super) fn show(served: &Served) -> Result<Answer, RequestError> {
    let name = served.config.name.clone();
    let trace = served.calls.call(move |thread| Ok(thread.trace_seen(&name)))?;
    Ok(Answer::Trace(trace.into_iter().collect()))
}

/// Ends the trace of a device, if it still runs, and drops its packets.
pub(super) fn clear(served: &Served) -> Result<Answer, RequestError> {
    served.calls.call(|thread| {
        thread.clear_trace();
        Ok(Answer::Done)
    })
}
