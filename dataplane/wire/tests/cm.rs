//! CM messages compared with Linux and with tshark's dissector.
//!
//! Stored: `vectors/rxe-cm-*.pcap` hold the messages that two Linux kernels' connection managers
//! exchanged, and `rxe-cm-*.json` what tshark reads in their MADs. This crate must read the same
//! values and build the same bytes again. Live, if tshark is installed: tshark must read random
//! messages of this crate as they were meant. tshark 4.0 reads only the header of MRA, LAP, APR and
//! SIDR messages; known bytes in the crate fix their layout, and Linux's captures that of MRA and
//! SIDR.

mod pcap;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use pcap::{read_pcap, write_pcap};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::Value;
use uroce_wire::cm::{
    Attribute, BODY_LEN, CmPath, Drep, Dreq, IpHeader, Message, Rej, Rep, Req, Rtu, ServiceId,
};
use uroce_wire::mad::{GSI_QKEY, Mad, MadHeader};
use uroce_wire::{
    Bth, Deth, Encap, ExtHeaders, Frame, ICRC_LEN, OpCode, Operation, Qpn, emit_headers,
    headers_len, seal,
};

/// A field as tshark shows it: a number in any base, or text.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Shown {
    Number(u64),
    Text(String),
}

impl Shown {
    fn is(&self, text: &str) -> bool {
        match self {
            Shown::Number(number) => match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16) == Ok(*number),
                None => text.parse() == Ok(*number),
            },
            // tshark separates bytes with colons in some fields and not in others.
            Shown::Text(expected) => expected.replace(':', "") == text.replace(':', ""),
        }
    }
}

/// Fields that tshark must show of a message, by tshark's names.
type Fields = BTreeMap<String, Shown>;

#[test]
fn we_read_what_linux_said_as_tshark_reads_it_and_build_it_again() {
    let mut kinds = BTreeSet::new();
    for entry in std::fs::read_dir(vectors()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.starts_with("rxe-cm-") || !name.ends_with(".pcap") {
            continue;
        }
        let json = std::fs::read_to_string(path.with_extension("json")).unwrap();
        let rows: Vec<Value> = serde_json::from_str(&json).unwrap();
        let mads: Vec<Mad> = read_pcap(&path).iter().filter_map(|frame| mad_of(frame)).collect();
        assert_eq!(mads.len(), rows.len(), "{name}");
        for (mad, row) in mads.iter().zip(&rows) {
            let (header, message) = Message::parse(mad).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(message.emit(header.transaction_id), *mad, "{name}: {message:?}");
            check(&header, &message, row, &name);
            kinds.insert(message.attribute());
        }
    }
    let from_linux: BTreeSet<_> = Attribute::ALL.into_iter().collect();
    let migration = BTreeSet::from([Attribute::Lap, Attribute::Apr]); // Linux has no LAP on RoCE.
    assert_eq!(kinds, &from_linux - &migration);
}

#[test]
fn tshark_reads_what_we_say_as_we_mean_it() {
    let installed = Command::new("tshark").arg("--version").output();
    if !installed.is_ok_and(|out| out.status.success()) {
        println!("SKIP: tshark is not installed (Debian package tshark)");
        return;
    }
    let messages = random_messages();
    let frames: Vec<_> = messages.iter().map(|message| frame_of(&message.emit(0x0102))).collect();
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("uroce-cm.pcap");
    write_pcap(&path, &frames);

    let mut names: BTreeSet<String> = messages.iter().flat_map(fields).map(|(k, _)| k).collect();
    names.extend(header_fields(&MadHeader::default()).into_keys());
    let mut command = Command::new("tshark");
    command.args(["-n", "-T", "json", "-r"]).arg(&path);
    command.args(names.iter().flat_map(|name| ["-e", name]));
    let out = command.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let rows: Vec<Value> = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(rows.len(), messages.len());
    for (message, row) in messages.iter().zip(&rows) {
        let row = &row["_source"]["layers"];
        let (header, _) = Message::parse(&message.emit(0x0102)).unwrap();
        let shown = row.as_object().unwrap();
        for name in fields(message).keys() {
            assert!(shown.contains_key(name), "{name} of {message:?}");
        }
        check(&header, message, row, "ours");
    }
}

