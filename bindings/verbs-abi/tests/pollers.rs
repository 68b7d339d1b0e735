//! Threads that poll and drive the lcore by that, as C programs have them. The claims are functions of
//! tests/c/pollers.c.

mod common;

use common::claims;

/// The lcore is driven by those who poll, as without a configuration.
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
