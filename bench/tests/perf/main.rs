//! `uroce-perf` end to end, as processes.

mod common;
mod connections;
mod control;
mod in_process;
mod loss;
mod ndr;
mod nic_check;
mod options;
mod perftest_exchange;
mod placement;
mod report;
mod two_processes;
mod udp;
mod wire;
