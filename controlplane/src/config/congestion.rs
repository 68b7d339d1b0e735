//! Congestion control: the algorithm of a device's QPs, and their CNPs.

use serde::{Deserialize, Serialize};
use uroce_transport::{Congestion, DcqcnParams, DelayParams, Notification};

/// Algorithm of the QPs of a device. A program can choose another one for each of its QPs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// CNPs are counted and ignored.
    #[default]
    None,
    /// DCQCN: packets are ECN-capable, and CNPs slow a QP down.
    Dcqcn,
    /// Long round trips slow a QP down. For peers that acknowledge promptly, such as uroce's own.
    Delay,
}

/// Congestion control of a device. In the file: `[device.congestion]`.
///
/// A device answers marked packets with CNPs whatever its own algorithm is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CongestionConfig {
    /// Algorithm: `none` (default), `dcqcn`, `delay`.
    pub algorithm: Algorithm,
    /// DSCP of CNPs, 0 to 63; default 48.
    pub cnp_dscp: u8,
    /// Priority (PCP) of CNPs on a port with a VLAN, 0 to 7; default 6.
    pub cnp_802p_prio: u8,
    /// Least time between two CNPs of one QP in microseconds, 0 to 4095; default 4.
    pub min_time_between_cnps: u16,
    /// Parameters of `dcqcn`, in `[device.congestion.dcqcn]`, with mlx5's names and units. Default:
    /// those of [`DcqcnParams::default`].
    #[serde(with = "DcqcnKeys")]
    pub dcqcn: DcqcnParams,
    /// Parameters of `delay`, in `[device.congestion.delay]`. Default: those of
    /// [`DelayParams::default`].
    #[serde(with = "DelayKeys")]
    pub delay: DelayParams,
}

impl Default for CongestionConfig {
    fn default() -> Self {
        let Notification { min_time_between_cnps_us, cnp_dscp, cnp_802p_prio } =
            Notification::default();
        Self {
            algorithm: Algorithm::None,
            cnp_dscp,
            cnp_802p_prio,
            min_time_between_cnps: min_time_between_cnps_us,
            dcqcn: DcqcnParams::default(),
            delay: DelayParams::default(),
        }
    }
}

impl CongestionConfig {
    /// Returns the algorithm with its parameters.
    pub fn congestion(&self) -> Congestion {
        match self.algorithm {
            Algorithm::None => Congestion::None,
            Algorithm::Dcqcn => Congestion::Dcqcn(self.dcqcn),
            Algorithm::Delay => Congestion::Delay(self.delay),
        }
    }

    /// Returns the terms of CNPs.
    pub fn notification(&self) -> Notification {
        let CongestionConfig { min_time_between_cnps, cnp_dscp, cnp_802p_prio, .. } = *self;
        let min_time_between_cnps_us = min_time_between_cnps;
        Notification { min_time_between_cnps_us, cnp_dscp, cnp_802p_prio }
    }
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "DcqcnParams", deny_unknown_fields, default = "DcqcnParams::default")]
struct DcqcnKeys {
    rpg_time_reset: u32,
    rpg_byte_reset: u32,
    rpg_threshold: u32,
    rpg_ai_rate: u32,
    rpg_hai_rate: u32,
    rpg_gd: u8,
    rpg_min_dec_fac: u8,
    rpg_min_rate: u32,
    rpg_max_rate: u32,
    dce_tcp_rtt: u32,
    dce_tcp_g: u16,
    rate_reduce_monitor_period: u32,
    initial_alpha_value: u16,
    rate_to_set_on_first_cnp: u32,
    clamp_tgt_rate: bool,
    clamp_tgt_rate_after_time_inc: bool,
    roce_slow_restart_en: bool,
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "DelayParams", deny_unknown_fields, default = "DelayParams::default")]
struct DelayKeys {
    target_delay_us: u32,
    ai_rate: u32,
    beta: u8,
    max_mdf: u8,
    min_rate: u32,
    max_rate: u32,
}
