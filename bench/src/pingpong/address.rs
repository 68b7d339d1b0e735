//! Exchange of ibv_*_pingpong: one line of text each way, then a word.
//!
//! The line is `LID:QPN:PSN:GID`, all hexadecimal: four, six and six digits, and 32 for the bytes
//! of the GID, then a NUL. Its length is fixed. The client sends its line and reads the server's,
//! then sends `done`.

use crate::error::BenchError;
use std::fmt;
use std::io::{Read, Write};
use uroce::{Endpoint, Gid, Psn, Qpn};

/// Length of a line with its NUL.
const LEN: usize = 4 + 1 + 6 + 1 + 6 + 1 + 32 + 1;
/// Word that ends the exchange, with its NUL.
const DONE: &[u8; 5] = b"done\0";

/// Address of one end. The LID is 0, because RoCE has none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Address(pub(super) Endpoint);

impl Address {
    /// Encodes the line with its NUL.
    fn line(&self) -> [u8; LEN] {
        let Endpoint { gid, qpn, psn } = self.0;
        let digits: String = gid.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = format!("0000:{:06x}:{:06x}:{digits}\0", qpn.value(), psn.value());
        let mut line = [0; LEN];
        line.copy_from_slice(text.as_bytes());
        line
    }

    fn parse(line: &[u8; LEN]) -> Option<Self> {
        let text = std::str::from_utf8(line).ok()?.trim_end_matches('\0');
        let mut fields = text.split(':');
        let mut number = || u32::from_str_radix(fields.next()?, 16).ok();
        let (_lid, qpn, psn) = (number()?, number()?, number()?);
        let digits = fields.next().filter(|digits| digits.len() == 32)?;
        let gid = Gid(u128::from_str_radix(digits, 16).ok()?.to_be_bytes());
        let whole = fields.next().is_none();
        whole.then_some(Self(Endpoint { gid, qpn: Qpn::new(qpn), psn: Psn::new(psn) }))
    }

    /// Sends the address.
    pub(super) fn write(&self, stream: &mut impl Write) -> Result<(), BenchError> {
        let written = stream.write_all(&self.line());
        written.map_err(|error| BenchError::io("sending our address", error))
    }

    /// Receives the other end's address.
    pub(super) fn read(stream: &mut impl Read) -> Result<Self, BenchError> {
        let mut line = [0; LEN];
        read(stream, &mut line, "reading the other end's address")?;
        Self::parse(&line).ok_or_else(|| {
            let text = String::from_utf8_lossy(&line).into_owned();
            BenchError::Peer(format!("it is not an ibv_*_pingpong program: {text:?}"))
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Endpoint { gid, qpn, psn } = self.0;
        let ip = std::net::Ipv6Addr::from(gid.0);
        write!(f, "LID 0x0000, QPN {:#08x}, PSN {:#08x}, GID {ip}", qpn.value(), psn.value())
    }
}

fn read(stream: &mut impl Read, bytes: &mut [u8], what: &str) -> Result<(), BenchError> {
    stream.read_exact(bytes).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => BenchError::PeerGone,
        _ => BenchError::io(what, error),
    })
}

/// Ends the exchange, as the client.
pub(super) fn write_done(stream: &mut impl Write) -> Result<(), BenchError> {
    stream.write_all(DONE).map_err(|error| BenchError::io("ending the exchange", error))
}

/// Waits for the end of the exchange, as the server. The word is enough, because a client may leave
/// out its NUL.
pub(super) fn read_done(stream: &mut impl Read) -> Result<(), BenchError> {
    let mut word = [0; 4];
    read(stream, &mut word, "waiting for the end of the exchange")?;
    if word == DONE[..4] {
        return Ok(());
    }
    Err(BenchError::Peer("it is not an ibv_*_pingpong program".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address() -> Address {
        let gid = Gid::from(Ipv4Addr::new(192, 0, 2, 1));
        Address(Endpoint { gid, qpn: Qpn::new(0x11), psn: Psn::new(0xabcdef) })
    }

    #[test]
    fn the_line_is_the_stock_tools() {
        let line = address().line();
        let expected = b"0000:000011:abcdef:00000000000000000000ffffc0000201\0";
        assert_eq!(&line[..], expected);
        assert_eq!(LEN, 52);
    }

    #[test]
    fn what_is_written_is_read() {
        let mut bytes = Vec::new();
        address().write(&mut bytes).expect("writes");
        write_done(&mut bytes).expect("writes");
        let mut rest = &bytes[..];
        assert_eq!(Address::read(&mut rest).expect("reads"), address());
        read_done(&mut rest).expect("reads");
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["GET / HTTP/1.1\r\n", "0000:000011:abcdef:zz", "0000:000011:abcdef:00:00"] {
            let mut line = [0; LEN];
            line[..text.len()].copy_from_slice(text.as_bytes());
            assert!(Address::read(&mut &line[..]).is_err(), "{text}");
        }
        assert!(Address::read(&mut &b"0000:0000"[..]).is_err());
        assert!(read_done(&mut &b"dont"[..]).is_err());
    }

    #[test]
    fn it_is_shown_as_the_stock_tool_does() {
        assert_eq!(
            address().to_string(),
            "LID 0x0000, QPN 0x000011, PSN 0xabcdef, GID ::ffff:192.0.2.1"
        );
    }
}
