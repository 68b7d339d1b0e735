//! Tables that all lcores read, besides those of keys and QPNs.

use crate::ah_table::AhTable;
use crate::mcast::GroupTable;
use crate::notices::Notices;
use std::sync::Arc;

/// The tables of one engine, shared by all its lcores.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    pub(crate) handles: Arc<AhTable>,
    pub(crate) groups: Arc<GroupTable>,
    pub(crate) notices: Arc<Notices>,
}
