//! Reports: perftest's tables character for character, and its JSON.
//!
//! Gb are 10⁹ bits, MiB 2²⁰ bytes, both of payload; `MsgRate[Mpps]` counts messages.
//!
//! Invariant: name, place and format of a column are perftest's. Values that perftest has no column
//! for (quantiles beyond 99.9 %, verification, retransmissions) are on separate lines below.

mod json;
mod text;

pub(crate) use json::{Report, Row};
pub(crate) use text::{
    Connection, Title, bandwidth_header, bandwidth_row, latency_duration_header,
    latency_duration_row, latency_header, latency_row, line, quantiles,
};
