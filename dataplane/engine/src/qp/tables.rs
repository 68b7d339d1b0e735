//! Tables that all lcores read, besides those of keys and QPNs.

use std::sync::Arc;
use uroce_shared::table::ah_table::AhTable;
use uroce_shared::table::mcast::GroupTable;
use uroce_shared::wake::notices::Notices;

/// The tables of one engine, shared by all its lcores.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    pub(crate) handles: Arc<AhTable>,
    pub(crate) groups: Arc<GroupTable>,
    pub(crate) notices: Arc<Notices>,
}
