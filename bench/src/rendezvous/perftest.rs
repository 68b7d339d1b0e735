//! perftest's exchange: fixed records over TCP, swapped in turn, the client's first.
//!
//! ```text
//!   version                16 bytes  text; uroce appends its name after the NUL
//!   buffer, cache line     4 + 4     sizes of the sender's buffers' cycle and of a cache line
//!   path MTU               2         code 1 (256) to 5 (4096) as a digit
//!   parameters                       only between releases from 6.30 on, see `terms`
//!   key                    108       one line: LID, reads, QPN, PSN, R_Key, address, GID, SRQN
//!   report                 5 · 8     size, messages, peak, average, message rate
//!   "done"                 5         and the connection is closed
//! ```
//!
//! A key also serves as a barrier: to synchronize, both ends swap the key of their first queue pair
//! once more. [`crate::perf::traffic`] has the number and places of these swaps for each program.
//!
//! Source: perftest 4.5 (Debian 12) with programs of version 6.06. Records that they exchanged are
//! in the tests.

mod terms;
mod words;

pub(crate) use terms::Terms;
pub(crate) use words::{Key, Report};

use super::channel::{Channel, wait_for};
use super::{Link, PATIENCE};
use crate::error::BenchError;
use crate::pin::Side;
use std::time::{Duration, Instant};
use words::{DONE, Version};

/// Values that stock programs announce: the cycle of their buffer, which is a page, and a cache
/// line.
const CYCLE_BUFFER: u32 = 4096;
const CACHE_LINE: u32 = 64;
/// Longest wait for the other end's last record.
const FAREWELL: Duration = Duration::from_secs(2);

/// The program at the other end.
pub(crate) enum Partner {
    /// Another uroce-perf.
    Uroce(Link),
    /// One of perftest's programs.
    Perftest(Talk),
}

/// Exchanges versions and returns the kind of the other end. With `plain` this end does not
/// identify itself, so that two ends of uroce use perftest's exchange.
pub(crate) fn greet(channel: Channel, side: Side, plain: bool) -> Result<Partner, BenchError> {
    let mut talk = Talk { channel, side, compares: false };
    let (ours, theirs) = talk.versions(plain)?;
    if theirs.is_uroce() && ours.is_uroce() {
        return Ok(Partner::Uroce(talk.channel.into()));
    }
    let number = number_of(theirs)?;
    let both = |version: u32| number >= version && ours.number() >= Some(version);
    if both(Version::COMPARES) && !both(Version::NAMES) {
        return Err(BenchError::Peer(format!(
            "it is a perftest of version {}, which compares parameters in a form that depends on \
             its build: make it the client, and uroce-perf the server",
            hundredths(number)
        )));
    }
    talk.compares = both(Version::NAMES);
    Ok(Partner::Perftest(talk))
}

/// Returns the number of a supported version.
fn number_of(version: Version) -> Result<u32, BenchError> {
    match version.number() {
        Some(number) if number >= Version::OLDEST => Ok(number),
        Some(number) => {
            Err(BenchError::Peer(format!("its perftest is too old: {}", hundredths(number))))
        }
        None => Err(BenchError::Peer("it is not a perftest program".to_owned())),
    }
}

/// Returns a version's number as text.
fn hundredths(number: u32) -> String {
    format!("{}.{:02}", number / 100, number % 100)
}

/// State of the other end while no record is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calling {
    /// The other end has sent nothing.
    No,
    /// The other end has sent its next record.
    Yes,
    /// The other end has closed the connection.
    Left,
}

/// The exchange with a perftest program, after the versions.
pub(crate) struct Talk {
    channel: Channel,
    side: Side,
    /// Both ends compare parameters.
    compares: bool,
}

impl Talk {
    /// Exchanges versions. The server answers by what the client is.
    fn versions(&mut self, plain: bool) -> Result<(Version, Version), BenchError> {
        let newest = if plain { Version::perftest() } else { Version::uroce() };
        if self.side == Side::Client {
            self.channel.write(&newest.0)?;
        }
        let waiting = "waiting for its version";
        let theirs = wait_for(waiting, PATIENCE, super::pause, || self.take())?;
        let theirs = Version(theirs);
        if self.side == Side::Client {
            return Ok((newest, theirs));
        }
        let ours = if theirs.is_uroce() { newest } else { Version::answer(number_of(theirs)?) };
        self.channel.write(&ours.0)?;
        Ok((ours, theirs))
    }

