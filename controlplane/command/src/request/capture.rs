//! Requests about captures.

use serde::{Deserialize, Serialize};

use super::Select;
#[cfg(feature = "tree")]
use super::number::number;

/// Captures of frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum Capture {
    /// Write the frames that a port receives and sends to a new pcapng file; injected faults appear
    /// as on the wire
    ///
    /// The client sends the file's descriptor together with the first byte of the request. It must
    /// be the descriptor of a regular file that is open for writing.
    Start {
        /// Number of a port
        #[cfg_attr(feature = "tree", arg(long, value_name = "PORT", value_parser = number::<u32>))]
        port: u32,
        /// The file, which must not exist; at most 4 GiB are written
        #[cfg_attr(feature = "tree", arg(long, value_name = "FILE"))]
        file: String,
        /// Number of a QP: only frames that it sends and those to it
        #[cfg_attr(feature = "tree", arg(long, value_name = "QPN", value_parser = number::<u32>))]
        #[serde(default)]
        qp: Option<u32>,
        /// Largest number of bytes kept of each frame, at least 64
        #[cfg_attr(feature = "tree", arg(long, value_name = "BYTES", default_value_t = u16::MAX,
            value_parser = clap::value_parser!(u16).range(64..)))]
        #[serde(default = "whole")]
        snaplen: u16,
        /// Number of frames after which the capture ends
        #[cfg_attr(feature = "tree", arg(long, value_name = "COUNT",
            value_parser = clap::value_parser!(u64).range(1..)))]
        #[serde(default)]
        count: Option<u64>,
    },
    /// End captures, and complete their files
    Stop {
        /// Number of a port, or `all`
        #[cfg_attr(feature = "tree", arg(value_name = "PORT|all", default_value = "all"))]
        port: Select,
    },
}

/// The default of `snaplen`, which no frame exceeds.
fn whole() -> u16 {
    u16::MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Request;

    #[test]
    fn a_request_needs_a_port_and_a_file() {
        let text = r#"{"capture":{"start":{"port":0,"file":"x.pcapng"}}}"#;
        let start = Capture::Start {
            port: 0,
            file: "x.pcapng".to_owned(),
            qp: None,
            snaplen: u16::MAX,
            count: None,
        };
        assert_eq!(serde_json::from_str::<Request>(text).unwrap(), Request::Capture(start));
        assert!(serde_json::from_str::<Request>(r#"{"capture":{"start":{"port":0}}}"#).is_err());
    }

    #[cfg(feature = "tree")]
    #[test]
    fn a_line_has_words_in_any_order() {
        use crate::tree::{Line, parse};

        let line = "capture start count 1000 port 1 qp 0x11 file \"a b.pcapng\" snaplen 128";
        let start = Capture::Start {
            port: 1,
            file: "a b.pcapng".to_owned(),
            qp: Some(0x11),
            snaplen: 128,
            count: Some(1000),
        };
        assert_eq!(parse(line).unwrap(), Some(Line::Request(Request::Capture(start))));
        let stop = |port| Some(Line::Request(Request::Capture(Capture::Stop { port })));
        assert_eq!(parse("cap stop").unwrap(), stop(Select::All));
        assert_eq!(parse("capture stop 1").unwrap(), stop(Select::One(1)));
        for wrong in [
            "capture start port 0",
            "capture start file x",
            "capture start port all file x",
            "capture start port 0 file x count 0",
            "capture start port 0 file x snaplen 63",
            "capture start port 0 file x snaplen 65536",
            "capture start port 0 file x qp -1",
            "capture start port 0 port 1 file x",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
