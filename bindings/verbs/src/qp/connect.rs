//! Connecting a QP from RESET to RTS in one call, with parameters that the application exchanges
//! itself.

use uroce_controlplane::{AlternateVector, PathError, RequestError};
use uroce_transport::{AccessFlags, QpChange, QpState, QpType, RtrAttr, RtsAttr, StaticRate};
use uroce_wire::{Gid, PathMtu, Psn, Qkey, Qpn};

use super::QpControl;
use crate::AddressVector;

/// The data that a peer needs to connect to a QP, for exchange over another channel such as TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// GID of the QP's port.
    pub gid: Gid,
    /// Number of the QP.
    pub qpn: Qpn,
    /// The first PSN that the QP will send.
    pub psn: Psn,
}

/// Attributes for [`QueuePair::connect`](crate::QueuePair::connect) that are not part of an
/// [`Endpoint`]. The defaults are those of common test programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Number of the local port, from 1. Default 1.
    pub port: u8,
    /// Index of the local address among the port's GIDs. Default 0.
    pub sgid_index: u8,
    /// Payload of a full packet. Must be the same at both ends. Default: the largest that fits the
    /// port.
    pub path_mtu: Option<PathMtu>,
    /// Access rights of the peer. Default: all.
    pub access: AccessFlags,
    /// Code of the local ACK timeout, 0 to 31: 4.096 µs · 2^code, 0 means no timeout. Default 14
    /// (67 ms).
    pub timeout: u8,
    /// Transport retries, 0 to 7. Default 7.
    pub retry_cnt: u8,
    /// Retries after RNR NAK (receiver not ready), 0 to 7, where 7 means no limit. Default 7.
    pub rnr_retry: u8,
    /// Code of the time that the peer waits after an RNR NAK of this side, 0 to 31. Default 12
    /// (0.64 ms).
    pub min_rnr_timer: u8,
    /// READ, ATOMIC, ATOMIC WRITE and FLUSH requests outstanding at the peer, 0 to 128, at most the
    /// peer's `max_dest_rd_atomic`. Default 16.
    pub max_rd_atomic: u8,
    /// READ, ATOMIC and ATOMIC WRITE requests of the peer outstanding at this side, 0 to 16.
    /// Default 16.
    pub max_dest_rd_atomic: u8,
    /// DSCP and ECN bits of sent packets. Default 0.
    pub traffic_class: u8,
    /// IPv6 flow label. Default 0.
    pub flow_label: u32,
    /// UDP source port, 0xC000 to 0xFFFF. Default 0: by the flow label, or without one by both QP
    /// numbers.
    pub udp_source_port: u16,
    /// IPv4 TTL or IPv6 hop limit. Default 64.
    pub hop_limit: u8,
    /// Priority in VLAN-tagged frames, 0 to 7. Default 0.
    pub service_level: u8,
    /// Rate limit of the path. Default: no limit.
    pub static_rate: StaticRate,
    /// Rate limit of the queue pair on any path, in kbit/s of whole frames. Default 0, no limit.
    pub rate_limit: u32,
    /// RC: whether both ends use selective repeat, which must be equal at both. Only a peer of this
    /// stack can use it. Default: as `selective_repeat` of the device's configuration says.
    pub selective_repeat: Option<bool>,
    /// Number of UDP source ports that requests use in turn, with selective repeat: 1, 2, 4, 8 or
    /// 16. Default: as `udp_source_ports` of the device's configuration says.
    pub udp_source_ports: Option<u8>,
    /// RC: silence of the peer, in milliseconds, after which a connection in which nothing is
    /// outstanding asks the peer for a sign of life. If the peer does not answer within `timeout`
    /// and `retry_cnt` retries, the queue pair goes to ERR. Default 0, never; see also
    /// [`QpControl::set_keepalive`].
    pub keepalive_ms: u32,
    /// Alternate path for automatic path migration. It is loaded, not armed: see
    /// [`QpControl::rearm`]. Default: none.
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
            udp_source_port: 0,
            hop_limit: 64,
            service_level: 0,
            static_rate: StaticRate::MAX,
            rate_limit: 0,
            selective_repeat: None,
            udp_source_ports: None,
            keepalive_ms: 0,
            alternate: None,
        }
    }
}

impl QpControl {
    /// The data that the peer needs to connect to this QP at a port (counted from 1) with one of
    /// its GIDs. The PSN is random and stays the same for the QP's life.
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

