//! The boundary to C: no panic passes it, and results become what C expects.
//!
//! Not here: whether a pointer may be followed ([`crate::handle`]).

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::errno::Errno;
use crate::{room, runtime};

/// Runs the body of an entry. A panic is our fault and becomes EIO; its message is on stderr.
#[inline]
pub(crate) fn run<R>(body: impl FnOnce() -> Result<R, Errno>) -> Result<R, Errno> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Errno::EIO))
}

/// Gives 0, or an error number which is `errno`, too.
pub(crate) fn code(body: impl FnOnce() -> Result<(), Errno>) -> c_int {
    run(body).map_or_else(
        |error| {
            error.set();
            error.code()
        },
        |()| 0,
    )
}

/// Gives a number that is not negative, or -1 and `errno`.
pub(crate) fn number(body: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    run(body).unwrap_or_else(|error| {
        error.set();
        -1
    })
}

/// Gives 0, or -1 and `errno`.
pub(crate) fn minus_one(body: impl FnOnce() -> Result<(), Errno>) -> c_int {
    number(|| body().map(|()| 0))
}

/// What ends a thread that is cancelled: it unwinds, which the `libc` crate does not say.
mod cancellable {
    use std::ffi::{c_int, c_void};

    pub(super) const PTHREAD_CANCEL_DISABLE: c_int = 1;

    unsafe extern "C-unwind" {
        pub(super) fn read(fd: c_int, place: *mut c_void, len: usize) -> isize;
        pub(super) fn pthread_setcancelstate(state: c_int, former: *mut c_int) -> c_int;
    }
}

/// Reads a descriptor that `find` gives, as the program has it block or not, and `take`s what it was
/// read for; again if that says that it was for nothing. Gives 0, or -1 and `errno`.
///
/// In a child whose parent has started the engine it is not read: what waits there is the parent's.
///
/// While it reads the thread may be cancelled (`pthread_cancel`), and at no other time. Then libc
/// unwinds the stack, as an exception that Rust must neither catch nor clean up after: this function
/// and its callers, which are `extern "C-unwind"`, have nothing to drop. So nothing keeps the
/// descriptor open meanwhile, as in any libibverbs: what a thread waits for is not to be destroyed.
pub(crate) fn waiting(
    find: impl FnOnce() -> Result<RawFd, Errno> + Copy,
    take: impl FnOnce() -> Result<bool, Errno> + Copy,
) -> c_int {
    let fd = match uncancelled(|| runtime::usable().and_then(|()| find())) {
        Ok(fd) => fd,
        Err(error) => return failed(error),
    };
    loop {
        let mut count = 0u64;
        // SAFETY: the place has so many bytes. Unwinding passes nothing that is to be dropped.
        if unsafe { cancellable::read(fd, (&raw mut count).cast(), size_of::<u64>()) } < 0 {
            return -1;
        }
        match uncancelled(take) {
            Ok(true) => return 0,
            Ok(false) => {}
            Err(error) => return failed(error),
        }
    }
}

fn failed(error: Errno) -> c_int {
    error.set();
    -1
}

/// Runs a part of an entry in which the thread is not cancelled.
fn uncancelled<R: Copy>(body: impl FnOnce() -> Result<R, Errno> + Copy) -> Result<R, Errno> {
    use cancellable::{PTHREAD_CANCEL_DISABLE, pthread_setcancelstate};

    let mut former = PTHREAD_CANCEL_DISABLE;
    // SAFETY: a place of ours.
    unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut former) };
    let result = run(body);
    // SAFETY: NULL says that nobody wants to know. Unwinding passes nothing that is to be dropped.
    unsafe { pthread_setcancelstate(former, std::ptr::null_mut()) };
    result
}

/// Gives a pointer, or NULL and `errno`.
pub(crate) fn pointer<T>(body: impl FnOnce() -> Result<*mut T, Errno>) -> *mut T {
    run(body).unwrap_or_else(|error| {
        error.set();
        std::ptr::null_mut()
    })
}

/// The same for a pointer to a new object: ENOMEM if there is no memory for one.
pub(crate) fn object<T>(body: impl FnOnce() -> Result<*mut T, Errno>) -> *mut T {
    pointer(|| room::check(0).and_then(|()| body()))
}

/// Gives nothing, whatever happens.
pub(crate) fn nothing(body: impl FnOnce() -> Result<(), Errno>) {
    if let Err(error) = run(body) {
        error.set();
    }
}

