//! Options of tests in which receive requests are posted: SEND, and WRITE with immediate data.

use super::Group;
use crate::error::BenchError;
use crate::perf::plan::{Plan, Service};
use clap::Args;
use std::net::IpAddr;
use uroce::Gid;

/// Receive requests of bandwidth tests of SEND.
#[derive(Args, Clone, Debug)]
pub(crate) struct ReceiveArgs {
    /// Receive requests posted per queue pair, or with --use-srq or -c XRC in all
    #[arg(short = 'r', long, default_value_t = 512, value_name = "N")]
    rx_depth: u32,
    /// Use one receive queue for all queue pairs of this end (always so with -c XRC)
    #[arg(long = "use-srq")]
    use_srq: bool,
}

/// Receive requests posted in lists.
#[derive(Args, Clone, Debug)]
pub(crate) struct ReceiveListArgs {
    /// Receive requests posted at once [default: up to 32]
    #[arg(long = "recv_post_list", value_name = "N")]
    recv_post_list: Option<u32>,
}

/// Immediate data of SEND.
#[derive(Args, Clone, Debug)]
pub(crate) struct SendImmArgs {
    /// Send immediate data with each message
    #[arg(long = "send_with_imm")]
    send_with_imm: bool,
}

/// Immediate data of WRITE.
#[derive(Args, Clone, Debug)]
pub(crate) struct WriteImmArgs {
    /// Send immediate data with each message, for which the other end posts receive requests
    #[arg(long = "write_with_imm")]
    write_with_imm: bool,
    /// Receive requests posted per queue pair, or with -c XRC in all, with --write_with_imm
    #[arg(short = 'r', long, default_value_t = 512, value_name = "N", requires = "write_with_imm")]
    rx_depth: u32,
}

/// Sleeping instead of polling.
#[derive(Args, Clone, Debug)]
pub(crate) struct EventArgs {
    /// Sleep on completion events instead of polling; the lcore then has a thread of its own
    #[arg(short = 'e', long, conflicts_with_all = ["duration", "poll_drives"])]
    events: bool,
}

/// Datagrams to a multicast group.
#[derive(Args, Clone, Debug)]
pub(crate) struct MulticastArgs {
    /// Send to a multicast group, to which the receiver's queue pair is attached (implies -c UD)
    #[arg(short = 'g', long)]
    mcg: bool,
    /// The group to receive from: 16 bytes with colons, or an IP address [default: one made from
    /// the queue pair's number]
    #[arg(short = 'M', long = "MGID", value_name = "GID", requires = "mcg",
          value_parser = parse_group)]
    mgid: Option<Gid>,
}

impl Group for ReceiveArgs {
    fn apply(&self, plan: &mut Plan) -> Result<(), BenchError> {
        plan.rx_depth = self.rx_depth;
        plan.local.srq = self.use_srq;
        Ok(())
    }
}

impl Group for ReceiveListArgs {
    fn apply(&self, plan: &mut Plan) -> Result<(), BenchError> {
        plan.local.receive_list = self.recv_post_list;
        Ok(())
    }
}

impl Group for SendImmArgs {
    fn apply(&self, plan: &mut Plan) -> Result<(), BenchError> {
        plan.immediate = self.send_with_imm;
        Ok(())
    }
}

impl Group for WriteImmArgs {
    fn apply(&self, plan: &mut Plan) -> Result<(), BenchError> {
        plan.immediate = self.write_with_imm;
        plan.rx_depth = self.rx_depth;
        Ok(())
    }
}

impl Group for EventArgs {
    fn apply(&self, plan: &mut Plan) -> Result<(), BenchError> {
        plan.local.events = self.events;
        Ok(())
    }
}

impl Group for MulticastArgs {
    fn apply(&self, plan: &mut Plan) -> Result<(), BenchError> {
        if !self.mcg {
            return Ok(());
        }
        if plan.bidirectional || plan.qps > 1 {
            return Err(BenchError::usage(
                "-g sends one way from one queue pair: leave out -b and -q",
            ));
        }
        plan.service = Service::Ud;
        plan.multicast = true;
        plan.local.group = self.mgid;
        Ok(())
    }
}

/// Reads a multicast GID as perftest does, 16 numbers with colons in between, or an IP address.
fn parse_group(text: &str) -> Result<Gid, String> {
    let byte = |word: &str| match word.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    };
    let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
    let bytes = bytes.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    let gid = match (bytes, text.parse::<IpAddr>()) {
        (Some(bytes), _) => Some(Gid(bytes)),
        (None, Ok(address)) => Some(Gid::from(address)),
        (None, Err(_)) => None,
    };
    gid.filter(|gid| gid.to_ip().is_multicast())
        .ok_or_else(|| "a multicast group: 224.0.0.30, ff05::1, or 16 bytes with colons".to_owned())
}
