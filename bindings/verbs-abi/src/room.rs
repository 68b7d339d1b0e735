//! Whether there is memory for what is about to be made.
//!
//! An object is many allocations, here and in the engine, and any of them ends the process if it
//! fails. So whoever makes one looks first, and says ENOMEM.
//!
//! Not here: memory that somebody else takes in between.

use crate::errno::Errno;

/// For all that is small, and for a registry that grows, in bytes.
const SLACK: usize = 1 << 20;

/// Looks whether there are so many bytes, and some more.
///
/// # Errors
///
/// ENOMEM if not.
pub(crate) fn check(len: usize) -> Result<(), Errno> {
    let len = len.saturating_add(SLACK);
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, which is not touched: it costs address space only.
    let place = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, kind, -1, 0) };
    if place == libc::MAP_FAILED {
        return Err(Errno::ENOMEM);
    }
    // SAFETY: mapped above.
    unsafe { libc::munmap(place, len) };
    Ok(())
}

/// The number of work requests that a queue has where so many are asked for: the next power of two.
/// What no queue has stays as it is, and is refused.
pub(crate) fn rounded(wrs: u32) -> u32 {
    if wrs == 0 { 0 } else { wrs.checked_next_power_of_two().unwrap_or(wrs) }
}

/// The number of completions that a queue has where so many are asked for: one less than the power of
/// two above it, as the NICs' drivers say it.
pub(crate) fn rounded_completions(cqes: u32) -> u32 {
    let slots = cqes.checked_add(1).and_then(u32::checked_next_power_of_two);
    slots.map_or(cqes, |slots| slots - 1)
}

/// Bytes of a queue of receives.
pub(crate) fn of_recvs(wrs: u32, sges: u32) -> usize {
    slots(wrs) * (64 + 32 * bounded(sges))
}

/// Bytes of a queue of sends.
pub(crate) fn of_sends(wrs: u32, sges: u32, inline: u32) -> usize {
    slots(wrs) * (192 + 32 * bounded(sges) + 2 * bounded(inline))
}

/// Bytes of a queue of completions.
pub(crate) fn of_completions(cqes: u32) -> usize {
    slots(cqes) * 64
}

/// Queues have a power of two of them, at most. More than a million are never had: the engine says so.
fn slots(entries: u32) -> usize {
    (entries.min(1 << 20) as usize).next_power_of_two()
}

/// The same of what a work request has.
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
    fn what_no_process_has_is_not_there() {
        assert_eq!(check(1 << 20), Ok(()));
        assert_eq!(check(1 << 60), Err(Errno::ENOMEM));
        assert_eq!(check(usize::MAX), Err(Errno::ENOMEM));
    }
}
