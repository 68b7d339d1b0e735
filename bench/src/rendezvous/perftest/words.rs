//! Encoding of perftest's records.

use crate::error::BenchError;
use uroce::PathMtu;

/// The last record.
pub(super) const DONE: [u8; 5] = *b"done\0";
/// Bytes of a key's line with its NUL.
const KEY_LEN: usize = 108;
/// Text after the version's NUL in our version. Stock programs read up to the NUL.
const UROCE: &[u8] = b"uroce2";

/// The first record: the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version(pub(super) [u8; 16]);

impl Version {
    /// Oldest supported version, in hundredths; older ones have different records.
    pub(super) const OLDEST: u32 = 570;
    /// Versions in between compare a C structure that depends on the release and on how it was
    /// built. They do so only with ends that call themselves 6.28 or later.
    pub(super) const COMPARES: u32 = 628;
    /// Oldest version that compares parameters by name, see [`super::terms`].
    pub(super) const NAMES: u32 = 630;
    /// Version of these records without a comparison.
    const NUMBER: &'static [u8] = b"6.06\0";
    /// Version of these records with one.
    const NUMBER_OF_NAMES: &'static [u8] = b"6.30\0";

    fn of(number: &[u8]) -> Self {
        let mut bytes = [0; 16];
        bytes[..number.len()].copy_from_slice(number);
        Self(bytes)
    }

    /// Returns a stock program's version that compares parameters by name.
    pub(super) fn perftest() -> Self {
        Self::of(Self::NUMBER_OF_NAMES)
    }

    /// Returns the version to answer a client with: the newest of which the client's steps are
    /// known.
    pub(super) fn answer(client: u32) -> Self {
        if client >= Self::NAMES { Self::perftest() } else { Self::of(Self::NUMBER) }
    }

    /// Returns the version that identifies uroce.
    pub(super) fn uroce() -> Self {
        let Self(mut bytes) = Self::perftest();
        bytes[Self::NUMBER_OF_NAMES.len()..][..UROCE.len()].copy_from_slice(UROCE);
        Self(bytes)
    }

    /// Tells whether the version is uroce's.
    pub(super) fn is_uroce(self) -> bool {
        self == Self::uroce()
    }

    /// Returns the number of the version in hundredths; `None` if it is not a version.
    pub(super) fn number(self) -> Option<u32> {
        let text = self.0.split(|&byte| byte == 0).next()?;
        let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
        (0.0..1e6).contains(&number).then(|| (number * 100.0).round() as u32)
    }
}

/// Encodes a path MTU in bytes.
pub(super) fn mtu(bytes: u32) -> [u8; 2] {
    let code = PathMtu::from_bytes(bytes).map_or(0, |mtu| (mtu.bytes() / 128).ilog2() as u8);
    [b'0' + code, 0]
}

/// Decodes a path MTU in bytes.
pub(super) fn parse_mtu(record: [u8; 2]) -> Option<u32> {
    match record[0] {
        digit @ b'1'..=b'5' => Some(128 << (digit - b'0')),
        _ => None,
    }
}

/// Parameters of one end for one queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// READ and ATOMIC requests that it executes at a time.
    pub(crate) reads: u32,
    /// Queue pair number.
    pub(crate) qpn: u32,
    /// PSN of the first packet that it sends.
    pub(crate) psn: u32,
    /// R_Key of its memory.
    pub(crate) rkey: u32,
    /// Virtual address of its memory.
    pub(crate) va: u64,
    /// GID.
    pub(crate) gid: [u8; 16],
    /// Number of its XRC shared receive queue; 0 for other services.
    pub(crate) srqn: u32,
}

impl Key {
    /// Encodes the record. The LID is 0, as RoCE has none.
    pub(super) fn line(&self) -> [u8; KEY_LEN] {
        let gid: Vec<String> = self.gid.iter().map(|octet| format!("{octet:02x}")).collect();
        let text = format!(
            "0000:{:04x}:{:06x}:{:06x}:{:08x}:{:016x}:{}:{:08x}:\0",
            self.reads & 0xffff,
            self.qpn & 0xff_ffff,
            self.psn & 0xff_ffff,
            self.rkey,
            self.va,
            gid.join(":"),
            self.srqn,
        );
        let mut line = [0; KEY_LEN];
        line.copy_from_slice(text.as_bytes());
        line
    }

    /// Decodes a record.
    pub(super) fn parse(line: &[u8; KEY_LEN]) -> Result<Self, BenchError> {
        Self::fields(line).ok_or_else(|| {
            let text = String::from_utf8_lossy(line).into_owned();
            BenchError::Peer(format!("it is not a perftest program: {text:?}"))
        })
    }

    fn fields(line: &[u8; KEY_LEN]) -> Option<Self> {
        let text = std::str::from_utf8(line).ok()?.trim_end_matches('\0').strip_suffix(':')?;
        let mut fields = text.split(':');
        let mut number = || u64::from_str_radix(fields.next()?, 16).ok();
        let mut short = || u32::try_from(number()?).ok();
        let (_lid, reads, qpn, psn, rkey) = (short()?, short()?, short()?, short()?, short()?);
        let va = number()?;
        let mut gid = [0; 16];
        for octet in &mut gid {
            *octet = u8::try_from(number()?).ok()?;
        }
        let srqn = u32::try_from(number()?).ok()?;
        let fits = qpn < 1 << 24 && psn < 1 << 24 && fields.next().is_none();
        fits.then_some(Self { reads, qpn, psn, rkey, va, gid, srqn })
    }
}

