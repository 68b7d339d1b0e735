//! Memory windows.

use std::sync::Mutex;

use uroce::MemoryWindow;

use super::pd::Pd;
use crate::abi::ibv_mw;
use crate::handle::{Held, object};

/// A memory window.
pub(crate) struct Mw {
    /// `None` after the window was deallocated, while another thread may still hold the entry.
    pub(crate) window: Mutex<Option<MemoryWindow>>,
    pub(crate) pd: Held<Pd>,
}

object!(Mw as ibv_mw, of pd);