    /// Compares parameters, if both ends do. Returns the number of READ and ATOMIC requests that
    /// the other end executes at a time, if it says so.
    pub(crate) fn compare(&mut self, terms: &Terms) -> Result<Option<u32>, BenchError> {
        if !self.compares {
            return Ok(None);
        }
        let waiting = "waiting for its parameters";
        let format = self.swap(terms::FORMAT.to_be_bytes(), PATIENCE, waiting, super::pause)?;
        if u32::from_be_bytes(format) != terms::FORMAT {
            return Ok(None);
        }
        let ours = terms.text();
        let len = self.swap((ours.len() as u32).to_be_bytes(), PATIENCE, waiting, super::pause)?;
        let len = u32::from_be_bytes(len);
        if len > terms::TEXT_MAX {
            return Err(BenchError::Peer(format!("it has {len} bytes of parameters")));
        }
        if self.side == Side::Client {
            self.channel.write(ours.as_bytes())?;
        }
        let len = len as usize;
        let theirs = wait_for(waiting, PATIENCE, super::pause, || self.take_bytes(len))?;
        if self.side == Side::Server {
            self.channel.write(ours.as_bytes())?;
        }
        terms.compare(&Terms::parse(&theirs))
    }

    /// Agrees on the path MTU, which is the smaller one, and on the length of the buffer in which
    /// shorter messages cycle. Returns both in bytes.
    pub(crate) fn agree(&mut self, mtu: u32) -> Result<(u32, u32), BenchError> {
        let mut swap = |value: u32| {
            let theirs = self.swap(value.to_be_bytes(), PATIENCE, "waiting", super::pause)?;
            Ok::<u32, BenchError>(u32::from_be_bytes(theirs))
        };
        let cycle = swap(CYCLE_BUFFER)?.clamp(CYCLE_BUFFER, 1 << 20);
        swap(CACHE_LINE)?;
        let ours = words::mtu(mtu);
        let theirs = self.swap(ours, PATIENCE, "waiting for its path MTU", super::pause)?;
        let theirs = words::parse_mtu(theirs)
            .ok_or_else(|| BenchError::Peer(format!("it has no path MTU: {theirs:?}")))?;
        Ok((mtu.min(theirs), cycle))
    }

    /// Swaps keys. `limit` is the longest wait for the other end's key.
    pub(crate) fn swap_key(
        &mut self,
        key: &Key,
        limit: Duration,
        turn: impl FnMut(),
    ) -> Result<Key, BenchError> {
        Key::parse(&self.swap(key.line(), limit, "waiting for its key", turn)?)
    }

    /// Swaps reports.
    pub(crate) fn swap_report(
        &mut self,
        report: &Report,
        mut turn: impl FnMut(),
    ) -> Result<Report, BenchError> {
        let mut theirs = [[0; 8]; 5];
        for (ours, theirs) in report.records().into_iter().zip(&mut theirs) {
            *theirs = self.swap(ours, PATIENCE, "waiting for its report", &mut turn)?;
        }
        Ok(Report::parse(&theirs))
    }

    /// Tells whether the other end has sent its next record.
    pub(crate) fn calling(&mut self) -> Result<Calling, BenchError> {
        let open = self.channel.read_some(1)?;
        Ok(match (self.channel.received().is_empty(), open) {
            (false, _) => Calling::Yes,
            (true, true) => Calling::No,
            (true, false) => Calling::Left,
        })
    }

    /// Sends the last record and waits for the other end's. Closing a connection with unread bytes
    /// would be an error at the other end.
    pub(crate) fn farewell(&mut self, turn: impl FnMut()) -> Result<(), BenchError> {
        self.channel.write(&DONE)?;
        self.await_end(turn);
        Ok(())
    }

    /// Waits up to [`FAREWELL`] for the other end's last record, or for it to close the connection.
    pub(crate) fn await_end(&mut self, mut turn: impl FnMut()) {
        let deadline = Instant::now() + FAREWELL;
        while Instant::now() < deadline {
            match self.channel.read_some(DONE.len()) {
                Ok(true) if self.channel.received().len() < DONE.len() => turn(),
                _ => return,
            }
        }
    }

    fn swap<const LEN: usize>(
        &mut self,
        ours: [u8; LEN],
        limit: Duration,
        waiting: &'static str,
        mut turn: impl FnMut(),
    ) -> Result<[u8; LEN], BenchError> {
        if self.side == Side::Client {
            self.channel.write(&ours)?;
        }
        let theirs = wait_for(waiting, limit, &mut turn, || self.take())?;
        if self.side == Side::Server {
            self.channel.write(&ours)?;
        }
        Ok(theirs)
    }

    /// Takes the other end's next record if it has arrived.
    fn take<const LEN: usize>(&mut self) -> Result<Option<[u8; LEN]>, BenchError> {
        Ok(self.take_bytes(LEN)?.and_then(|bytes| bytes.try_into().ok()))
    }

    /// Takes the other end's next bytes if they have all arrived.
    fn take_bytes(&mut self, len: usize) -> Result<Option<Vec<u8>>, BenchError> {
        if self.channel.received().len() < len && !self.channel.read_some(len)? {
            return Err(BenchError::PeerGone);
        }
        if self.channel.received().len() < len {
            return Ok(None);
        }
        Ok(Some(self.channel.take(len)))
    }
}

#[cfg(test)]
mod tests;
