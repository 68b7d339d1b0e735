//! Options of the header fields of sent packets.

use crate::error::BenchError;
use crate::perf::plan::Fields;
use clap::Args;

/// Largest flow label: 20 bits.
const FLOW_LABEL_MAX: u32 = 0xf_ffff;

/// Header fields of the packets that this end sends.
#[derive(Args, Clone, Debug)]
pub(crate) struct PathArgs {
    /// Service level, 0 to 7: the priority in the port's VLAN tag
    #[arg(short = 'S', long, default_value_t = 0, value_name = "SL",
          value_parser = clap::value_parser!(u8).range(..=7))]
    sl: u8,
    /// Byte of DSCP and ECN in the IP header, 0 to 255 (perftest has it with -R only)
    #[arg(short = 'T', long, value_name = "BYTE", value_parser = parse_byte)]
    tos: Option<u8>,
    /// That byte by its name in IPv6
    #[arg(long, value_name = "BYTE", value_parser = parse_byte)]
    tclass: Option<u8>,
    /// IPv6 flow labels, which the queue pairs, or with -c RD the EE contexts, take in turn. They
    /// also choose the UDP source ports
    #[arg(long = "flow_label", value_delimiter = ',', value_name = "LABELS",
          value_parser = parse_flow_label)]
    flow_label: Vec<u32>,
    /// IPv4 TTL or IPv6 hop limit, 2 to 255 (perftest has it for raw Ethernet only)
    #[arg(short = 'L', long = "hop_limit", default_value_t = 64, value_name = "N",
          value_parser = clap::value_parser!(u8).range(2..))]
    hop_limit: u8,
}

impl PathArgs {
    /// Returns the fields.
    pub(super) fn fields(&self) -> Fields {
        Fields {
            service_level: self.sl,
            traffic_class: self.tos.or(self.tclass).unwrap_or(0),
            flow_labels: self.flow_label.clone(),
            hop_limit: self.hop_limit,
        }
    }

    /// Checks that the options do not contradict each other.
    pub(super) fn check(&self) -> Result<(), BenchError> {
        match (self.tos, self.tclass) {
            (Some(tos), Some(tclass)) if tos != tclass => Err(BenchError::usage(format!(
                "-T and --tclass are one byte of the header, and {tos} is not {tclass}: give one"
            ))),
            _ => Ok(()),
        }
    }
}

fn parse_byte(text: &str) -> Result<u8, String> {
    number(text).and_then(|value| value.try_into().ok()).ok_or("a number from 0 to 255".to_owned())
}

fn parse_flow_label(text: &str) -> Result<u32, String> {
    let label = number(text).filter(|&label| label <= FLOW_LABEL_MAX);
    label.ok_or(format!("numbers from 0 to {FLOW_LABEL_MAX:#x}, e.g. 1,0x2f"))
}

/// Reads a number as perftest does: decimal, or with 0x hexadecimal.
pub(super) fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
