//! Data of a ping: a heading with its number, then letters, starting one letter further with each
//! ping.
//!
//! The last byte is 0. Letters are the codes from `A` to `z`, including those between the two
//! alphabets.

use std::io::Write;

const FIRST: u8 = b'A';
const LAST: u8 = b'z';

/// Fills a buffer with the data of ping `number`, counted from 0.
pub(super) fn fill(number: u64, ping: &mut [u8]) {
    let mut rest: &mut [u8] = &mut *ping;
    // Text that does not fit is cut off.
    let _ = write!(rest, "rdma-ping-{number}: ");
    let span = u64::from(LAST - FIRST) + 1;
    let begin = number % span;
    for (place, index) in rest.iter_mut().zip(begin..) {
        // The sum fits: it is at most the code of `z`.
        *place = FIRST + (index % span) as u8;
    }
    if let Some(last) = ping.last_mut() {
        *last = 0;
    }
}

/// Returns the data of a ping as text, up to its first 0.
pub(super) fn shown(ping: &[u8]) -> String {
    let end = ping.iter().position(|&byte| byte == 0).unwrap_or(ping.len());
    String::from_utf8_lossy(&ping[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(number: u64, size: usize) -> String {
        let mut ping = vec![1; size];
        fill(number, &mut ping);
        assert_eq!(ping.last(), Some(&0));
        shown(&ping)
    }

    #[test]
    fn it_is_what_two_stock_programs_sent_each_other() {
        assert_eq!(text(0, 40), "rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ");
        assert_eq!(text(1, 40), "rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[");
        assert_eq!(text(2, 40), "rdma-ping-2: CDEFGHIJKLMNOPQRSTUVWXYZ[\\");
    }

    #[test]
    fn after_the_last_letter_comes_the_first() {
        let long = text(0, 14 + 60);
        assert!(long.ends_with("wxyzAB"), "{long}");
        assert_eq!(text(57, 24), "rdma-ping-57: zABCDEFGH");
        assert_eq!(text(58, 24), "rdma-ping-58: ABCDEFGHI");
    }
}
