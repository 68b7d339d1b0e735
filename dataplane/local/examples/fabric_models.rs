//! Runs the models of concurrency; `deploy/test models` builds them with `--cfg loom`.

use std::process::ExitCode;

#[cfg(loom)]
fn main() -> ExitCode {
    uroce_local::models::main();
    ExitCode::SUCCESS
}

#[cfg(not(loom))]
fn main() -> ExitCode {
    eprintln!("this build has no models: build it with RUSTFLAGS='--cfg loom'");
    ExitCode::from(2)
}
