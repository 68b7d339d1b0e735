//! The boundary to C: keeps panics inside, and converts results to C's conventions.
//!
//! Not here: checking handles ([`crate::handle`]).

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::errno::Errno;
use crate::{room, runtime};

/// Runs the body of an entry. A panic is a bug of this library and becomes EIO; its message is on
/// stderr.
#[inline]
pub(crate) fn run<R>(body: impl FnOnce() -> Result<R, Errno>) -> Result<R, Errno> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Errno::EIO))
}

/// For functions that return 0 or an error number. Sets `errno` too.
pub(crate) fn code(body: impl FnOnce() -> Result<(), Errno>) -> c_int {
    run(body).map_or_else(
        |error| {
            error.set();
            error.code()
        },
        |()| 0,
    )
}

/// For functions that return a non-negative number, or -1 with `errno` set.
pub(crate) fn number(body: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    run(body).unwrap_or_else(|error| {
        error.set();
        -1
    })
}

/// For functions that return 0, or -1 with `errno` set.
pub(crate) fn minus_one(body: impl FnOnce() -> Result<(), Errno>) -> c_int {
    number(|| body().map(|()| 0))
}

/// Declares functions through which a cancelled thread unwinds. The `libc` crate declares them
/// without unwinding.
mod cancellable {
    use std::ffi::{c_int, c_void};

    pub(super) const PTHREAD_CANCEL_DISABLE: c_int = 1;

    unsafe extern "C-unwind" {
        pub(super) fn read(fd: c_int, place: *mut c_void, len: usize) -> isize;
        pub(super) fn pthread_setcancelstate(state: c_int, former: *mut c_int) -> c_int;
    }
}

/// Reads the descriptor that `find` returns, blocking or not as the program has set it, and calls
/// `take`, which takes the event. Reads again if `take` returns false. Returns 0, or -1 with
/// `errno` set.
///
/// In a child that was forked after the engine had started nothing is read, because the events are
/// the parent's.
///
/// The thread can be cancelled (`pthread_cancel`) only during the read. Cancellation unwinds the
/// stack with a foreign exception, which Rust must not catch and which must not run destructors. So
/// this function and its callers, which are `extern "C-unwind"`, have nothing to drop during the
/// read. In particular nothing keeps the descriptor open: as in any libibverbs, a program must not
/// destroy an object while a thread waits for its events.
pub(crate) fn waiting(
    find: impl FnOnce() -> Result<RawFd, Errno> + Copy,
    take: impl FnOnce() -> Result<bool, Errno> + Copy,
) -> c_int {
    loop {
        // Before each read: the number may be a file of the program's by now.
        let fd = match uncancelled(|| runtime::usable().and_then(|()| find())) {
            Ok(fd) => fd,
            Err(error) => return failed(error),
        };
        let mut count = 0u64;
        // SAFETY: `count` has as many bytes as are read. No frame that unwinding crosses has
        // anything to drop.
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

/// Runs a part of an entry with cancellation disabled.
fn uncancelled<R: Copy>(body: impl FnOnce() -> Result<R, Errno> + Copy) -> Result<R, Errno> {
    use cancellable::{PTHREAD_CANCEL_DISABLE, pthread_setcancelstate};

    let mut former = PTHREAD_CANCEL_DISABLE;
    // SAFETY: `former` is a local that may be written.
    unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut former) };
    let result = run(body);
    // SAFETY: a null pointer for the former state is allowed. No frame that unwinding crosses has
    // anything to drop.
    unsafe { pthread_setcancelstate(former, std::ptr::null_mut()) };
    result
}

/// For functions that return a pointer, or NULL with `errno` set.
pub(crate) fn pointer<T>(body: impl FnOnce() -> Result<*mut T, Errno>) -> *mut T {
    run(body).unwrap_or_else(|error| {
        error.set();
        std::ptr::null_mut()
    })
}

/// For functions that return a pointer to a new object. Fails with ENOMEM if memory is short.
pub(crate) fn object<T>(body: impl FnOnce() -> Result<*mut T, Errno>) -> *mut T {
    pointer(|| room::check(0).and_then(|()| body()))
}

/// For functions without a result. An error only sets `errno`.
pub(crate) fn nothing(body: impl FnOnce() -> Result<(), Errno>) {
    if let Err(error) = run(body) {
        error.set();
    }
}

