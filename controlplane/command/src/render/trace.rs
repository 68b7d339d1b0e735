//! Texts of traces.

use super::or_dash;
use super::table::Table;
use crate::answer::Trace;

/// Returns the text of a trace: its state, then one line for each packet.
pub(super) fn packets(trace: &Trace) -> String {
    let mut table = Table::new(&[
        "Time/us", "Dir", "Port", "Packet", "To QP", "PSN", "Bytes", "AETH", "Verdict",
    ]);
    for packet in &trace.packets {
        table.row([
            format!("{}.{:03}", packet.time_ns / 1000, packet.time_ns % 1000),
            if packet.is_sent { "out" } else { "in" }.to_owned(),
            packet.port.to_string(),
            packet.packet.clone(),
            or_dash(packet.dest_qpn.map(|qpn| format!("{qpn:#08x}"))),
            or_dash(packet.psn),
            packet.len.to_string(),
            or_dash(packet.aeth.as_deref()),
            packet.verdict.clone(),
        ]);
    }
    let state = trace.end.as_deref().unwrap_or("waits for more packets");
    let missed = match trace.missed {
        0 => String::new(),
        missed => format!(", {missed} missed"),
    };
    format!("QP {:#08x} of {}: {state}{missed}\n{}", trace.qp, trace.device, table.text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Answer;
    use crate::answer::TracedPacket;
    use crate::render::text;

    #[test]
    fn a_packet_is_a_line() {
        let sent = TracedPacket {
            time_ns: 0,
            is_sent: true,
            port: 1,
            packet: "RC SEND Only".into(),
            dest_qpn: Some(0x12),
            psn: Some(7),
            len: 64,
            aeth: None,
            verdict: "first".into(),
        };
        let ack = TracedPacket {
            time_ns: 12_345,
            is_sent: false,
            packet: "RC Acknowledge".into(),
            dest_qpn: Some(0x11),
            len: 0,
            aeth: Some("ack msn 1".into()),
            verdict: "answer\u{1b}".into(),
            ..sent.clone()
        };
        let trace = Trace {
            device: "uroce0".into(),
            qp: 0x11,
            end: None,
            missed: 3,
            packets: vec![sent, ack],
        };
        let expected = "\
QP 0x000011 of uroce0: waits for more packets, 3 missed
Time/us  Dir  Port  Packet          To QP     PSN  Bytes  AETH       Verdict
0.000    out  1     RC SEND Only    0x000012  7    64     -          first
12.345   in   1     RC Acknowledge  0x000011  7    0      ack msn 1  answer?
";
        assert_eq!(text(&Answer::Trace(vec![trace])), expected);
    }
}
