//! CRC-32 by tables, sixteen bytes a step. For headers and small packets, where the reduction at
//! the end of a carry-less multiplication costs more than it saves.

/// `TABLES[n][byte]`: the contribution of `byte` to the CRC `n` bytes later.
static TABLES: [[u32; 256]; 16] = tables();

const fn tables() -> [[u32; 256]; 16] {
    let mut tables = [[0; 256]; 16];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = (crc >> 1) ^ ((crc & 1) * 0xedb8_8320);
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut later = 1;
    while later < 16 {
        let mut byte = 0;
        while byte < 256 {
            let crc = tables[later - 1][byte];
            tables[later][byte] = (crc >> 8) ^ tables[0][(crc & 0xff) as usize];
            byte += 1;
        }
        later += 1;
    }
    tables
}

/// The CRC of the bytes that `crc` covers, followed by `bytes`.
#[inline]
pub(super) fn update(crc: u32, mut bytes: &[u8]) -> u32 {
    let mut state = !crc;
    while let Some((chunk, rest)) = bytes.split_first_chunk::<16>() {
        (state, bytes) = (step(state, chunk), rest);
    }
    // The pad makes packets whole words, so mostly 0, 4, 8 or 12 bytes are left here.
    if let Some((chunk, rest)) = bytes.split_first_chunk::<8>() {
        (state, bytes) = (step(state, chunk), rest);
    }
    if let Some((chunk, rest)) = bytes.split_first_chunk::<4>() {
        (state, bytes) = (step(state, chunk), rest);
    }
    for byte in bytes {
        state = (state >> 8) ^ TABLES[0][(state as u8 ^ byte) as usize];
    }
    !state
}

/// Advances the CRC by `N` bytes, 4 to 16. Only the first four bytes depend on the state before;
/// they are combined last, in a tree, so that the other look-ups overlap with the previous step.
#[inline(always)]
fn step<const N: usize>(state: u32, bytes: &[u8; N]) -> u32 {
    let (mut rest, mut at) = (0, 4);
    while at < N {
        rest ^= TABLES[N - 1 - at][bytes[at] as usize];
        at += 1;
    }
    let [a, b, c, d] = (state ^ u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        .to_le_bytes()
        .map(usize::from);
    let first = TABLES[N - 1][a] ^ TABLES[N - 2][b];
    rest ^ (first ^ (TABLES[N - 3][c] ^ TABLES[N - 4][d]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_agrees_with_the_other_implementation_however_it_is_cut() {
        let bytes: Vec<u8> = (0..200u32).map(|at| ((at * 151) >> 3) as u8).collect();
        for len in 0..bytes.len() {
            let expected = crc32fast::hash(&bytes[..len]);
            assert_eq!(update(0, &bytes[..len]), expected);
            for cut in 0..len {
                assert_eq!(update(update(0, &bytes[..cut]), &bytes[cut..len]), expected);
            }
        }
        assert_eq!(update(0, b"123456789"), 0xcbf4_3926, "the check value of CRC-32");
    }
}
