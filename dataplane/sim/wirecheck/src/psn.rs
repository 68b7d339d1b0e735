//! 24-bit serial numbers as plain integers.

/// Number of different serial numbers.
pub(crate) const MODULUS: u32 = 1 << 24;

/// `a − b` as a signed distance, −2^23 to 2^23 − 1.
pub(crate) fn distance(a: u32, b: u32) -> i32 {
    let ahead = a.wrapping_sub(b) % MODULUS;
    if ahead < MODULUS / 2 { ahead as i32 } else { ahead as i32 - MODULUS as i32 }
}

/// The number `steps` after `a`.
pub(crate) fn add(a: u32, steps: u32) -> u32 {
    a.wrapping_add(steps) % MODULUS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_signed_and_wrap() {
        assert_eq!(distance(0, 0xff_ffff), 1);
        assert_eq!(distance(0xff_ffff, 0), -1);
        assert_eq!(distance(1 << 23, 0), -(1 << 23));
        assert_eq!(add(0xff_fffe, 3), 1);
    }
}
