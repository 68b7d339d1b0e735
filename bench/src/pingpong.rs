//! `rc_pingpong`, `uc_pingpong`, `ud_pingpong`: messages to and fro with ibverbs-utils' program of
//! that name behind `ibv_`, or with uroce-perf.
//!
//! The client sends first, and each side answers what it receives, `-n` times. Addresses are
//! exchanged over TCP as in that program ([`address`]). [`check`] has the checks of `-c`,
//! [`service`] the differences between the services.
//!
//! Invariants
//! - A side sends its next message when it has received the peer's and its own last one is
//!   completed, as in the stock program.
//! - After its last message an end stays for a while, so that it can acknowledge again if an
//!   acknowledgement was lost.
//!
//! Not here: the stock program's options for other devices (on-demand paging, device memory).

mod address;
mod check;
mod service;

pub(crate) use service::Service;

use crate::cli::PingpongArgs;
use crate::error::{BenchError, Step};
use crate::node::{Drive, Node, PORT};
use crate::pin::Side;
use crate::rendezvous::{Listener, PATIENCE, connect};
use address::Address;
use check::{Checker, Role};
use service::Way;
use std::net::TcpStream;
use std::time::{Duration, Instant};
use uroce::{
    AccessFlags, Arm, CompletionChannel, CompletionQueue, ConnectOptions, MemoryRegion, PathMtu,
    ProtectionDomain, QpCaps, QpInit, QueuePair, RecvWr, WcOpcode, WcStatus, WorkCompletion,
};

/// QP attributes of the stock program.
const RETRIES: u8 = 7;
const RNR_TIMER: u8 = 12;
const RD_ATOMIC: u8 = 1;
/// Time for which an end stays after its last message if frames are lost: some ACK timeouts.
const LINGER_LOSSY: Duration = Duration::from_millis(1500);
/// Time for which an end stays after its last message if no frames are lost.
const LINGER: Duration = Duration::from_millis(20);
/// Longest wait for data on a socket.
const SOCKET_PATIENCE: Duration = Duration::from_secs(60);

/// Runs the subcommand.
pub(crate) fn run(args: &PingpongArgs, service: Service) -> Result<(), BenchError> {
    let mtu = PathMtu::from_bytes(args.mtu)
        .ok_or_else(|| BenchError::usage("-m must be 256, 512, 1024, 2048 or 4096"))?;
    service.check_size(args.size, args.mtu)?;
    let side = if args.server_host.is_some() { Side::Client } else { Side::Server };
    let mut device = args.device.clone();
    // An application that sleeps on events cannot drive the lcore.
    device.lcore_thread |= args.events;
    // The socket listens first: a client that reaches it will also reach the device.
    let listener = match side {
        Side::Server => Some(Listener::bind(args.port)?),
        Side::Client => None,
    };
    let node = Node::open(&device, side, Some(args.mtu), args.gid_index)?;
    let before = node.retransmissions()?;
    let mut end = End::new(&node, args, service)?;
    let exchange = match (&listener, &args.server_host) {
        (Some(listener), _) => end.meet_client(&node, listener, mtu)?,
        (None, host) => {
            end.meet_server(&node, host.as_deref().unwrap_or_default(), args.port, mtu)?
        }
    };
    drop(exchange);
    let mut drive = node.drive()?;
    let elapsed = end.play(&mut drive)?;
    end.linger(&mut drive, &device);
    drop(drive);
    let outcome = Outcome {
        elapsed,
        retransmissions: node.retransmissions()? - before,
        lost: node.lost()?,
        unacknowledged: end.unacknowledged,
    };
    report(args, service, side, &outcome);
    Ok(())
}

/// Result of a run.
struct Outcome {
    elapsed: Duration,
    retransmissions: u64,
    /// Frames dropped by `--loss-rx` and `--loss-tx`.
    lost: u64,
    /// See [`End::unacknowledged`].
    unacknowledged: bool,
}

/// One end: its queue pair, its memory (the sent message, then the received one) and its counts.
struct End<'a> {
    args: &'a PingpongArgs,
    service: Service,
    pd: ProtectionDomain,
    qp: QueuePair,
    /// Path to the peer, once it is connected.
    way: Option<Way>,
    region: MemoryRegion,
    cq: CompletionQueue,
    channel: Option<CompletionChannel>,
    checker: Checker,
    size: usize,
    receives: u32,
    received: u64,
    sent: u64,
    /// The acknowledgement of the last message did not arrive, but all messages of the peer did.
    unacknowledged: bool,
}

