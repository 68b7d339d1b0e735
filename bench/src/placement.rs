//! `placement`: data that is written, flushed and announced by an ATOMIC WRITE, and checked where
//! it was placed.
//!
//! ```text
//!   client                                   server
//!   WRITE of the round's data ────────────►
//!   FLUSH of them, or of the region ──────►
//!   ATOMIC WRITE of the round's number ───►  waits for the number, checks the data
//!                           ◄── TCP ──────   number
//! ```
//!
//! The other end is uroce-perf, or the laboratory's program for Soft-RoCE. Each introduces itself
//! in a line of JSON ([`Link`]).
//!
//! Invariants
//! - All requests complete with success and in order, and each completion has its own opcode.
//! - The server has the data of a round when it sees the round's number, because WRITE and FLUSH
//!   come before the ATOMIC WRITE.

use crate::cli::{PlacementArgs, Wrong};
use crate::error::{BenchError, Step};
use crate::node::{Drive, Node, PORT};
use crate::pin::Side;
use crate::rendezvous::{Link, Listener, PATIENCE, connect};
use serde::{Deserialize, Serialize};
use std::iter;
use std::time::Instant;
use uroce::{
    AccessFlags, CompletionQueue, ConnectOptions, Endpoint, Gid, MemoryRegion, PathMtu, Placement,
    Psn, QpCaps, QpInit, Qpn, QueuePair, RemoteBuffer, Rkey, SendWr, Va, WcOpcode, WcStatus,
    WorkCompletion,
};

/// Requests of a round.
const REQUESTS: u32 = 3;
/// READs, ATOMICs, ATOMIC WRITEs and FLUSHes at once, as Soft-RoCE's end has them.
const RD_ATOMIC: u8 = 8;
/// Rounds after which a FLUSH is one of the whole region.
const REGION_EVERY: u64 = 4;
/// Factors of the pattern.
const OF_ROUND: u64 = 0x9e37_79b9_7f4a_7c15;
const OF_PLACE: u64 = 0xbf58_476d_1ce4_e5b9;

/// Runs the subcommand.
pub(crate) fn run(args: &PlacementArgs) -> Result<(), BenchError> {
    let mtu = PathMtu::from_bytes(args.mtu)
        .ok_or_else(|| BenchError::usage("-m must be 256, 512, 1024, 2048 or 4096"))?;
    let side = if args.server_host.is_some() { Side::Client } else { Side::Server };
    let listener = match side {
        Side::Server => Some(Listener::bind(args.port)?),
        Side::Client => None,
    };
    let node = Node::open(&args.device, side, Some(args.mtu), args.gid_index)?;
    let before = node.retransmissions()?;
    let stream = match (&listener, &args.server_host) {
        (Some(listener), _) => listener.accept()?,
        (None, host) => connect(host.as_deref().unwrap_or_default(), args.port)?,
    };
    let mut link = Link::tcp(stream)?;
    let begin = Instant::now();
    let done = End::meet(&node, args, mtu, &mut link).and_then(|mut end| end.play(&mut link));
    if let Err(error) = &done {
        link.send_failure(error);
    }
    let refused = done?;
    println!("{} rounds checked", args.rounds);
    if args.json {
        let report = serde_json::json!({
            "test": "placement",
            "verified": true,
            "refused": refused.map(|status| status.to_string()),
            "rounds": args.rounds,
            "size": args.size,
            "mtu": args.mtu,
            "seconds": begin.elapsed().as_secs_f64(),
            "retransmissions": node.retransmissions()? - before,
            "lost": node.lost()?,
        });
        println!("{report}");
    }
    Ok(())
}

/// What an end sends about itself.
#[derive(Debug, Serialize, Deserialize)]
struct Introduction {
    qpn: u32,
    psn: u32,
    /// The GID's 32 hexadecimal digits.
    gid: String,
    va: u64,
    rkey: u32,
    len: u64,
}

impl Introduction {
    fn of(endpoint: Endpoint, memory: RemoteBuffer) -> Self {
        Self {
            qpn: endpoint.qpn.value(),
            psn: endpoint.psn.value(),
            gid: format!("{:032x}", u128::from_be_bytes(endpoint.gid.0)),
            va: memory.va.0,
            rkey: memory.rkey.0,
            len: memory.len,
        }
    }

    /// Returns the other end's queue pair and memory.
    fn read(&self) -> Result<(Endpoint, RemoteBuffer), BenchError> {
        let gid = u128::from_str_radix(&self.gid, 16)
            .map_err(|_| BenchError::Peer(format!("it has no GID {:?}", self.gid)))?;
        let endpoint = Endpoint {
            gid: Gid(gid.to_be_bytes()),
            qpn: Qpn::new(self.qpn),
            psn: Psn::new(self.psn),
        };
        let memory = RemoteBuffer { va: Va(self.va), rkey: Rkey(self.rkey), len: self.len };
        Ok((endpoint, memory))
    }
}

/// A connected end and its memory: the data, then the word.
struct End<'a> {
    args: &'a PlacementArgs,
    side: Side,
    drive: Drive,
    qp: QueuePair,
    cq: CompletionQueue,
    region: MemoryRegion,
    remote: RemoteBuffer,
}

