//! Messages to the user on stderr. Each text is printed once per process, and nothing is printed if
//! `UROCE_LOG=off`.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use super::place::digest;

/// Prints the text, unless it was printed before.
pub(crate) fn say(text: &str) {
    if std::env::var_os("UROCE_LOG").is_some_and(|what| what == "off") {
        return;
    }
    static SAID: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());
    let is_new = SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(digest(text));
    if is_new {
        // The program may have closed stderr.
        let _ = writeln!(std::io::stderr(), "uroce: {}", text.replace('\n', "\nuroce: "));
    }
}
