//! Texts of injected faults.

use super::table::Table;
use crate::answer::Fault;

/// Returns the text of `show fault`.
pub(super) fn list(faults: &[Fault]) -> String {
    let mut table = Table::new(&[
        "Port", "Device", "Frames", "QP", "Loss", "Dup", "Reorder", "Corrupt", "Delay", "Seed",
    ]);
    for fault in faults {
        table.row([
            fault.port.to_string(),
            fault.device.clone(),
            if fault.tx { "tx" } else { "rx" }.to_owned(),
            fault.qp.map_or_else(|| "all".to_owned(), |qp| format!("{qp:#08x}")),
            fault.loss.to_string(),
            fault.dup.to_string(),
            fault.reorder.to_string(),
            fault.corrupt.to_string(),
            format!("{} us", fault.delay),
            fault.seed.to_string(),
        ]);
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Answer;
    use crate::render::text;

    #[test]
    fn each_direction_is_a_line() {
        let rx = Fault {
            port: 0,
            device: "uroce0".into(),
            tx: false,
            loss: 0.01,
            dup: 0.0,
            reorder: 1.0,
            corrupt: 0.000_001,
            delay: 100,
            seed: 7,
            qp: None,
        };
        let tx = Fault { tx: true, qp: Some(0x11), ..rx.clone() };
        let expected = "\
Port  Device  Frames  QP        Loss  Dup  Reorder  Corrupt   Delay   Seed
0     uroce0  rx      all       0.01  0    1        0.000001  100 us  7
0     uroce0  tx      0x000011  0.01  0    1        0.000001  100 us  7
";
        assert_eq!(text(&Answer::Fault(vec![rx, tx])), expected);
    }
}
