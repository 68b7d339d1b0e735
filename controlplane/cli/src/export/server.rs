//! An HTTP server for one page.
//!
//! It is written here since the crates that are kept well (hyper, axum) bring a runtime of some
//! sixty crates for what is one GET without a body.
//!
//! Invariants
//! - A connection ends at the latest [`PATIENCE`] after it was accepted, however slowly its client
//!   sends or reads.
//! - There are at most [`CONNECTIONS`]. A further one takes the place of the oldest that has not
//!   sent its request; if all have, it is refused with 503.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::collect::Collector;

/// Largest number of connections at a time.
const CONNECTIONS: usize = 32;
/// Time in which a client must have sent its request and read the answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// Longest request in bytes.
const REQUEST_MAX: usize = 8192;
/// Pause after the system has refused a connection, for example for want of descriptors.
const PAUSE: Duration = Duration::from_millis(200);

/// A connection, as the accepting thread sees it.
#[derive(Debug)]
struct Open {
    number: u64,
    stream: TcpStream,
    has_request: bool,
}

type Connections = Arc<Mutex<Vec<Open>>>;

fn lock(connections: &Connections) -> MutexGuard<'_, Vec<Open>> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves for ever.
pub(super) fn serve(listener: &TcpListener, collector: &Arc<Collector>) {
    let connections = Connections::default();
    for number in 0.. {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(PAUSE);
            continue;
        };
        let Ok(own) = stream.try_clone() else { continue };
        if !has_room(&connections) {
            let end = Instant::now() + PAUSE;
            // An error is the client's, which gets no answer then.
            let _ = write(&stream, end, "503 Service Unavailable", "text/plain", "too many\n");
            continue;
        }
        lock(&connections).push(Open { number, stream: own, has_request: false });
        let (all, collector) = (Arc::clone(&connections), Arc::clone(collector));
        let body = move || {
            // An error is the client's: it has gone, or is too slow.
            let _ = answer(&stream, number, &all, &collector);
            let _ = stream.shutdown(Shutdown::Both);
            lock(&all).retain(|open| open.number != number);
        };
        if std::thread::Builder::new().name("uroce-http".into()).spawn(body).is_err() {
            lock(&connections).retain(|open| open.number != number);
        }
    }
}

/// Returns whether there may be a further connection. If there are too many, the oldest without a
/// request ends; those with one have a thread at work, whatever their clients do.
fn has_room(connections: &Connections) -> bool {
    let mut open = lock(connections);
    if open.len() < CONNECTIONS {
        return true;
    }
    let oldest = open.iter().position(|open| !open.has_request);
    // Its thread then finds the connection closed.
    oldest.map(|at| open.remove(at).stream.shutdown(Shutdown::Both)).is_some()
}

fn answer(
    stream: &TcpStream,
    number: u64,
    all: &Connections,
    collector: &Collector,
) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    let Some(head) = read_head(stream, end)? else {
        return write(
            stream,
            end,
            "431 Request Header Fields Too Large",
            "text/plain",
            "too long\n",
        );
    };
    if let Some(open) = lock(all).iter_mut().find(|open| open.number == number) {
        open.has_request = true;
    }
    let line = head.split(|byte| *byte == b'\r' || *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    if !version.is_some_and(|version| version.starts_with("HTTP/1.")) {
        return write(stream, end, "400 Bad Request", "text/plain", "not a request of HTTP/1\n");
    }
    if method != Some("GET") {
        return write(stream, end, "405 Method Not Allowed", "text/plain", "only GET\n");
    }
    match target.map(|target| target.split('?').next().unwrap_or_default()) {
        Some("/metrics") => {
            let kind = "text/plain; version=0.0.4; charset=utf-8";
            write(stream, end, "200 OK", kind, &collector.text())
        }
        Some("/") => {
            let page = "<html><body><a href=\"/metrics\">metrics</a></body></html>\n";
            write(stream, end, "200 OK", "text/html", page)
        }
        _ => write(stream, end, "404 Not Found", "text/plain", "only /metrics\n"),
    }
}

/// Returns the time that is left.
///
/// # Errors
///
/// None is left.
fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Reads up to the empty line after the headers. `None` if the request is too long.
fn read_head(mut stream: &TcpStream, end: Instant) -> io::Result<Option<Vec<u8>>> {
    let (mut head, mut bytes) = (Vec::new(), [0; 1024]);
    loop {
        stream.set_read_timeout(Some(left(end)?))?;
        match stream.read(&mut bytes)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => head.extend_from_slice(&bytes[..len]),
        }
        if head.windows(4).any(|end| end == b"\r\n\r\n")
            || head.windows(2).any(|end| end == b"\n\n")
        {
            return Ok(Some(head));
        }
        if head.len() > REQUEST_MAX {
            return Ok(None);
        }
    }
}

fn write(mut to: &TcpStream, end: Instant, status: &str, kind: &str, body: &str) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let bytes = [head.as_bytes(), body.as_bytes()].concat();
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        to.set_write_timeout(Some(left(end)?))?;
        match to.write(rest)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            len => rest = &rest[len..],
        }
    }
    Ok(())
}
