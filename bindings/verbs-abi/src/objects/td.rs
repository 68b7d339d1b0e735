//! Thread domains.

use super::context::Context;
use crate::abi::ibv_td;
use crate::handle::{Held, object};

/// A thread domain.
pub(crate) struct Td {
    pub(crate) context: Held<Context>,
}

object!(Td as ibv_td);
