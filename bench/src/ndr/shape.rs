//! What is offered at a point: the messages, the frames that carry them, and what a wire carries
//! of these.
//!
//! The length of a frame counts as in RFC 2544, from the destination address to the frame check
//! sequence. RoCEv2 pads a payload to a multiple of four bytes, so that the lengths of its frames
//! are four bytes apart: a length that does not exist stands for the longest frame below it. The
//! shortest frames here carry four bytes, since a message without payload measures less than what
//! messages are for.

use crate::error::BenchError;
use crate::limits::PACKET_OVERHEAD;
use crate::perf::plan::Service;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Bytes of the frame check sequence.
pub(crate) const FCS: u32 = 4;
/// Bytes of a frame beside its payload, the frame check sequence included.
const AROUND: u32 = PACKET_OVERHEAD as u32 + FCS;
/// Bytes of DETH, which each datagram has.
const DETH: u32 = 8;
/// Bytes of a wire's time between two frames: preamble, start delimiter, inter-packet gap.
const BETWEEN: u32 = 7 + 1 + 12;
/// Least payload of a frame.
const LEAST: u32 = 4;
/// The simple IMIX of twelve frames, seven of them short, four of medium length and one long, in
/// an order that spreads them.
const IMIX: [u32; 12] = [64, 570, 64, 64, 570, 64, 1518, 64, 570, 64, 570, 64];

/// Size of a point, as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Size {
    /// Messages that fill a frame of this length.
    Frame(u32),
    /// Messages that fill the frames of the simple IMIX.
    Imix,
    /// Messages with this many bytes of payload.
    Message(u32),
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("imix") {
            return Ok(Self::Imix);
        }
        match text.parse() {
            Ok(length) if (64..=9216).contains(&length) => Ok(Self::Frame(length)),
            _ => Err("a length of frames from 64 to 9216, or imix".to_owned()),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(length) => write!(f, "{length}"),
            Self::Imix => f.write_str("IMIX"),
            Self::Message(length) => write!(f, "msg {length}"),
        }
    }
}

/// Messages of a point, and their frames. The messages are sent in this order, again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Payload bytes of the messages.
    pub(crate) messages: Vec<u32>,
    /// Lengths of all frames of these messages.
    pub(crate) frames: Vec<u32>,
}

impl Shape {
    /// Returns the shape of a size over a service and a path MTU. A frame that is longer than the
    /// path MTU allows becomes a message of as much payload, in several frames.
    ///
    /// # Errors
    ///
    /// A datagram that does not fit the path MTU.
    pub(crate) fn new(size: Size, service: Service, mtu: u32) -> Result<Self, BenchError> {
        let head = AROUND + if service == Service::Ud { DETH } else { 0 };
        let payload = |frame: u32| (frame.saturating_sub(head) / 4 * 4).max(LEAST);
        let messages = match size {
            Size::Frame(length) => vec![payload(length)],
            Size::Imix => IMIX.map(payload).to_vec(),
            Size::Message(length) => vec![length],
        };
        if let (Service::Ud, Some(longest)) = (service, messages.iter().max())
            && *longest > mtu
        {
            return Err(BenchError::usage(format!(
                "a datagram of {longest} bytes is longer than the path MTU, which is {mtu}"
            )));
        }
        let frame = |payload: u32| head + payload.next_multiple_of(4);
        let frames = messages.iter().flat_map(|&message| {
            let whole = message / mtu;
            let rest = message % mtu;
            let last = (rest > 0 || message == 0).then(|| frame(rest));
            std::iter::repeat_n(frame(mtu), whole as usize).chain(last)
        });
        Ok(Self { frames: frames.collect(), messages })
    }

    /// Returns the mean length of a frame.
    pub(crate) fn frame(&self) -> f64 {
        self.frames.iter().map(|frame| f64::from(*frame)).sum::<f64>() / self.frames.len() as f64
    }

    /// Returns the mean number of frames of a message.
    pub(crate) fn frames_per_message(&self) -> f64 {
        self.frames.len() as f64 / self.messages.len() as f64
    }