/// Checks that every field that tshark shows equals the value that this crate read.
fn check(header: &MadHeader, message: &Message, row: &Value, name: &str) {
    let expected = header_fields(header).into_iter().chain(fields(message));
    let mut compared = 0;
    for (field, expected) in expected {
        let shown = match row.get(&field) {
            Some(Value::Array(values)) => values[0].as_str(),
            Some(value) => value.as_str(),
            None => None,
        };
        if let Some(shown) = shown {
            assert!(expected.is(shown), "{name}: {field} is {shown} in {message:?}");
            compared += 1;
        }
    }
    assert!(compared >= 8, "{name}: only {compared} fields of {message:?}");
}

fn header_fields(header: &MadHeader) -> Fields {
    let numbers = [
        ("baseversion", u64::from(header.base_version)),
        ("mgmtclass", header.mgmt_class.into()),
        ("classversion", header.class_version.into()),
        ("method", header.method.into()),
        ("status", header.status.into()),
        ("classspecific", header.class_specific.into()),
        ("transactionid", header.transaction_id),
        ("attributeid", header.attribute_id.into()),
        ("attributemodifier", header.attribute_modifier.into()),
    ];
    let named = |(name, value)| (format!("infiniband.mad.{name}"), Shown::Number(value));
    numbers.into_iter().map(named).collect()
}

fn fields(message: &Message) -> Fields {
    let (kind, numbers, private): (&str, Vec<(&str, u64)>, &[u8]) = match message {
        Message::Req(req) => return req_fields(req),
        Message::Rep(rep) => ("rep", rep_numbers(rep), &rep.private_data.0),
        Message::Rtu(Rtu { local_comm_id, remote_comm_id, private_data }) => (
            "rtu",
            vec![
                ("localcommid", local_comm_id.0.into()),
                ("remotecommid", remote_comm_id.0.into()),
            ],
            &private_data.0,
        ),
        Message::Rej(rej) => ("rej", rej_numbers(rej), &rej.private_data.0),
        Message::Dreq(Dreq { local_comm_id, remote_comm_id, private_data, .. }) => (
            "dreq",
            vec![
                ("localcommid", local_comm_id.0.into()),
                ("remotecommid", remote_comm_id.0.into()),
            ],
            &private_data.0,
        ),
        Message::Drep(Drep { local_comm_id, remote_comm_id, private_data }) => (
            "drsp",
            vec![
                ("localcommid", local_comm_id.0.into()),
                ("remotecommid", remote_comm_id.0.into()),
            ],
            &private_data.0,
        ),
        _ => return Fields::new(),
    };
    let mut fields = named(kind, &numbers);
    fields.insert(format!("infiniband.cm.{kind}.private"), Shown::Text(hex(private)));
    match message {
        Message::Rep(rep) => {
            fields.insert("infiniband.cm.rep".into(), Shown::Number(rep.local_comm_id.0.into()));
        }
        Message::Dreq(dreq) => {
            let qpn = Shown::Number(dreq.remote_qpn.value().into());
            fields.insert("infiniband.cm.req.remoteqpneecn".into(), qpn);
        }
        Message::Rej(rej) => {
            fields.insert("infiniband.cm.rej.ari".into(), Shown::Text(hex(&rej.ari)));
        }
        _ => {}
    }
    fields
}

