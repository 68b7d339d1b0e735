"""Tests the parsing of callgrind's profiles."""

import contextlib
import io
import unittest

import cost

PROFILE = """\
version: 1
creator: callgrind-3.19.0
positions: line
events: Ir Dr

fl=(1) shared/src/time/timer_wheel.rs
fn=(10) uroce_shared::time::timer_wheel::TimerWheel::walk
125 40 7
+2 10 3
fi=(2) core/src/num.rs
7 5
fe=(1)
cfn=(11) uroce_shared::time::timer_wheel::TimerWheel::clear
calls=1 90
-3 1000 100

fn=(11)
90 1000 100

fl=(3) engine/src/lcore.rs
fn=(12) uroce_engine::lcore::Lcore::turn
80 200 20
calls=1 125
* 1055 110

totals: 1255 130
"""


class Profiles(unittest.TestCase):
    def test_a_function_that_was_inlined_is_missed(self):
        self.assertIsNone(cost.uncounted(PROFILE, ("*Lcore::turn", "*TimerWheel::walk")))
        self.assertEqual(cost.uncounted(PROFILE, ("*Lcore::turn", "*Lcore::rest")), "*Lcore::rest")

    def test_the_walk_of_the_timer_wheel_is_left_out_and_what_it_calls_is_not(self):
        self.assertEqual(cost.counts(PROFILE), {"Ir": 1200, "Dr": 120})

    def test_a_unit_is_the_difference_of_two_amounts(self):
        few, many = {"Ir": 1000}, {"Ir": 2500}
        self.assertEqual(cost.per_unit([few, many], [10, 30]), {"Ir": 75.0})

    def test_waiting_is_left_out_of_rows_of_several_threads_only(self):
        profile = PROFILE.replace("uroce_shared::time::timer_wheel::TimerWheel::clear", "_int_free")
        self.assertEqual(cost.counts(profile), {"Ir": 1200, "Dr": 120})
        left = cost.counts(profile, cost.LEFT_OUT_OF_SEVERAL)
        self.assertEqual(left, {"Ir": 200, "Dr": 20})

    def test_fewer_misses_than_none_are_none(self):
        self.assertEqual(cost.misses({"ILmr": -0.4, "DLmr": 0.1, "DLmw": 0.0}, cost.LAST_LEVEL), 0)

    def test_the_arguments_are_rows(self):
        self.assertEqual(cost.arguments(["--json", "send8", "modify"]).case, ["send8", "modify"])
        with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit):
            cost.arguments(["send9"])
        self.assertIn("no case 'send9'; there are send8,", said.getvalue())

    def test_a_profile_without_totals_is_an_error(self):
        with self.assertRaises(ValueError):
            cost.counts("events: Ir\n")


if __name__ == "__main__":
    unittest.main()
