//! The deterministic simulator: nodes, links and a clock around the same QPs that the engine runs.
//!
//! ```text
//!   workload ── posts ──> World ── completions ──> oracle
//!                           │
//!     node 0: Qps, memory ──┤   frames: built, sealed, damaged, parsed   ┌── node 1: Qps, memory
//!                           └── agenda (virtual clock) ── links, faults ─┘
//! ```
//!
//! Two nodes are joined by one or two paths ("rails"), each with its own links, faults and cuts.
//! What a QP reports about its migrations, its draining and its rate is compared with tables that
//! the oracle keeps itself.
//!
//! One `u64` seed determines a run: topology, attributes, operations, faults, the order of events.
//! Time is virtual and jumps from event to event. Links carry whole frames, built and parsed with
//! [`uroce_wire`], so only the invariant CRC detects damage on the way.
//!
//! - [`World`] is the machinery; it checks no expectations.
//! - [`Pair`] is a world of two nodes for directed tests: scripted faults, a log of packets.
//! - [`Campaign`] runs seeds with random work and faults under the oracle, up to a number of
//!   packets. A [`Violation`] names its seed, and running the seed again gives the same packets.
//!
//! Not here: real time, files and threads; the program `uroce-sim` has them. One exception: a world
//! with a record writes it to a file when it is dropped, if the environment names a folder
//! ([`CAPTURE_DIR`]).

mod campaign;
mod faults;
mod oracle;
mod pair;
mod record;
mod world;

pub use campaign::plan::Plan;
pub use campaign::{Campaign, Outcome, Summary, Violation, run_seed};
pub use faults::rules::{Action, Rule};
pub use faults::{FaultCounts, Rates};
pub use pair::sweep::{Scenario, Swept};
pub use pair::{Crafted, Half, Pair, RDD, Rails, SRQN, Seen, Terms};
pub use record::{Fate, Record, Sighting};
pub use world::bottleneck::{Bottleneck, Passed};
pub use world::capture::CAPTURE_DIR;
pub use world::frame::{build, open};
pub use world::memory::{Mr, Regions};
pub use world::names::{At, Rail};
pub use world::node::{Completed, Happened, NamedQueue, Node, ReservesTime, XRCD};
pub use world::paths::RailTally;
pub use world::windows::WindowType;
pub use world::{Settings, Step, World};
