//! Checks of `-c`: every byte of every message.
//!
//! The stock program has one buffer, which it fills once, sends from and receives into, so that
//! after the first message it sends back what it received. With its own `-c` its server checks at
//! the end that the first byte of every page is 0. Therefore:
//!
//! - our messages each have a new pattern, with 0 at the start of every page;
//! - a stock server must send them back unchanged; a stock client must first send its fill, then
//!   send back our last answer;
//! - a peer that is uroce-perf sends patterns as we do.
//!
//! The peer's first message shows its kind; its later messages are checked accordingly.

use crate::error::BenchError;
use crate::pattern::Pattern;

/// Byte with which the stock program fills its buffer, and its page size for `-c`.
const STOCK_FILL: u8 = 0x7b;
const STOCK_PAGE: usize = 4096;

/// Role of this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Sends first.
    Client,
    /// Answers.
    Server,
}

/// Kind of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    /// Not known before its first message.
    Unknown,
    /// The peer sends back what it has received.
    Echo,
    /// The peer sends patterns as we do.
    Pattern,
}

/// Makes our messages and checks the peer's.
pub(super) struct Checker {
    role: Role,
    peer: Peer,
    checking: bool,
    /// Our last message.
    outgoing: Vec<u8>,
    /// The message to be checked, and its expected contents.
    incoming: Vec<u8>,
    expected: Vec<u8>,
}

impl Checker {
    /// Creates a checker for messages of `size` bytes.
    pub(super) fn new(role: Role, size: usize, checking: bool) -> Self {
        let buffer = || vec![0; size];
        let peer = Peer::Unknown;
        let mut outgoing = buffer();
        outgoing.fill(STOCK_FILL);
        Self { role, peer, checking, outgoing, incoming: buffer(), expected: buffer() }
    }

    /// Returns the role of this end.
    pub(super) fn role(&self) -> Role {
        self.role
    }

    /// Returns our message `number`.
    pub(super) fn outgoing(&mut self, number: u64) -> &[u8] {
        if self.checking {
            fill(self.role, number, &mut self.outgoing);
        }
        &self.outgoing
    }

    /// Returns the buffer for the received message to be checked.
    pub(super) fn incoming_buffer(&mut self) -> &mut [u8] {
        &mut self.incoming
    }

    /// Checks the peer's message `number`, received after our last message was sent.
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

    /// Returns the kind of the peer, from its first message.
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

    /// Tells whether the message is a client's first one. It was recognized as a whole and echoes
    /// none.
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

/// Writes our pattern with a zero at the start of every page.
fn fill(role: Role, number: u64, message: &mut [u8]) {
    let seed = match role {
        Role::Client => 0x636c_6965_6e74,
        Role::Server => 0x7365_7276_6572,
    };
    Pattern::new(seed).fill(number, message);
    message.iter_mut().step_by(STOCK_PAGE).for_each(|byte| *byte = 0);
}

/// Tells whether all bytes are the stock fill, with zeros at the page starts if it uses `-c`.
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

    /// Passes `message` to `checker` as the peer's message `number`.
    fn give(checker: &mut Checker, number: u64, message: &[u8]) -> Result<(), BenchError> {
        checker.incoming_buffer().copy_from_slice(message);
        checker.check(number)
    }

    /// Returns the buffer of the stock program.
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
