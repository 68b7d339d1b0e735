//! `set stats-period`: the statistics of all ports, again and again beside the prompt.
//!
//! They come over a connection of their own, so that no command waits for them. At a terminal they
//! stand above the line that is being typed.

use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use uroce_command::{Answer, Request, Select, Show, ShowPort};

use crate::client::{Client, ClientError};
use crate::screen::{self, Screen};

/// Statistics that are shown until this is dropped.
#[derive(Debug)]
pub(crate) struct Period {
    /// The thread ends when this has gone.
    _end: Sender<()>,
}

impl Period {
    /// Shows the statistics of a process every so many seconds.
    pub(crate) fn show(
        seconds: u32,
        mut client: Client,
        screen: Option<Screen>,
        is_json: bool,
    ) -> Period {
        let (end, ended) = channel();
        let pause = Duration::from_secs(u64::from(seconds));
        std::thread::spawn(move || {
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let answer = match client.ask_anew(&stats(), None) {
                    Ok(answer) => answer,
                    // The next time there may be an answer.
                    Err(ClientError::Refused(_)) => continue,
                    // The process has ended, which the next command tells.
                    Err(_) => return,
                };
                if !print(&answer, screen.as_ref(), is_json) {
                    return;
                }
            }
        });
        Period { _end: end }
    }
}

fn stats() -> Request {
    Request::Show(Show::Port(ShowPort::Stats { port: Select::All }))
}

/// Prints an answer. Returns whether there is a reader.
fn print(answer: &Answer, screen: Option<&Screen>, is_json: bool) -> bool {
    let text = screen::text(answer, is_json);
    let Some(at) = screen else {
        let mut stdout = std::io::stdout().lock();
        return stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_ok();
    };
    at.print(text);
    true
}
