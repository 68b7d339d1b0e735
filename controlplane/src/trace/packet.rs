//! Packets of a trace: what they are, and their verdicts.

use std::time::Duration;

use uroce_command::answer::TracedPacket;
use uroce_engine::TapFrame;
use uroce_transport::DropReason;
use uroce_wire::{Bth, Frame, Header, Mac, Operation, Packet, ParseError, Psn};

/// Half of the number of PSNs: from here on a distance is one backwards.
const HALF: i32 = 1 << 23;

/// The packets of a trace, and what is known of the order of their PSNs.
#[derive(Debug, Default)]
pub(super) struct Packets {
    told: Vec<TracedPacket>,
    /// For each packet, its BTH as far as it can be guessed.
    bths: Vec<Option<Bth>>,
    begin: Option<Duration>,
    sent: Requests,
    received: Requests,
}

/// Requests in one direction.
#[derive(Debug, Default)]
struct Requests {
    /// The last PSN in their order.
    last: Option<Psn>,
    /// Whether the last one was a READ, which takes PSNs for all packets of its response.
    is_read: bool,
}

impl Requests {
    /// Returns what the PSN of the next request says of it.
    fn next(&mut self, psn: Psn, operation: Operation) -> String {
        let is_read = operation == Operation::ReadRequest;
        let Some(last) = self.last else {
            (self.last, self.is_read) = (Some(psn), is_read);
            return "first".to_owned();
        };
        let distance = psn.distance_from(last);
        if distance <= 0 || distance == HALF {
            return "again".to_owned();
        }
        let (skipped, was_read) = (distance - 1, self.is_read);
        (self.last, self.is_read) = (Some(psn), is_read);
        match skipped {
            0 => "next".to_owned(),
            _ if was_read => "next, after a READ".to_owned(),
            skipped => format!("next but {skipped}"),
        }
    }
}

impl Packets {
    /// Returns the packets.
    pub(super) fn told(&self) -> &[TracedPacket] {
        &self.told
    }

    /// Adds a frame of a port, or what became of one that was added before. Frames beyond `count`
    /// are left out.
    pub(super) fn add(&mut self, port: u8, frame: &TapFrame, count: usize) {
        if let Some(reason) = frame.dropped {
            return self.drop(&frame.bytes, reason);
        }
        if self.told.len() >= count {
            return;
        }
        let begin = *self.begin.get_or_insert(frame.time);
        let bth = Frame::likely_bth(&frame.bytes);
        let mut packet = TracedPacket {
            time_ns: frame.time.saturating_sub(begin).as_nanos() as u64,
            is_sent: frame.is_sent,
            port,
            packet: "-".to_owned(),
            dest_qpn: bth.map(|bth| bth.dest_qpn.value()),
            psn: bth.map(|bth| bth.psn.value()),
            len: frame.len,
            aeth: None,
            verdict: String::new(),
        };
        self.read(&frame.bytes, &mut packet);
        self.told.push(packet);
        self.bths.push(bth);
    }

    /// Reads the packet of a frame.
    fn read(&mut self, bytes: &[u8], told: &mut TracedPacket) {
        let datagram = match Frame::parse(bytes) {
            Ok(Frame::Roce(datagram)) => datagram,
            Ok(Frame::Other(_)) => {
                told.verdict = "not RoCEv2".to_owned();
                return;
            }
            Err(error) => {
                told.verdict = error.to_string();
                return;
            }
        };
        // Nothing in a packet with a wrong CRC says anything of the order. A looped one is not
        // verified by its receiver either.
        let is_sound = told.is_sent || datagram.dst_mac == Mac::LOOPBACK || datagram.icrc_ok();
        let packet = match Packet::parse(datagram.transport) {
            _ if !is_sound => {
                told.verdict = ParseError::Icrc.to_string();
                return;
            }
            Ok(packet) => packet,
            Err(error) => {
                told.verdict = error.to_string();
                return;
            }
        };
        told.packet = packet.op.name.to_owned();
        told.len = packet.payload.len() as u32;
        if packet.op.has(Header::Aeth) {
            told.aeth = Some(packet.ext.aeth.to_string());
        }
        let requests = if told.is_sent { &mut self.sent } else { &mut self.received };
        told.verdict = match packet.op.operation {
            Operation::ReadResponse
            | Operation::Acknowledge
            | Operation::AtomicAcknowledge
            | Operation::SelectiveAcknowledge => "answer".to_owned(),
            Operation::Cnp => "congestion".to_owned(),
            Operation::Resync => "resync".to_owned(),
            operation => requests.next(packet.bth.psn, operation),
        };
    }

    /// Notes that the lcore has dropped a packet: the last one like it that is not known to be
    /// dropped.
    fn drop(&mut self, bytes: &[u8], reason: DropReason) {
        let bth = Frame::likely_bth(bytes);
        let both = self.told.iter_mut().zip(&self.bths).rev();
        let mut same = both.filter(|(told, of)| !told.is_sent && **of == bth);
        let text = format!("dropped: {} {}", reason.name(), reason.description());
        if let Some((told, _)) = same.find(|(told, _)| !told.verdict.starts_with("dropped: ")) {
            told.verdict = text;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn psn(value: u32) -> Psn {
        Psn::new(value)
    }

    #[test]
    fn the_order_of_requests_is_read_from_their_psns() {
        let mut requests = Requests::default();
        let mut next = |value, operation| requests.next(psn(value), operation);
        assert_eq!(next(0xff_fffe, Operation::Send), "first");
        assert_eq!(next(0xff_ffff, Operation::Send), "next");
        assert_eq!(next(0, Operation::Write), "next");
        assert_eq!(next(0, Operation::Write), "again");
        assert_eq!(next(0xff_fffe, Operation::Send), "again");
        assert_eq!(next(1, Operation::ReadRequest), "next");
        assert_eq!(next(9, Operation::Send), "next, after a READ");
        assert_eq!(next(12, Operation::Send), "next but 2");
    }

    #[test]
    fn any_bytes_are_a_packet_with_a_verdict() {
        let mut random = fastrand::Rng::with_seed(4791);
        let mut packets = Packets::default();
        for number in 0..2000 {
            let mut bytes: Vec<u8> = (0..random.usize(..200)).map(|_| random.u8(..)).collect();
            if bytes.len() > 60 {
                // IPv4 without options, UDP, to RoCEv2's port.
                bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
                bytes[23] = 17;
                bytes[36..38].copy_from_slice(&4791_u16.to_be_bytes());
                let len = (bytes.len() - 14) as u16;
                bytes[16..18].copy_from_slice(&len.to_be_bytes());
                bytes[38..40].copy_from_slice(&(len - 20).to_be_bytes());
            }
            let reason = DropReason::ALL[random.usize(..DropReason::ALL.len())];
            let mut frame = TapFrame {
                is_sent: random.bool(),
                len: bytes.len() as u32,
                bytes,
                ..TapFrame::default()
            };
            packets.add(1, &frame, 1000);
            frame.dropped = Some(reason).filter(|_| random.bool());
            packets.add(1, &frame, 1000);
            assert!(packets.told().len() <= 1000, "{number}");
        }
        assert!(packets.told().iter().all(|packet| !packet.verdict.is_empty()));
        assert!(packets.told().iter().any(|packet| packet.verdict.starts_with("dropped: ")));
    }
}
