//! `uroce-perf` end to end, as processes.

mod common;
mod in_process;
mod perftest_exchange;
mod two_processes;
