//! Ethernet addresses.

use core::fmt;
use core::str::FromStr;

/// A 48-bit Ethernet address in transmission order.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The broadcast address.
    pub const BROADCAST: Mac = Mac([0xff; 6]);
    /// All zeros, which no station on a link has: the destination of packets to an address of this
    /// node, which never leave it. The kernel's loopback interface has this address too.
    pub const LOOPBACK: Mac = Mac([0; 6]);

    /// Returns whether the group bit is set; also true of the broadcast address.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Error of parsing: the text is not six two-digit hexadecimal numbers separated by colons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacSyntaxError;

impl fmt::Display for MacSyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an Ethernet address of the form 02:00:5e:10:00:01")
    }
}

impl core::error::Error for MacSyntaxError {}

impl FromStr for Mac {
    type Err = MacSyntaxError;

    fn from_str(text: &str) -> Result<Mac, MacSyntaxError> {
        let mut mac = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut mac {
            let digits = parts.next().ok_or(MacSyntaxError)?;
            if digits.len() != 2 || !digits.bytes().all(|d| d.is_ascii_hexdigit()) {
                return Err(MacSyntaxError);
            }
            *byte = u8::from_str_radix(digits, 16).map_err(|_| MacSyntaxError)?;
        }
        if parts.next().is_some() { Err(MacSyntaxError) } else { Ok(Mac(mac)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_and_written() {
        let mac = Mac([0x02, 0x00, 0x5e, 0x10, 0xab, 0x01]);
        assert_eq!("02:00:5e:10:ab:01".parse(), Ok(mac));
        assert_eq!("02:00:5E:10:AB:01".parse(), Ok(mac));
        assert_eq!(mac.to_string(), "02:00:5e:10:ab:01");
    }

    #[test]
    fn other_text_is_refused() {
        for text in [
            "",
            "02:00:5e:10:ab",
            "02:00:5e:10:ab:01:02",
            "2:0:5e:10:ab:1",
            "02-00-5e",
            "+2:00:5e:10:ab:01",
            "02:00:5e:10:ab:0g",
            "02:00:5e:10:ab:01 ",
        ] {
            assert_eq!(text.parse::<Mac>(), Err(MacSyntaxError), "{text:?}");
        }
    }

    #[test]
    fn the_group_bit_makes_multicast() {
        assert!(Mac::BROADCAST.is_multicast());
        assert!(Mac([0x01, 0, 0x5e, 0, 0, 1]).is_multicast());
        assert!(!Mac([0x02, 0, 0x5e, 0, 0, 1]).is_multicast());
    }
}