impl<'a> End<'a> {
    /// Creates this end and connects it to the other one.
    fn meet(
        node: &Node,
        args: &'a PlacementArgs,
        mtu: PathMtu,
        link: &mut Link,
    ) -> Result<Self, BenchError> {
        let pd = node.context.allocate_pd();
        let access =
            AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::FLUSH_GLOBAL;
        let region = pd.allocate(word_at(args.size) + 8, access).step("registering memory")?;
        let cq = node.context.create_cq(2 * REQUESTS).step("creating a CQ")?;
        let caps = QpCaps {
            max_send_wr: REQUESTS,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 8,
        };
        let mut qp = pd.create_qp(&QpInit { caps, ..QpInit::new(&cq) }).step("creating a QP")?;
        let endpoint = qp.endpoint(PORT, args.gid_index).step("our address")?;
        let ours = Introduction::of(endpoint, region.remote());
        // The server's queue pair can receive before its introduction is sent.
        if node.side == Side::Client {
            link.send(&ours)?;
        }
        let theirs: Introduction = link.receive("waiting for the other end", || ())?;
        let (peer, remote) = theirs.read()?;
        if remote.len != ours.len {
            let text = format!("-s: {} and {} bytes of memory", ours.len, remote.len);
            return Err(BenchError::Disagree(text));
        }
        let options = ConnectOptions {
            sgid_index: args.gid_index,
            path_mtu: Some(mtu),
            access: AccessFlags::REMOTE_WRITE | AccessFlags::FLUSH_GLOBAL,
            timeout: args.qp_timeout,
            max_rd_atomic: RD_ATOMIC,
            max_dest_rd_atomic: RD_ATOMIC,
            ..ConnectOptions::default()
        };
        qp.connect(&peer, &options).step("connecting")?;
        if node.side == Side::Server {
            link.send(&ours)?;
        }
        let drive = node.drive()?;
        Ok(Self { args, side: node.side, drive, qp, cq, region, remote })
    }

    /// Runs all rounds. Returns the status of the request that was refused, if there was one.
    fn play(&mut self, link: &mut Link) -> Result<Option<WcStatus>, BenchError> {
        match self.side {
            Side::Client => self.ask(link),
            Side::Server => self.serve(link).map(|()| None),
        }
    }

    fn ask(&mut self, link: &mut Link) -> Result<Option<WcStatus>, BenchError> {
        let mut bytes = vec![0; self.args.size as usize];
        for round in 1..=self.args.rounds {
            fill(round, &mut bytes);
            self.region.write_at(0, &bytes).step("filling memory")?;
            self.post(round)?;
            for opcode in self.opcodes() {
                let completion = self.completion()?;
                completion
                    .ok()
                    .map_err(|status| BenchError::Completion { operation: "a round", status })?;
                if completion.opcode != opcode {
                    let text = format!("{:?} completed before {opcode:?}", completion.opcode);
                    return Err(BenchError::Corrupt(text));
                }
            }
            let waiting = "waiting for the server to check a round";
            let checked: u64 = link.receive(waiting, || self.drive.turn())?;
            if checked != round {
                return Err(BenchError::Peer(format!("it has checked {checked}, not {round}")));
            }
        }
        let refused = self.refused()?;
        link.send(&true)?;
        Ok(refused)
    }

    /// Posts the requests of a round.
    fn post(&mut self, round: u64) -> Result<(), BenchError> {
        let size = self.args.size as usize;
        self.region.store_u64(word_at(self.args.size), round).step("the number")?;
        let data = [self.region.slice(..size).step("a slice of memory")?];
        let number = [self.region.slice(word_at(self.args.size)..).step("a slice of memory")?];
        let written = self.remote.slice(0, size as u64).step("the server's memory")?;
        let word =
            self.remote.slice(word_at(self.args.size) as u64, 8).step("the server's word")?;
        let flush = match round.is_multiple_of(REGION_EVERY) {
            true => SendWr::flush_region(written, Placement::GLOBAL),
            false => SendWr::flush(written, Placement::GLOBAL),
        };
        let mut announced = SendWr::atomic_write(&number, word).signaled();
        if round.is_multiple_of(2) {
            announced = announced.inline();
        }
        let flush = (!self.args.unflushed).then(|| flush.signaled());
        let requests = iter::once(SendWr::write(&data, written).signaled()).chain(flush);
        self.qp.post_sends(requests.chain([announced])).step("posting a round")
    }

    /// Returns the opcodes of a round's completions, in their order.
    fn opcodes(&self) -> impl Iterator<Item = WcOpcode> + use<> {
        let unflushed = self.args.unflushed;
        [WcOpcode::RdmaWrite, WcOpcode::Flush, WcOpcode::AtomicWrite]
            .into_iter()
            .filter(move |&opcode| !(unflushed && opcode == WcOpcode::Flush))
    }