    /// Returns the mean payload of a message, in bytes.
    pub(crate) fn payload(&self) -> f64 {
        let bytes = self.messages.iter().map(|message| f64::from(*message)).sum::<f64>();
        bytes / self.messages.len() as f64
    }

    /// Returns the messages per second that fill a wire of `gbps`.
    pub(crate) fn wire(&self, gbps: f64) -> f64 {
        let bytes = self.frames.iter().map(|frame| f64::from(frame + BETWEEN)).sum::<f64>();
        gbps * 1e9 / 8.0 / bytes * self.messages.len() as f64
    }

    /// Returns the messages per second that a port carries, from the frames per second of each
    /// length that it carries.
    pub(crate) fn at_frame_rates(&self, rate: impl Fn(u32) -> f64) -> f64 {
        let seconds: f64 = self.frames.iter().map(|frame| 1.0 / rate(*frame)).sum();
        self.messages.len() as f64 / seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(size: Size, service: Service) -> Shape {
        Shape::new(size, service, 4096).expect("it fits")
    }

    #[test]
    fn a_length_stands_for_the_longest_frame_that_there_is_below_it() {
        for (asked, service, frame, payload) in [
            (64, Service::Rc, 66, 4),
            (64, Service::Ud, 74, 4),
            (128, Service::Rc, 126, 64),
            (1518, Service::Rc, 1518, 1456),
            (1518, Service::Ud, 1518, 1448),
            (4096, Service::Uc, 4094, 4032),
        ] {
            let shape = shape(Size::Frame(asked), service);
            assert_eq!((&shape.frames[..], &shape.messages[..]), (&[frame][..], &[payload][..]));
        }
    }

    #[test]
    fn what_does_not_fit_a_packet_is_a_message_of_several_or_refused() {
        let jumbo = shape(Size::Frame(9000), Service::Rc);
        assert_eq!(jumbo.messages, [8936]);
        assert_eq!(jumbo.frames, [4158, 4158, 806]);
        let error = Shape::new(Size::Frame(9000), Service::Ud, 4096).expect_err("too long");
        assert!(error.to_string().contains("longer than the path MTU, which is 4096"));
        assert_eq!(shape(Size::Message(65536), Service::Rc).frames, [4158; 16]);
    }

    #[test]
    fn the_mix_has_seven_short_frames_four_of_medium_length_and_a_long_one() {
        let mix = shape(Size::Imix, Service::Rc);
        let count = |length| mix.frames.iter().filter(|frame| **frame == length).count();
        assert_eq!([66, 570, 1518].map(count), [7, 4, 1]);
        assert!((mix.frame() - (7.0 * 66.0 + 4.0 * 570.0 + 1518.0) / 12.0).abs() < 1e-9);
    }

    #[test]
    fn a_wire_carries_what_ethernet_says() {
        // A frame of 1518 bytes takes 1538 on the wire: 8.127 million a second fill 100 Gb/s.
        let full = shape(Size::Frame(1518), Service::Rc);
        assert!((full.wire(100.0) / 8.127_438e6 - 1.0).abs() < 1e-6, "{}", full.wire(100.0));
        let two = shape(Size::Message(8192), Service::Rc);
        assert!((two.wire(10.0) - 10e9 / 8.0 / (2.0 * 4178.0)).abs() < 1e-6);
    }

    #[test]
    fn rates_of_frames_of_several_lengths_add_up_by_their_times() {
        let jumbo = shape(Size::Frame(9000), Service::Rc);
        let rate = |frame| if frame == 806 { 2e6 } else { 1e6 };
        assert!((jumbo.at_frame_rates(rate) - 1e6 / 2.5).abs() < 1e-6);
    }

    #[test]
    fn sizes_are_lengths_of_frames_or_the_mix() {
        assert_eq!("imix".parse(), Ok(Size::Imix));
        assert_eq!("1518".parse(), Ok(Size::Frame(1518)));
        for wrong in ["63", "9217", "", "all"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }
}
