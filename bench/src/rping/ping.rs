//! One end of a connection of `rping`.
//!
//! ```text
//!   client                              server
//!   SEND  source: address, R_Key, size ──►
//!                                        READ the source
//!                               ◄── SEND go ahead
//!   SEND  sink: address, R_Key, size ────►
//!                                        WRITE to the sink
//!                               ◄── SEND go ahead
//! ```
//!
//! Each SEND has 16 bytes, big endian. Those of a "go ahead" have no meaning. This is one ping; the
//! client disconnects after the last one.
//!
//! Not here: connection set-up.

use super::completions::Completions;
use super::connection::PATIENCE;
use super::text;
use crate::error::{BenchError, Step};
use uroce::{
    AccessFlags, CompletionQueue, MemoryRegion, ProtectionDomain, QpCaps, QpInit, QueuePair,
    RecvWr, RemoteBuffer, Rkey, SendWr, Va,
};

/// Bytes of a SEND: 64 bits of address, 32 of R_Key, 32 of size.
const OFFER: usize = 16;
/// Receives that are posted.
const RECEIVES: u32 = 2;
/// Largest number of completions of a ping: two sends, a READ, a WRITE, and all receives flushed.
const COMPLETIONS: u32 = 16;

/// One end of a connection of `rping`.
pub(super) struct Ping {
    qp: QueuePair,
    completions: Completions,
    /// Memory of the sent message, two received messages, the source and the sink, in this order.
    region: MemoryRegion,
    size: usize,
    posted: u64,
    receives: u64,
}

/// Offsets in the region.
const OUTGOING: usize = 0;
const INCOMING: usize = OFFER;
const SOURCE: usize = OFFER + OFFER * RECEIVES as usize;

