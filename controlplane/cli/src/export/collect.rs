//! Asks all processes at once, each with the same short patience.

use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use uroce_command::answer::{Process, Scraped};
use uroce_command::{Answer, Request, Scrape, Show};

use super::text::Metrics;
use crate::client::{Client, ClientError};
use crate::find;

/// Time after which processes that have not answered count as silent. It is below Prometheus's
/// default patience of ten seconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time that a process has to answer: the connection, and then each part of its answer.
const SILENCE: Duration = Duration::from_secs(3);
/// Longest answer of a process in bytes.
const ANSWER_MAX: usize = 8 << 20;
/// Largest number of processes that are asked.
const PROCESSES: usize = 256;
/// Time for which a text is given again instead of asking all processes once more.
const FRESH: Duration = Duration::from_millis(500);

/// What a process has told.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) process: Process,
    pub(super) devices: Vec<Scraped>,
}

/// Makes the text of all processes' metrics.
#[derive(Debug)]
pub(super) struct Collector {
    scrape: Scrape,
    last: Mutex<Option<(Instant, Arc<str>)>>,
}

impl Collector {
    pub(super) fn new(scrape: Scrape) -> Collector {
        Collector { scrape, last: Mutex::new(None) }
    }

    /// Returns the text. Callers that come together share one.
    pub(super) fn text(&self) -> Arc<str> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, text)) = &*last
            && at.elapsed() < FRESH
        {
            return Arc::clone(text);
        }
        let text: Arc<str> = self.collect().into();
        *last = Some((Instant::now(), Arc::clone(&text)));
        text
    }

    fn collect(&self) -> String {
        let (begin, scrape) = (Instant::now(), self.scrape);
        let mut sockets = find::all_sockets();
        let left_out = sockets.len().saturating_sub(PROCESSES);
        sockets.truncate(PROCESSES);
        let deadline = begin + PATIENCE;
        let (sender, answers) = channel();
        for (at, path) in sockets.iter().cloned().enumerate() {
            let sender = sender.clone();
            let body = move || {
                // The receiver has gone if the answer is late.
                let _ = sender.send((at, ask(&path, scrape)));
            };
            // Without a thread the process counts as silent.
            let _ = std::thread::Builder::new().name("uroce-scrape".into()).spawn(body);
        }
        drop(sender);
        let mut told: Vec<Option<Result<Told, ClientError>>> =
            sockets.iter().map(|_| None).collect();
        while let Ok((at, answer)) =
            answers.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            told[at] = Some(answer);
        }
        let mut metrics = Metrics::new();
        for (path, told) in sockets.iter().zip(told) {
            add(&mut metrics, path, told);
        }
        metrics.exporter(begin.elapsed(), left_out);
        metrics.text()
    }
}

fn add(metrics: &mut Metrics, path: &Path, told: Option<Result<Told, ClientError>>) {
    let label = find::label_of(path);
    match told {
        Some(Ok(told)) => metrics.process(&label, &told),
        Some(Err(ClientError::Silent | ClientError::Strange(_) | ClientError::Refused(_)))
        | None => metrics.silent(&label),
        // It has ended, or is another user's.
        Some(Err(_)) => {}
    }
}

fn ask(path: &Path, scrape: Scrape) -> Result<Told, ClientError> {
    let mut client = Client::connect_for(path, SILENCE)?;
    client.limit(ANSWER_MAX);
    // A name is only a name: a process cannot pose as another one of this PID namespace.
    let named = find::label_of(path).parse().ok();
    if named.is_some() && named != client.peer().pid {
        return Err(ClientError::NoProcess(format!("{} is not its process's", path.display())));
    }
    let strange = || ClientError::Strange("another answer".to_owned());
    let Answer::Process(process) = client.ask(&Request::Show(Show::Process))? else {
        return Err(strange());
    };
    // The system names the user: a process cannot pose as another user's.
    let process = Process { uid: client.peer().uid, ..process };
    match client.ask(&Request::Scrape(scrape))? {
        Answer::Scraped(devices) => Ok(Told { process, devices }),
        // No device is open.
        Answer::Done => Ok(Told { process, devices: Vec::new() }),
        _ => Err(strange()),
    }
}
