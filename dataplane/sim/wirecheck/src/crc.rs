//! CRC-32 as Ethernet and zlib define it, sixteen bytes a step, with tables computed here.

/// The polynomial, with its lowest power in the highest bit.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// `TABLES[n][b]`: the contribution to the remainder of byte `b` followed by `n` zero bytes.
static TABLES: [[u32; 256]; 16] = {
    let mut tables = [[0; 256]; 16];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            let low = remainder & 1;
            remainder = (remainder >> 1) ^ (low * POLYNOMIAL);
            bit += 1;
        }
        tables[0][byte] = remainder;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < 16 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[zeros - 1][byte];
            tables[zeros][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        zeros += 1;
    }
    tables
};

/// Extends a remainder by more bytes. A sum begins with all ones and is inverted at the end.
pub(crate) fn update(mut remainder: u32, bytes: &[u8]) -> u32 {
    let (blocks, rest) = bytes.as_chunks::<16>();
    for block in blocks {
        let first = u32::from_le_bytes([block[0], block[1], block[2], block[3]]) ^ remainder;
        let head = first.to_le_bytes();
        remainder = TABLES[15][head[0] as usize]
            ^ TABLES[14][head[1] as usize]
            ^ TABLES[13][head[2] as usize]
            ^ TABLES[12][head[3] as usize]
            ^ TABLES[11][block[4] as usize]
            ^ TABLES[10][block[5] as usize]
            ^ TABLES[9][block[6] as usize]
            ^ TABLES[8][block[7] as usize]
            ^ TABLES[7][block[8] as usize]
            ^ TABLES[6][block[9] as usize]
            ^ TABLES[5][block[10] as usize]
            ^ TABLES[4][block[11] as usize]
            ^ TABLES[3][block[12] as usize]
            ^ TABLES[2][block[13] as usize]
            ^ TABLES[1][block[14] as usize]
            ^ TABLES[0][block[15] as usize];
    }
    for byte in rest {
        remainder = (remainder >> 8) ^ TABLES[0][(remainder as u8 ^ byte) as usize];
    }
    remainder
}

/// CRC-32 of `bytes`.
pub fn crc32(bytes: &[u8]) -> u32 {
    !update(!0, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sums_come_out() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
        assert_eq!(crc32(b"The quick brown fox jumps over the lazy dog"), 0x414f_a339);
    }

    #[test]
    fn blocks_and_single_bytes_give_the_same_sum() {
        let bytes: Vec<u8> = (0..200_u32).map(|at| ((at * 37) >> 2) as u8).collect();
        for len in 0..bytes.len() {
            let slow = bytes[..len].iter().fold(!0_u32, |crc, byte| {
                (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ ((crc & 1) * POLYNOMIAL))
            });
            assert_eq!(crc32(&bytes[..len]), !slow);
        }
    }
}
