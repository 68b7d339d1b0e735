//! `dump`: DPDK's own view of its memory, rings and threads.

use rustix::io::Errno;
use uroce_command::request::Dump;
use uroce_command::{Answer, frame};
use uroce_engine::eal::{self, Eal};

use super::Failure;

/// Longest text in bytes. As JSON it is at most twice as long, so that it fits into a frame.
const TEXT_MAX: usize = frame::REPLY_MAX / 4;

/// Answers with DPDK's text.
pub(super) fn dump(what: Dump) -> Result<Answer, Failure> {
    let Some(eal) = Eal::running() else {
        let remedy = "start with a port of a DPDK driver: --vdev or -a, or `ethdev` in the \
                      configuration file";
        return Err(Failure::new(Errno::OPNOTSUPP, "DPDK does not run in this process", remedy));
    };
    let text = eal.dump(match what {
        Dump::Mempool => eal::Dump::Mempools,
        Dump::Memzone => eal::Dump::Memzones,
        Dump::Physmem => eal::Dump::Physmem,
        Dump::Ring => eal::Dump::Rings,
        Dump::Lcores => eal::Dump::Lcores,
        Dump::LogTypes => eal::Dump::LogTypes,
        Dump::SocketMem => eal::Dump::SocketMemory,
    });
    match text {
        Some(text) => Ok(Answer::Dump(cut(text))),
        None => Err(Failure::new(Errno::NOMEM, "no memory for DPDK's text", "try again")),
    }
}

/// Cuts a text behind a line, if it is too long, and says so in the last line.
fn cut(mut text: String) -> String {
    if text.len() > TEXT_MAX {
        let len = text.as_bytes()[..TEXT_MAX].iter().rposition(|byte| *byte == b'\n');
        let rest = text.split_off(len.map_or(0, |at| at + 1));
        text.push_str(&format!("... and {} more lines\n", rest.lines().count()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_behind_a_line() {
        assert_eq!(cut("a\nb\n".to_owned()), "a\nb\n");
        let line = "0123456789abcde\n";
        let long = cut(line.repeat(TEXT_MAX / line.len() + 3));
        assert!(long.ends_with("0123456789abcde\n... and 3 more lines\n"));
        assert!(long.len() < TEXT_MAX + 40);
        assert!(cut("x".repeat(TEXT_MAX + 1)).starts_with("... and 1 more"));
    }
}
