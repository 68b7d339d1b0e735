//! Runs each fuzz target of connection management.

use uroce_cm_fuzz::TARGETS;
use uroce_fuzz::fuzz_tests;

fuzz_tests! {
    TARGETS;
    z5_cm "cm";
    z6_cm_link "cm_link";
}
