//! Pager: on a terminal, a text that is longer than the screen stops after each screenful.
//!
//! Keys are those of `more`: space for the next screenful, Enter for a line, `a` for all that is
//! left, `q` or Ctrl-C for the end. The text stays in the terminal's own memory, to be scrolled.

use std::io::{self, IsTerminal, Write};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

/// The line below a screenful.
const MORE: &str = "-- more -- (space, Enter, a: all, q: end)";

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Page,
    Line,
    All,
    End,
}

/// Prints a text to stdout, in screenfuls if stdin and stdout are the same user's terminal.
///
/// # Errors
///
/// The terminal or the reader of stdout has gone.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let (stdin, mut stdout) = (io::stdin(), io::stdout().lock());
    let is_short = || rows(text, size().1) < size().0;
    if !stdin.is_terminal() || !stdout.is_terminal() || is_short() || is_typed_ahead(&stdin) {
        stdout.write_all(text.as_bytes())?;
        return stdout.flush();
    }
    let before = tcgetattr(&stdin)?;
    tcsetattr(&stdin, OptionalActions::Drain, &by_key(&before))?;
    let shown = pages(text, &mut stdout, size, || key(&stdin));
    tcsetattr(&stdin, OptionalActions::Drain, &before)?;
    shown
}

/// Returns whether keys are waiting. They are the next commands, not answers to the pager.
fn is_typed_ahead(stdin: &io::Stdin) -> bool {
    let mut fds = [PollFd::new(stdin, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Prints a text; after each screenful the next key tells how to go on.
fn pages(
    text: &str,
    out: &mut impl Write,
    size: impl Fn() -> (usize, usize),
    mut key: impl FnMut() -> io::Result<Key>,
) -> io::Result<()> {
    // The last row is for the line below.
    let mut room = size().0.saturating_sub(1).max(1);
    for line in text.split_inclusive('\n') {
        let (height, width) = size();
        let needed = rows(line, width);
        if needed > room {
            write!(out, "{MORE}")?;
            out.flush()?;
            let asked = key()?;
            write!(out, "\r{:1$}\r", "", MORE.len())?;
            match asked {
                Key::Page => room = height.saturating_sub(1),
                Key::Line => room = needed,
                Key::All => room = usize::MAX,
                Key::End => return out.flush(),
            }
        }
        out.write_all(line.as_bytes())?;
        room = room.saturating_sub(needed);
    }
    out.flush()
}

/// Returns the number of rows that a text takes.
fn rows(text: &str, width: usize) -> usize {
    text.lines().map(|line| line.chars().count().div_ceil(width).max(1)).sum()
}

/// Returns height and width of the terminal.
fn size() -> (usize, usize) {
    let size = tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_row > 1 && size.ws_col > 0);
    size.map_or((24, 80), |size| (size.ws_row.into(), size.ws_col.into()))
}

/// Returns the terminal's settings with which a key is read at once, is not shown, and sends no
/// signal.
pub(crate) fn by_key(before: &Termios) -> Termios {
    let mut termios = before.clone();
    termios.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
    termios.special_codes[SpecialCodeIndex::VMIN] = 1;
    termios.special_codes[SpecialCodeIndex::VTIME] = 0;
    termios
}

/// Waits for a key that is known. The end of the input counts as the end of the text.
fn key(stdin: &io::Stdin) -> io::Result<Key> {
    loop {
        let mut bytes = [0; 16];
        // Not through the buffer of `stdin`: the next line is the prompt's.
        let len = match rustix::io::read(stdin, &mut bytes) {
            Err(Errno::INTR) => continue,
            read => read?,
        };
        match &bytes[..len] {
            [] | [3, ..] | [b'q' | b'Q', ..] => return Ok(Key::End),
            [b' ' | b'f', ..] | b"\x1b[6~" => return Ok(Key::Page),
            [b'\r' | b'\n' | b'j', ..] | b"\x1b[B" => return Ok(Key::Line),
            [b'a' | b'G', ..] => return Ok(Key::All),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows ten lines on a screen of four rows and ten columns while these keys are pressed.
    fn shown(keys: &[Key]) -> String {
        let text: String = (0..10).map(|number| format!("{number}\n")).collect();
        let (mut out, mut keys) = (Vec::new(), keys.iter());
        let next = || Ok(*keys.next().expect("a key"));
        pages(&text, &mut out, || (4, 10), next).unwrap();
        let blank = format!("\r{:1$}\r", "", MORE.len());
        String::from_utf8(out).unwrap().replace(&blank, "").replace(MORE, "+").replace('\n', "")
    }

    #[test]
    fn each_key_shows_as_much_as_it_says() {
        assert_eq!(shown(&[Key::Page, Key::Page, Key::Page]), "012+345+678+9");
        assert_eq!(shown(&[Key::Line, Key::Page, Key::End]), "012+3+456+");
        assert_eq!(shown(&[Key::All]), "012+3456789");
        assert_eq!(shown(&[Key::End]), "012+");
    }

    #[test]
    fn a_long_line_takes_several_rows() {
        assert_eq!(rows("\n", 10), 1);
        assert_eq!(rows(&"x".repeat(10), 10), 1);
        assert_eq!(rows(&"x".repeat(11), 10), 2);
        assert_eq!(rows("a\nb\n", 10), 2);
    }
}
