//! The fences of [`crate::sync::barrier`] that one side pays for; loom knows one kind.

use super::{Ordering, fence};

/// Returns true: the fences below always work.
pub fn register() -> bool {
    true
}

/// The frequent thread's half.
#[track_caller]
pub fn light_fence() {
    fence(Ordering::SeqCst);
}

/// The rare thread's half.
#[track_caller]
pub fn heavy_fence() {
    fence(Ordering::SeqCst);
}
