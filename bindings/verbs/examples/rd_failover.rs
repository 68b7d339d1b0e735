//! Reliable datagrams between two processes: three queue pairs share one EE context, and in the
//! middle its link is cut. All of them go on over the other link.
//!
//! ```text
//!   cargo build --release -p uroce --examples
//!   target/release/examples/rd_failover bindings/verbs/examples/rd.toml receiver 127.0.0.1:7472 &
//!   target/release/examples/rd_failover bindings/verbs/examples/rd.toml sender 127.0.0.1:7472
//! ```
//!
//! `rd_failover CONFIG receiver|sender ADDRESS:PORT [MESSAGES]` opens the device of the given role.
//! The two programs tell each other the numbers of their EE contexts and queue pairs over TCP: the
//! receiver listens at the address. Each queue pair sends MESSAGES messages, 1000 by default.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use uroce::rd::{Address, Eec, RdQp};
use uroce::{
    AccessFlags, AddressVector, AlternateVector, CompletionQueue, Config, ConnectOptions, Context,
    Endpoint, MemoryRegion, PathMigState, Pkey, Psn, Qkey, QpInit, Qpn, RecvWr, SendWr,
};

/// Queue pairs at each end.
const QPS: usize = 3;
/// Bytes of a message.
const SIZE: usize = 4096;
/// Receives that each queue pair of the receiver has.
const DEPTH: usize = 32;
const QKEY: Qkey = Qkey(0x0b5e);
/// Code of the ACK timeout: 67 ms.
const TIMEOUT: u8 = 14;
/// A timeout that is not reached.
const SOON: Duration = Duration::from_secs(20);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [config, role, address, rest @ ..] = &args[..] else {
        return Err("usage: rd_failover CONFIG receiver|sender ADDRESS:PORT [MESSAGES]".into());
    };
    let messages: u32 = rest.first().map_or(Ok(1000), |count| count.parse())?;
    let mut end = End::open(&Config::from_file(Path::new(config))?, role)?;
    match role.as_str() {
        "receiver" => {
            let listener = TcpListener::bind(address)?;
            println!("listening at {}", listener.local_addr()?);
            end.receive(listener.accept()?.0, messages)
        }
        "sender" => end.send(TcpStream::connect(address)?, messages),
        _ => Err("the role is receiver or sender".into()),
    }
}

/// One end: three queue pairs and their EE context.
struct End {
    context: Context,
    eec: Eec,
    qps: Vec<RdQp>,
    cq: CompletionQueue,
    memory: MemoryRegion,
}

/// What the other end has told.
struct Peer {
    endpoint: Endpoint,
    /// Address of its second port.
    second: IpAddr,
    qpns: Vec<Qpn>,
}

impl End {
    fn open(config: &Config, name: &str) -> Result<End> {
        let context = Context::open(config, name)?;
        let domain = context.open_rd_domain()?;
        let pd = context.allocate_pd();
        let memory = pd.allocate(QPS * DEPTH * SIZE, AccessFlags::LOCAL_WRITE)?;
        let cq = context.create_cq(1024)?;
        let eec = domain.create_eec()?;
        let qps = (0..QPS).map(|_| {
            let mut qp = pd.create_rd_qp(&domain, &QpInit::new(&cq))?;
            qp.start(QKEY, &ConnectOptions::default())?;
            Ok(qp)
        });
        let qps = qps.collect::<Result<_>>()?;
        Ok(End { context, eec, qps, cq, memory })
    }

    /// Tells the other end about this one, and connects the EE contexts with both paths. Returns
    /// when both ends are ready.
    fn join(&self, mut stream: &TcpStream) -> Result<Peer> {
        let Endpoint { gid, qpn, psn } = self.eec.endpoint(1, 0)?;
        let second = self.eec.endpoint(2, 0)?.gid.to_ip();
        let mut line = format!("{} {second} {} {}", gid.to_ip(), qpn.value(), psn.value());
        self.qps.iter().for_each(|qp| line += &format!(" {}", qp.qpn().value()));
        writeln!(stream, "{line}")?;
        let mut lines = BufReader::new(stream).lines();
        let peer = Peer::parse(&lines.next().ok_or("the other end has gone")??)?;
        let alternate = AlternateVector {
            vector: AddressVector::to(peer.second.into()),
            port: 2,
            pkey: Pkey::DEFAULT,
            timeout: TIMEOUT,
        };
        let alternate = Some(alternate);
        let options = ConnectOptions { timeout: TIMEOUT, alternate, ..ConnectOptions::default() };
        self.eec.connect(&peer.endpoint, &options)?;
        self.eec.rearm()?;
        writeln!(stream, "ready")?;
        lines.next().ok_or("the other end has gone")??;
        Ok(peer)
    }

