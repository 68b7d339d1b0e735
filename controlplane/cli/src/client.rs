//! A connection to a process.

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, sendmsg, socket_with,
};
use uroce_command::frame::{self, Decoder, FrameError};
use uroce_command::peer::{Peer, is_orphan, peer};
use uroce_command::{Answer, Refusal, Reply, Request};

/// Longest wait for a part of an answer: longer than a process waits for its lcores.
const PATIENCE: Duration = Duration::from_secs(70);
/// Longest answer in bytes. The state of a million QPs is shorter.
const ANSWER_MAX: usize = 1 << 30;

/// Reason for which there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// There is no such process, or it does not use uroce.
    #[error("{0}")]
    NoProcess(String),
    /// The process is another user's.
    #[error("{0}: permission denied")]
    Denied(String),
    /// The system refused the connection.
    #[error("{}: {error}", path.display())]
    Connect { path: PathBuf, error: io::Error },
    /// The connection has ended.
    #[error("the process has ended, or closed its last device")]
    Ended,
    /// The process is silent.
    #[error("the process does not answer")]
    Silent,
    /// The connection failed.
    #[error("connection lost: {0}")]
    Lost(io::Error),
    /// The reply is not one of this release.
    #[error("the reply is not understood; the process is of another release: {0}")]
    Strange(String),
    /// The process refused the request.
    #[error("{0}")]
    Refused(Refusal),
}

/// A connection to a process.
#[derive(Debug)]
pub(crate) struct Client {
    path: PathBuf,
    stream: UnixStream,
    peer: Peer,
    inbox: Decoder,
    /// Time after which answers are not waited for.
    deadline: Option<Instant>,
    /// Longest answer in bytes.
    answer_max: usize,
}

impl Client {
    /// Connects to a control socket. Waits at most [`PATIENCE`] for each part of an answer.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub(crate) fn connect(path: &Path) -> Result<Client, ClientError> {
        Client::connect_within(path, PATIENCE)
    }

    /// Connects to a control socket. The connection and all answers must come within `patience`.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub(crate) fn connect_for(path: &Path, patience: Duration) -> Result<Client, ClientError> {
        let deadline = Some(Instant::now() + patience);
        Ok(Client { deadline, ..Client::connect_within(path, patience)? })
    }

    /// Connects to a control socket. Waits at most `patience` for the connection, and for each part
    /// of an answer.
    fn connect_within(path: &Path, patience: Duration) -> Result<Client, ClientError> {
        let ended = || {
            ClientError::NoProcess(format!(
                "{}: its process has ended; `uroce ps` lists those that run",
                path.display()
            ))
        };
        let stream = connect(path, patience).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => ClientError::Silent,
            io::ErrorKind::PermissionDenied => {
                ClientError::Denied(format!("{} is another user's", path.display()))
            }
            io::ErrorKind::ConnectionRefused => ended(),
            _ => ClientError::Connect { path: path.to_owned(), error },
        })?;
        let peer = owner(&stream)?;
        if is_orphan(&stream) {
            return Err(ended());
        }
        let inbox = Decoder::new(frame::REPLY_MAX);
        let (path, answer_max) = (path.to_owned(), ANSWER_MAX);
        Ok(Client { path, stream, peer, inbox, deadline: None, answer_max })
    }

    /// Limits the answers to so many bytes.
    pub(crate) fn limit(&mut self, bytes: usize) {
        self.answer_max = bytes;
    }

    /// Returns the process, as the system describes it.
    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    /// Returns the path of the socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Sends a request and returns its whole answer.
    ///
    /// # Errors
    ///
    /// See [`ClientError`]. After all but [`ClientError::Refused`] the connection is of no use.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Answer, ClientError> {
        self.ask_with(request, None)
    }

    /// Sends a request and a descriptor, which comes with its first byte. Returns the whole answer.
    ///
    /// # Errors
    ///
    /// See [`ask`](Client::ask).
    pub(crate) fn ask_with(
        &mut self,
        request: &Request,
        file: Option<&File>,
    ) -> Result<Answer, ClientError> {
        let request = frame::encode(request, frame::REQUEST_MAX)
            .map_err(|error| ClientError::Strange(error.to_string()))?;
        let mut sent = 0;
        if let Some(file) = file {
            sent = send_with(&self.stream, &request, file).map_err(lost)?;
        }
        self.stream.write_all(&request[sent..]).map_err(lost)?;
        let (mut joined, mut size) = (Answer::Done, 0);
        loop {
            let (part, is_last) = match self.reply(&mut size)? {
                Reply::More(part) => (part, false),
                Reply::Last(part) => (part, true),
                Reply::Refused(refusal) => return Err(ClientError::Refused(refusal)),
            };
            if !joined.join(part) {
                return Err(ClientError::Strange("parts do not fit".to_owned()));
            }
            if is_last {
                return Ok(joined);
            }
        }
    }

    /// Asks as [`ask_with`](Client::ask_with) does, over a new connection if this one has ended: a
    /// process closes that of a client that has been silent for long if many others come.
    ///
    /// # Errors
    ///
    /// See [`ask`](Client::ask).
    pub(crate) fn ask_anew(
        &mut self,
        request: &Request,
        file: Option<&File>,
    ) -> Result<Answer, ClientError> {
        match self.ask_with(request, file) {
            Err(ClientError::Ended) if let Ok(again) = Client::connect(&self.path) => {
                *self = again;
                self.ask_with(request, file)
            }
            answer => answer,
        }
    }

    fn reply(&mut self, size: &mut usize) -> Result<Reply, ClientError> {
        let strange = |error: FrameError| ClientError::Strange(error.to_string());
        let mut bytes = vec![0; 1 << 16];
        loop {
            if let Some(reply) = self.inbox.take().map_err(strange)? {
                return Ok(reply);
            }
            match self.stream.read(&mut bytes).map_err(lost)? {
                0 => return Err(ClientError::Ended),
                len => {
                    *size += len;
                    self.inbox.push(&bytes[..len]);
                }
            }
            if *size > self.answer_max {
                return Err(ClientError::Strange("the answer does not end".to_owned()));
            }
            if self.deadline.is_some_and(|deadline| Instant::now() > deadline) {
                return Err(ClientError::Silent);
            }
        }
    }
}

/// Sends the begin of a request with a descriptor. Returns how many bytes.
fn send_with(stream: &UnixStream, request: &[u8], file: &File) -> io::Result<usize> {
    let files = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&files));
    Ok(sendmsg(stream, &[IoSlice::new(request)], &mut control, SendFlags::NOSIGNAL)?)
}

/// Connects a socket with these limits of its waits: a process that accepts no connection is waited
/// for, too.
fn connect(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    for direction in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&socket, direction, Some(patience))?;
    }
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

/// Returns the process at the other end, if it is this user's: no other user can pose as it. Root
/// may talk to any process.
fn owner(stream: &UnixStream) -> Result<Peer, ClientError> {
    let user = rustix::process::geteuid().as_raw();
    let peer = peer(stream).map_err(ClientError::Lost)?;
    if user == 0 || [user, 0].contains(&peer.uid) {
        return Ok(peer);
    }
    Err(ClientError::Denied(format!("the process is user {}'s", peer.uid)))
}

fn lost(error: io::Error) -> ClientError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ClientError::Silent,
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ClientError::Ended,
        _ => ClientError::Lost(error),
    }
}