/// Reads the value that an argument points to.
///
/// # Errors
///
/// EINVAL for NULL.
///
/// # Safety
///
/// `pointer` is NULL or points to a `T` that no other thread writes during the call.
pub(crate) unsafe fn read<T: Copy>(pointer: *const T) -> Result<T, Errno> {
    if pointer.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: `pointer` is not NULL, so it points to a readable `T`. It may be unaligned, as C
    // allows.
    Ok(unsafe { pointer.read_unaligned() })
}

/// Reads the first `len` bytes of the structure that an argument points to; the rest of `T` is
/// zero. For structures that grew in newer headers: a program that was compiled with older ones
/// passes a shorter structure.
///
/// # Errors
///
/// EINVAL for NULL.
///
/// # Safety
///
/// `pointer` is NULL or points to `len` bytes that no other thread writes during the call. Every
/// byte pattern is a valid `T`.
pub(crate) unsafe fn read_sized<T: Copy>(pointer: *const T, len: usize) -> Result<T, Errno> {
    if pointer.is_null() {
        return Err(Errno::EINVAL);
    }
    let known = len.min(size_of::<T>());
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: `pointer` is not NULL, so `len` bytes are readable; `value` has room for a whole `T`.
    unsafe { value.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(pointer.cast(), known) };
    // SAFETY: every byte is initialised, and every byte pattern is a valid `T`.
    Ok(unsafe { value.assume_init() })
}

/// Reads a structure; `len` computes its length from its first `least` bytes. The rest of `T` is
/// zero.
///
/// # Errors
///
/// EINVAL for NULL.
///
/// # Safety
///
/// `pointer` is NULL or points to `least` bytes, and to as many as `len` computes from them, that
/// no other thread writes during the call. Every byte pattern is a valid `T`.
pub(crate) unsafe fn read_announced<T: Copy>(
    pointer: *const T,
    least: usize,
    len: impl FnOnce(&T) -> usize,
) -> Result<T, Errno> {
    // SAFETY: the caller passes NULL or at least `least` readable bytes, and every byte pattern is
    // a valid `T`.
    let beginning = unsafe { read_sized(pointer, least) }?;
    // SAFETY: the caller passes as many readable bytes as `len` computes, and every byte pattern is
    // a valid `T`.
    unsafe { read_sized(pointer, len(&beginning)) }
}

/// Writes a value to the place that an argument points to.
///
/// # Errors
///
/// EINVAL for NULL.
///
/// # Safety
///
/// `pointer` is NULL or points to room for a `T` that no other thread uses during the call.
pub(crate) unsafe fn write<T>(pointer: *mut T, value: T) -> Result<(), Errno> {
    if pointer.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: `pointer` is not NULL, so it may be written. It may be unaligned, as C allows.
    unsafe { pointer.write_unaligned(value) };
    Ok(())
}

/// Writes a structure to the program's, which has `len` bytes: cuts it if the program's is shorter,
/// and fills with zeros if it is longer. The lengths differ if the program was compiled with other
/// headers.
///
/// # Errors
///
/// EINVAL for NULL.
///
/// # Safety
///
/// `place` is NULL or points to room for `len` bytes that no other thread uses during the call.
pub(crate) unsafe fn write_sized<T>(place: *mut u8, len: usize, value: &T) -> Result<(), Errno> {
    if place.is_null() {
        return Err(Errno::EINVAL);
    }
    let known = len.min(size_of::<T>());
    // SAFETY: `place` is not NULL, so `len` bytes may be written. `value` is a C structure, and its
    // padding may be copied.
    unsafe { place.copy_from_nonoverlapping(std::ptr::from_ref(value).cast(), known) };
    // SAFETY: the rest of the `len` bytes at `place`.
    unsafe { place.wrapping_add(known).write_bytes(0, len - known) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_number() {
        // The panic message must not appear in the log of a passing test.
        let said = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| ()));
        let ends = (code(|| panic!("on purpose")), pointer::<u8>(|| panic!("on purpose")));
        std::panic::set_hook(said);
        assert_eq!(ends, (libc::EIO, std::ptr::null_mut()));
    }

    #[test]
    fn null_is_refused() {
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { read::<u32>(std::ptr::null()) }, Err(Errno::EINVAL));
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { write(std::ptr::null_mut(), 1u32) }, Err(Errno::EINVAL));
        // SAFETY: NULL is allowed.
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
            // SAFETY: `room` has six bytes, and `len` is at most five.
            unsafe { write_sized(room.as_mut_ptr(), len, &[1u8, 2, 3, 4]) }.unwrap();
            assert_eq!(room, expected);
        }
    }
}
