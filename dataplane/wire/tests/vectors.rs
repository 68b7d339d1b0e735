//! uroce-wire compared with tshark's dissector and scapy's RoCE layer, in both directions.
//!
//! Stored: `vectors/*.pcap` are packets made by scapy, one of every opcode in each encapsulation,
//! and `vectors/*.json` what tshark reads in them. This crate must read the same values, find the
//! invariant CRC correct, and build the same bytes again. Live, if tshark and scapy are installed:
//! both must read packets of every opcode with random values as they were meant.
//!
//! `vectors/vectors.py` makes and reads packets, and lists what tshark does not show: of RD and XRC
//! anything behind the BTH, which the script packs by the specification's tables.
//!
//! Also stored: `vectors/rxe-*.pcap`, captured between the Soft-RoCE of two stock Linux kernels in
//! the interop laboratory (`deploy/interop vectors` records them anew, and with `--kernel 6.12`
//! those of ATOMIC WRITE and FLUSH). `rxe-cm-*.pcap` hold the kernels' connection management, and
//! `rxe-cm-*.json` what tshark reads in each MAD.

mod pcap;

use std::path::{Path, PathBuf};
use std::process::Command;

use pcap::{read_pcap, write_pcap};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value, json};
use uroce_wire::ipv6::Ipv6;
use uroce_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Encap, ExtHeaders, Frame, Gid, Header, ICRC_LEN,
    Ieth, ImmDt, Mac, Msn, OpCode, Packet, PayloadRule, Pkey, Psn, Qkey, Qpn, Rdeth, Reth, Rkey,
    Service, Srqn, Syndrome, Va, Vlan, Xrceth, emit_headers, headers_len, seal,
};

const CAPTURES: [&str; 4] = ["ipv4", "ipv4-vlan", "ipv6", "ipv6-vlan"];

#[test]
fn we_read_what_scapy_built_as_tshark_reads_it_and_build_it_again() {
    for capture in CAPTURES {
        let path = vectors().join(capture).with_extension("pcap");
        let frames = read_pcap(&path);
        let json = std::fs::read_to_string(path.with_extension("json")).unwrap();
        let rows: Vec<Value> = serde_json::from_str(&json).unwrap();

        let mut opcodes = Vec::new();
        for (frame, row) in frames.iter().zip(&rows) {
            let read = Sample::of_frame(frame);
            assert_eq!(&read.as_dissected(frame), row, "{capture}");
            assert_eq!(&read.frame(), frame, "{capture} {}", read.bth.opcode);
            opcodes.push(read.bth.opcode);
        }
        assert_eq!(frames.len(), rows.len());
        assert!(opcodes.into_iter().eq(all_opcodes()), "{capture} lacks an opcode");
    }
}

/// The values by which `vectors.py` fills the extended headers of an opcode: each tells its field.
fn as_made(opcode: OpCode) -> ExtHeaders {
    let n = u32::from(opcode.0);
    let wide = u64::from(opcode.0);
    let syndrome = [0x1f, 0x2e, 0x61, 0][opcode.0 as usize % 4];
    ExtHeaders {
        rdeth: Rdeth { eecn: 0x0e_ec00 + n },
        deth: Deth { qkey: Qkey(0x1122_3300 + n), src_qpn: Qpn::new(0x0d_e700 + n) },
        xrceth: Xrceth { srqn: Srqn::new(0x05_4900 + n) },
        feth: Default::default(),
        reth: Reth {
            va: Va(0x0123_4567_89ab_cd00 + wide),
            rkey: Rkey(0x4e79_0000 + n),
            dma_len: 0x1000 + n,
        },
        atomic: AtomicEth {
            va: Va(0xfedc_ba98_7654_3200 + wide * 8),
            rkey: Rkey(0x4e80_0000 + n),
            swap_add: 0x5a5a_0000_0000_0000 + wide,
            compare: 0xc0c0_0000_0000_0000 + wide,
        },
        aeth: Aeth { syndrome: Syndrome::from_byte(syndrome), msn: Msn::new(0x05_6e00 + n) },
        atomic_ack: AtomicAckEth { original: 0x0a0b_0000_0000_0000 + wide },
        imm: ImmDt(0x1337_0000 + n),
        ieth: Ieth { rkey: Rkey(0x1417_0000 + n) },
    }
}

