//! Raw packet queue pairs and flows in C programs. The claims are functions of tests/c/raw.c.

mod common;

use common::claims;

claims! {
    "raw.c":
    a_frame_reaches_the_queue_pair_of_its_flow
    each_specification_chooses_its_frames
    default_flows_take_what_is_left
    a_sniffer_sees_what_others_get
    checksums_are_filled_in
    a_frame_of_a_wrong_length_fails_and_the_queue_pair_recovers
    work_requests_built_call_by_call_send_frames
    what_is_in_use_is_busy
    wrong_attributes_are_refused
    without_the_capability_it_is_not_permitted
    the_device_says_that_it_has_flows
    a_forked_child_destroys_without_waiting_and_makes_nothing
}

/// As the message of EPERM advises.
#[test]
#[ignore = "needs root: becomes another user"]
fn an_ambient_capability_is_enough_for_an_ordinary_user() {
    use std::os::unix::fs::PermissionsExt;

    let place = common::Place::new();
    let program = place.compile("raw.c");
    let run = |caps: &[&str]| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).args(caps);
        command.arg(place.launcher().get_program()).arg(&program);
        command.arg("a_frame_reaches_the_queue_pair_of_its_flow");
        let directory = place.path().join("of-user");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o777)).unwrap();
        command.env("XDG_RUNTIME_DIR", directory).env("HOME", "/").output().unwrap()
    };
    common::printed(run(&["--inh-caps", "+net_raw", "--ambient-caps", "+net_raw"]));
    let refused = run(&["--inh-caps", "-all", "--bounding-set", "-all"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("setpriv --reuid"), "{said}");
}
