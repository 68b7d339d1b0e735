//! Look-up of UD QPs by port: SIDR_REQ and SIDR_REP.
//!
//! Read first: IBA 12.11; Annex A11.

use uroce_cm::{ConnId, SidrAnswer, SidrParams, SidrRequest};
use uroce_transport::{QpChange, QpState};
use uroce_wire::cm::{PrivateData, SidrRep, SidrStatus};
use uroce_wire::{Pkey, Psn, Qkey, Qpn};

use super::active::{CM_RETRIES, RESPONSE_TIMEOUT, check_param, cm_path};
use super::common::{Common, Tally};
use super::terms::way_back;
use super::{Service, private_data, service_id};
use crate::call::RequestError;
use crate::rdma_cm::connection::{Connection, OwnQp};
use crate::rdma_cm::context::ServiceContext;
use crate::rdma_cm::{
    ConnError, ConnEvent, ConnParam, ConnQp, ConnectRequest, Datagrams, PortSpace,
};

/// Q_Key of UD QPs that are found by port, as on Linux.
const UDP_QKEY: Qkey = Qkey(0x0123_4567);
/// Largest number of bytes of an application's private data in a SIDR_REP.
const REP_DATA: usize = 136;

impl Service {
    /// Handles a SIDR_REQ for a service ID with a listener.
    //= check J12 — no listener: status 1; refused: 2; no QP: 3
    pub(super) fn sidr_requested(
        &mut self,
        conn: ConnId,
        request: &SidrRequest,
        context: &mut ServiceContext<'_>,
    ) {
        let status = self.admit_sidr(conn, request, context);
        if let Err(status) = status {
            self.common.count(match status {
                SidrStatus::NO_QP => Tally::BacklogFull,
                _ => Tally::Refused,
            });
            let answer = SidrAnswer { status, ..SidrAnswer::default() };
            let _ = self.common.cm.sidr_reply(context.now, conn, &answer);
        }
    }

    fn admit_sidr(
        &mut self,
        conn: ConnId,
        request: &SidrRequest,
        context: &ServiceContext<'_>,
    ) -> Result<(), SidrStatus> {
        let req = &request.req;
        let caller = self.caller(req.service_id, &req.private_data.0);
        let caller = caller.map_err(|_| SidrStatus::UNSUPPORTED)?;
        let primary = way_back(&request.addr, context).ok_or(SidrStatus::REJECTED)?;
        let incoming = self.incoming(&caller, primary).map_err(|_| SidrStatus::NO_QP)?;
        let path_mtu = context.path_mtu(primary.port).ok_or(SidrStatus::NO_QP)?;
        let presented = ConnectRequest {
            listener: caller.listener,
            space: caller.space,
            local: caller.local,
            peer: caller.peer,
            peer_qpn: Qpn::default(),
            qp_type: uroce_transport::QpType::Ud,
            responder_resources: 0,
            initiator_depth: 0,
            flow_control: false,
            retry_count: 0,
            rnr_retry_count: 0,
            path_mtu,
            has_alternate: false,
            has_srq: false,
            agreed: None,
            private_data: req.private_data.0[uroce_wire::cm::IpHeader::LEN..].to_vec(),
        };
        let connection = Connection { conn: Some(conn), ..incoming };
        self.present(conn, connection, presented, context.now).map_err(|_| SidrStatus::NO_QP)
    }
}

impl Connection {
    /// Takes the local QP, if any, to RTS and sends the SIDR_REQ. Called when the neighbour is
    /// resolved.
    pub(super) fn send_sidr_req(
        &mut self,
        common: &mut Common,
        context: &mut ServiceContext<'_>,
    ) -> Result<(), RequestError> {
        let psn = common.cm.starting_psn();
        if let Some(own) = self.qp {
            to_rts(&own, self.primary.port, psn, context)?;
        }
        let params = SidrParams {
            service_id: service_id(PortSpace::Udp, self.peer.port()),
            path: cm_path(&self.primary, self.param.ack_timeout),
            pkey: Pkey::DEFAULT,
            timeout: RESPONSE_TIMEOUT,
            max_cm_retries: CM_RETRIES,
            private_data: self.request_data()?,
        };
        let conn = common.cm.sidr_request(context.now, &params).map_err(ConnError::Protocol)?;
        self.conn = Some(conn);
        common.by_conn.insert(conn, self.id);
        Ok(())
    }

    /// Handles a SIDR_REP.
    pub(super) fn sidr_reply(&mut self, rep: &SidrRep, common: &mut Common) {
        let private_data = rep.private_data.0.to_vec();
        if rep.status != SidrStatus::VALID {
            self.is_over = true;
            common.count(Tally::Rejected);
            let reason = u16::from(rep.status.0);
            return self.tell(ConnEvent::Rejected { reason, private_data });
        }
        let datagrams = Datagrams {
            qpn: rep.qpn,
            qkey: rep.qkey,
            port: self.primary.port,
            vector: self.primary.vector,
        };
        common.count(Tally::Resolved);
        self.tell(ConnEvent::Resolved { datagrams, private_data });
    }

    /// Accepts the look-up of a UD QP: sends a SIDR_REP with the number and Q_Key of `qp`.
    pub(super) fn accept_datagrams(
        &mut self,
        qp: ConnQp,
        param: &ConnParam,
        common: &mut Common,
        context: &mut ServiceContext<'_>,
    ) -> Result<(), RequestError> {
        check_param(param, REP_DATA)?;
        let own = common.own_qp(qp, PortSpace::Udp, param.rd_qp, context)?;
        let psn = common.cm.starting_psn();
        let conn = self.conn.ok_or(ConnError::WrongState)?;
        let private_data = private_data(&param.private_data)?;
        let qkey = to_rts(&own, self.primary.port, psn, context)?;
        let answer = SidrAnswer { status: SidrStatus::VALID, qpn: own.qpn, qkey, private_data };
        common.cm.sidr_reply(context.now, conn, &answer).map_err(ConnError::Protocol)?;
        self.was_established = true;
        self.leave_backlog(common);
        Ok(())
    }

    /// Refuses the look-up of a UD QP: sends a SIDR_REP with `status`.
    pub(super) fn refuse_datagrams(
        &mut self,
        status: SidrStatus,
        data: &[u8],
        common: &mut Common,
        context: &ServiceContext<'_>,
    ) -> Result<(), RequestError> {
        let private_data: PrivateData<136> = private_data(data)?;
        let conn = self.conn.ok_or(ConnError::WrongState)?;
        let answer = SidrAnswer { status, private_data, ..SidrAnswer::default() };
        common.cm.sidr_reply(context.now, conn, &answer).map_err(ConnError::Protocol)?;
        Ok(())
    }
}

/// Takes a UD QP to RTS if it is in RESET or INIT and the service modifies it. Returns the QP's
/// Q_Key.
fn to_rts(
    own: &OwnQp,
    port: u8,
    psn: Psn,
    context: &mut ServiceContext<'_>,
) -> Result<Qkey, RequestError> {
    if !own.is_driven {
        return Ok(UDP_QKEY);
    }
    let attr = context.query_qp(own.qpn)?.attr;
    if !matches!(attr.state, QpState::Reset | QpState::Init) {
        return Ok(attr.qkey);
    }
    for change in QpChange::datagram_steps(port, UDP_QKEY, psn) {
        context.modify_qp(own.qpn, &change)?;
    }
    Ok(UDP_QKEY)
}