/// tshark does not read the extended headers of RD and XRC; the script packs them field by field.
#[test]
fn each_field_of_the_extended_headers_is_where_the_script_has_put_it() {
    for capture in CAPTURES {
        let mut count = 0;
        for frame in read_pcap(&vectors().join(capture).with_extension("pcap")) {
            let Sample { bth, ext, .. } = Sample::of_frame(&frame);
            let (opcode, made) = (bth.opcode, as_made(bth.opcode));
            for header in opcode.info().unwrap().headers {
                let is_same = match header {
                    Header::Rdeth => ext.rdeth == made.rdeth,
                    Header::Deth => ext.deth == made.deth,
                    Header::Xrceth => ext.xrceth == made.xrceth,
                    Header::Reth => ext.reth == made.reth,
                    Header::AtomicEth => ext.atomic == made.atomic,
                    Header::Aeth => ext.aeth == made.aeth,
                    Header::AtomicAckEth => ext.atomic_ack == made.atomic_ack,
                    Header::ImmDt => ext.imm == made.imm,
                    Header::Ieth => ext.ieth == made.ieth,
                    Header::Feth => false,
                };
                assert!(is_same, "{capture}, {opcode}, {header:?}: {ext:?}");
                count += 1;
            }
        }
        assert!(count > 100, "{capture}: {count} headers");
    }
}

#[test]
fn tshark_and_scapy_read_what_we_built_as_we_meant_it() {
    let Some(mut python) = python_with_scapy_and_tshark() else { return };
    let mut runner = TestRunner::deterministic();
    let samples: Vec<Sample> = all_opcodes()
        .flat_map(|opcode| (0..4).map(move |shape| any_sample(opcode, shape & 1 == 0, shape > 1)))
        .map(|strategy| strategy.new_tree(&mut runner).unwrap().current())
        .collect();
    let frames: Vec<Vec<u8>> = samples.iter().map(Sample::frame).collect();
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("uroce.pcap");
    write_pcap(&path, &frames);

    let out = run(python.arg("read").arg(&path));
    let rows: Vec<Value> = serde_json::from_slice(&out).unwrap();
    assert_eq!(rows.len(), 4 * all_opcodes().count());
    for ((sample, frame), row) in samples.iter().zip(&frames).zip(rows) {
        assert_eq!(sample.as_dissected(frame), row, "{sample:?}");
    }
}

#[test]
fn the_stored_captures_are_what_the_script_makes() {
    let Some(mut python) = python_with_scapy_and_tshark() else { return };
    let made = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("vectors");
    std::fs::create_dir_all(&made).unwrap();
    run(python.arg("make").arg(&made));
    for capture in CAPTURES.map(|name| format!("{name}.pcap")) {
        let (stored, made) = (vectors().join(&capture), made.join(&capture));
        assert_eq!(read_pcap(&stored), read_pcap(&made), "{capture}");
    }
}

#[test]
fn we_read_what_soft_roce_sent_and_build_it_again_from_bth_on() {
    let mut packets = 0;
    for entry in std::fs::read_dir(vectors()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.starts_with("rxe-") || !name.ends_with(".pcap") {
            continue;
        }
        for frame in read_pcap(&path) {
            let Ok(Frame::Roce(datagram)) = Frame::parse(&frame) else { continue };
            let packet =
                Packet::parse(datagram.transport).unwrap_or_else(|error| panic!("{name}: {error}"));
            // Linux computes the invariant CRC of a FLUSH over its headers twice.
            let is_wrong = packet.bth.opcode == OpCode::RC_FLUSH;
            assert_eq!(datagram.icrc_ok(), !is_wrong, "{name}: {}", packet.op.name);
            let mut built = vec![0; datagram.transport.len()];
            let at = emit_headers(&packet.bth, &packet.ext, &mut built).unwrap();
            built[at..at + packet.payload.len()].copy_from_slice(packet.payload);
            assert_eq!(built, datagram.transport, "{name}: {}", packet.op.name);
            packets += 1;
        }
    }
    assert!(packets > 100, "only {packets} packets of Soft-RoCE in the captures");
}

