use super::*;
use uroce_wire::{Bth, Deth, ExtHeaders, Frame, Gid, Mac, OpCode, Pkey, Qkey};

const NOW: Instant = Instant::ZERO;

fn path() -> Encap {
    Encap {
        src_mac: Mac([2, 0, 0, 0, 0, 1]),
        dst_mac: Mac([2, 0, 0, 0, 0, 2]),
        src: Gid::from(std::net::Ipv4Addr::new(192, 0, 2, 1)),
        dst: Gid::from(std::net::Ipv4Addr::new(192, 0, 2, 2)),
        hop_limit: 64,
        src_port: 0xc001,
        ..Encap::default()
    }
}

fn service() -> Service {
    Service::new(Psn::new(7)).unwrap()
}

fn datagram(frame: &[u8]) -> Datagram<'_> {
    let Ok(Frame::Roce(datagram)) = Frame::parse(frame) else { panic!("no RoCE frame") };
    assert!(datagram.icrc_ok());
    datagram
}

/// Builds a frame as an attacker might.
fn frame(bth: Bth, deth: Deth, payload: &[u8]) -> Vec<u8> {
    let template = path().template();
    let ext = ExtHeaders { deth, ..ExtHeaders::default() };
    let mut out = vec![0; 128];
    let headers = headers_len(bth.opcode).unwrap();
    let transport_len = headers + payload.len() + usize::from(bth.pad_count) + ICRC_LEN;
    let mut at = template.emit(&mut out, transport_len);
    at += emit_headers(&bth, &ext, &mut out[at..]).unwrap();
    out.truncate(at);
    out.extend_from_slice(payload);
    out.resize(usize::from(template.len) + transport_len, 0);
    seal(&mut out[usize::from(template.l3_offset)..]).unwrap();
    out
}

fn bth() -> Bth {
    Bth { opcode: OpCode::UD_SEND_ONLY, dest_qpn: GSI, pkey: Pkey::DEFAULT, ..Bth::default() }
}

const DETH: Deth = Deth { qkey: GSI_QKEY, src_qpn: GSI };

#[test]
fn what_one_end_sends_the_other_takes() {
    let mad: [u8; MAD_LEN] = std::array::from_fn(|at| at as u8);
    let (mut left, mut right) = (service(), service());
    for turn in 0..3 {
        let frame = left.frame(NOW, &path(), GSI, &mad).to_vec();
        assert_eq!(datagram(&frame).dst, path().dst);
        let received = right.receive(NOW, &datagram(&frame)).unwrap();
        assert_eq!((received.src_qpn, received.payload), (GSI, &mad[..]));
        assert_eq!(Packet::parse(datagram(&frame).transport).unwrap().bth.psn, Psn::new(7 + turn));
    }
}

#[test]
//= check J11 test
fn what_is_no_datagram_for_qp_1_is_dropped_for_its_reason() {
    let cases = [
        (bth(), Deth { qkey: Qkey(0x8001_0001), ..DETH }, 256, DropReason::BadQkey),
        (Bth { pkey: Pkey(0x8123), ..bth() }, DETH, 256, DropReason::BadPkey),
        (bth(), DETH, 257, DropReason::Malformed),
        (Bth { opcode: OpCode::RC_SEND_ONLY, ..bth() }, DETH, 256, DropReason::WrongService),
    ];
    let mut service = service();
    for (bth, deth, len, reason) in cases {
        let payload = vec![1; len];
        let bth = Bth { pad_count: (len as u8).wrapping_neg() & 3, ..bth };
        let frame = frame(bth, deth, &payload);
        assert_eq!(service.receive(NOW, &datagram(&frame)).unwrap_err(), reason, "{bth:?}");
    }
    // The next correct datagram is still accepted.
    let frame = frame(bth(), DETH, &[3; 256]);
    assert_eq!(service.receive(NOW, &datagram(&frame)).unwrap().payload, [3; 256]);
}

#[test]
fn short_datagrams_come_with_the_length_they_have() {
    let mut service = service();
    for len in [0, 4, 252] {
        let frame = frame(bth(), DETH, &vec![9; len]);
        assert_eq!(service.receive(NOW, &datagram(&frame)).unwrap().payload.len(), len);
    }
}
