//! Look-up of UD QPs by port: SIDR_REQ and SIDR_REP.
//!
//! Read first: IBA 12.11; Annex A11.

use uroce_cm::{ConnId, SidrAnswer, SidrParams, SidrRequest};
use uroce_transport::QpState;
use uroce_wire::cm::{PrivateData, SidrRep, SidrStatus};
use uroce_wire::{Pkey, Psn, Qkey, Qpn};

use super::active::{CM_RETRIES, RESPONSE_TIMEOUT, check_param, cm_path};
use super::terms::way_back;
use super::{Driver, Tally, private_data, service_id};
use crate::call::RequestError;
use crate::connect::around::Around;
use crate::connect::connection::{OwnQp, Stage};
use crate::connect::{
    CmError, CmEventKind, CmId, ConnParam, ConnQp, ConnectRequest, Datagrams, PortSpace, qp,
};

/// Q_Key of UD QPs that are looked up by port, as on Linux.
const UDP_QKEY: Qkey = Qkey(0x0123_4567);
/// Most bytes of an application's private data in a SIDR_REP.
const REP_DATA: usize = 136;

impl Driver {
    pub(super) fn send_sidr_req(
        &mut self,
        id: CmId,
        around: &mut Around<'_>,
    ) -> Result<(), RequestError> {
        let psn = self.cm.starting_psn();
        let connection = self.connections.get_mut(&id).ok_or(CmError::UnknownId(id))?;
        if let Some(own) = connection.qp {
            to_rts(&own, connection.primary.port, psn, around)?;
        }
        let params = SidrParams {
            service_id: service_id(PortSpace::Udp, connection.peer.port()),
            path: cm_path(&connection.primary, connection.param.ack_timeout),
            pkey: Pkey::DEFAULT,
            timeout: RESPONSE_TIMEOUT,
            max_cm_retries: CM_RETRIES,
            private_data: connection.request_data()?,
        };
        let conn = self.cm.sidr_request(around.now, &params).map_err(CmError::Protocol)?;
        connection.conn = Some(conn);
        connection.stage = Stage::Asked;
        self.by_conn.insert(conn, id);
        Ok(())
    }

    /// Handles a SIDR_REP.
    pub(super) fn sidr_reply(&mut self, id: CmId, rep: &SidrRep) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let private_data = rep.private_data.0.to_vec();
        if rep.status != SidrStatus::VALID {
            connection.stage = Stage::Over;
            self.count(Tally::Rejected);
            let reason = u16::from(rep.status.0);
            return self.tell(id, CmEventKind::Rejected { reason, private_data });
        }
        connection.stage = Stage::Established;
        let datagrams = Datagrams {
            qpn: rep.qpn,
            qkey: rep.qkey,
            port: connection.primary.port,
            vector: connection.primary.vector,
        };
        self.count(Tally::Resolved);
        self.tell(id, CmEventKind::Resolved { datagrams, private_data });
    }

    /// Handles a SIDR_REQ for a service ID with a listener.
    //= check J12 — no listener: status 1; refused: 2; no QP: 3
    pub(super) fn sidr_requested(
        &mut self,
        conn: ConnId,
        request: &SidrRequest,
        around: &mut Around<'_>,
    ) {
        let status = self.admit_sidr(conn, request, around);
        if let Err(status) = status {
            self.count(match status {
                SidrStatus::NO_QP => Tally::BacklogFull,
                _ => Tally::Refused,
            });
            let answer = SidrAnswer { status, ..SidrAnswer::default() };
            let _ = self.cm.sidr_reply(around.now, conn, &answer);
        }
    }

    fn admit_sidr(
        &mut self,
        conn: ConnId,
        request: &SidrRequest,
        around: &Around<'_>,
    ) -> Result<(), SidrStatus> {
        let req = &request.req;
        let caller = self.caller(req.service_id, &req.private_data.0);
        let caller = caller.map_err(|_| SidrStatus::UNSUPPORTED)?;
        let primary = way_back(&request.addr, around).ok_or(SidrStatus::REJECTED)?;
        let incoming = self.incoming(&caller, primary).map_err(|_| SidrStatus::NO_QP)?;
        let path_mtu = around.path_mtu(primary.port).ok_or(SidrStatus::NO_QP)?;
        let event = CmEventKind::ConnectRequest(Box::new(ConnectRequest {
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
        }));
        let connection = super::Connection { conn: Some(conn), ..incoming };
        self.present(conn, connection, event, around.now).map_err(|_| SidrStatus::NO_QP)
    }

    pub(super) fn accept_datagrams(
        &mut self,
        id: CmId,
        qp: ConnQp,
        param: &ConnParam,
        around: &mut Around<'_>,
    ) -> Result<(), RequestError> {
        check_param(param, REP_DATA)?;
        let own = self.own_qp(qp, PortSpace::Udp, around)?;
        let psn = self.cm.starting_psn();
        let connection = self.connection(id)?;
        let conn = connection.conn.ok_or(CmError::WrongState)?;
        let private_data = private_data(&param.private_data)?;
        let qkey = to_rts(&own, connection.primary.port, psn, around)?;
        let answer = SidrAnswer { status: SidrStatus::VALID, qpn: own.qpn, qkey, private_data };
        self.cm.sidr_reply(around.now, conn, &answer).map_err(CmError::Protocol)?;
        self.connection(id)?.stage = Stage::Established;
        self.leave_backlog(id);
        Ok(())
    }

    pub(super) fn refuse_datagrams(
        &mut self,
        id: CmId,
        status: SidrStatus,
        data: &[u8],
        around: &mut Around<'_>,
    ) -> Result<(), RequestError> {
        let private_data: PrivateData<136> = private_data(data)?;
        let conn = self.connections.get(&id).and_then(|connection| connection.conn);
        let conn = conn.ok_or(CmError::WrongState)?;
        let answer = SidrAnswer { status, private_data, ..SidrAnswer::default() };
        self.cm.sidr_reply(around.now, conn, &answer).map_err(CmError::Protocol)?;
        Ok(())
    }
}

/// Takes a UD QP to RTS unless it is already beyond INIT. Returns its Q_Key.
fn to_rts(own: &OwnQp, port: u8, psn: Psn, around: &mut Around<'_>) -> Result<Qkey, RequestError> {
    if !own.is_driven {
        return Ok(UDP_QKEY);
    }
    let attr = around.query_qp(own.qpn)?.attr;
    if !matches!(attr.state, QpState::Reset | QpState::Init) {
        return Ok(attr.qkey);
    }
    for change in qp::datagram_steps(port, UDP_QKEY, psn) {
        around.modify_qp(own.qpn, &change)?;
    }
    Ok(UDP_QKEY)
}
