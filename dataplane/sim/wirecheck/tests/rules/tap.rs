//! A checker with two queue pairs, and frames for it built by hand.

use uroce_wirecheck::{Checker, Peer, Rule, Seen, Service, Watched, crc32};

pub(crate) const A: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
pub(crate) const B: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2];
pub(crate) const MTU: u32 = 256;
pub(crate) const TIMEOUT: u64 = 1_000_000;

/// A checker with two queue pairs; the first sends requests from PSN 0xfffffe on.
pub(crate) struct Tap {
    pub(crate) checker: Checker,
    pub(crate) a: Watched,
    pub(crate) b: Watched,
}

pub(crate) fn peer(number: u32) -> Peer {
    let (addr, dest_addr) = if number == 1 { (A, B) } else { (B, A) };
    let (first_psn, expected_psn) = if number == 1 { (0xff_fffe, 7) } else { (7, 0xff_fffe) };
    Peer {
        service: Service::Reliable,
        qpn: number,
        addr,
        dest_qpn: 3 - number,
        dest_addr,
        pkey: 0xffff,
        mtu: MTU,
        first_psn,
        expected_psn,
        max_reads: 2,
        rnr_timer: 5,
        timeout_ns: Some(TIMEOUT),
        cnp_gap_ns: 4000,
        selective_repeat: false,
        keepalive_ns: None,
    }
}

/// AckReq beside a PSN. All frames but CNPs have it, except those with a PSN that has this bit.
pub(crate) const ASKS: u32 = 1 << 31;

/// Shortest silence before a probe, in nanoseconds.
pub(crate) const QUIET: u64 = 50_000;

/// A frame with this opcode, PSN, extended headers and payload.
pub(crate) fn frame(from: u32, opcode: u8, psn: u32, ext: &[u8], payload: &[u8]) -> Vec<u8> {
    frame_by(0, true, from, opcode, psn, ext, payload)
}

/// A frame between the addresses of this subnet, with or without MigReq; otherwise see [`frame`].
pub(crate) fn frame_by(
    net: u8,
    mig_req: bool,
    from: u32,
    opcode: u8,
    psn: u32,
    ext: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let service = if opcode >> 5 == 3 { [0, 0, 0, 1, 0, 0, 0, 1].as_slice() } else { &[] };
    let pad = payload.len().wrapping_neg() & 3;
    let mut transport = vec![
        opcode,
        u8::from(mig_req) << 6 | (pad as u8) << 4,
        0xff,
        0xff,
        0,
        0,
        0,
        3 - from as u8,
    ];
    let asks = if opcode == CNP { 0 } else { ASKS };
    transport.extend((asks ^ psn).to_be_bytes());
    transport.extend([service, ext, payload, &[0; 3][..pad]].concat());
    let (src, dst) = if from == 1 { (A, B) } else { (B, A) };
    let [src, dst] = [src, dst].map(|addr| on(net, addr));
    let udp_len = transport.len() as u16 + 12;
    let mut ip = vec![0x45, 0];
    ip.extend((udp_len + 20).to_be_bytes());
    ip.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    ip.extend(&src[12..]);
    ip.extend(&dst[12..]);
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = !((sum >> 16) + (sum & 0xffff)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut udp = vec![0xc0, 0, 0x12, 0xb7];
    udp.extend(udp_len.to_be_bytes());
    udp.extend([0, 0]);

    let mut covered = [vec![0xff; 8], ip.clone(), udp.clone(), transport.clone()].concat();
    [1, 8, 10, 11, 26, 27, 32].iter().for_each(|at| covered[8 + at] = 0xff);
    let icrc = crc32(&covered).to_le_bytes().to_vec();
    let ethernet = [vec![2; 12], vec![8, 0]].concat();
    [ethernet, ip, udp, transport, icrc].concat()
}

/// The address `addr` in subnet `net`.
pub(crate) fn on(net: u8, mut addr: [u8; 16]) -> [u8; 16] {
    addr[14] = net;
    addr
}

pub(crate) fn aeth(syndrome: u8, msn: u32) -> [u8; 4] {
    (u32::from(syndrome) << 24 | msn).to_be_bytes()
}

pub(crate) fn reth(va: u64, len: u32) -> Vec<u8> {
    [&va.to_be_bytes()[..], &[0, 0, 0, 9], &len.to_be_bytes()].concat()
}

impl Tap {
    pub(crate) fn new() -> Tap {
        let mut checker = Checker::new();
        let [a, b] = [1, 2].map(|number| checker.watch(peer(number)));
        Tap { checker, a, b }
    }

    pub(crate) fn try_sent(&mut self, now: u64, bytes: &[u8]) -> Result<Seen, Rule> {
        let from = if bytes[14 + 15] == 1 { self.a } else { self.b };
        self.checker.sent(from, now, bytes).map_err(|flaw| flaw.rule)
    }

    /// Passes a frame through the checker as sent and as arrived.
    pub(crate) fn pass(&mut self, now: u64, bytes: &[u8]) {
        let seen = self.try_sent(now, bytes).expect("a packet without flaw");
        let to = if bytes[14 + 15] == 1 { self.b } else { self.a };
        self.checker.arrived(to, now, &seen, bytes);
    }

    pub(crate) fn flaw(&mut self, now: u64, bytes: &[u8]) -> Rule {
        self.try_sent(now, bytes).expect_err("a packet with a flaw")
    }
}

pub(crate) const SEND_FIRST: u8 = 0;
pub(crate) const SEND_MIDDLE: u8 = 1;
pub(crate) const SEND_LAST: u8 = 2;
pub(crate) const SEND_ONLY: u8 = 4;
pub(crate) const WRITE_ONLY: u8 = 0x0a;
pub(crate) const READ: u8 = 0x0c;
pub(crate) const ACK: u8 = 0x11;
pub(crate) const CNP: u8 = 0x81;

/// A notification with this byte of FECN and BECN, this PSN, and this last reserved byte.
pub(crate) fn cnp(becn: u8, psn: u32, last: u8) -> Vec<u8> {
    let mut reserved = [0; 16];
    reserved[15] = last;
    let mut bytes = frame_by(0, false, 2, CNP, psn, &[], &reserved);
    // The invariant CRC does not cover it.
    bytes[14 + 20 + 8 + 4] = becn;
    bytes
}

pub(crate) fn send(psn: u32) -> Vec<u8> {
    frame(1, SEND_ONLY, psn, &[], b"hello")
}

pub(crate) fn ack(psn: u32, msn: u32) -> Vec<u8> {
    frame(2, ACK, psn, &aeth(0x1f, msn), &[])
}

pub(crate) fn nak(psn: u32, syndrome: u8) -> Vec<u8> {
    frame(2, ACK, psn, &aeth(syndrome, 0), &[])
}
