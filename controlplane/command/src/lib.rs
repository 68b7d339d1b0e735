//! The commands of uroce: the lines that people type, the requests that processes answer, and the
//! texts of the answers.
//!
//! ```text
//!   line ──> tree ──> Request ── frame ──> control socket ──> process
//!                                                                │
//!   text <── render <── Answer <── frame ────────────────────────┘
//! ```
//!
//! A [`Request`] is both a command of the tree and the value that is sent. The tree is derived from
//! it, so no command exists without its request. An [`Answer`] has all values that are shown; the
//! reader of the answer makes the text.
//!
//! Invariants
//! - No input causes a panic: lines, frames and files may be hostile.
//! - The length of a frame is bounded ([`frame::REQUEST_MAX`], [`frame::REPLY_MAX`]). A longer
//!   answer comes in parts.
//!
//! Not here: collecting the answers (`uroce-controlplane`), the prompt (`uroce-cli`).

#![deny(unsafe_code)]

pub mod answer;
pub mod frame;
pub mod peer;
#[cfg(feature = "tree")]
pub mod render;
pub mod request;
pub mod run_dir;
#[cfg(feature = "tree")]
pub mod tree;

pub use answer::{Answer, Refusal, Reply};
pub use request::{
    Capture, Clear, ClearPort, Modify, Request, Scrape, Select, SelectCm, Set, SetFault, Share,
    Show, ShowConfig, ShowPort, Switch,
};
