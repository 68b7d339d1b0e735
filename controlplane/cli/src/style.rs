//! Colours: on terminals only, and not if the environment variable `NO_COLOR` is set.

use std::io::{IsTerminal, Write};

/// Returns whether a stream is a terminal that gets colours.
pub(crate) fn is_coloured(stream: &impl IsTerminal) -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    stream.is_terminal() && !is_set("NO_COLOR") && !is_dumb
}

/// Prints an error to stderr: the first line red. Parts of it may come from a file or a process.
pub(crate) fn error(text: &str) {
    let text = &*uroce_command::render::harmless(text);
    let mut stderr = std::io::stderr().lock();
    let (first, rest) =
        text.split_once('\n').map_or((text, None), |(first, rest)| (first, Some(rest)));
    let is_coloured = is_coloured(&stderr);
    // Errors mean that stderr is closed.
    let _ = match is_coloured {
        true => writeln!(stderr, "\x1b[31m{first}\x1b[0m"),
        false => writeln!(stderr, "{first}"),
    };
    if let Some(rest) = rest {
        let _ = writeln!(stderr, "{rest}");
    }
}