/// One packet as values, either meant or read.
#[derive(Clone, Debug)]
struct Sample {
    encap: Encap,
    bth: Bth,
    ext: ExtHeaders,
    payload: Vec<u8>,
}

impl Sample {
    /// The sample that this crate's parser reads from a frame.
    fn of_frame(bytes: &[u8]) -> Sample {
        let Ok(Frame::Roce(datagram)) = Frame::parse(bytes) else { panic!("{bytes:02x?}") };
        assert!(datagram.icrc_ok());
        let packet = datagram.packet().unwrap();
        let flow_label = match Ipv6::parse(datagram.l3.first_chunk().unwrap()) {
            Ok(ip) => ip.flow_label,
            Err(_) => 0,
        };
        let encap = Encap {
            src_mac: datagram.src_mac,
            dst_mac: datagram.dst_mac,
            vlan: datagram.vlan,
            src: datagram.src,
            dst: datagram.dst,
            traffic_class: datagram.traffic_class,
            flow_label,
            hop_limit: datagram.hop_limit,
            src_port: datagram.src_port,
        };
        Sample { encap, bth: packet.bth, ext: packet.ext, payload: packet.payload.to_vec() }
    }

    /// The frame that this crate builds of the sample.
    fn frame(&self) -> Vec<u8> {
        let template = self.encap.template();
        let payload_len = self.payload.len();
        let headers_len = headers_len(self.bth.opcode).unwrap();
        let transport_len = headers_len + payload_len + self.bth.pad_count as usize + ICRC_LEN;
        let mut out = vec![0; template.len as usize + transport_len];
        let mut at = template.emit(&mut out, transport_len);
        at += emit_headers(&self.bth, &self.ext, &mut out[at..]).unwrap();
        out[at..at + payload_len].copy_from_slice(&self.payload);
        seal(&mut out[template.l3_offset as usize..]).unwrap();
        out
    }

    /// The fields that `vectors.py read` must give for `frame`, this sample's bytes.
    fn as_dissected(&self, frame: &[u8]) -> Value {
        let mut row = Map::new();
        let mut put = |name: &str, value: Value| assert!(row.insert(name.into(), value).is_none());
        self.outer_fields(frame, &mut put);
        self.bth_fields(&mut put);
        let info = self.bth.opcode.info().unwrap();
        if matches!(info.service, Service::Rc | Service::Uc | Service::Ud) {
            for header in info.headers {
                self.ext_fields(*header, &mut put);
            }
            let icrc: [u8; ICRC_LEN] = *frame.last_chunk().unwrap();
            put("infiniband.invariant.crc", json!(u32::from_be_bytes(icrc)));
            let padded_len = self.payload.len() + self.bth.pad_count as usize;
            if padded_len > 0 {
                put("data.len", json!(padded_len));
            }
        }
        Value::Object(row)
    }

    fn outer_fields(&self, frame: &[u8], put: &mut impl FnMut(&str, Value)) {
        let encap = &self.encap;
        put("eth.dst", json!(encap.dst_mac.to_string()));
        put("eth.src", json!(encap.src_mac.to_string()));
        if let Some(vlan) = encap.vlan {
            put("vlan.id", json!(vlan.vid));
            put("vlan.priority", json!(vlan.pcp));
        }
        let v4 = encap.src.to_ipv4().is_some();
        let ip = if v4 { "ip" } else { "ipv6" };
        put(&format!("{ip}.src"), json!(encap.src.to_ip().to_string()));
        put(&format!("{ip}.dst"), json!(encap.dst.to_ip().to_string()));
        if v4 {
            put("ip.dsfield", json!(encap.traffic_class));
            put("ip.ttl", json!(encap.hop_limit));
            put("ip.id", json!(0));
            put("ip.flags.df", json!(1));
            put("ip.checksum.status", json!(1)); // 1 means good.
        } else {
            put("ipv6.tclass", json!(encap.traffic_class));
            put("ipv6.flow", json!(encap.flow_label));
            put("ipv6.hlim", json!(encap.hop_limit));
        }
        let headers_len = encap.template().len as usize;
        put("udp.srcport", json!(encap.src_port));
        put("udp.dstport", json!(4791));
        put("udp.length", json!(frame.len() - headers_len + 8));
        put("udp.checksum", json!(0));
        let icrc: String = frame[frame.len() - 4..].iter().map(|b| format!("{b:02x}")).collect();
        put("icrc", json!(icrc));
    }

