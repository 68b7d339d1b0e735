//! For tests only: rules that every fixed-size header obeys, and packets of every kind.

/// Tests of a header type. Arguments: a value with all fields different, its bytes, and a mask of
/// reserved bits (`1` = sent as zero, not examined).
///
/// The known bytes fix the place of each field. Random bytes that survive reading and writing show
/// that no field loses, shares or adds a bit.
macro_rules! header_tests {
    ($value:expr, bytes: $bytes:expr, reserved: $reserved:expr) => {
        #[test]
        fn known_bytes_are_read_and_written() {
            let (value, mut bytes) = ($value, [0xff; LEN]);
            assert_eq!(parse(&$bytes), value);
            value.emit(&mut bytes);
            assert_eq!(bytes, $bytes);
        }

        proptest::proptest! {
            #[test]
            fn any_bytes_survive_reading_and_writing(bytes: [u8; LEN]) {
                let value = parse(&bytes);
                let mut again = [0xff; LEN];
                value.emit(&mut again);
                let reserved: [u8; LEN] = $reserved;
                let kept: [u8; LEN] = core::array::from_fn(|i| bytes[i] & !reserved[i]);
                assert_eq!(again, kept);
                assert_eq!(parse(&again), value);
            }
        }
    };
}
pub(crate) use header_tests;

use proptest::prelude::*;

use crate::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Encap, ExtHeaders, Feth, Gid, Ieth, ImmDt, Mac, Msn,
    OpCode, Pkey, Psn, Qkey, Qpn, Rdeth, Reth, Rkey, Srqn, Syndrome, Va, Vlan, Xrceth,
    emit_headers, seal,
};

/// Every opcode that is not reserved.
pub(crate) fn opcodes() -> Vec<OpCode> {
    (0..=255).map(OpCode).filter(|opcode| opcode.info().is_some()).collect()
}

/// A payload length that the opcode's rule allows and that needs a pad if the opcode may have one.
pub(crate) fn payload_len(opcode: OpCode) -> usize {
    use crate::PayloadRule as Rule;
    match opcode.info().expect("not reserved").payload {
        Rule::Empty => 0,
        Rule::FullMtu => 256,
        Rule::OneToMtu | Rule::UpToMtu => 9,
        Rule::Reserved16 | Rule::Bitmap => 16,
        Rule::Word => 8,
    }
}

/// A random BTH of an opcode, with the pad count that fits [`payload_len`].
pub(crate) fn any_bth(opcode: OpCode) -> impl Strategy<Value = Bth> {
    any::<([bool; 5], u16, u32, u32)>().prop_map(move |(flags, pkey, qpn, psn)| {
        let [solicited, mig_req, fecn, becn, ack_req] = flags;
        let pad_count = (payload_len(opcode) as u8).wrapping_neg() & 3;
        let (pkey, dest_qpn, psn) = (Pkey(pkey), Qpn::new(qpn), Psn::new(psn));
        Bth { opcode, solicited, mig_req, pad_count, pkey, fecn, becn, dest_qpn, ack_req, psn }
    })
}

/// Random extended headers: all fields set, whether or not an opcode carries them.
pub(crate) fn any_ext() -> impl Strategy<Value = ExtHeaders> {
    any::<(u8, u8, [u32; 9], [u64; 5])>().prop_map(|(syndrome, flush, w, d)| ExtHeaders {
        rdeth: Rdeth { eecn: w[0] >> 8 },
        deth: Deth { qkey: Qkey(w[1]), src_qpn: Qpn::new(w[2]) },
        xrceth: Xrceth { srqn: Srqn::new(w[3] >> 8) },
        feth: Feth::parse(&[0, 0, 0, flush]),
        reth: Reth { va: Va(d[0]), rkey: Rkey(w[4]), dma_len: w[5] },
        atomic: AtomicEth { va: Va(d[1]), rkey: Rkey(w[6]), swap_add: d[2], compare: d[3] },
        aeth: Aeth { syndrome: Syndrome::from_byte(syndrome), msn: Msn::new(w[7]) },
        atomic_ack: AtomicAckEth { original: d[4] },
        imm: ImmDt(w[8]),
        ieth: Ieth { rkey: Rkey(!w[8]) },
    })
}

/// A path with IPv4 or IPv6, with or without a VLAN tag.
pub(crate) fn encap(v4: bool, tagged: bool) -> Encap {
    let ip = |host: u8| match v4 {
        true => Gid::from(core::net::Ipv4Addr::new(10, 0, 0, host)),
        false => Gid::from(core::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host.into())),
    };
    Encap {
        src_mac: Mac([2, 0, 0, 0, 0, 1]),
        dst_mac: Mac([2, 0, 0, 0, 0, 2]),
        vlan: tagged.then_some(Vlan { vid: 0x123, pcp: 5 }),
        src: ip(1),
        dst: ip(2),
        traffic_class: 0x6a,
        flow_label: 0x1_2345,
        hop_limit: 64,
        src_port: 0xc123,
    }
}

/// The four combinations of [`encap`].
pub(crate) fn encaps() -> [Encap; 4] {
    [encap(true, false), encap(true, true), encap(false, false), encap(false, true)]
}

/// A whole frame as a sender builds it; the payload bytes count up from 1.
pub(crate) fn frame(encap: &Encap, bth: &Bth, ext: &ExtHeaders) -> Vec<u8> {
    let template = encap.template();
    let payload_len = payload_len(bth.opcode);
    let headers_len = crate::headers_len(bth.opcode).expect("not reserved");
    let transport_len = headers_len + payload_len + bth.pad_count as usize + crate::ICRC_LEN;
    let mut out = vec![0; template.len as usize + transport_len];
    let mut at = template.emit(&mut out, transport_len);
    at += emit_headers(bth, ext, &mut out[at..]).expect("room");
    (1..).zip(&mut out[at..at + payload_len]).for_each(|(n, byte)| *byte = n as u8);
    seal(&mut out[template.l3_offset as usize..]).expect("whole packet");
    out
}

/// A valid frame of an opcode, with default header fields.
pub(crate) fn plain_frame(encap: &Encap, opcode: OpCode) -> Vec<u8> {
    let pad_count = (payload_len(opcode) as u8).wrapping_neg() & 3;
    frame(encap, &Bth { opcode, pad_count, ..Bth::default() }, &ExtHeaders::default())
}
