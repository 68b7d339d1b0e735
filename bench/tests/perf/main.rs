//! `uroce-perf` end to end, as processes.

mod common;
mod in_process;
mod two_processes;
