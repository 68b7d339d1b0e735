//! Limits on a device's objects of kinds that the engine does not limit.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::errno::Errno;
use crate::handle::Part;

/// Number of objects of one kind that a device has.
#[derive(Default)]
pub(crate) struct Quota(AtomicU32);

impl Quota {
    /// Counts one more object, if there are fewer than `most`.
    ///
    /// # Errors
    ///
    /// ENOMEM if there are `most` objects already.
    pub(crate) fn take(&'static self, most: u32) -> Result<Place, Errno> {
        let more = |used: u32| (used < most).then(|| used + 1);
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.map_err(|_| Errno::ENOMEM)?;
        Ok(Place { quota: self, counts: AtomicBool::new(true) })
    }
}

/// The count of one object, returned when the object is destroyed.
pub(crate) struct Place {
    quota: &'static Quota,
    counts: AtomicBool,
}

impl Part for Place {
    fn let_go(&self) {
        if self.counts.swap(false, Ordering::Relaxed) {
            self.quota.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.let_go();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_once_when_its_object_is_destroyed() {
        static QUOTA: Quota = Quota(AtomicU32::new(0));
        let (first, second) = (QUOTA.take(2).unwrap(), QUOTA.take(2).unwrap());
        assert_eq!(QUOTA.take(2).err(), Some(Errno::ENOMEM));
        first.let_go();
        let third = QUOTA.take(2).unwrap();
        drop(first);
        assert_eq!(QUOTA.take(2).err(), Some(Errno::ENOMEM));
        drop((second, third));
        assert!(QUOTA.take(1).is_ok());
    }
}
