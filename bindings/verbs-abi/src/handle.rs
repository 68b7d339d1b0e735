//! Objects that programs hold by address: registries and handles.
//!
//! ```text
//!   program's pointer ──> Slot { C's structure │ entry ──> Entry { uses, value: T } }
//!                           the registry has every live slot
//! ```
//!
//! Invariants
//! - A slot is never freed, so any pointer that a program got from this library stays readable.
//!   While a slot has no object, its `entry` is NULL. Slots are reused, oldest first, when the last
//!   user of the former object has dropped it.
//! - On the control path a pointer is only followed if the registry has it. NULL, foreign pointers
//!   and destroyed objects give EINVAL.
//! - An object that others were made from ([`Held`]) cannot be removed: EBUSY. Those others release
//!   it when they are removed themselves, even if a thread still uses them. So a program that
//!   destroys a part and then the whole never gets EBUSY for the whole.

use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::errno::Errno;

/// A kind of object of this library.
pub(crate) trait Object: Send + Sync + Sized + 'static {
    /// The C structure that programs see. The slot begins with it.
    type Public;

    /// The registry of this kind.
    fn registry() -> &'static Registry<Self>;

    /// Releases the objects that this one was made from. Called when it is removed; the value
    /// itself may exist a little longer.
    fn let_go(&self) {}
}

/// A field that keeps another object busy.
pub(crate) trait Part {
    /// Stops keeping the other object busy. The object stays accessible.
    fn let_go(&self);
}

impl<P: Part, Q: Part> Part for (P, Q) {
    fn let_go(&self) {
        self.0.let_go();
        self.1.let_go();
    }
}

impl<P: Part> Part for Option<P> {
    fn let_go(&self) {
        self.iter().for_each(Part::let_go);
    }
}

/// A unique number for a new object. Programs may pass it to another context of the same file.
pub(crate) fn number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The memory that a program's pointer points to.
#[repr(C)]
struct Slot<T: Object> {
    public: T::Public,
    entry: AtomicPtr<Entry<T>>,
}

/// An object, with the number of objects that were made from it.
pub(crate) struct Entry<T: Object> {
    uses: AtomicUsize,
    /// Set when the program has destroyed the object.
    is_removed: AtomicBool,
    /// Address of its slot.
    slot: NonNull<T::Public>,
    value: T,
}

// SAFETY: `slot` points to a slot that is never freed, and is only accessed by raw reads and writes
// of fields, as C does, which any thread may make.
unsafe impl<T: Object> Send for Entry<T> {}
// SAFETY: as an `Entry` never makes references to the slot, sharing it adds no access.
unsafe impl<T: Object> Sync for Entry<T> {}

impl<T: Object> Entry<T> {
    /// The program's pointer to the object.
    pub(crate) fn public(&self) -> *mut T::Public {
        self.slot.as_ptr()
    }

    /// Whether other objects made from this one exist.
    pub(crate) fn is_busy(&self) -> bool {
        self.uses.load(Ordering::SeqCst) > 0
    }

    /// Releases the objects that this one was made from, if it is removed and not busy. Called
    /// after `is_removed` was set and after `uses` was decremented. Both are SeqCst, so the later
    /// of the two calls reads both changes.
    fn let_go_if_done(&self) {
        if self.is_removed.load(Ordering::SeqCst) && !self.is_busy() {
            self.value.let_go();
        }
    }
}

/// Returns the slot for reuse. No thread can reach the object any more.
impl<T: Object> Drop for Entry<T> {
    fn drop(&mut self) {
        if let Some(slots) = &mut *T::registry().lock() {
            slots.free.push_back(self.slot.addr().get());
        }
    }
}

impl<T: Object> Deref for Entry<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// All live objects of one kind.
pub(crate) struct Registry<T: Object> {
    slots: Mutex<Option<Slots<T>>>,
}

struct Slots<T: Object> {
    live: HashMap<usize, Arc<Entry<T>>>,
    free: VecDeque<usize>,
}

