//! Texts of captures.

use super::table::Table;
use crate::answer::Capture;

/// Returns the text of `show capture`.
pub(super) fn list(captures: &[Capture]) -> String {
    let mut table =
        Table::new(&["Port", "Device", "QP", "Frames", "Bytes", "Missed", "State", "File"]);
    for capture in captures {
        table.row([
            capture.port.to_string(),
            capture.device.clone(),
            capture.qp.map_or_else(|| "all".to_owned(), |qp| format!("{qp:#08x}")),
            capture.frames.to_string(),
            capture.bytes.to_string(),
            capture.missed.to_string(),
            capture.end.clone().unwrap_or_else(|| "running".to_owned()),
            capture.file.clone(),
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
    fn a_capture_is_a_line() {
        let capture = Capture {
            port: 0,
            device: "uroce0".into(),
            file: "x\x1b[2J.pcapng".into(),
            qp: Some(0x11),
            snaplen: 65535,
            frames: 1000,
            bytes: 98_304,
            missed: 2,
            end: None,
        };
        let ended =
            Capture { qp: None, end: Some("has all 1000 frames".into()), ..capture.clone() };
        let expected = "\
Port  Device  QP        Frames  Bytes  Missed  State                File
0     uroce0  0x000011  1000    98304  2       running              x?[2J.pcapng
0     uroce0  all       1000    98304  2       has all 1000 frames  x?[2J.pcapng
";
        assert_eq!(text(&Answer::Capture(vec![capture, ended])), expected);
    }
}
