//! Tables that all lcores read, besides the key table and the QP table.

use std::sync::Arc;
use uroce_shared::queue::xrc::XrcTable;
use uroce_shared::table::ah_table::AhTable;
use uroce_shared::table::flows::FlowTable;
use uroce_shared::table::mcast::GroupTable;
use uroce_shared::wake::notices::Notices;

/// Tables of one engine that all its lcores share: address handles, multicast groups, flows of raw
/// QPs, XRC shared receive queues, and notices for the control plane.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    pub(crate) handles: Arc<AhTable>,
    pub(crate) groups: Arc<GroupTable>,
    pub(crate) flows: Arc<FlowTable>,
    pub(crate) xrc: Arc<XrcTable>,
    pub(crate) notices: Arc<Notices>,
}
