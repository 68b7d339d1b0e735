//! What `-c` checks: every byte of every message.
//!
//! The stock tool has one buffer, which it fills once and both sends from and receives into; so
//! after the first message it sends back what it received. With its own `-c` its server looks, at
//! the end, at the first byte of every page, which must be 0. Hence:
//!
//! - we send a new pattern in every message, with 0 at every page's start;
//! - a stock server must send it back unchanged, byte for byte; a stock client must first send its
//!   fill, then send back our last answer;
//! - a peer that is uroce sends patterns of its own, as we do.
//!
//! Which of these the peer is shows in its first message; after that it is held to it.

use crate::error::BenchError;
use crate::pattern::Pattern;

/// The stock tool's fill, and its byte at every page's start with `-c`.
const STOCK_FILL: u8 = 0x7b;
const STOCK_PAGE: usize = 4096;

/// Which end we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Sends first.
    Client,
    /// Answers.
    Server,
}

/// How the peer makes its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    /// Not known before its first message.
    Unknown,
    /// It sends what it received.
    Echo,
    /// It sends patterns as we do.
    Pattern,
}

/// Makes our messages and checks the peer's.
pub(super) struct Checker {
    role: Role,
    peer: Peer,
    checking: bool,
    /// Our last message.
    outgoing: Vec<u8>,
    /// The message that is being checked, and what it should be.
    incoming: Vec<u8>,
    expected: Vec<u8>,
}

impl Checker {
    /// For messages of `size` bytes.
    pub(super) fn new(role: Role, size: usize, checking: bool) -> Self {
        let buffer = || vec![0; size];
        let peer = Peer::Unknown;
        let mut outgoing = buffer();
        outgoing.fill(STOCK_FILL);
        Self { role, peer, checking, outgoing, incoming: buffer(), expected: buffer() }
    }

    /// Which end we are.
    pub(super) fn role(&self) -> Role {
        self.role
    }

    /// Our message `number`.
    pub(super) fn outgoing(&mut self, number: u64) -> &[u8] {
        if self.checking {
            fill(self.role, number, &mut self.outgoing);
        }
        &self.outgoing
    }

    /// Where the received message is to be put before it is checked.
    pub(super) fn incoming_buffer(&mut self) -> &mut [u8] {
        &mut self.incoming
    }

    /// Checks the peer's message `number`, which came while our last message was the one before it.
    pub(super) fn check(&mut self, number: u64) -> Result<(), BenchError> {
        if self.peer == Peer::Unknown {
            self.peer = self.recognize();
        }
        let wrong = match self.peer {
            Peer::Unknown => Some(0),
            Peer::Echo if self.is_first_of_client(number) => None,
            Peer::Echo => difference(&self.incoming, &self.outgoing),
            Peer::Pattern => {
                fill(self.other(), number, &mut self.expected);
                difference(&self.incoming, &self.expected)
            }
        };
        let Some(offset) = wrong else { return Ok(()) };
        let found = &self.incoming[offset..self.incoming.len().min(offset + 16)];
        let text = format!("message {number}: byte {offset} is wrong, from there on {found:02x?}");
        Err(BenchError::Corrupt(text))
    }

    /// What the peer is, by its first message.
    fn recognize(&mut self) -> Peer {
        fill(self.other(), 0, &mut self.expected);
        if self.incoming == self.expected {
            return Peer::Pattern;
        }
        let echo = match self.role {
            Role::Client => self.incoming == self.outgoing,
            Role::Server => is_stock_fill(&self.incoming),
        };
        if echo { Peer::Echo } else { Peer::Unknown }
    }

    /// A client's first message has nothing to be an echo of; it was recognized as a whole.
    fn is_first_of_client(&self, number: u64) -> bool {
        self.role == Role::Server && number == 0
    }

    fn other(&self) -> Role {
        match self.role {
            Role::Client => Role::Server,
            Role::Server => Role::Client,
        }
    }
}

