//! Connecting by numbers that the application exchanges itself: RESET to RTS in one call.

use uroce_controlplane::{AlternateVector, PathError, RequestError};
use uroce_transport::{AccessFlags, QpChange, QpState, QpType, StaticRate};
use uroce_wire::{Gid, PathMtu, Pkey, Psn, Qkey, Qpn};

use super::QpControl;
use crate::AddressVector;

/// What a peer must know of a QP to connect to it: plain numbers to be exchanged out of band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address.
    pub gid: Gid,
    /// Its number.
    pub qpn: Qpn,
    /// The first PSN that it will send.
    pub psn: Psn,
}

/// How [`QueuePair::connect`](crate::QueuePair::connect) sets the attributes that the endpoints do not say. The defaults are
/// those of common test programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Local port, from 1; default 1.
    pub port: u8,
    /// Index of our address among the port's GIDs; default 0.
    pub sgid_index: u8,
    /// Payload of a full packet, the same at both ends; default: the largest that fits the port.
    pub path_mtu: Option<PathMtu>,
    /// What the peer may do; default: everything.
    pub access: AccessFlags,
    /// Local ACK timeout, 4.096 µs · 2^code, 0 (never) to 31; default 14 (67 ms).
    pub timeout: u8,
    /// Transport retries, 0 to 7; default 7.
    pub retry_cnt: u8,
    /// Retries after "receiver not ready", 0 to 7 (for ever); default 7.
    pub rnr_retry: u8,
    /// How long the peer waits when we have no receive posted, a code from 0 to 31; default 12
    /// (0.64 ms).
    pub min_rnr_timer: u8,
    /// READ and ATOMIC requests of ours outstanding, 0 to 128; default 16. At most the peer's
    /// `max_dest_rd_atomic`.
    pub max_rd_atomic: u8,
    /// READ and ATOMIC requests of the peer's outstanding, 0 to 16; default 16.
    pub max_dest_rd_atomic: u8,
    /// DSCP and ECN; default 0.
    pub traffic_class: u8,
    /// IPv6 flow label; default 0.
    pub flow_label: u32,
    /// TTL or hop limit; default 64.
    pub hop_limit: u8,
    /// Priority of VLAN-tagged frames, 0 to 7; default 0.
    pub service_level: u8,
    /// The most that the path takes; default: no limit.
    pub static_rate: StaticRate,
    /// The most that the queue pair may send on whatever path, kbit/s of whole frames; default 0,
    /// no limit.
    pub rate_limit: u32,
    /// Where the connection goes when its path fails; default: nowhere. It is loaded, not armed:
    /// see [`QpControl::rearm`].
    pub alternate: Option<AlternateVector>,
}

impl Default for ConnectOptions {
    fn default() -> ConnectOptions {
        ConnectOptions {
            port: 1,
            sgid_index: 0,
            path_mtu: None,
            access: AccessFlags::all(),
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 64,
            service_level: 0,
            static_rate: StaticRate::MAX,
            rate_limit: 0,
            alternate: None,
        }
    }
}

impl QpControl {
    /// What the peer must know to connect to it, with the address of that index at a port counted
    /// from 1. The PSN is random and stays the same for the QP's life.
    ///
    /// # Errors
    ///
    /// [`PathError::NoPort`] or [`PathError::NoGid`].
    pub fn endpoint(&self, port: u8, sgid_index: u8) -> Result<Endpoint, PathError> {
        let attr = self.shared.pd.device.port(port).ok_or(PathError::NoPort(port))?;
        let gid = attr.gids.get(usize::from(sgid_index));
        let gid = *gid.ok_or(PathError::NoGid { port, index: sgid_index })?;
        Ok(Endpoint { gid, qpn: self.shared.qpn, psn: self.shared.psn })
    }

    /// Takes a QP from RESET to INIT, where receives can be posted before the peer knows of it.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is as it was.
    pub fn init(&self, options: &ConnectOptions) -> Result<(), RequestError> {
        let change = QpChange {
            pkey: Some(Pkey::DEFAULT),
            port: Some(options.port),
            access: (self.shared.qp_type != QpType::Ud).then_some(options.access),
            ..QpChange::to(QpState::Init)
        };
        self.modify(&change, None)
    }

    /// Connects a QP in RESET or INIT to a peer's, which connects to this one: takes it to RTS. The
    /// peer's next hop is resolved, which takes a few seconds if it does not answer.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]. The QP stays in the last state that it reached: after an unresolved
    /// peer that is INIT, from where it can be connected again.
    pub fn connect(&self, remote: &Endpoint, options: &ConnectOptions) -> Result<(), RequestError> {
        let device = &self.shared.pd.device;
        let port = device.port(options.port).ok_or(PathError::NoPort(options.port))?;
        if self.query()?.attr.state == QpState::Reset {
            self.init(options)?;
        }
        // A port too small for any path MTU says so when the smallest does not fit.
        let path_mtu = options.path_mtu.or(port.max_path_mtu).unwrap_or(PathMtu::B256);
        let path = AddressVector {
            sgid_index: options.sgid_index,
            traffic_class: options.traffic_class,
            flow_label: options.flow_label,
            hop_limit: options.hop_limit,
            service_level: options.service_level,
            static_rate: options.static_rate,
            dgid: remote.gid,
        };
        // What only an acknowledged service has.
        let reliable = |value| (self.shared.qp_type == QpType::Rc).then_some(value);
        let to_rtr = QpChange {
            access: Some(options.access),
            path_mtu: Some(path_mtu),
            dest_qpn: Some(remote.qpn),
            rq_psn: Some(remote.psn),
            max_dest_rd_atomic: reliable(options.max_dest_rd_atomic),
            min_rnr_timer: reliable(options.min_rnr_timer),
            ..QpChange::to(QpState::Rtr)
        };
        self.modify_paths(&to_rtr, Some(&path), options.alternate.as_ref())?;
        let to_rts = QpChange {
            sq_psn: Some(self.shared.psn),
            timeout: reliable(options.timeout),
            retry_cnt: reliable(options.retry_cnt),
            rnr_retry: reliable(options.rnr_retry),
            max_rd_atomic: reliable(options.max_rd_atomic),
            rate_limit: (options.rate_limit > 0).then_some(options.rate_limit),
            ..QpChange::to(QpState::Rts)
        };
        self.modify(&to_rts, None)
    }

    /// Takes a UD QP from RESET to RTS. Datagrams that bring this Q_Key are received from now on.
    /// Of the options only the port and the rate limit count.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]. The QP stays in the last state that it reached.
    pub fn start_datagrams(
        &self,
        qkey: Qkey,
        options: &ConnectOptions,
    ) -> Result<(), RequestError> {
        let to_init = QpChange {
            pkey: Some(Pkey::DEFAULT),
            port: Some(options.port),
            qkey: Some(qkey),
            ..QpChange::to(QpState::Init)
        };
        self.modify(&to_init, None)?;
        self.modify(&QpChange::to(QpState::Rtr), None)?;
        let to_rts = QpChange {
            sq_psn: Some(self.shared.psn),
            rate_limit: (options.rate_limit > 0).then_some(options.rate_limit),
            ..QpChange::to(QpState::Rts)
        };
        self.modify(&to_rts, None)
    }
}
