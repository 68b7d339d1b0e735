//! Growth of counters during a test (`-W`), by the names of Linux's files below a port.

use crate::error::{BenchError, Step};
use crate::node::PORT;
use uroce::Context;

/// Folder of the port's counters.
const PORT_FOLDER: &str = "counters/";
/// Folder of the device's counters.
const DEVICE_FOLDER: &str = "hw_counters/";

/// Counters that are watched, with their last values.
#[derive(Debug, Default)]
pub(crate) struct Counters(Vec<(String, u64)>);

impl Counters {
    /// Looks up the counters.
    pub(crate) fn new(context: &Context, names: &[String]) -> Result<Self, BenchError> {
        let all = if names.is_empty() { Vec::new() } else { read(context)? };
        let find = |name: &String| match all.iter().find(|(known, _)| known == name) {
            Some(known) => Ok(known.clone()),
            None => Err(BenchError::usage(format!(
                "-W: there is no counter {name}; there are {} and hw_counters/NAME with the names \
                 of `uroce show counters`",
                all.iter()
                    .map(|(known, _)| known.as_str())
                    .filter(|known| known.starts_with(PORT_FOLDER))
                    .collect::<Vec<_>>()
                    .join(", ")
            ))),
        };
        names.iter().map(find).collect::<Result<_, _>>().map(Self)
    }

    /// Returns by how much each has grown since it was read last.
    pub(crate) fn grown(&mut self, context: &Context) -> Result<Vec<(String, u64)>, BenchError> {
        if self.0.is_empty() {
            return Ok(Vec::new());
        }
        let all = read(context)?;
        let growth = |(name, last): &mut (String, u64)| {
            let now = all.iter().find(|(known, _)| known == name).map_or(*last, |known| known.1);
            let before = std::mem::replace(last, now);
            (name.clone(), now.saturating_sub(before))
        };
        Ok(self.0.iter_mut().map(growth).collect())
    }
}

/// Reads all counters of the device and its port.
fn read(context: &Context) -> Result<Vec<(String, u64)>, BenchError> {
    let port = context.port_status(PORT).step("reading the port's counters")?.stats.linux();
    let own = context.counters().step("reading counters")?;
    let port = port.iter().map(|(name, value)| (format!("{PORT_FOLDER}{name}"), *value));
    let own = own.iter().map(|count| (format!("{DEVICE_FOLDER}{}", count.name), count.value));
    Ok(port.chain(own).collect())
}
