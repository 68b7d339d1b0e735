//! Sends every message back to the client that sent it.
//!
//! ```text
//!   cargo run --release -p uroce --example echo_server -- bindings/verbs/examples/echo.toml
//!   cargo run --release -p uroce --example echo_client -- \
//!       bindings/verbs/examples/echo.toml 192.0.2.1:7471
//! ```
//!
//! `echo_server CONFIG [ADDRESS:PORT [CLIENTS]]` opens the device `server` of the configuration and
//! listens at the address, by default at all addresses and port 7471. It ends after CLIENTS clients
//! have disconnected, or never if no number is given.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use uroce::cm::{CmError, ConnEvent, ConnectParam, ConnectRequest, Connection, Listener};
use uroce::{
    AccessFlags, CompletionQueue, Config, Context, MemoryRegion, QpInit, QueuePair, RecvWr, SendWr,
    WcOpcode,
};

/// Bytes of the longest message.
const SIZE: usize = 4096;
/// Largest number of outstanding messages of a client.
const DEPTH: usize = 16;
/// Interval between checks for new clients and events.
const PAUSE: Duration = Duration::from_millis(1);

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [config, rest @ ..] = &args[..] else {
        return Err("usage: echo_server CONFIG [ADDRESS:PORT [CLIENTS]]".into());
    };
    let address = rest.first().map_or("[::]:7471", |address| address).parse()?;
    let clients: Option<usize> = rest.get(1).map(|count| count.parse()).transpose()?;

    let context = Context::open(&Config::from_file(Path::new(config))?, "server")?;
    let listener = Listener::bind(&context, address, 16)?;
    println!("listening at {}", listener.local_addr());
    std::thread::scope(|threads| {
        let mut taken = 0;
        while clients.is_none_or(|clients| taken < clients) {
            let Some(request) = listener.next(Duration::MAX) else { continue };
            taken += 1;
            let context = &context;
            threads.spawn(move || {
                let peer = request.peer_addr();
                match serve(context, request) {
                    Ok(messages) => println!("{peer}: {messages} messages"),
                    Err(error) => println!("{peer}: {error}"),
                }
            });
        }
    });
    Ok(())
}

/// Serves one client until it disconnects. Returns the number of its messages.
fn serve(context: &Context, request: ConnectRequest) -> Result<u64, Box<dyn Error>> {
    let mut echo = Echo::new(context)?;
    // Receives are posted first, because the client may send as soon as it is connected.
    echo.qp.init(&uroce::ConnectOptions::default())?;
    for slot in 0..DEPTH {
        echo.receive(slot)?;
    }
    let connection = request.accept(&echo.qp, &ConnectParam::default())?;
    connection.wait_established(Duration::from_secs(10))?;
    echo.run(&connection)
}

/// A client's queue pair, and memory with one slot per message.
struct Echo {
    qp: QueuePair,
    cq: CompletionQueue,
    memory: MemoryRegion,
    messages: u64,
}

impl Echo {
    fn new(context: &Context) -> Result<Self, Box<dyn Error>> {
        let pd = context.allocate_pd();
        let memory = pd.allocate(DEPTH * SIZE, AccessFlags::LOCAL_WRITE)?;
        let cq = context.create_cq(2 * DEPTH as u32)?;
        let qp = pd.create_qp(&QpInit::new(&cq))?;
        Ok(Self { qp, cq, memory, messages: 0 })
    }

    fn receive(&mut self, slot: usize) -> Result<(), Box<dyn Error>> {
        let begin = slot * SIZE;
        let place = [self.memory.slice(begin..begin + SIZE)?];
        Ok(self.qp.post_recv(&RecvWr::new(&place).id(slot as u64))?)
    }

    /// Sends each message back from the slot in which it was received. Then the slot is free again.
    fn run(&mut self, connection: &Connection) -> Result<u64, Box<dyn Error>> {
        loop {
            let Some(completion) = self.cq.wait(PAUSE)? else {
                match connection.next_event(Duration::ZERO) {
                    Some(ConnEvent::Disconnected { .. }) => return Ok(self.messages),
                    Some(event) => CmError::of(event).map_or(Ok(()), Err)?,
                    None => {}
                }
                continue;
            };
            if completion.ok().is_err() {
                // The request was outstanding when the connection ended.
                continue;
            }
            let slot = completion.wr_id as usize;
            if completion.opcode == WcOpcode::Recv {
                let begin = slot * SIZE;
                let message = [self.memory.slice(begin..begin + completion.byte_len as usize)?];
                let send = SendWr::send(&message).id(slot as u64).signaled();
                self.qp.post_send(&send)?;
                self.messages += 1;
            } else {
                self.receive(slot)?;
            }
        }
    }
}