impl<T: Object> Slots<T> {
    /// Removes an object from its slot.
    fn take(&mut self, address: usize) -> Result<Arc<Entry<T>>, Errno> {
        let entry = self.live.remove(&address).ok_or(Errno::EINVAL)?;
        let slot = std::ptr::with_exposed_provenance::<Slot<T>>(address);
        // SAFETY: the registry has `address`, so it is a slot, which is never freed.
        unsafe { &(*slot).entry }.store(std::ptr::null_mut(), Ordering::Release);
        entry.is_removed.store(true, Ordering::SeqCst);
        entry.let_go_if_done();
        Ok(entry)
    }
}

impl<T: Object> Registry<T> {
    pub(crate) const fn new() -> Registry<T> {
        Registry { slots: Mutex::new(None) }
    }

    /// Stores a new object in a slot that begins with `public`.
    pub(crate) fn insert(&self, public: T::Public, value: T) -> Arc<Entry<T>> {
        let mut slots = self.lock();
        let slots =
            slots.get_or_insert_with(|| Slots { live: HashMap::new(), free: VecDeque::new() });
        let slot: *mut Slot<T> = match slots.free.pop_front() {
            Some(address) => {
                let slot = std::ptr::with_exposed_provenance_mut::<Slot<T>>(address);
                // The public part is a slot's first field.
                // SAFETY: the slot was leaked below and its object is gone. The former public part
                // is plain C data, which needs no destructor.
                unsafe { slot.cast::<T::Public>().write(public) };
                slot
            }
            None => {
                let entry = AtomicPtr::new(std::ptr::null_mut());
                Box::leak(Box::new(Slot::<T> { public, entry }))
            }
        };
        let public = NonNull::new(slot.cast::<T::Public>()).unwrap_or(NonNull::dangling());
        let (uses, is_removed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let entry = Arc::new(Entry { uses, is_removed, slot: public, value });
        slots.live.insert(slot.expose_provenance(), Arc::clone(&entry));
        // SAFETY: a slot is never freed.
        let place = unsafe { &(*slot).entry };
        place.store(Arc::as_ptr(&entry).cast_mut(), Ordering::Release);
        entry
    }

    /// The object that a program's pointer refers to.
    ///
    /// # Errors
    ///
    /// EINVAL if it is not a pointer of this registry, or if the object was destroyed.
    pub(crate) fn get(&self, public: *const T::Public) -> Result<Arc<Entry<T>>, Errno> {
        //= check H14 — what is no live object of the kind is refused, and nothing follows it
        let slots = self.lock();
        let live = slots.as_ref().and_then(|slots| slots.live.get(&public.addr()));
        live.cloned().ok_or(Errno::EINVAL)
    }

    /// The object that a program's pointer refers to, kept busy while the result exists.
    ///
    /// # Errors
    ///
    /// EINVAL if it is not a pointer of this registry, or if the object was destroyed.
    pub(crate) fn hold(&self, public: *const T::Public) -> Result<Held<T>, Errno> {
        let slots = self.lock();
        let live = slots.as_ref().and_then(|slots| slots.live.get(&public.addr()));
        let entry = Arc::clone(live.ok_or(Errno::EINVAL)?);
        entry.uses.fetch_add(1, Ordering::SeqCst);
        Ok(Held { entry, counts: AtomicBool::new(true) })
    }

    /// Destroys the object that a program's pointer refers to. The value is dropped when its last
    /// user has dropped its reference.
    ///
    /// # Errors
    ///
    /// EINVAL if it is not a pointer of this registry, or if the object was destroyed; EBUSY if
    /// objects made from it exist.
    pub(crate) fn remove(&self, public: *const T::Public) -> Result<Arc<Entry<T>>, Errno> {
        self.remove_if(public, |_| Ok(()))
    }

    /// Destroys an object like [`remove`](Self::remove), if `check` succeeds. The registry is
    /// locked during `check`.
    ///
    /// # Errors
    ///
    /// The errors of [`remove`](Self::remove), and that of `check`.
    pub(crate) fn remove_if(
        &self,
        public: *const T::Public,
        check: impl FnOnce(&T) -> Result<(), Errno>,
    ) -> Result<Arc<Entry<T>>, Errno> {
        let mut slots = self.lock();
        let slots = slots.as_mut().ok_or(Errno::EINVAL)?;
        let address = public.addr();
        let entry = slots.live.get(&address).ok_or(Errno::EINVAL)?;
        if entry.is_busy() {
            return Err(Errno::EBUSY);
        }
        check(entry)?;
        slots.take(address)
    }

    /// Removes an object even if objects made from it exist. They can still use it.
    ///
    /// # Errors
    ///
    /// EINVAL if it is not a pointer of this registry, or if the object was destroyed.
    pub(crate) fn forget(&self, public: *const T::Public) -> Result<Arc<Entry<T>>, Errno> {
        self.lock().as_mut().ok_or(Errno::EINVAL)?.take(public.addr())
    }

    /// All live objects.
    pub(crate) fn all(&self) -> Vec<Arc<Entry<T>>> {
        let slots = self.lock();
        slots.iter().flat_map(|slots| slots.live.values().cloned()).collect()
    }

    /// Any live object for which `is_it` is true.
    pub(crate) fn find(&self, is_it: impl Fn(&T) -> bool) -> Option<Arc<Entry<T>>> {
        let slots = self.lock();
        slots.iter().flat_map(|slots| slots.live.values()).find(|entry| is_it(entry)).cloned()
    }

    /// All live objects for which `is_it` is true.
    pub(crate) fn find_all(&self, is_it: impl Fn(&T) -> bool) -> Vec<Arc<Entry<T>>> {
        let slots = self.lock();
        let live = slots.iter().flat_map(|slots| slots.live.values());
        live.filter(|entry| is_it(entry)).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Slots<T>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The object that a pointer refers to, for the data path: without a look-up. `None` for NULL and
/// destroyed objects. Foreign pointers are not detected.
///
/// # Safety
///
/// `public` is NULL or comes from this kind's registry, and the object is not destroyed while the
/// result is in use.
#[inline]
pub(crate) unsafe fn fast<'a, T: Object>(public: *const T::Public) -> Option<&'a Entry<T>> {
    if public.is_null() {
        return None;
    }
    // SAFETY: `public` is not NULL, so it comes from the registry and points to a slot, which is
    // never freed.
    let entry = unsafe { &(*public.cast::<Slot<T>>()).entry };
    // SAFETY: an entry that is not NULL is live. The registry keeps it until the object is
    // destroyed, which the caller excludes while the result is in use.
    unsafe { entry.load(Ordering::Acquire).as_ref() }
}

/// A reference to an object that another one was made from. It keeps the object busy.
pub(crate) struct Held<T: Object> {
    entry: Arc<Entry<T>>,
    /// False after the object was released.
    counts: AtomicBool,
}

impl<T: Object> Part for Held<T> {
    fn let_go(&self) {
        if self.counts.swap(false, Ordering::SeqCst) {
            self.entry.uses.fetch_sub(1, Ordering::SeqCst);
            self.entry.let_go_if_done();
        }
    }
}

impl<T: Object> Deref for Held<T> {
    type Target = Entry<T>;

    fn deref(&self) -> &Entry<T> {
        &self.entry
    }
}

impl<T: Object> Drop for Held<T> {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// Implements `Object`: gives a kind its public type, its registry, and the fields that keep other
/// objects busy.
macro_rules! object {
    ($kind:ty as $public:ty $(, of $($part:ident),+)?) => {
        impl crate::handle::Object for $kind {
            type Public = $public;

            fn registry() -> &'static crate::handle::Registry<$kind> {
                static REGISTRY: crate::handle::Registry<$kind> = crate::handle::Registry::new();
                &REGISTRY
            }
            $(
                fn let_go(&self) {
                    $(crate::handle::Part::let_go(&self.$part);)+
                }
            )?
        }
    };
}

pub(crate) use object;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Number(u32);

    object!(Number as u64);

    #[test] //= check H14 test
    fn an_object_is_known_until_it_is_destroyed() {
        let registry = Number::registry();
        let pointer = registry.insert(7, Number(1)).public();
        assert_eq!(registry.get(pointer).map(|entry| entry.0), Ok(1));
        // SAFETY: the pointer comes from the registry, and the object is destroyed later.
        assert_eq!(unsafe { fast::<Number>(pointer) }.map(|entry| entry.0), Some(1));
        assert!(registry.remove(pointer).is_ok());
        assert_eq!(registry.get(pointer).map(|entry| entry.0), Err(Errno::EINVAL));
        assert_eq!(registry.remove(pointer).map(|_| ()), Err(Errno::EINVAL));
        // SAFETY: the pointer comes from the registry, and its slot is never freed.
        assert!(unsafe { fast::<Number>(pointer) }.is_none());
    }

    #[test]
    fn a_slot_is_reused_when_the_last_user_of_its_object_is_gone() {
        struct Only;
        object!(Only as u64);
        let registry = Only::registry();
        let first = registry.insert(1, Only).public();
        let gone = registry.remove(first);
        assert_ne!(registry.insert(2, Only).public(), first);
        drop(gone);
        assert_eq!(registry.insert(3, Only).public(), first);
    }

    #[test] //= check H14 test
    fn null_and_foreign_pointers_are_refused() {
        let foreign = 5u64;
        let registry = Number::registry();
        assert_eq!(registry.get(&raw const foreign).map(|_| ()), Err(Errno::EINVAL));
        assert_eq!(registry.get(std::ptr::null()).map(|_| ()), Err(Errno::EINVAL));
        // SAFETY: NULL is allowed.
        assert!(unsafe { fast::<Number>(std::ptr::null()) }.is_none());
    }

    #[test]
    fn an_object_that_others_were_made_from_is_busy() {
        let registry = Number::registry();
        let pointer = registry.insert(0, Number(2)).public();
        let held = registry.hold(pointer);
        assert_eq!(registry.remove(pointer).map(|_| ()), Err(Errno::EBUSY));
        drop(held);
        assert!(registry.remove(pointer).is_ok());
    }

    struct Whole;
    object!(Whole as u64);

    struct Middle {
        whole: Held<Whole>,
    }
    object!(Middle as u64, of whole);

    struct Small {
        middle: Option<Held<Middle>>,
    }
    object!(Small as u64, of middle);

    /// A whole, a part of it, and a part of that part.
    fn three() -> [*mut u64; 3] {
        let whole = Whole::registry().insert(0, Whole).public();
        let value = Middle { whole: Whole::registry().hold(whole).unwrap() };
        let middle = Middle::registry().insert(0, value).public();
        let value = Small { middle: Some(Middle::registry().hold(middle).unwrap()) };
        [whole, middle, Small::registry().insert(0, value).public()]
    }

    #[test]
    fn a_part_that_is_removed_keeps_nothing_busy_while_it_is_looked_at() {
        let [whole, middle, small] = three();
        let (looked_at, also) = (Small::registry().get(small), Middle::registry().get(middle));
        assert!(Small::registry().remove(small).is_ok());
        assert!(Middle::registry().remove(middle).is_ok());
        assert!(Whole::registry().remove(whole).is_ok());
        assert!(looked_at.is_ok_and(|small| small.middle.is_some()) && also.is_ok());
    }

    #[test]
    fn a_forgotten_object_keeps_its_whole_busy_until_its_last_part_is_removed() {
        let [whole, middle, small] = three();
        let looked_at = Small::registry().get(small);
        assert!(Middle::registry().forget(middle).is_ok());
        assert_eq!(Whole::registry().remove(whole).map(|_| ()), Err(Errno::EBUSY));
        assert!(Small::registry().remove(small).is_ok());
        assert!(Whole::registry().remove(whole).is_ok());
        drop(looked_at);
    }
}
