//! Path MTU: the payload bytes of a full packet, without headers.

/// A path MTU, one of five sizes; both ends of a connection must use the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PathMtu {
    /// 256 bytes, code 1.
    B256 = 1,
    /// 512 bytes, code 2.
    B512,
    /// 1024 bytes, code 3: the largest that fits a 1500-byte Ethernet MTU.
    B1024,
    /// 2048 bytes, code 4.
    B2048,
    /// 4096 bytes, code 5.
    B4096,
}

impl PathMtu {
    /// Every size, ascending.
    pub const ALL: [PathMtu; 5] =
        [PathMtu::B256, PathMtu::B512, PathMtu::B1024, PathMtu::B2048, PathMtu::B4096];

    /// Payload bytes, 256..=4096.
    #[inline]
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }

    /// The path MTU of exactly `bytes` payload bytes; `None` for any other number.
    pub const fn from_bytes(bytes: u32) -> Option<PathMtu> {
        match bytes {
            256 => Some(PathMtu::B256),
            512 => Some(PathMtu::B512),
            1024 => Some(PathMtu::B1024),
            2048 => Some(PathMtu::B2048),
            4096 => Some(PathMtu::B4096),
            _ => None,
        }
    }

    /// The code of this size in verbs and connection management, 1..=5.
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The path MTU of a code of verbs or connection management, 1..=5; `None` for any other code.
    pub const fn from_code(code: u8) -> Option<PathMtu> {
        match code {
            1..=5 => Some(PathMtu::ALL[code as usize - 1]),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_256_shifted_by_the_code() {
        for (mtu, code) in PathMtu::ALL.into_iter().zip(1..) {
            assert_eq!(mtu.code(), code);
            assert_eq!(mtu.bytes(), 256 << (code - 1));
            assert_eq!(PathMtu::from_code(code), Some(mtu));
            assert_eq!(PathMtu::from_bytes(mtu.bytes()), Some(mtu));
        }
    }

    #[test]
    fn nothing_else_is_a_size() {
        let sizes = (0..=8192).filter_map(PathMtu::from_bytes).count();
        let codes = (0..=255).filter_map(PathMtu::from_code).count();
        assert_eq!((sizes, codes), (5, 5));
    }
}
