//! Requests of application threads to the driver, each with a channel for its reply.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use uroce_wire::cm::RejectReason;

use super::{BindOptions, CmId, CmSink, ConnParam, ConnQp, ConnectSpec, PathSpec, PortSpace};
use crate::request::Reply;

#[derive(Debug)]
pub(crate) enum CmRequest {
    Bind {
        channel: Arc<dyn CmSink>,
        space: PortSpace,
        address: SocketAddr,
        options: BindOptions,
        reply: Reply<(CmId, SocketAddr)>,
    },
    BeginListening {
        id: CmId,
        backlog: u32,
        reply: Reply<()>,
    },
    IsHeard {
        space: PortSpace,
        to: SocketAddr,
        reply: Reply<bool>,
    },
    Resolve {
        channel: Arc<dyn CmSink>,
        path: Box<PathSpec>,
        timeout: Duration,
        reply: Reply<CmId>,
    },
    Listen {
        channel: Arc<dyn CmSink>,
        space: PortSpace,
        address: SocketAddr,
        backlog: u32,
        reply: Reply<(CmId, SocketAddr)>,
    },
    Connect {
        channel: Arc<dyn CmSink>,
        spec: Box<ConnectSpec>,
        reply: Reply<CmId>,
    },
    Accept {
        id: CmId,
        qp: ConnQp,
        param: Box<ConnParam>,
        reply: Reply<()>,
    },
    Reject {
        id: CmId,
        reason: RejectReason,
        private_data: Vec<u8>,
        reply: Reply<()>,
    },
    Establish {
        id: CmId,
        reply: Reply<()>,
    },
    Disconnect {
        id: CmId,
        private_data: Vec<u8>,
        reply: Reply<()>,
    },
    LoadAlternate {
        id: CmId,
        path: Box<PathSpec>,
        reply: Reply<()>,
    },
    AnswerAlternate {
        id: CmId,
        accept: bool,
        reply: Reply<()>,
    },
    SetChannel {
        id: CmId,
        channel: Arc<dyn CmSink>,
        reply: Reply<()>,
    },
    Destroy {
        id: CmId,
        reply: Reply<()>,
    },
}
