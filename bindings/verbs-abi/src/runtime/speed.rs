//! Rates of links in InfiniBand's terms: a number of lanes and a speed per lane.

/// Least rate of a link in Mb/s, with the codes of its width and of its lanes' speed, fastest
/// first. An unknown rate gets the last row.
const SPEEDS: [(u32, u8, u8); 12] = [
    (800_000, WIDTH_4X, 0),
    (400_000, WIDTH_4X, 128),
    (200_000, WIDTH_4X, 64),
    (100_000, WIDTH_4X, 32),
    (56_000, WIDTH_4X, 16),
    (50_000, WIDTH_1X, 64),
    (40_000, WIDTH_4X, 8),
    (25_000, WIDTH_1X, 32),
    (20_000, WIDTH_4X, 2),
    (10_000, WIDTH_1X, 8),
    (5_000, WIDTH_1X, 2),
    (0, WIDTH_1X, 1),
];
const WIDTH_1X: u8 = 1;
const WIDTH_4X: u8 = 2;

/// The codes of a link's width and of its lanes' speed, as in `ibv_port_attr`. The speed is 0 if
/// its code does not fit into eight bits.
pub(crate) fn codes(mbps: Option<u32>) -> (u8, u8) {
    let mbps = mbps.unwrap_or(0);
    let found = SPEEDS.into_iter().find(|(least, ..)| mbps >= *least);
    found.map_or((WIDTH_1X, 1), |(_, width, speed)| (width, speed))
}

/// Mb/s of a lane with this speed code, and the speed's name.
fn lane(speed: u8) -> (u32, &'static str) {
    match speed {
        0 => (200_000, "XDR"),
        2 => (5_000, "DDR"),
        8 => (10_000, "FDR10"),
        16 => (14_000, "FDR"),
        32 => (25_000, "EDR"),
        64 => (50_000, "HDR"),
        128 => (100_000, "NDR"),
        _ => (2_500, "SDR"),
    }
}

/// A link's rate in the format of the kernel's `rate` file, for example `100 Gb/sec (4X EDR)`.
pub(crate) fn text(mbps: Option<u32>) -> String {
    let (width, speed) = codes(mbps);
    let lanes = if width == WIDTH_4X { 4 } else { 1 };
    let (of_lane, name) = lane(speed);
    let rate = of_lane * lanes;
    let half = if rate % 1000 == 0 { "" } else { ".5" };
    format!("{}{half} Gb/sec ({lanes}X {name})", rate / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_its_lanes_together() {
        for (mbps, width, speed) in SPEEDS.into_iter().filter(|(mbps, ..)| *mbps > 0) {
            let lanes = if width == WIDTH_4X { 4 } else { 1 };
            assert_eq!(lane(speed).0 * lanes, mbps);
        }
    }

    #[test]
    fn a_rate_is_written_as_the_kernel_does() {
        for (mbps, expected) in [
            (None, "2.5 Gb/sec (1X SDR)"),
            (Some(10_000), "10 Gb/sec (1X FDR10)"),
            (Some(25_000), "25 Gb/sec (1X EDR)"),
            (Some(100_000), "100 Gb/sec (4X EDR)"),
            (Some(150_000), "100 Gb/sec (4X EDR)"),
            (Some(u32::MAX), "800 Gb/sec (4X XDR)"),
        ] {
            assert_eq!(text(mbps), expected);
        }
    }
}
