//! A device can have as many objects as it reports. The claims are functions of tests/c/limits.c.

#[allow(dead_code, unused_imports, unused_macros, reason = "what other tests use")]
mod common;

use common::{ONE_DEVICE, Place, printed};

fn claim(devices: &str, name: &str) {
    let place = Place::new();
    let program = place.compile("limits.c");
    let config = place.configure(devices);
    let run = place.command(&program, &config).arg(name).output();
    print!("{}", printed(run.unwrap()));
}

#[test]
fn the_reported_numbers_of_objects_can_be_created() {
    let limits = "idle = \"sleep\"\nmax_qps = 8\nmax_ahs = 8\nmax_mrs = 16\n";
    let devices = ONE_DEVICE.replace("idle = \"sleep\"\n", limits);
    assert_ne!(devices, ONE_DEVICE);
    claim(&devices, "the_reported_numbers_of_objects_can_be_created");
}

#[test]
fn a_device_has_many_by_default_and_takes_memory_as_they_are_made() {
    claim(ONE_DEVICE, "a_device_has_many_by_default_and_takes_memory_as_they_are_made");
}
