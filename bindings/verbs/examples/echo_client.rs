//! Sends messages to an echo_server and checks that they come back. See echo_server for how to run
//! both.
//!
//! `echo_client CONFIG ADDRESS:PORT [MESSAGES]` opens the device `client` of the configuration.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use uroce::cm::{ConnectParam, Connection};
use uroce::{AccessFlags, Config, Context, QpInit, RecvWr, SendWr};

/// Bytes per message.
const SIZE: usize = 4096;
/// A timeout that is not reached.
const SOON: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [config, server, rest @ ..] = &args[..] else {
        return Err("usage: echo_client CONFIG ADDRESS:PORT [MESSAGES]".into());
    };
    let messages: u32 = rest.first().map_or(Ok(1000), |count| count.parse())?;

    let context = Context::open(&Config::from_file(Path::new(config))?, "client")?;
    let pd = context.allocate_pd();
    let memory = pd.allocate(2 * SIZE, AccessFlags::LOCAL_WRITE)?;
    let cq = context.create_cq(16)?;
    let mut qp = pd.create_qp(&QpInit::new(&cq))?;
    let server: std::net::SocketAddr = server.parse()?;
    let connection = Connection::connect(&qp, server, &ConnectParam::default(), SOON)?;

    let (there, back) = ([memory.slice(..SIZE)?], [memory.slice(SIZE..)?]);
    let begin = Instant::now();
    let mut echo = vec![0; SIZE];
    for number in 0..messages {
        let message: Vec<u8> = (0..SIZE).map(|at| (at as u32 ^ number) as u8).collect();
        memory.write_at(0, &message)?;
        qp.post_recv(&RecvWr::new(&back))?;
        qp.post_send(&SendWr::send(&there).signaled())?;
        // The completion of the send, and that of the echo's receive.
        for _ in 0..2 {
            cq.wait(SOON)?.ok_or("no echo")?.ok()?;
        }
        memory.read_at(SIZE, &mut echo)?;
        if echo != message {
            return Err(format!("message {number} came back different").into());
        }
    }
    let each = begin.elapsed() / messages.max(1);
    println!("{messages} messages of {SIZE} bytes came back as they were, in {each:?} each");
    connection.disconnect()?;
    Ok(())
}
