//! Flows of raw packet queue pairs.

use std::sync::Mutex;

use super::qp::Qp;
use crate::abi::ibv_flow;
use crate::handle::{Held, object};

/// A flow.
pub(crate) struct Flow {
    /// `None` after the flow was destroyed, while another thread may still hold the entry.
    pub(crate) engine: Mutex<Option<uroce::Flow>>,
    pub(crate) qp: Held<Qp>,
}

object!(Flow as ibv_flow, of qp);
