//! Values that exist in a process, for completion.

use std::path::Path;
use std::time::Duration;

use uroce_command::answer::Answer;
use uroce_command::{Request, Select, SelectCm, Show, ShowPort};

use crate::client::Client;

/// Longest wait for the values.
const PATIENCE: Duration = Duration::from_secs(1);
/// Largest number of values that are listed.
const VALUES: usize = 100;

/// Returns what may be typed for a value of this name, as `QPN|all`, and begins so: numbers that
/// exist in the process of this socket, if there is one, and words.
pub(crate) fn values(socket: Option<&Path>, name: &str, begun: &str) -> Vec<String> {
    let mut kinds = name.split('|');
    let live = match kinds.next() {
        Some("PORT") => Some(Show::Port(ShowPort::Summary { port: Select::All })),
        Some("CM") => Some(Show::Cm { cm: SelectCm::All }),
        Some("QPN") => Some(Show::Qp { qp: Select::All }),
        _ => None,
    };
    let answer = socket.zip(live).and_then(|(socket, show)| ask(socket, show));
    let mut values: Vec<String> = match answer {
        Some(Answer::PortSummary(ports)) => {
            ports.iter().map(|port| port.port.to_string()).collect()
        }
        Some(Answer::Cm(ids)) => ids.iter().map(|of| of.id.to_string()).collect(),
        Some(Answer::Qp(qps)) => qps.iter().map(|qp| format!("{:#08x}", qp.qpn)).collect(),
        _ => Vec::new(),
    };
    values.retain(|value| value.starts_with(begun));
    values.truncate(VALUES);
    // Words in the name of a value stand for themselves.
    let is_word = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase());
    let words = name.split('|').filter(is_word).filter(|word| word.starts_with(begun));
    values.extend(words.map(str::to_owned));
    values
}

/// Asks over a connection of its own, which may be given up.
fn ask(socket: &Path, show: Show) -> Option<Answer> {
    let mut client = Client::connect_for(socket, PATIENCE).ok()?;
    client.ask(&Request::Show(show)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_value_need_no_process() {
        assert_eq!(values(None, "QPN|all", ""), ["all"]);
        assert_eq!(values(None, "on|off", "o"), ["on", "off"]);
        assert!(values(None, "QPN|all", "0x").is_empty());
        assert!(values(None, "FILE", "").is_empty());
    }
}