fn rep_numbers(rep: &Rep) -> Vec<(&'static str, u64)> {
    vec![
        ("remotecommid", rep.remote_comm_id.0.into()),
        ("localqkey", rep.local_qkey.0.into()),
        ("localqpn", rep.local_qpn.value().into()),
        ("localeecn", rep.local_eecn.into()),
        ("startpsn", rep.starting_psn.value().into()),
        ("respres", rep.responder_resources.into()),
        ("initdepth", rep.initiator_depth.into()),
        ("tgtackdelay", rep.target_ack_delay.code().into()),
        ("failoveracc", rep.failover as u64),
        ("e2eflowctrl", rep.end_to_end_flow_control.into()),
        ("rnrretrcount", rep.rnr_retry_count.into()),
        ("srq", rep.srq.into()),
        ("localcaguid", rep.local_ca_guid.0),
    ]
}

fn rej_numbers(rej: &Rej) -> Vec<(&'static str, u64)> {
    vec![
        ("localcommid", rej.local_comm_id.0.into()),
        ("remotecommid", rej.remote_comm_id.0.into()),
        ("msgrej", rej.message as u64),
        ("rejinfolen", rej.ari_len.into()),
        ("reason", rej.reason.0.into()),
    ]
}

fn req_fields(req: &Req) -> Fields {
    let numbers = [
        ("serviceid", req.service_id.0),
        ("localcaguid", req.local_ca_guid.0),
        ("localqkey", req.local_qkey.0.into()),
        ("localqpn", req.local_qpn.value().into()),
        ("responderres", req.responder_resources.into()),
        ("localeecn", req.local_eecn.into()),
        ("initdepth", req.initiator_depth.into()),
        ("remoteeecn", req.remote_eecn.into()),
        ("remoteresptout", req.remote_cm_response_timeout.code().into()),
        ("transpsvctype", req.transport_service as u64),
        ("e2eflowctrl", req.end_to_end_flow_control.into()),
        ("startpsn", req.starting_psn.value().into()),
        ("localresptout", req.local_cm_response_timeout.code().into()),
        ("retrcount", req.retry_count.into()),
        ("pkey", req.pkey.0.into()),
        ("pppmtu", req.path_mtu_code.into()),
        ("rdcexist", req.rdc_exists.into()),
        ("rnrretrcount", req.rnr_retry_count.into()),
        ("maxcmretr", req.max_cm_retries.into()),
        ("srq", req.srq.into()),
        ("ext_transport", req.extended_transport_type.into()),
    ];
    let mut fields = named("req", &numbers);
    fields.insert("infiniband.cm.req".into(), Shown::Number(req.local_comm_id.0.into()));
    path_fields("prim", &req.primary, &mut fields);
    path_fields("alt", &req.alternate, &mut fields);
    match IpHeader::parse(&req.private_data.0) {
        Ok(ip) if req.service_id.tcp_port().is_some() => {
            let is_v4 = ip.src.is_ipv4();
            let version = if is_v4 { 4 } else { 6 };
            let mut put =
                |name: &str, shown| fields.insert(format!("infiniband.cm.req.ip_cm.{name}"), shown);
            put("ipv", Shown::Number(version));
            put("sport", Shown::Number(ip.src_port.into()));
            put(&format!("sip{version}"), Shown::Text(ip.src.to_string()));
            put(&format!("dip{version}"), Shown::Text(ip.dst.to_string()));
            put("private", Shown::Text(hex(&req.private_data.0[IpHeader::LEN..])));
        }
        _ => {
            let private = Shown::Text(hex(&req.private_data.0));
            fields.insert("infiniband.cm.req.private".into(), private);
        }
    }
    fields
}

