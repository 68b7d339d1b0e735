//! Runs each fuzz target of the dataplane.

use uroce_fuzz::{TARGETS, fuzz_tests};

fuzz_tests! {
    TARGETS;
    z1_frame "frame";
    z2_responder "responder";
    z3_requester "requester";
    z14_datagram "datagram";
    z11_keys "keys";
    z12_wheel "wheel";
    z13_arithmetic "arithmetic";
}