impl Ping {
    /// Creates a queue pair, to be connected, and its memory.
    pub(super) fn new(
        pd: &ProtectionDomain,
        cq: CompletionQueue,
        size: usize,
    ) -> Result<Self, BenchError> {
        let access =
            AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
        let region = pd.allocate(SOURCE + 2 * size, access).step("registering memory")?;
        let caps = QpCaps {
            max_send_wr: 4,
            max_recv_wr: RECEIVES,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let init = QpInit { caps, ..QpInit::new(&cq) };
        let qp = pd.create_qp(&init).step("creating a QP")?;
        let completions = Completions::of(cq);
        Ok(Self { qp, completions, region, size, posted: 0, receives: 0 })
    }

    /// Returns the number of entries for the completion queue.
    pub(super) const fn completions() -> u32 {
        COMPLETIONS
    }

    /// Returns the queue pair, to be connected.
    pub(super) fn qp(&mut self) -> &mut QueuePair {
        &mut self.qp
    }

    /// Posts the receives. Called when the queue pair is in INIT.
    pub(super) fn post_receives(&mut self) -> Result<(), BenchError> {
        (0..RECEIVES).try_for_each(|_| self.post_receive())
    }

    /// Runs the client's side of one ping. Returns the data that came back; `None` if the
    /// connection has ended.
    pub(super) fn ping(&mut self, number: u64, check: bool) -> Result<Option<String>, BenchError> {
        let mut sent = vec![0; self.size];
        text::fill(number, &mut sent);
        self.region.write_at(SOURCE, &sent).step("filling memory")?;
        let sink = SOURCE + self.size;
        for offset in [SOURCE, sink] {
            self.offer(offset)?;
            if self.message()?.is_none() {
                return Ok(None);
            }
        }
        let mut back = vec![0; self.size];
        self.region.read_at(sink, &mut back).step("reading memory")?;
        if check && back != sent {
            return Err(BenchError::Corrupt(format!("ping {number} came back changed")));
        }
        self.region.fill(sink.., 0).step("clearing memory")?;
        Ok(Some(text::shown(&back)))
    }

    /// Runs the server's side of one ping. Returns its data; `None` if the connection has ended.
    pub(super) fn pong(&mut self, number: u64, check: bool) -> Result<Option<String>, BenchError> {
        let Some(source) = self.message()? else { return Ok(None) };
        let source = self.offered(source)?;
        let local = [self.region.slice(SOURCE..SOURCE + source.1).step("a slice of memory")?];
        self.qp.post_send(&SendWr::read(&local, source.0).signaled()).step("posting")?;
        self.posted += 1;
        if !self.completions.sent(self.posted, PATIENCE)? {
            return Ok(None);
        }
        let mut ping = vec![0; source.1];
        self.region.read_at(SOURCE, &mut ping).step("reading memory")?;
        let mut wanted = vec![0; source.1];
        text::fill(number, &mut wanted);
        if check && ping != wanted {
            return Err(BenchError::Corrupt(format!("ping {number} is {:?}", text::shown(&ping))));
        }
        self.go_ahead()?;
        let Some(sink) = self.message()? else { return Ok(None) };
        let sink = self.offered(sink)?;
        let local = [self.region.slice(SOURCE..SOURCE + sink.1).step("a slice of memory")?];
        self.qp.post_send(&SendWr::write(&local, sink.0).signaled()).step("posting")?;
        self.posted += 1;
        self.go_ahead()?;
        Ok(Some(text::shown(&ping)))
    }

    /// Waits until all sends are acknowledged, or the connection has ended.
    pub(super) fn settle(&mut self) -> Result<(), BenchError> {
        self.completions.sent(self.posted, PATIENCE).map(|_| ())
    }

    /// Offers the client's memory at an offset.
    fn offer(&mut self, offset: usize) -> Result<(), BenchError> {
        let remote = self.region.remote();
        let mut message = [0; OFFER];
        let address = remote.va.0 + offset as u64;
        message[..8].copy_from_slice(&address.to_be_bytes());
        message[8..12].copy_from_slice(&remote.rkey.0.to_be_bytes());
        message[12..].copy_from_slice(&(self.size as u32).to_be_bytes());
        self.send(&message)
    }

    fn go_ahead(&mut self) -> Result<(), BenchError> {
        self.send(&[0; OFFER])
    }

    fn send(&mut self, message: &[u8; OFFER]) -> Result<(), BenchError> {
        // The memory of the previous message is in use until that has completed.
        if !self.completions.sent(self.posted, PATIENCE)? {
            return Ok(());
        }
        self.region.write_at(OUTGOING, message).step("filling memory")?;
        let local = [self.region.slice(OUTGOING..OFFER).step("a slice of memory")?];
        self.qp.post_send(&SendWr::send(&local).signaled()).step("posting")?;
        self.posted += 1;
        Ok(())
    }

    fn post_receive(&mut self) -> Result<(), BenchError> {
        let slot = INCOMING + OFFER * (self.receives % u64::from(RECEIVES)) as usize;
        let local = [self.region.slice(slot..slot + OFFER).step("a slice of memory")?];
        let receive = RecvWr::new(&local).id(slot as u64);
        self.qp.post_recv(&receive).step("posting a receive request")?;
        self.receives += 1;
        Ok(())
    }

    /// Waits for the peer's next message; `None` if the connection has ended.
    fn message(&mut self) -> Result<Option<[u8; OFFER]>, BenchError> {
        let Some(completion) = self.completions.receive(PATIENCE)? else { return Ok(None) };
        if completion.byte_len as usize != OFFER {
            let len = completion.byte_len;
            return Err(BenchError::Corrupt(format!("a message of {len} bytes instead of 16")));
        }
        let mut message = [0; OFFER];
        self.region.read_at(completion.wr_id as usize, &mut message).step("reading memory")?;
        self.post_receive()?;
        Ok(Some(message))
    }

    /// Decodes the offer of the client's memory, and checks its size.
    fn offered(&self, message: [u8; OFFER]) -> Result<(RemoteBuffer, usize), BenchError> {
        let (va, rest) = message.split_at(8);
        let (rkey, len) = rest.split_at(4);
        let len = u32::from_be_bytes(len.try_into().unwrap_or_default());
        if len as usize > self.size {
            let size = self.size;
            return Err(BenchError::Corrupt(format!(
                "the client's pings have {len} bytes; -S {size}"
            )));
        }
        let remote = RemoteBuffer {
            va: Va(u64::from_be_bytes(va.try_into().unwrap_or_default())),
            rkey: Rkey(u32::from_be_bytes(rkey.try_into().unwrap_or_default())),
            len: u64::from(len),
        };
        Ok((remote, len as usize))
    }
}
