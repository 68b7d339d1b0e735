//! Rows as lines of comma-separated values, written as they come.
//!
//! Test, connection and units are columns too, so that files of several runs can be put together.

use super::text::Title;
use super::{Row, Units};
use crate::error::BenchError;
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A file of rows.
pub(crate) struct Table {
    file: File,
    path: PathBuf,
    has_header: bool,
}

impl Table {
    /// Creates the file.
    pub(crate) fn create(path: &Path) -> Result<Self, BenchError> {
        let file = File::create(path).map_err(|error| failed(path, error))?;
        Ok(Self { file, path: path.to_owned(), has_header: false })
    }

    /// Appends a row, before the first one the header.
    pub(crate) fn append(
        &mut self,
        title: &Title<'_>,
        row: &Row,
        cpu_util: Option<f64>,
        units: &Units,
    ) -> Result<(), BenchError> {
        let [header, line] = lines(title, row, cpu_util, units);
        let text = if self.has_header { line } else { header + &line };
        self.has_header = true;
        self.file.write_all(text.as_bytes()).map_err(|error| failed(&self.path, error))
    }
}

fn failed(path: &Path, error: std::io::Error) -> BenchError {
    BenchError::io(format!("writing {}", path.display()), error)
}

/// Returns the header and the line of a row. No value has a comma or a quotation mark.
fn lines(title: &Title<'_>, row: &Row, cpu_util: Option<f64>, units: &Units) -> [String; 2] {
    let plan = title.plan;
    let unit = match row {
        Row::Bandwidth(_) => units.bandwidth_name(),
        Row::Latency(..) => units.time_name(),
    };
    let mut columns: Vec<(&str, Value)> = vec![
        ("test", title.test().replace(' ', "_").into()),
        ("Connection_type", plan.service.name().into()),
        ("Number_of_qps", plan.queue_pairs().into()),
        ("Mtu", title.mtu.into()),
        ("unit", unit.into()),
    ];
    columns.extend(row.values(units));
    columns.extend(cpu_util.map(|percent| ("CPU_util", percent.into())));
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let text = |(_, value): &(&str, Value)| match value {
        Value::String(text) => text.clone(),
        number => number.to_string(),
    };
    let values: Vec<String> = columns.iter().map(text).collect();
    [names.join(",") + "\n", values.join(",") + "\n"]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::measure::Bandwidth;
    use crate::perf::plan::{Measure, Operation, Plan};

    #[test]
    fn a_line_has_the_values_of_the_json_and_a_header_their_names() {
        let plan = Plan::new(Operation::Write, Measure::Bandwidth);
        let title = Title { plan: &plan, device: "net_ring", mtu: 4096, gid_index: 0 };
        let row = Bandwidth { messages: 10, size: 64, elapsed_ns: 1000, peak_rate: 0.01 };
        let units = Units { gbits: true, cycles_per_ns: None };
        let [header, line] = lines(&title, &Row::Bandwidth(row), Some(12.5), &units);
        assert_eq!(
            header,
            "test,Connection_type,Number_of_qps,Mtu,unit,MsgSize,n_iterations,BW_peak,BW_average,\
             MsgRate,CPU_util\n"
        );
        assert_eq!(line, "RDMA_Write_BW_Test,RC,1,4096,Gb/sec,64,10,5.12,5.12,10.0,12.5\n");
    }
}
