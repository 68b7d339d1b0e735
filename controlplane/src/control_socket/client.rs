//! A client: its connection, the bytes that it has sent, and the answer in progress.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::PollFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg};
use uroce_command::frame::{self, Decoder, FrameError};
use uroce_command::{Refusal, Reply, Request};

use super::Served;
use super::answer::{Kept, Work};
use super::own::Own;

/// A connected client. It sends requests and gets their replies one after the other.
pub(super) struct Client {
    stream: Own<UnixStream>,
    inbox: Decoder,
    /// The descriptor that came last. It belongs to the request that is being received.
    file: Option<OwnedFd>,
    /// The frame that is being sent, and how many of its bytes are sent.
    outbox: Vec<u8>,
    sent: usize,
    work: Option<Work>,
    /// An answer is in progress: the next frame is made as soon as this one is sent.
    is_busy: bool,
    /// A command is in progress and has to be tried again after a pause.
    is_waiting: bool,
    /// The connection ends when the outbox is sent.
    is_last: bool,
    /// Time of the last byte from or to the client.
    pub(super) active: Instant,
}

impl Client {
    /// Takes over an accepted connection.
    ///
    /// # Errors
    ///
    /// A system call has failed.
    pub(super) fn new(stream: UnixStream, now: Instant) -> io::Result<Client> {
        stream.set_nonblocking(true)?;
        Ok(Client {
            stream: Own::new(stream)?,
            inbox: Decoder::new(frame::REQUEST_MAX),
            file: None,
            outbox: Vec::new(),
            sent: 0,
            work: None,
            is_busy: false,
            is_waiting: false,
            is_last: false,
            active: now,
        })
    }

    /// Returns whether a command of the client has to be tried again after a pause.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Returns the descriptor and what to wait for: the end of the connection while a command is in
    /// progress, room while there is something to send, otherwise a request.
    pub(super) fn waits_for(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let has_to_send = self.is_busy || !self.outbox.is_empty();
        let flags = match (self.is_waiting, has_to_send) {
            (true, _) => PollFlags::RDHUP,
            (false, true) => PollFlags::OUT,
            (false, false) => PollFlags::IN,
        };
        self.stream.unchecked().map(|fd| (fd, flags))
    }

    /// Handles what has happened at the connection, and makes at most one frame. Returns false if
    /// the connection is over.
    pub(super) fn serve(&mut self, now: Instant, devices: &[Arc<Served>], kept: &mut Kept) -> bool {
        self.active = now;
        let is_alive = match (self.outbox.is_empty(), self.is_busy) {
            (false, _) => self.send(),
            (true, true) => true,
            (true, false) => self.receive(),
        };
        is_alive && (!self.outbox.is_empty() || self.answer(devices, kept))
    }

    /// Reads what has arrived, at most a few kilobytes. Returns false if the connection is over.
    fn receive(&mut self) -> bool {
        let Some(stream) = self.stream.get() else { return false };
        let mut bytes = [0; frame::REQUEST_MAX];
        // The kernel closes descriptors for which this has no room.
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut buffers = [IoSliceMut::new(&mut bytes)];
        match recvmsg(stream, &mut buffers, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) if received.bytes == 0 => false,
            Ok(received) => {
                for message in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(files) = message {
                        self.file = files.last().or(self.file.take());
                    }
                }
                self.inbox.push(&bytes[..received.bytes]);
                true
            }
            Err(error) => is_for_now(error),
        }
    }

    /// Sends as much of the outbox as the connection takes. Returns false if the connection is
    /// over.
    fn send(&mut self) -> bool {
        let Some(stream) = self.stream.get() else { return false };
        // Without this flag, a client that has disconnected would end a program that does not
        // ignore SIGPIPE.
        match rustix::net::send(stream, &self.outbox[self.sent..], SendFlags::NOSIGNAL) {
            Ok(len) => {
                self.sent += len;
                if self.sent == self.outbox.len() {
                    (self.outbox, self.sent) = (Vec::new(), 0);
                    return !self.is_last;
                }
                true
            }
            Err(error) => is_for_now(error),
        }
    }

    /// Makes the next frame of the answer in progress, or of the next request, and begins to send
    /// it.
    pub(super) fn answer(&mut self, devices: &[Arc<Served>], kept: &mut Kept) -> bool {
        self.is_busy = true;
        if self.work.is_none() {
            match self.inbox.take::<Request>() {
                Ok(None) => {
                    self.is_busy = false;
                    return true;
                }
                Ok(Some(request)) => self.work = Some(Work::new(request, self.file.take())),
                Err(error) => {
                    // After a wrong length, the rest of the stream cannot be read.
                    self.is_last = matches!(error, FrameError::TooLong { .. });
                    let refusal = Refusal::NotUnderstood(error.to_string());
                    return self.reply(&Reply::Refused(refusal));
                }
            }
        }
        let Some(work) = &mut self.work else { return true };
        let reply = work.step(devices, kept);
        self.is_waiting = reply.is_none();
        let Some(reply) = reply else { return true };
        if !matches!(reply, Reply::More(_)) {
            self.work = None;
        }
        self.reply(&reply)
    }

    fn reply(&mut self, reply: &Reply) -> bool {
        let frame = frame::encode(reply, frame::REPLY_MAX).or_else(|error| {
            self.work = None;
            let refusal = Refusal::Failed(format!("the answer cannot be sent: {error}"));
            frame::encode(&Reply::Refused(refusal), frame::REPLY_MAX)
        });
        // The text of a refusal is short.
        let Ok(frame) = frame else { return false };
        self.outbox = frame;
        self.send()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.get() {
            // A forked child of the program may have a copy of the descriptor, so closing ours
            // would not end the connection. This fails if the client has disconnected.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Tells whether an error only means that the connection is not ready yet.
fn is_for_now(error: rustix::io::Errno) -> bool {
    matches!(error, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_connection_ends_although_a_forked_child_has_a_copy_of_it() {
        let (mut near, far) = UnixStream::pair().unwrap();
        near.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        let _copy = far.try_clone().unwrap();
        drop(Client::new(far, Instant::now()).unwrap());
        assert_eq!(near.read(&mut [0]).unwrap(), 0);
    }
}