impl<'a> End<'a> {
    fn new(node: &Node, args: &'a PingpongArgs, service: Service) -> Result<Self, BenchError> {
        let context = &node.context;
        let size = args.size as usize;
        let pd = context.allocate_pd();
        let room = 2 * size + service.ahead();
        let region = pd.allocate(room, AccessFlags::LOCAL_WRITE).step("registering memory")?;
        let depth = args.rx_depth + 1;
        let channel = args.events.then(|| context.create_channel()).transpose();
        let channel = channel.step("creating a completion channel")?;
        let cq = match &channel {
            Some(channel) => context.create_cq_on(depth, channel),
            None => context.create_cq(depth),
        };
        let cq = cq.step("creating a CQ")?;
        let caps = QpCaps {
            max_send_wr: 1,
            max_recv_wr: args.rx_depth,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let init = QpInit { caps, ..QpInit::new(&cq).qp_type(service.qp_type()) };
        let qp = pd.create_qp(&init).step("creating a QP")?;
        let role = match node.side {
            Side::Client => Role::Client,
            Side::Server => Role::Server,
        };
        Ok(Self {
            args,
            service,
            pd,
            qp,
            way: None,
            region,
            cq,
            channel,
            checker: Checker::new(role, size, args.chk),
            size,
            receives: 0,
            received: 0,
            sent: 0,
            unacknowledged: false,
        })
    }

    /// Runs the server's half of the exchange. It connects before it sends its address.
    fn meet_client(
        &mut self,
        node: &Node,
        listener: &Listener,
        mtu: PathMtu,
    ) -> Result<TcpStream, BenchError> {
        let local = self.address(node)?;
        println!("  local address:  {local}");
        let mut stream = listener.accept()?;
        patience(&stream)?;
        let remote = Address::read(&mut stream)?;
        self.connect(node, &remote, mtu)?;
        local.write(&mut stream)?;
        address::read_done(&mut stream)?;
        println!("  remote address: {remote}");
        Ok(stream)
    }

    /// Runs the client's half of the exchange.
    fn meet_server(
        &mut self,
        node: &Node,
        host: &str,
        port: u16,
        mtu: PathMtu,
    ) -> Result<TcpStream, BenchError> {
        let local = self.address(node)?;
        println!("  local address:  {local}");
        let mut stream = connect(host, port)?;
        patience(&stream)?;
        local.write(&mut stream)?;
        let remote = Address::read(&mut stream)?;
        address::write_done(&mut stream)?;
        println!("  remote address: {remote}");
        self.connect(node, &remote, mtu)?;
        Ok(stream)
    }

    fn address(&self, node: &Node) -> Result<Address, BenchError> {
        Ok(Address(self.qp.endpoint(PORT, node.gid_index).step("our address")?))
    }

    fn connect(&mut self, node: &Node, to: &Address, mtu: PathMtu) -> Result<(), BenchError> {
        let options = ConnectOptions {
            sgid_index: node.gid_index,
            path_mtu: Some(mtu),
            timeout: self.args.qp_timeout,
            retry_cnt: RETRIES,
            rnr_retry: RETRIES,
            min_rnr_timer: RNR_TIMER,
            max_rd_atomic: RD_ATOMIC,
            max_dest_rd_atomic: RD_ATOMIC,
            ..ConnectOptions::default()
        };
        let way = self.service.connect(node, &self.pd, &mut self.qp, to, &options)?;
        self.way = Some(way);
        self.post_receives()
    }

    fn post_receives(&mut self) -> Result<(), BenchError> {
        let target = [self.region.slice(self.size..).step("a slice of memory")?];
        while self.receives < self.args.rx_depth {
            self.qp.post_recv(&RecvWr::new(&target)).step("posting a receive request")?;
            self.receives += 1;
        }
        Ok(())
    }

    fn post_send(&mut self) -> Result<(), BenchError> {
        let message = self.checker.outgoing(self.sent);
        self.region.write_at(0, message).step("filling memory")?;
        let local = [self.region.slice(..self.size).step("a slice of memory")?];
        if let Some(way) = &self.way {
            self.qp.post_send(&way.send(&local).signaled()).step("posting")?;
            self.sent += 1;
        }
        Ok(())
    }

    /// Exchanges the messages and returns the time that they took.
    fn play(&mut self, drive: &mut Drive) -> Result<Duration, BenchError> {
        let begin = Instant::now();
        let (mut completed, iterations) = (0, self.args.iters);
        if self.checker.role() == Role::Client {
            self.post_send()?;
        }
        let (mut moved, mut turns) = (Instant::now(), 0u32);
        while self.received < iterations || completed < iterations {
            let progress = self.turn(drive, &mut completed)?;
            turns = turns.wrapping_add(1);
            if progress {
                moved = Instant::now();
            } else if turns.is_multiple_of(1024) && moved.elapsed() > PATIENCE {
                let waiting = "waiting for the other end's message";
                return Err(BenchError::TimedOut { waiting, limit: PATIENCE });
            }
            // The server answers message n with its nth, the client continues after the nth answer.
            let due = match self.checker.role() {
                Role::Client => self.received + 1,
                Role::Server => self.received,
            };
            if self.sent < due.min(iterations) && completed == self.sent {
                self.post_send()?;
            }
        }
        Ok(begin.elapsed())
    }

    /// Drives the lcore, handles completions and checks messages. Returns whether there were any.
    fn turn(&mut self, drive: &mut Drive, completed: &mut u64) -> Result<bool, BenchError> {
        if self.channel.is_none() {
            drive.turn();
            return self.take(completed);
        }
        self.cq.arm(Arm::Next);
        // Completions before the arming cause no event.
        if self.take(completed)? {
            return Ok(true);
        }
        if let Some(channel) = &self.channel {
            channel.next_event(Some(PATIENCE)).step("waiting for a completion event")?;
        }
        self.take(completed)
    }

    fn take(&mut self, completed: &mut u64) -> Result<bool, BenchError> {
        let mut completions = [WorkCompletion::default(); 16];
        let count = self.cq.poll(&mut completions).step("polling a CQ")?;
        for completion in &completions[..count] {
            match (completion.ok(), completion.opcode) {
                (Ok(_), WcOpcode::Recv) => self.receive(completion.byte_len)?,
                (Ok(_), _) => *completed += 1,
                // The peer has all messages and has ended. Whether it received our last one is
                // unknown.
                (Err(WcStatus::RetryExcErr), _) if self.received == self.args.iters => {
                    self.unacknowledged = true;
                    *completed = self.args.iters;
                }
                (Err(WcStatus::WrFlushErr), _) if self.unacknowledged => (),
                (Err(status), _) => {
                    return Err(BenchError::Completion { operation: "SEND", status });
                }
            }
        }
        Ok(count > 0)
    }

    fn receive(&mut self, len: u32) -> Result<(), BenchError> {
        let wanted = self.service.ahead() + self.size;
        if len as usize != wanted {
            return Err(BenchError::Corrupt(format!(
                "message {} has {len} bytes instead of {wanted}",
                self.received
            )));
        }
        if self.args.chk {
            let place = self.size + self.service.ahead();
            let incoming = self.checker.incoming_buffer();
            self.region.read_at(place, incoming).step("reading memory")?;
            self.checker.check(self.received)?;
        }
        self.received += 1;
        self.receives -= 1;
        if self.receives <= self.args.rx_depth / 2 {
            self.post_receives()?;
        }
        Ok(())
    }

    /// Goes on driving for a while, so that repeated packets are acknowledged.
    fn linger(&self, drive: &mut Drive, device: &crate::cli::DeviceArgs) {
        let lossy = device.loss_rx.is_some() || device.loss_tx.is_some();
        let deadline = Instant::now() + if lossy { LINGER_LOSSY } else { LINGER };
        while Instant::now() < deadline {
            drive.turn();
        }
    }
}

fn patience(stream: &TcpStream) -> Result<(), BenchError> {
    let limit = stream.set_read_timeout(Some(SOCKET_PATIENCE));
    limit.map_err(|error| BenchError::io("SO_RCVTIMEO", error))
}

/// Prints the stock program's last two lines, and with --json one object.
fn report(args: &PingpongArgs, service: Service, side: Side, outcome: &Outcome) {
    let seconds = outcome.elapsed.as_secs_f64();
    let bytes = u64::from(args.size) * args.iters * 2;
    let mbits = bytes as f64 * 8.0 / 1e6 / seconds.max(1e-9);
    println!("{bytes} bytes in {seconds:.2} seconds = {mbits:.2} Mbit/sec");
    let each = seconds * 1e6 / args.iters as f64;
    println!("{} iters in {seconds:.2} seconds = {each:.2} usec/iter", args.iters);
    if args.chk {
        println!("{} messages checked byte by byte", args.iters);
    }
    if outcome.unacknowledged {
        println!("the peer left before it acknowledged our last message");
    }
    if args.json {
        let role = match side {
            Side::Client => "client",
            Side::Server => "server",
        };
        let report = serde_json::json!({
            "test": service.test(),
            "role": role,
            "verified": args.chk,
            "retransmissions": outcome.retransmissions,
            "lost": outcome.lost,
            "seconds": seconds,
            "iters": args.iters,
            "size": args.size,
            "mtu": args.mtu,
            "last_message_acknowledged": !outcome.unacknowledged,
        });
        println!("{report}");
    }
}