fn path_fields(prefix: &str, path: &CmPath, fields: &mut Fields) {
    let numbers = [
        ("locallid", u64::from(path.local_lid)),
        ("remotelid", path.remote_lid.into()),
        ("tfcclass", path.traffic_class.into()),
        ("hoplim", path.hop_limit.into()),
        ("sl", path.sl.into()),
        ("subnetlocal", path.subnet_local.into()),
        ("localacktout", path.local_ack_timeout.code().into()),
    ];
    for (name, value) in numbers {
        fields.insert(format!("infiniband.cm.req.{prefix}_{name}"), Shown::Number(value));
    }
    for (name, gid) in [("localgid", path.local_gid), ("remotegid", path.remote_gid)] {
        let (name, text) = match (prefix, gid.to_ipv4()) {
            ("prim", Some(v4)) => (format!("{name}_ipv4"), v4.to_string()),
            ("prim", None) => (name.into(), gid.to_string()),
            _ => (name.into(), hex(&gid.0)),
        };
        fields.insert(format!("infiniband.cm.req.{prefix}_{name}"), Shown::Text(text));
    }
}

fn named(kind: &str, numbers: &[(&str, u64)]) -> Fields {
    let named = |(name, value): &(&str, u64)| {
        (format!("infiniband.cm.{kind}.{name}"), Shown::Number(*value))
    };
    numbers.iter().map(named).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// Random messages of every kind that tshark reads, and REQs of RDMA-CM.
fn random_messages() -> Vec<Message> {
    let mut runner = TestRunner::deterministic();
    let mut body =
        || -> [u8; BODY_LEN] { any::<[u8; BODY_LEN]>().new_tree(&mut runner).unwrap().current() };
    let mut messages = Vec::new();
    for _ in 0..16 {
        messages.push(Message::Rep(Rep::parse(&body())));
        messages.push(Message::Rej(Rej::parse(&body())));
        messages.push(Message::Rtu(Rtu::parse(&body())));
        messages.push(Message::Dreq(Dreq::parse(&body())));
        messages.push(Message::Drep(Drep::parse(&body())));
        let req = Req::parse(&body());
        messages.push(Message::Req(req));
        let addresses = [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")];
        for (src, dst) in addresses {
            let mut req = req;
            req.service_id = ServiceId::tcp(req.pkey.0);
            let [src, dst] = [src, dst].map(|text| text.parse().unwrap());
            let header: &mut [u8; IpHeader::LEN] = req.private_data.0.first_chunk_mut().unwrap();
            IpHeader { src_port: 0x1234, src, dst }.emit(header);
            messages.push(Message::Req(req));
        }
    }
    messages
}

/// The MAD in a frame to QP 1; `None` for any other frame.
fn mad_of(frame: &[u8]) -> Option<Mad> {
    let Ok(Frame::Roce(datagram)) = Frame::parse(frame) else { return None };
    let packet = datagram.packet().ok()?;
    let is_to_gsi = packet.bth.dest_qpn == Qpn::GSI && packet.op.operation == Operation::Send;
    is_to_gsi.then(|| packet.payload.try_into().expect("256 bytes"))
}

/// A frame to QP 1. IPv6, because over IPv4 tshark shows only the last four bytes of a GID.
fn frame_of(mad: &Mad) -> Vec<u8> {
    let ip = |host| std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host).into();
    let encap =
        Encap { src: ip(1), dst: ip(2), hop_limit: 64, src_port: 0xc000, ..Encap::default() };
    let template = encap.template();
    let opcode = OpCode(0x64); // UD SEND Only
    let transport_len = headers_len(opcode).unwrap() + mad.len() + ICRC_LEN;
    let mut frame = vec![0; template.len as usize + transport_len];
    let bth = Bth { opcode, dest_qpn: Qpn::GSI, ..Bth::default() };
    let deth = Deth { qkey: GSI_QKEY, src_qpn: Qpn::GSI };
    let mut at = template.emit(&mut frame, transport_len);
    at += emit_headers(&bth, &ExtHeaders { deth, ..ExtHeaders::default() }, &mut frame[at..])
        .unwrap();
    frame[at..at + mad.len()].copy_from_slice(mad);
    seal(&mut frame[template.l3_offset as usize..]).unwrap();
    frame
}

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}
