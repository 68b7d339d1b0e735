//! Connections by IP address and port: the connection manager.
//!
//! ```text
//!   Listener ── next ──> ConnectRequest ── accept ──> Connection ─┐
//!                                └──────── reject                 ├─ next_event, disconnect,
//!   Connection::connect(qp, address) ───────────────> Connection ─┘  load_alternate_path, migrate
//! ```
//!
//! The protocol is that of Linux's `rdma_cm`, so either end may be an unmodified Linux program. The
//! connection takes the queue pair from RESET or INIT to RTS, and to ERR when it ends. Work
//! requests are posted to the queue pair as usual. Receives may be posted in INIT, before the peer
//! can send ([`QueuePair::init`](crate::QueuePair::init)).
//!
//! If both ends are of this stack, RC queue pairs use selective repeat: after a loss only what was
//! lost is sent again. The ends agree on it behind the private data, if that is at most 48 bytes in
//! the request and 188 in the answer ([`Agreed::selective_repeat`]).
//!
//! EE contexts ([`crate::rd`]) are connected in the same way, by requests to a listener for them
//! ([`Listener::bind_rd`]); Linux's `rdma_cm` has no such connections.
//!
//! A UD queue pair needs no connection, only the number and Q_Key of the peer's queue pair.
//! [`resolve_datagram`] asks a [`DatagramListener`] for them.
//!
//! ```
//! use std::time::Duration;
//! use uroce::cm::{ConnectParam, Connection, Listener};
//! use uroce::{AccessFlags, ConnectOptions, Context, QpInit, RecvWr, SendWr};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let config = uroce::Config::from_toml(r#"
//! #     [[device]]
//! #     name = "left"
//! #     [[device.port]]
//! #     ethdev = { ring = "cm" }
//! #     ip = ["192.0.2.1/24"]
//! #     [[device]]
//! #     name = "right"
//! #     [[device.port]]
//! #     ethdev = { ring = "cm" }
//! #     ip = ["192.0.2.2/24"]
//! # "#)?;
//! # let (left, right) = (Context::open(&config, "left")?, Context::open(&config, "right")?);
//! const SOON: Duration = Duration::from_secs(10);
//! let address: std::net::SocketAddr = "192.0.2.2:7471".parse()?;
//! let listener = Listener::bind(&right, address, 8)?;
//!
//! // The client, usually in another process.
//! let client = std::thread::spawn(move || -> Result<_, Box<dyn std::error::Error + Send + Sync>> {
//!     let pd = left.allocate_pd();
//!     let (cq, memory) = (left.create_cq(16)?, pd.allocate(64, AccessFlags::LOCAL_WRITE)?);
//!     let mut qp = pd.create_qp(&QpInit::new(&cq))?;
//!     let param = ConnectParam { private_data: b"hello".to_vec(), ..ConnectParam::default() };
//!     let connection = Connection::connect(&qp, address, &param, SOON)?;
//!     assert!(connection.private_data().starts_with(b"welcome"));
//!     memory.write_at(0, b"message")?;
//!     qp.post_send(&SendWr::send(&[memory.slice(..7)?]).signaled())?;
//!     cq.wait(SOON)?.ok_or("no completion")?.ok()?;
//!     connection.disconnect()?;
//!     Ok(())
//! });
//!
//! // The server.
//! let pd = right.allocate_pd();
//! let (cq, memory) = (right.create_cq(16)?, pd.allocate(64, AccessFlags::LOCAL_WRITE)?);
//! let mut qp = pd.create_qp(&QpInit::new(&cq))?;
//! let request = listener.next(SOON).ok_or("no request in time")?;
//! assert!(request.private_data().starts_with(b"hello"));
//! let param = ConnectParam { private_data: b"welcome".to_vec(), ..ConnectParam::default() };
//! qp.init(&ConnectOptions::default())?;
//! qp.post_recv(&RecvWr::new(&[memory.slice(..)?]))?;
//! let connection = request.accept(&qp, &param)?;
//! connection.wait_established(SOON)?;
//! cq.wait(SOON)?.ok_or("no message")?.ok()?;
//! let mut bytes = [0; 7];
//! memory.read_at(0, &mut bytes)?;
//! assert_eq!(&bytes, b"message");
//! # client.join().expect("the client does not panic").map_err(|error| error.to_string())?;
//! # Ok(()) }
//! ```

mod connection;
mod datagram;
mod destination;
mod error;
mod listener;
pub mod raw;

pub use connection::Connection;
pub use datagram::{DatagramListener, DatagramPeer, DatagramRequest, resolve_datagram};
pub use destination::Destination;
pub use error::CmError;
pub use listener::{ConnectRequest, Listener};

pub use uroce_controlplane::rdma_cm::{
    Agreed, AlternateFailure, AlternatePolicy, AlternateRequest, ConnEvent,
    ConnParam as ConnectParam, PathSpec, PeerRdQp,
};
pub use uroce_wire::cm::{RejectReason, SidrStatus};