/// A pattern of ours with a zero at every page's start.
fn fill(role: Role, number: u64, message: &mut [u8]) {
    let seed = match role {
        Role::Client => 0x636c_6965_6e74,
        Role::Server => 0x7365_7276_6572,
    };
    Pattern::new(seed).fill(number, message);
    message.iter_mut().step_by(STOCK_PAGE).for_each(|byte| *byte = 0);
}

/// What a stock client begins with: all bytes alike, with `-c` zeros at the pages' starts.
fn is_stock_fill(message: &[u8]) -> bool {
    let page_starts = message.first().copied().unwrap_or(STOCK_FILL);
    let expected = |index: usize| match index % STOCK_PAGE {
        0 => page_starts,
        _ => STOCK_FILL,
    };
    (page_starts == 0 || page_starts == STOCK_FILL)
        && message.iter().enumerate().all(|(index, &byte)| byte == expected(index))
}

fn difference(left: &[u8], right: &[u8]) -> Option<usize> {
    left.iter().zip(right).position(|(left, right)| left != right)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [usize; 4] = [1, 100, 4096, 10_000];

    /// Gives `message` to `checker` as the peer's message `number`.
    fn give(checker: &mut Checker, number: u64, message: &[u8]) -> Result<(), BenchError> {
        checker.incoming_buffer().copy_from_slice(message);
        checker.check(number)
    }

    /// The stock tool: one buffer.
    fn stock(size: usize, check: bool) -> Vec<u8> {
        let mut buffer = vec![STOCK_FILL; size];
        if check {
            buffer.iter_mut().step_by(STOCK_PAGE).for_each(|byte| *byte = 0);
        }
        buffer
    }

    #[test]
    fn a_stock_client_is_accepted_with_and_without_its_own_check() {
        for (size, check) in SIZES.into_iter().flat_map(|size| [(size, false), (size, true)]) {
            let mut server = Checker::new(Role::Server, size, true);
            let mut buffer = stock(size, check);
            for number in 0..5 {
                give(&mut server, number, &buffer).expect("as the stock tool sends it");
                buffer.copy_from_slice(server.outgoing(number));
            }
        }
    }

    #[test]
    fn a_stock_server_is_accepted_and_finds_zeros_at_the_pages() {
        for size in SIZES {
            let mut client = Checker::new(Role::Client, size, true);
            let mut buffer = stock(size, false);
            for number in 0..5 {
                buffer.copy_from_slice(client.outgoing(number));
                give(&mut client, number, &buffer).expect("as the stock tool sends it");
            }
            assert!(buffer.iter().step_by(STOCK_PAGE).all(|&byte| byte == 0));
        }
    }

    #[test]
    fn two_of_ours_accept_each_other() {
        for size in SIZES {
            let mut client = Checker::new(Role::Client, size, true);
            let mut server = Checker::new(Role::Server, size, true);
            for number in 0..5 {
                let ping = client.outgoing(number).to_vec();
                give(&mut server, number, &ping).expect("a client's message");
                let pong = server.outgoing(number).to_vec();
                give(&mut client, number, &pong).expect("a server's answer");
            }
        }
    }

    #[test]
    fn a_single_wrong_byte_is_found_in_each_way_of_talking() {
        let mut client = Checker::new(Role::Client, 5000, true);
        let echo = client.outgoing(0).to_vec();
        give(&mut client, 0, &echo).expect("an echo");
        let mut wrong = client.outgoing(1).to_vec();
        wrong[4999] ^= 1;
        let error = give(&mut client, 1, &wrong).expect_err("a wrong byte").to_string();
        assert!(error.contains("message 1: byte 4999"), "{error}");

        let mut server = Checker::new(Role::Server, 5000, true);
        let mut first = stock(5000, true);
        first[17] = 0;
        assert!(give(&mut server, 0, &first).is_err());
    }

    #[test]
    fn a_repeated_message_is_found() {
        let mut client = Checker::new(Role::Client, 64, true);
        let echo = client.outgoing(0).to_vec();
        give(&mut client, 0, &echo).expect("an echo");
        client.outgoing(1);
        assert!(give(&mut client, 1, &echo).is_err());
    }
}
