//! Texts about objects that commands have made.

use super::or_dash;
use super::table::Table;
use crate::answer::{Completion, Connected, FwdStats, Made, Memory};

/// Number of bytes in a line.
const LINE: usize = 16;

/// Returns the number of a new object, and the values of it that a peer needs.
pub(super) fn made(made: &Made) -> String {
    let Made { device, object, number, psn, memory } = made;
    let mut text = match object.as_str() {
        "QP" | "MR" => format!("{object} {number:#08x} of {device}"),
        _ => format!("{object} {number} of {device}"),
    };
    if let Some(psn) = psn {
        text.push_str(&format!(", PSN {psn:#08x}"));
    }
    if let Some((addr, len)) = memory {
        text.push_str(&format!(", address {addr:#x}, {len} bytes"));
    }
    text + "\n"
}

/// Returns the number of a new listener or connection, its addresses and its objects.
pub(super) fn connected(of: &Connected) -> String {
    let Connected { device, id, local, peer, qpn, pd, cq } = of;
    let peer = peer.map_or(String::new(), |peer| format!(" to {peer}"));
    let qp = qpn.map_or(String::new(), |qpn| format!("QP {qpn:#08x}, "));
    format!("CM {id} of {device}, {local}{peer}: {qp}PD {pd}, CQ {cq}\n")
}

/// Returns bytes in the layout of `hexdump`.
pub(super) fn memory(memory: &Memory) -> String {
    let line = |(at, bytes): (usize, &[u8])| {
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let address = memory.address.saturating_add((at * LINE) as u64);
        format!("{address:016x}  {}\n", hex.join(" "))
    };
    memory.bytes.chunks(LINE).enumerate().map(line).collect()
}

/// Returns one line for each completion.
pub(super) fn completions(completions: &[Completion]) -> String {
    let mut table = Table::new(&["wr_id", "QP", "Status", "Operation", "Bytes", "Immediate"]);
    for of in completions {
        table.row([
            of.wr_id.to_string(),
            format!("{:#08x}", of.qpn),
            of.status.clone(),
            of.opcode.clone(),
            of.byte_len.to_string(),
            or_dash(of.imm),
        ]);
    }
    table.text()
}

/// Returns testpmd's forward statistics, for each port and then for all ports.
pub(super) fn forwarded(ports: &[FwdStats]) -> String {
    let row = |name: &str, packets: u64, dropped: u64| {
        let total = packets.saturating_add(dropped);
        let (packets_of, dropped_of) = (format!("{name}-packets:"), format!("{name}-dropped:"));
        format!("  {packets_of} {packets:<14} {dropped_of} {dropped:<13} {name}-total: {total}\n")
    };
    let rows = |of: &FwdStats| {
        row("RX", of.rx_packets, of.rx_dropped) + &row("TX", of.tx_packets, of.tx_dropped)
    };
    let of_port = |of: &FwdStats| {
        let title = format!(" Forward statistics for port {:<3}", of.port);
        format!(
            "\n  ----------------------{title}----------------------\n{}  {}\n",
            rows(of),
            "-".repeat(76)
        )
    };
    let sum = |count: fn(&FwdStats) -> u64| ports.iter().map(count).fold(0, u64::saturating_add);
    let all = FwdStats {
        port: 0,
        rx_packets: sum(|of| of.rx_packets),
        rx_dropped: sum(|of| of.rx_dropped),
        tx_packets: sum(|of| of.tx_packets),
        tx_dropped: sum(|of| of.tx_dropped),
    };
    let plus = "+".repeat(15);
    let text: String = ports.iter().map(of_port).collect();
    format!(
        "{text}\n  {plus} Accumulated forward statistics for all ports{plus}\n{}  {}\n",
        rows(&all),
        "+".repeat(76)
    )
}
