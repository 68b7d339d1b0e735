//! `uroce-perf`: see the documentation of the crate `uroce_bench`.

use std::process::ExitCode;

fn main() -> ExitCode {
    uroce_bench::main(std::env::args_os())
}