    /// Modifies the QP from RESET to INIT. In INIT receives can be posted before the peer can send.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is unchanged.
    pub fn init(&self, options: &ConnectOptions) -> Result<(), RequestError> {
        let change = QpChange {
            access: self.has_access().then_some(options.access),
            ..QpChange::to_init(options.port)
        };
        self.modify(&change, None)
    }

    /// Whether the access rights of peers are an attribute. Those of an EE context are attributes
    /// of the RD QPs that use it.
    fn has_access(&self) -> bool {
        !matches!(self.shared.qp_type, QpType::Ud | QpType::Eec)
    }

    /// Modifies a QP in RESET or INIT to RTS, connected to the peer's QP, which must be connected
    /// to this one. Resolves the peer's next hop, which takes a few seconds if it does not answer.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]. The QP stays in the last state that it has reached. If the peer was
    /// not resolved that is INIT, and the QP can be connected again.
    pub fn connect(&self, remote: &Endpoint, options: &ConnectOptions) -> Result<(), RequestError> {
        let device = &self.shared.pd.device;
        let port = device.port(options.port).ok_or(PathError::NoPort(options.port))?;
        if self.query()?.attr.state == QpState::Reset {
            self.init(options)?;
        }
        // If the port's MTU is too small for any path MTU, the smallest one is refused with an
        // error.
        let path_mtu = options.path_mtu.or(port.max_path_mtu).unwrap_or(PathMtu::B256);
        let path = AddressVector {
            sgid_index: options.sgid_index,
            traffic_class: options.traffic_class,
            flow_label: options.flow_label,
            udp_source_port: options.udp_source_port,
            hop_limit: options.hop_limit,
            service_level: options.service_level,
            static_rate: options.static_rate,
            dgid: remote.gid,
        };
        let rtr = RtrAttr {
            path_mtu,
            dest_qpn: remote.qpn,
            rq_psn: remote.psn,
            max_dest_rd_atomic: options.max_dest_rd_atomic,
            min_rnr_timer: options.min_rnr_timer,
        };
        let to_rtr = QpChange {
            access: self.has_access().then_some(options.access),
            selective_repeat: options.selective_repeat,
            udp_source_ports: options.udp_source_ports,
            keepalive_ms: (options.keepalive_ms > 0).then_some(options.keepalive_ms),
            ..QpChange::to_rtr(self.shared.qp_type, &rtr)
        };
        self.modify_paths(&to_rtr, Some(&path), options.alternate.as_ref())?;
        let rts = RtsAttr {
            sq_psn: self.shared.psn,
            timeout: options.timeout,
            retry_cnt: options.retry_cnt,
            rnr_retry: options.rnr_retry,
            max_rd_atomic: options.max_rd_atomic,
        };
        let to_rts = QpChange {
            rate_limit: (options.rate_limit > 0).then_some(options.rate_limit),
            ..QpChange::to_rts(self.shared.qp_type, &rts)
        };
        self.modify(&to_rts, None)
    }

    /// Sets the silence of the peer, in milliseconds, after which a connected RC QP in which
    /// nothing is outstanding asks the peer for a sign of life; 0 means never. The time begins now.
    /// If the peer does not answer within the QP's ACK timeout and retries, the QP goes to ERR: its
    /// receives complete flushed, and a QP of the connection manager's connection is disconnected.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is unchanged.
    pub fn set_keepalive(&self, idle_ms: u32) -> Result<(), RequestError> {
        self.modify(&QpChange { keepalive_ms: Some(idle_ms), ..QpChange::default() }, None)
    }

    /// Modifies a UD QP from RESET to RTS. It receives datagrams with this Q_Key from now on. Of
    /// the options only `port` and `rate_limit` are used.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]. The QP stays in the last state that it has reached.
    pub fn start_datagrams(
        &self,
        qkey: Qkey,
        options: &ConnectOptions,
    ) -> Result<(), RequestError> {
        let [to_init, to_rtr, to_rts] =
            QpChange::datagram_steps(options.port, qkey, self.shared.psn);
        self.modify(&to_init, None)?;
        self.modify(&to_rtr, None)?;
        let rate_limit = (options.rate_limit > 0).then_some(options.rate_limit);
        self.modify(&QpChange { rate_limit, ..to_rts }, None)
    }
}
