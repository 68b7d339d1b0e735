//! Path migration: `load alt path`, `rearm`, `migrate`.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

#[cfg(feature = "tree")]
use super::number::number;

/// Objects of `alt`, an argument of `load`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum Alt {
    /// Load the alternate path of a queue pair, to which it may migrate
    Path(AltPath),
}

/// Arguments of `alt path`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Args))]
#[cfg_attr(feature = "tree", command(rename_all = "snake_case"))]
pub struct AltPath {
    /// Queue pair
    #[cfg_attr(feature = "tree", arg(long, value_name = "QPN", value_parser = number::<u32>))]
    pub qp: u32,
    /// Port of the device, from 1
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u8>))]
    pub port: u8,
    /// Address of the peer; without it, that of the primary path
    #[cfg_attr(feature = "tree", arg(long, value_name = "ADDRESS"))]
    pub dgid: Option<IpAddr>,
    /// Index of the own address at the port
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u8>))]
    pub sgid_index: Option<u8>,
    /// DSCP and ECN
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u8>))]
    pub tclass: Option<u8>,
    /// Flow label, 20 bits
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u32>))]
    pub flow_label: Option<u32>,
    /// TTL or hop limit
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u8>))]
    pub hop_limit: Option<u8>,
    /// Code of the local ACK timeout, 0 to 31; without it, that of the primary path
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u8>))]
    pub timeout: Option<u8>,
    /// P_Key; without it, that of the primary path
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u16>))]
    pub pkey: Option<u16>,
}

/// Objects of `rearm`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum Rearm {
    /// Make a queue pair ready to migrate to its alternate path
    Qp {
        /// Its number
        #[cfg_attr(feature = "tree", arg(value_name = "QPN", value_parser = number::<u32>))]
        qp: u32,
    },
}

/// Objects of `migrate`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum Migrate {
    /// Migrate a queue pair to its alternate path
    Qp {
        /// Its number
        #[cfg_attr(feature = "tree", arg(value_name = "QPN", value_parser = number::<u32>))]
        qp: u32,
        /// Migrate even if it is not armed: rearm it first, and wait up to two seconds for the peer
        #[cfg_attr(feature = "tree", arg(long))]
        force: bool,
    },
    /// Migrate all armed queue pairs that send through a port
    Port {
        /// Number of the port
        #[cfg_attr(feature = "tree", arg(value_name = "PORT", value_parser = number::<u16>))]
        port: u16,
    },
}
