//! `uroce-perf`: see the crate's documentation.

use std::process::ExitCode;

fn main() -> ExitCode {
    uroce_bench::main(std::env::args_os())
}
