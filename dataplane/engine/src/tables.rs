//! What lcores read together besides keys and QP numbers.

use crate::ah_table::AhTable;
use crate::mcast::GroupTable;
use crate::notices::Notices;
use std::sync::Arc;

/// Tables of one engine; the same for all its lcores.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    pub(crate) handles: Arc<AhTable>,
    pub(crate) groups: Arc<GroupTable>,
    pub(crate) notices: Arc<Notices>,
}
