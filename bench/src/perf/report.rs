//! Reports: perftest's tables character for character, its JSON, and CSV.
//!
//! Gb are 10⁹ bits, MiB 2²⁰ bytes, both of payload; `MsgRate[Mpps]` counts messages.
//!
//! Invariant: name, place and format of a column are perftest's. Values that perftest has no column
//! for (quantiles beyond 99.9 %, verification, retransmissions) are on separate lines below.

mod csv;
mod json;
mod text;
mod units;

pub(crate) use csv::Table;
pub(crate) use json::{Counts, Record, Report, Row};
pub(crate) use text::{
    Connection, Title, bandwidth_header, bandwidth_row, cpu_column, cpu_header, latencies,
    latency_duration_header, latency_duration_row, latency_header, latency_row, line, quantiles,
};
pub(crate) use units::Units;