    fn place(&mut self, qp: usize, slot: usize) -> Result<()> {
        let id = qp * DEPTH + slot;
        let place = [self.memory.slice(id * SIZE..(id + 1) * SIZE)?];
        Ok(self.qps[qp].post_recv(&RecvWr::new(&place).id(id as u64))?)
    }

    /// Receives all messages, which must come in order.
    fn receive(&mut self, stream: TcpStream, messages: u32) -> Result<()> {
        for qp in 0..QPS {
            (0..DEPTH).try_for_each(|slot| self.place(qp, slot))?;
        }
        let peer = self.join(&stream)?;
        let mut received = [0; QPS];
        while received != [messages; QPS] {
            let completion = self.cq.wait(SOON)?.ok_or("no message")?;
            completion.ok()?;
            let (qp, slot) = (completion.wr_id as usize / DEPTH, completion.wr_id as usize % DEPTH);
            let mut message = [0; SIZE];
            self.memory.read_at(completion.wr_id as usize * SIZE, &mut message)?;
            if message != content(qp, received[qp]) || completion.src_qpn != peer.qpns[qp] {
                return Err(format!("queue pair {qp}: another message than the next").into());
            }
            received[qp] += 1;
            self.place(qp, slot)?;
        }
        println!("{QPS} x {messages} messages in order; {}", self.place_of_eec()?);
        // The sender has its acknowledgements.
        BufReader::new(stream).lines().next().transpose()?;
        Ok(())
    }

    /// Sends all messages, and cuts the link in the middle.
    fn send(&mut self, mut stream: TcpStream, messages: u32) -> Result<()> {
        let peer = self.join(&stream)?;
        for number in 0..messages {
            if number == messages / 2 {
                println!("cutting the link of port 1; {}", self.place_of_eec()?);
                self.context.set_link(1, false)?;
            }
            for qp in 0..QPS {
                self.memory.write_at(qp * SIZE, &content(qp, number))?;
                let message = [self.memory.slice(qp * SIZE..(qp + 1) * SIZE)?];
                let eecn = self.eec.eecn();
                let to = Address { eecn, dest_qpn: peer.qpns[qp], qkey: QKEY };
                self.qps[qp].post_send(&SendWr::send(&message).signaled(), &to)?;
            }
            for _ in 0..QPS {
                self.cq.wait(SOON)?.ok_or("no acknowledgement")?.ok()?;
            }
        }
        println!("{QPS} x {messages} messages sent; {}", self.place_of_eec()?);
        writeln!(stream, "done")?;
        Ok(())
    }

    fn place_of_eec(&self) -> Result<String> {
        let attr = self.eec.query()?.attr;
        let state = match attr.path_mig_state {
            PathMigState::Armed => "armed",
            PathMigState::Migrated => "migrated",
            PathMigState::Rearm => "waiting for the peer",
        };
        Ok(format!("the EE context is at port {}, {state}", attr.port))
    }
}

impl Peer {
    fn parse(line: &str) -> Result<Peer> {
        let words: Vec<&str> = line.split(' ').collect();
        let [first, second, eecn, psn, qpns @ ..] = &words[..] else {
            return Err("the other end is another program".into());
        };
        let (gid, qpn) = (first.parse::<IpAddr>()?.into(), Qpn::new(eecn.parse()?));
        let endpoint = Endpoint { gid, qpn, psn: Psn::new(psn.parse()?) };
        let qpns = qpns.iter().map(|qpn| Ok(Qpn::new(qpn.parse()?))).collect::<Result<Vec<_>>>()?;
        if qpns.len() != QPS {
            return Err("the other end has another number of queue pairs".into());
        }
        Ok(Peer { endpoint, second: second.parse()?, qpns })
    }
}

/// The message of this number.
fn content(qp: usize, number: u32) -> [u8; SIZE] {
    std::array::from_fn(|at| (at as u32 ^ number ^ (qp as u32) << 6) as u8)
}
