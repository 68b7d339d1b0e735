//! Wakers on which a model's thread sleeps: what one bell writes wakes it.

use super::tokens::Tokens;
use std::io;
use std::sync::OnceLock;
use std::time::Duration;

/// The tokens of one bell.
#[derive(Debug, Default)]
pub struct Wakers(OnceLock<Tokens>);

impl Wakers {
    /// Makes an empty set.
    ///
    /// # Errors
    /// None.
    pub fn new() -> io::Result<Wakers> {
        Ok(Wakers::default())
    }

    /// Adds the tokens: from now on, each that is added wakes the thread.
    ///
    /// # Errors
    /// None.
    pub fn add(&self, tokens: &Tokens) -> io::Result<()> {
        assert!(self.0.set(tokens.clone()).is_ok(), "a model has one bell");
        Ok(())
    }

    /// Sleeps until a token wakes the thread; the time never passes, because a model has none.
    pub(crate) fn wait(&self, _time: Duration) -> bool {
        let tokens = self.0.get().expect("a bell");
        tokens.wait().expect("woken");
        // Edge-triggered: what was written wakes once.
        while tokens.take().expect("readable") {}
        true
    }
}