    /// Posts the wrong request and checks the status of its completion.
    fn refused(&mut self) -> Result<Option<WcStatus>, BenchError> {
        let (word, RemoteBuffer { va, rkey, len }) = (word_at(self.args.size), self.remote);
        let number = [self.region.slice(word..).step("a slice of memory")?];
        let (request, wanted) = match self.args.wrong {
            Wrong::None => return Ok(None),
            Wrong::Address => {
                let beside = self.remote.slice(word as u64 - 4, 8).step("the server's word")?;
                (SendWr::atomic_write(&number, beside), WcStatus::RemInvReqErr)
            }
            Wrong::Range => {
                let beyond = RemoteBuffer { va, rkey, len: len + 1 };
                (SendWr::flush(beyond, Placement::GLOBAL), WcStatus::RemAccessErr)
            }
            Wrong::Rights => {
                (SendWr::flush(self.remote, Placement::PERSISTENT), WcStatus::RemInvReqErr)
            }
        };
        self.qp.post_send(&request.signaled()).step("posting the wrong request")?;
        let status = self.completion()?.status;
        if status != wanted {
            let text = format!("the wrong request ended with: {status}, instead of: {wanted}");
            return Err(BenchError::Corrupt(text));
        }
        Ok(Some(status))
    }

    fn completion(&mut self) -> Result<WorkCompletion, BenchError> {
        let begin = Instant::now();
        let mut one = [WorkCompletion::default()];
        while self.cq.poll(&mut one).step("polling a CQ")? == 0 {
            late(begin, "waiting for a completion")?;
            self.drive.turn();
        }
        Ok(one[0])
    }

    fn serve(&mut self, link: &mut Link) -> Result<(), BenchError> {
        let mut bytes = vec![0; self.args.size as usize];
        let mut expected = bytes.clone();
        for round in 1..=self.args.rounds {
            let number = self.number_after(round - 1)?;
            if number != round {
                let text = format!("round {round}: the word has {number:#x}");
                return Err(BenchError::Corrupt(text));
            }
            self.region.read_at(0, &mut bytes).step("reading memory")?;
            fill(round, &mut expected);
            if let Some(at) = bytes.iter().zip(&expected).position(|(is, should)| is != should) {
                let text = format!("round {round}: byte {at} is wrong");
                return Err(BenchError::Corrupt(text));
            }
            link.send(&round)?;
        }
        let waiting = "waiting for the client's last completions";
        match link.receive(waiting, || self.drive.turn())? {
            true => Ok(()),
            false => Err(BenchError::Peer("it has not seen all completions".to_owned())),
        }
    }

    /// Waits until the word no longer has the number of the round before, and returns it.
    fn number_after(&mut self, before: u64) -> Result<u64, BenchError> {
        let begin = Instant::now();
        loop {
            let number = self.region.load_u64(word_at(self.args.size)).step("reading the word")?;
            if number != before {
                return Ok(number);
            }
            late(begin, "waiting for the round's number")?;
            self.drive.turn();
        }
    }
}

/// Returns an error if a wait has been too long.
fn late(begin: Instant, waiting: &'static str) -> Result<(), BenchError> {
    if begin.elapsed() > PATIENCE {
        return Err(BenchError::TimedOut { waiting, limit: PATIENCE });
    }
    Ok(())
}

/// Returns the offset of the word behind the data.
fn word_at(size: u32) -> usize {
    (size as usize).next_multiple_of(8)
}

/// Writes the data of a round.
fn fill(round: u64, bytes: &mut [u8]) {
    for (place, chunk) in (0u64..).zip(bytes.chunks_mut(8)) {
        let word = round.wrapping_mul(OF_ROUND).wrapping_add(place.wrapping_mul(OF_PLACE));
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_is_aligned_and_behind_the_data() {
        assert_eq!([1, 8, 9, 4096].map(word_at), [8, 8, 16, 4096]);
    }

    #[test]
    fn an_introduction_is_read_as_it_was_written() {
        let endpoint = Endpoint { gid: Gid([7; 16]), qpn: Qpn::new(17), psn: Psn::new(0xabcdef) };
        let memory = RemoteBuffer { va: Va(1 << 47), rkey: Rkey(0x1234), len: 4104 };
        let text = serde_json::to_string(&Introduction::of(endpoint, memory)).expect("writes");
        // The laboratory's program reads the fields in this order.
        let wanted = format!(
            "{{\"qpn\":17,\"psn\":11259375,\"gid\":\"{}\",\"va\":{},\"rkey\":4660,\"len\":4104}}",
            "07".repeat(16),
            1u64 << 47
        );
        assert_eq!(text, wanted);
        let read: Introduction = serde_json::from_str(&text).expect("reads");
        assert_eq!(read.read().expect("is complete"), (endpoint, memory));
        let strange = Introduction { gid: "no".into(), ..read };
        assert!(strange.read().is_err());
    }

    #[test]
    fn rounds_differ_in_each_byte_of_a_word_somewhere() {
        let (mut first, mut second) = (vec![0; 1000], vec![0; 1000]);
        fill(1, &mut first);
        fill(2, &mut second);
        for lane in 0..8 {
            assert!((lane..1000).step_by(8).any(|at| first[at] != second[at]), "byte {lane}");
        }
    }
}