/// What an argument points to, read.
///
/// # Errors
///
/// EINVAL for NULL.
///
/// # Safety
///
/// If it is not NULL, `pointer` points to a `T` of the caller's that nobody writes meanwhile.
pub(crate) unsafe fn read<T: Copy>(pointer: *const T) -> Result<T, Errno> {
    if pointer.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: not NULL, so the caller's promise holds. C may give it any alignment.
    Ok(unsafe { pointer.read_unaligned() })
}

/// The beginning of what an argument points to, `len` bytes at most; the rest is zero. For structures
/// that newer headers have made longer: a program that was compiled with older ones has no more.
///
/// # Errors
///
/// EINVAL for NULL.
///
/// # Safety
///
/// If it is not NULL, `pointer` points to so much of a `T` of the caller's that nobody writes
/// meanwhile. Any bytes are a `T`, zeros too.
pub(crate) unsafe fn read_sized<T: Copy>(pointer: *const T, len: usize) -> Result<T, Errno> {
    if pointer.is_null() {
        return Err(Errno::EINVAL);
    }
    let known = len.min(size_of::<T>());
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: not NULL, so the caller's promise holds; there is room for a whole `T`.
    unsafe { value.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(pointer.cast(), known) };
    // SAFETY: by the caller's promise.
    Ok(unsafe { value.assume_init() })
}

/// The same of a structure that says itself, in its first `least` bytes, how long it is.
///
/// # Errors
///
/// EINVAL for NULL.
///
/// # Safety
///
/// As [`read_sized`], for `least` bytes and for as many as `len` makes of them.
pub(crate) unsafe fn read_announced<T: Copy>(
    pointer: *const T,
    least: usize,
    len: impl FnOnce(&T) -> usize,
) -> Result<T, Errno> {
    // SAFETY: by the caller's promise.
    let beginning = unsafe { read_sized(pointer, least) }?;
    // SAFETY: as above.
    unsafe { read_sized(pointer, len(&beginning)) }
}

/// Writes to where an argument points.
///
/// # Errors
///
/// EINVAL for NULL.
///
/// # Safety
///
/// If it is not NULL, `pointer` points to room for a `T` of the caller's that nobody else uses
/// meanwhile.
pub(crate) unsafe fn write<T>(pointer: *mut T, value: T) -> Result<(), Errno> {
    if pointer.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: not NULL, so the caller's promise holds. C may give it any alignment.
    unsafe { pointer.write_unaligned(value) };
    Ok(())
}

/// Writes as much of a structure as the program's, of some length, has room for, and zeros to what
/// it has more: it was compiled with other headers.
///
/// # Errors
///
/// EINVAL for NULL.
///
/// # Safety
///
/// If it is not NULL, `place` points to room for `len` bytes of the caller's that nobody else uses
/// meanwhile.
pub(crate) unsafe fn write_sized<T>(place: *mut u8, len: usize, value: &T) -> Result<(), Errno> {
    if place.is_null() {
        return Err(Errno::EINVAL);
    }
    let known = len.min(size_of::<T>());
    // SAFETY: not NULL, so the caller's promise holds; C's structures may have their padding copied.
    unsafe { place.copy_from_nonoverlapping(std::ptr::from_ref(value).cast(), known) };
    // SAFETY: the rest of the caller's room.
    unsafe { place.wrapping_add(known).write_bytes(0, len - known) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_number() {
        // Nobody is to read of it in a log of tests that pass.
        let said = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| ()));
        let ends = (code(|| panic!("on purpose")), pointer::<u8>(|| panic!("on purpose")));
        std::panic::set_hook(said);
        assert_eq!(ends, (libc::EIO, std::ptr::null_mut()));
    }

    #[test]
    fn null_is_refused() {
        // SAFETY: NULL is what is tried.
        assert_eq!(unsafe { read::<u32>(std::ptr::null()) }, Err(Errno::EINVAL));
        // SAFETY: as above.
        assert_eq!(unsafe { write(std::ptr::null_mut(), 1u32) }, Err(Errno::EINVAL));
        // SAFETY: as above.
        assert_eq!(unsafe { write_sized(std::ptr::null_mut(), 4, &1u32) }, Err(Errno::EINVAL));
    }

    #[test]
    fn a_structure_is_cut_or_filled_up_to_the_programs_length() {
        for (len, expected) in [
            (0, [9u8; 6]),
            (2, [1, 2, 9, 9, 9, 9]),
            (4, [1, 2, 3, 4, 9, 9]),
            (5, [1, 2, 3, 4, 0, 9]),
        ] {
            let mut room = [9u8; 6];
            // SAFETY: the room has six bytes.
            unsafe { write_sized(room.as_mut_ptr(), len, &[1u8, 2, 3, 4]) }.unwrap();
            assert_eq!(room, expected);
        }
    }
}