/// Result of a bandwidth test at one end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Report {
    /// Bytes of a message.
    pub(crate) size: u64,
    /// Messages of all queue pairs.
    pub(crate) messages: u64,
    /// Peak bandwidth, in the unit chosen by both ends' options.
    pub(crate) peak: f64,
    /// Average bandwidth, in the unit of `peak`.
    pub(crate) average: f64,
    /// Million messages per second.
    pub(crate) rate: f64,
}

impl Report {
    pub(super) fn records(&self) -> [[u8; 8]; 5] {
        let Self { size, messages, peak, average, rate } = *self;
        [size, messages, peak.to_bits(), average.to_bits(), rate.to_bits()].map(u64::to_be_bytes)
    }

    pub(super) fn parse(records: &[[u8; 8]; 5]) -> Self {
        let [size, messages, peak, average, rate] = records.map(u64::from_be_bytes);
        let [peak, average, rate] = [peak, average, rate].map(f64::from_bits);
        Self { size, messages, peak, average, rate }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Sent by Debian 12's `ib_read_bw` and `ib_write_bw`, perftest 4.5+0.17-1.
    const READ_KEY: &[u8; KEY_LEN] = b"0000:0080:00001d:ab9594:00000dad:000055d5f2b17000:\
        00:00:00:00:00:00:00:00:00:00:ff:ff:c0:00:02:02:00000000:\0";
    const REPORT: [[u8; 8]; 5] = [
        *b"\x00\x00\x00\x00\x00\x00\x04\x00",
        *b"\x00\x00\x00\x00\x00\x00\x00(",
        *b"@@\xe7\x04\xc7y\xec3",
        *b"@\x1e\x7f/w\t\xf1\x90",
        *b"?\x7f\xfam`*h\x7f",
    ];

    #[test]
    fn a_stock_key_is_read_and_written_as_it_was_sent() {
        let key = Key::parse(READ_KEY).expect("a stock line");
        let gid = uroce::Gid::from(std::net::Ipv4Addr::new(192, 0, 2, 2)).0;
        let va = 0x55d5_f2b1_7000;
        let expected = Key { reads: 128, qpn: 0x1d, psn: 0xab_9594, rkey: 0xdad, va, gid, srqn: 0 };
        assert_eq!(key, expected);
        assert_eq!(&key.line(), READ_KEY);
    }

    #[test]
    fn a_stock_key_names_its_shared_receive_queue() {
        let mut line = *READ_KEY;
        line[98..106].copy_from_slice(b"00001a2b");
        let key = Key::parse(&line).expect("a stock line");
        assert_eq!(key.srqn, 0x1a2b);
        assert_eq!(key.line(), line);
    }

    #[test]
    fn a_stock_report_is_read_and_written_as_it_was_sent() {
        let report = Report::parse(&REPORT);
        assert_eq!((report.size, report.messages), (1024, 40));
        // The program printed 7.62 MiB/s, which agrees with the message rate.
        assert!((report.average - 7.624).abs() < 1e-3, "{report:?}");
        let by_rate = report.rate * 1e6 * 1024.0 / f64::from(1 << 20);
        assert!((by_rate - report.average).abs() < 1e-9, "{report:?}");
        assert!(report.peak > report.average);
        assert_eq!(report.records(), REPORT);
    }

    #[test]
    fn other_lines_are_no_keys() {
        for (place, byte) in [(0, b'x'), (4, b' '), (107, b':'), (106, b'0'), (9, b'0')] {
            let mut line = *READ_KEY;
            line[place] = byte;
            assert!(Key::parse(&line).is_err(), "{place}");
        }
        assert!(Key::parse(&[0; KEY_LEN]).is_err());
        assert!(Key::parse(&[0xff; KEY_LEN]).is_err());
    }

    #[test]
    fn path_mtus_are_digits() {
        for (bytes, digit) in [(256, b'1'), (512, b'2'), (1024, b'3'), (2048, b'4'), (4096, b'5')] {
            assert_eq!(mtu(bytes), [digit, 0]);
            assert_eq!(parse_mtu([digit, 0]), Some(bytes));
        }
        assert_eq!(parse_mtu(*b"0\0"), None);
        assert_eq!(parse_mtu(*b"6\0"), None);
    }

    #[test]
    fn our_version_reads_as_theirs_and_identifies_uroce() {
        assert_eq!(&Version::perftest().0, b"6.30\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(Version::uroce().number(), Version::perftest().number());
        assert!(Version::uroce().is_uroce() && !Version::perftest().is_uroce());
        assert_eq!(Version([0xff; 16]).number(), None);
        for (text, number) in [
            (b"6.28\0\0\0\0", Some(628)),
            (b"6.3\0\0\0\0\0", Some(630)),
            (b"nan\0\0\0\0\0", None),
            (b"-1\0\0\0\0\0\0", None),
            (b"1e40\0\0\0\0", None),
        ] {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(text);
            assert_eq!(Version(bytes).number(), number, "{text:?}");
        }
    }

    #[test]
    fn clients_are_answered_with_a_version_whose_steps_they_share() {
        for (client, answer) in [(570, 606), (624, 606), (629, 606), (630, 630), (700, 630)] {
            assert_eq!(Version::answer(client).number(), Some(answer), "{client}");
        }
    }
}
