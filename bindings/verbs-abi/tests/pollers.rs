//! Threads that poll and thereby drive the lcore, in C programs. The claims are functions of
//! tests/c/pollers.c.

mod common;

use common::claims;

/// A device with an lcore that pollers drive, as in the built-in configuration.
const POLLED_DEVICE: &str = r#"
[[device]]
name = "uroce0"
driver = "poller"
idle = "sleep"
[[device.port]]
ethdev = { ring = "one" }
ip = ["192.0.2.1/24"]
"#;

claims! {
    "pollers.c", POLLED_DEVICE =>
    threads_that_outnumber_the_processors_give_way_to_each_other
}