    fn bth_fields(&self, put: &mut impl FnMut(&str, Value)) {
        let bth = &self.bth;
        put("infiniband.bth.opcode", json!(bth.opcode.0));
        put("infiniband.bth.se", json!(bth.solicited as u8));
        put("infiniband.bth.m", json!(bth.mig_req as u8));
        put("infiniband.bth.padcnt", json!(bth.pad_count));
        put("infiniband.bth.tver", json!(0));
        put("infiniband.bth.p_key", json!(bth.pkey.0));
        put("infiniband.bth.destqp", json!(bth.dest_qpn.value()));
        put("infiniband.bth.a", json!(bth.ack_req as u8));
        put("infiniband.bth.psn", json!(bth.psn.value()));
        put("scapy.fecn", json!(bth.fecn as u8));
        put("scapy.becn", json!(bth.becn as u8));
    }

    fn ext_fields(&self, header: Header, put: &mut impl FnMut(&str, Value)) {
        let ext = &self.ext;
        let mut put = |name: &str, value: Value| put(&format!("infiniband.{name}"), value);
        match header {
            Header::Deth => {
                put("deth.q_key", json!(ext.deth.qkey.0));
                put("deth.srcqp", json!(ext.deth.src_qpn.value()));
            }
            Header::Reth => {
                put("reth.va", json!(ext.reth.va.0));
                put("reth.r_key", json!(ext.reth.rkey.0));
                put("reth.dmalen", json!(ext.reth.dma_len));
            }
            Header::AtomicEth => {
                put("reth.va", json!(ext.atomic.va.0));
                put("reth.r_key", json!(ext.atomic.rkey.0));
                put("atomiceth.swapdt", json!(ext.atomic.swap_add));
                put("atomiceth.cmpdt", json!(ext.atomic.compare));
            }
            Header::Aeth => {
                put("aeth.syndrome", json!(ext.aeth.syndrome.to_byte()));
                put("aeth.msn", json!(ext.aeth.msn.value()));
            }
            Header::AtomicAckEth => {
                put("atomicacketh.origremdt", json!(ext.atomic_ack.original));
            }
            Header::ImmDt => put("immdt", json!(format!("{:08x}", ext.imm.0))),
            Header::Ieth => put("ieth", json!(format!("{:08x}", ext.ieth.rkey.0))),
            Header::Rdeth | Header::Xrceth | Header::Feth => panic!("tshark does not read these"),
        }
    }
}

/// Every opcode but those that tshark does not know: uroce's own, FLUSH and ATOMIC WRITE
/// (`placement.rs` has known bytes of them).
fn all_opcodes() -> impl Iterator<Item = OpCode> {
    const UNKNOWN: [OpCode; 4] = [
        OpCode::RC_SELECTIVE_ACKNOWLEDGE,
        OpCode::RC_FLUSH,
        OpCode::RC_ATOMIC_WRITE,
        OpCode::RD_FLUSH,
    ];
    let is_defined = |opcode: &OpCode| opcode.info().is_some();
    (0..=255).map(OpCode).filter(is_defined).filter(|opcode| !UNKNOWN.contains(opcode))
}

/// A random packet of an opcode, with any payload that the opcode can have.
fn any_sample(opcode: OpCode, v4: bool, tagged: bool) -> impl Strategy<Value = Sample> {
    let payload_len = match opcode.info().unwrap().payload {
        PayloadRule::Empty => 0..1_usize,
        PayloadRule::FullMtu => 256..257,
        PayloadRule::OneToMtu => 1..64,
        PayloadRule::UpToMtu => 0..64,
        PayloadRule::Reserved16 | PayloadRule::Bitmap => 16..17,
        PayloadRule::Word => 8..9,
    };
    let payload = prop::collection::vec(any::<u8>(), payload_len);
    (any_encap(v4, tagged), any_bth(opcode), any_ext(), payload).prop_map(
        |(encap, mut bth, ext, payload)| {
            bth.pad_count = (payload.len() as u8).wrapping_neg() & 3;
            Sample { encap, bth, ext, payload }
        },
    )
}

