//! Texts about objects that commands have made.

use super::or_dash;
use super::table::Table;
use crate::answer::{Completion, Made, Memory};

/// Bytes in a line.
const LINE: usize = 16;

/// Returns the number of a new object, and what a peer has to know of it.
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

/// Returns bytes as `hexdump` shows them.
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
