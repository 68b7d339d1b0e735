//! Texts that appear while a line is being read.

use std::sync::{Arc, Mutex, PoisonError};

use uroce_command::{Answer, render};

/// Prints while a line is being read.
#[derive(Clone)]
pub(crate) struct Screen(Arc<Mutex<dyn FnMut(String) + Send>>);

impl Screen {
    /// Makes one of a function that prints.
    pub(crate) fn new(print: impl FnMut(String) + Send + 'static) -> Screen {
        Screen(Arc::new(Mutex::new(print)))
    }

    /// Prints a text.
    pub(crate) fn print(&self, text: String) {
        let mut print = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        print(text);
    }
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Screen")
    }
}

/// Returns the text of an answer, for people or as JSON.
pub(crate) fn text(answer: &Answer, is_json: bool) -> String {
    if !is_json {
        return render::text(answer);
    }
    let text = render::json(answer);
    text.unwrap_or_else(|error| serde_json::json!({ "error": error.to_string() }).to_string())
        + "\n"
}
