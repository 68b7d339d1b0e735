//! Checks that there is memory for a new object, and computes the sizes of queues.
//!
//! Making an object needs many allocations, here and in the engine, and each of them ends the
//! process if it fails. So every creation checks first, and fails with ENOMEM.
//!
//! Not here: memory that other threads allocate between the check and the creation.

use crate::errno::Errno;

/// Bytes for small allocations and for a registry that grows.
const SLACK: usize = 1 << 20;

/// Checks that `len` bytes, and [`SLACK`] more, can be allocated.
///
/// # Errors
///
/// ENOMEM if they cannot.
pub(crate) fn check(len: usize) -> Result<(), Errno> {
    let len = len.saturating_add(SLACK);
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice. It is not touched, so it costs
    // only address space.
    let place = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, kind, -1, 0) };
    if place == libc::MAP_FAILED {
        return Err(Errno::ENOMEM);
    }
    // SAFETY: `place` is the mapping made above, and nothing uses it.
    unsafe { libc::munmap(place, len) };
    Ok(())
}

/// Number of work requests in a queue for which `wrs` are asked for: the next power of two. A
/// number without one is unchanged, and the engine refuses it.
pub(crate) fn rounded(wrs: u32) -> u32 {
    if wrs == 0 { 0 } else { wrs.checked_next_power_of_two().unwrap_or(wrs) }
}

/// Number of completions in a queue for which `cqes` are asked for: one less than the next larger
/// power of two, as drivers of NICs report it. A number without one is unchanged, and the engine
/// refuses it.
pub(crate) fn rounded_completions(cqes: u32) -> u32 {
    let slots = cqes.checked_add(1).and_then(u32::checked_next_power_of_two);
    slots.map_or(cqes, |slots| slots - 1)
}

/// Estimated bytes of a receive queue.
pub(crate) fn of_recvs(wrs: u32, sges: u32) -> usize {
    slots(wrs) * (64 + 32 * bounded(sges))
}

/// Estimated bytes of a send queue.
pub(crate) fn of_sends(wrs: u32, sges: u32, inline: u32) -> usize {
    slots(wrs) * (192 + 32 * bounded(sges) + 2 * bounded(inline))
}

/// Estimated bytes of a completion queue.
pub(crate) fn of_completions(cqes: u32) -> usize {
    slots(cqes) * 64
}

/// Number of entries to allocate: a power of two, at most 2^20. The engine refuses larger queues.
fn slots(entries: u32) -> usize {
    (entries.min(1 << 20) as usize).next_power_of_two()
}

/// Limits a number of elements or bytes per work request to 1024. The engine refuses larger ones.
fn bounded(most: u32) -> usize {
    most.min(1 << 10) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_have_a_power_of_two_of_work_requests_and_of_completions_one_less() {
        let asked = [0, 1, 2, 3, 64, 65, 1 << 16, (1 << 31) + 1];
        assert_eq!(asked.map(rounded), [0, 1, 2, 4, 64, 128, 1 << 16, (1 << 31) + 1]);
        let asked = [1, 2, 3, 4, 63, 64, (1 << 20) - 1, u32::MAX];
        let had = [1, 3, 3, 7, 63, 127, (1 << 20) - 1, u32::MAX];
        assert_eq!(asked.map(rounded_completions), had);
    }

    #[test]
    fn more_memory_than_any_process_has_is_not_there() {
        assert_eq!(check(1 << 20), Ok(()));
        assert_eq!(check(1 << 60), Err(Errno::ENOMEM));
        assert_eq!(check(usize::MAX), Err(Errno::ENOMEM));
    }
}
