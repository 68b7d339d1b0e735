//! What the library has to say to whoever started the program: on stderr, each thing once, and
//! nothing with `UROCE_LOG=off`.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use super::place::digest;

/// Says it, unless it was said before.
pub(crate) fn say(text: &str) {
    if std::env::var_os("UROCE_LOG").is_some_and(|what| what == "off") {
        return;
    }
    static SAID: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());
    let is_new = SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(digest(text));
    if is_new {
        // A program may have closed it.
        let _ = writeln!(std::io::stderr(), "uroce: {}", text.replace('\n', "\nuroce: "));
    }
}