fn any_encap(v4: bool, tagged: bool) -> impl Strategy<Value = Encap> {
    type Values = ([[u8; 3]; 2], u16, [[u8; 4]; 2], (u8, u32, u8, u16));
    any::<Values>().prop_map(move |(macs, tag, ips, (traffic_class, flow, hop_limit, port))| {
        let [src_mac, dst_mac] = macs.map(|[a, b, c]| Mac([2, 0, 0x5e, a, b, c]));
        let [src, dst] = ips.map(|[a, b, c, d]| match v4 {
            true => Gid::from(std::net::Ipv4Addr::new(10, b, c, d)),
            false => Gid([0x20, 0x01, 0x0d, 0xb8, a, b, c, d, 0x80, a, b, c, d, 1, 2, 3]),
        });
        let vlan = tagged.then_some(Vlan { vid: tag & 0x0fff, pcp: (tag >> 13) as u8 });
        let flow_label = if v4 { 0 } else { flow & 0xf_ffff };
        let src_port = port | 0xc000;
        Encap { src_mac, dst_mac, vlan, src, dst, traffic_class, flow_label, hop_limit, src_port }
    })
}

fn any_bth(opcode: OpCode) -> impl Strategy<Value = Bth> {
    any::<([bool; 5], u16, u32, u32)>().prop_map(move |(flags, pkey, qpn, psn)| {
        let [solicited, mig_req, fecn, becn, ack_req] = flags;
        // Not QP 0 or 1: tshark reads their payload as management datagrams.
        let dest_qpn = Qpn::new(qpn | 0x80_0000);
        let (pad_count, pkey, psn) = (0, Pkey(pkey), Psn::new(psn));
        Bth { opcode, solicited, mig_req, pad_count, pkey, fecn, becn, dest_qpn, ack_req, psn }
    })
}

fn any_ext() -> impl Strategy<Value = ExtHeaders> {
    any::<(u8, [u32; 9], [u64; 5])>().prop_map(|(syndrome, w, d)| ExtHeaders {
        feth: Default::default(),
        rdeth: Rdeth { eecn: w[0] >> 8 },
        deth: Deth { qkey: Qkey(w[1]), src_qpn: Qpn::new(w[2] | 0x80_0000) },
        xrceth: Xrceth { srqn: Srqn::new(w[3] >> 8) },
        reth: Reth { va: Va(d[0]), rkey: Rkey(w[4]), dma_len: w[5] },
        atomic: AtomicEth { va: Va(d[1]), rkey: Rkey(w[6]), swap_add: d[2], compare: d[3] },
        aeth: Aeth { syndrome: Syndrome::from_byte(syndrome), msn: Msn::new(w[7]) },
        atomic_ack: AtomicAckEth { original: d[4] },
        imm: ImmDt(w[8]),
        ieth: Ieth { rkey: Rkey(!w[8]) },
    })
}

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

/// A command that runs `vectors.py`. If it cannot run, prints the reason and returns `None`.
fn python_with_scapy_and_tshark() -> Option<Command> {
    let works = |mut command: Command| command.output().is_ok_and(|out| out.status.success());
    let command = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args);
        command
    };
    if !works(command("tshark", &["--version"])) {
        println!("SKIP: tshark is not installed (Debian package tshark)");
        return None;
    }
    let imports = ["-c", "import scapy.contrib.roce"];
    // A Python installed beside Debian's does not find Debian's packages.
    let found = ["python3", "/usr/bin/python3"].into_iter().find(|p| works(command(p, &imports)));
    let Some(python) = found else {
        println!("SKIP: no Python with scapy.contrib.roce (Debian package python3-scapy)");
        return None;
    };
    let mut python = Command::new(python);
    python.arg(vectors().join("vectors.py"));
    Some(python)
}

fn run(command: &mut Command) -> Vec<u8> {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    out.stdout
}
