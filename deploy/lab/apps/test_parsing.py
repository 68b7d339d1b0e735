"""Tests the parsing of programs' outputs, with outputs that were observed."""

import unittest

from apps import cases as appcases
from apps import output, pyverbs_suite
from apps import programs as apps
from dataplane import programs

UNITTEST = """test_create_ah (tests.test_addr.AHTest.test_create_ah)
Test ibv_create_ah. ... ok
test_dm_read (tests.test_device.DMTest.test_dm_read)
Test reading from the device memory ... skipped 'Device memory is not supported'
test_is_fork_initialized (tests.test_fork.ForkAPITest.test_is_fork_initialized) ... printed = 2
ok
test_a (tests.test_rdmacm.CMTestCase.test_a) ... Player active got: no
ERROR
test_b (tests.test_qp.QPTest.test_b) ... skipped "Device doesn't have it"
test_c (tests.test_qp.QPTest.test_c) ...
======================================================================
ERROR: test_a (tests.test_rdmacm.CMTestCase.test_a)
----------------------------------------------------------------------
Traceback (most recent call last):
Ran 6 tests in 0.1s
FAILED (errors=1)
"""
DEVINFO = """hca_id:	rxe0
	node_guid:			0000:00ff:fe00:0002
		port:	1
			state:			PORT_ACTIVE (4)
			port_lid:		0
			GID[  0]:		fe80::ff:fe00:2, RoCE v2
			GID[  1]:		::ffff:192.0.2.2, RoCE v2
"""
PINGPONG = """  local address:  LID 0x0000, QPN 0x000012, PSN 0x2f00d5, GID ::ffff:192.0.2.2
  remote address: LID 0x0000, QPN 0x000011, PSN 0x8ad226, GID ::ffff:192.0.2.2
81920 bytes in 0.08 seconds = 8.65 Mbit/sec
10 iters in 0.08 seconds = 7574.80 usec/iter
"""
PERFTEST = """ Number of qps   : 1\t\tTransport type : IB
 ibv_wr* API     : OFF
 GID index       : 1
 local address: LID 0000 QPN 0x0035 PSN 0x696c3f
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:192:00:02:02
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 100        10               2.96               1.01   \t\t   0.010631
 200        10               2.96               1.01   \t\t   0.010631
"""
# perftest's output on a machine that is too busy to measure its clock.
UNCLOCKED = """Correlation coefficient r^2: 0.885169 < 0.9
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]
 100     10          inf            inf          inf      \t       inf         \t-nan   \t\tinf
"""
RPING = """ping data: rdma-ping-0: ABC
ping data: rdma-ping-1: BCD
client DISCONNECT EVENT...
"""


def case(program, options="", **rest):
    """A case of a program with options."""
    return appcases.Case(program, tuple(options.split()), appcases.PAIR, **rest)


class Pyverbs(unittest.TestCase):
    """Verdicts of pyverbs' tests."""

    def test_verdicts_stand_after_what_a_test_prints(self):
        self.assertEqual(pyverbs_suite.verdicts(UNITTEST), {
            "test_addr.AHTest.test_create_ah": "pass",
            "test_device.DMTest.test_dm_read": "skip Device memory is not supported",
            "test_fork.ForkAPITest.test_is_fork_initialized": "pass",
            "test_rdmacm.CMTestCase.test_a": "error",
            "test_qp.QPTest.test_b": "skip Device doesn't have it",
            "test_qp.QPTest.test_c": "no verdict",
        })

    def test_each_test_of_the_list_has_a_right_verdict_and_a_case(self):
        modules = {case.module for case in pyverbs_suite.table()}
        for test, verdicts in pyverbs_suite.expected().items():
            self.assertIn(pyverbs_suite.module_of(test), modules)
            for verdict in verdicts:
                self.assertRegex(verdict, "^(pass|skip .+|error)$", test)

    def test_what_is_not_in_the_list_is_a_fault(self):
        module = pyverbs_suite.Case("test_fork")
        [test] = [test for test in pyverbs_suite.expected() if test.startswith("test_fork.")]
        self.assertEqual(pyverbs_suite.fault(module, {test: "pass"}), "")
        self.assertIn("not run", pyverbs_suite.fault(module, {}))
        self.assertIn("fail", pyverbs_suite.fault(module, {test: "fail"}))
        self.assertIn("not in the list", pyverbs_suite.fault(module, {test: "pass", "x": "pass"}))


class Judgement(unittest.TestCase):
    """Detection of success."""

    def test_perftest_reports_a_row_for_each_size(self):
        self.assertEqual(programs.rows(PERFTEST), [(100, 10), (200, 10)])
        self.assertEqual(programs.rows(UNCLOCKED), [(100, 10)])
        one = case(apps.PERFTEST["send_bw"], "-n 20")
        self.assertEqual(apps.perftest_fault(one, PERFTEST, False), "")
        every = case(apps.PERFTEST["send_bw"], "-n 20 -a")
        self.assertIn("2 rows instead of 23", apps.perftest_fault(every, PERFTEST, False))
        datagrams = case(apps.PERFTEST["send_bw"], "-c UD -a -m 1024")
        self.assertIn("instead of 10", apps.perftest_fault(datagrams, PERFTEST, False))

    def test_a_pingpong_that_found_wrong_data_has_failed(self):
        self.assertEqual(apps.pingpong_fault(None, PINGPONG, True), "")
        self.assertIn("invalid", apps.pingpong_fault(None, "invalid data in page 0\n", True))
        self.assertNotEqual(apps.pingpong_fault(None, "", True), "")

    def test_rping_says_each_ping(self):
        self.assertEqual(apps.rping_fault(case(apps.RPING, "-C 2"), RPING, False), "")
        self.assertIn("saw", apps.rping_fault(case(apps.RPING, "-C 3"), RPING, False))


class Comparison(unittest.TestCase):
    """Comparison of a program's outputs on two devices."""

    def test_figures_names_and_addresses_make_no_difference(self):
        other = (PINGPONG.replace("2f00d5", "000001").replace("8.65", "8650.1")
                 .replace("192.0.2.2", "192.0.2.77").replace("7574.80", "1.02"))
        self.assertEqual(differences("ibv_rc_pingpong", other, PINGPONG), [])
        other = (PERFTEST.replace("GID index       : 1", "GID index       : 0")
                 .replace("0x0035", "0x123456").replace("API     : OFF", "API     : ON"))
        self.assertEqual(differences("ib_send_bw", other, PERFTEST), [])
        clocked = UNCLOCKED.replace("inf", "2.96").replace("-nan", "1.01")
        _, clocked = clocked.split("\n", 1)
        self.assertEqual(differences("ib_send_lat", clocked, UNCLOCKED), [])
        ours = DEVINFO.replace("rxe0", "uroce0").replace("fe80::ff:fe00:2", "2001:db8::1")
        self.assertEqual(differences("ibv_devinfo", ours, DEVINFO), [])

    def test_words_and_counts_do(self):
        found = differences("rping", RPING.replace("BCD", "BCE"), RPING)
        self.assertEqual(len(found), 2)
        found = differences("ibv_rc_pingpong", PINGPONG.replace("81920", "4096"), PINGPONG)
        self.assertEqual(len(found), 2)
        found = differences("ibv_devinfo", DEVINFO.replace("ACTIVE (4)", "DOWN (1)"), DEVINFO)
        self.assertEqual(len(found), 2)


def differences(program, ours, stock):
    """The differences of one role."""
    return output.differences(program, {"client": ours}, {"client": stock})


class Cases(unittest.TestCase):
    """The table of cases."""

    def test_names_are_unique(self):
        table = appcases.table(everything=True)
        self.assertEqual(len({case.file_name for case in table}), len(table))

    def test_every_program_that_soft_roce_can_hold_is_held_with_it_in_both_roles(self):
        table = appcases.table()
        names = {case.program.name for case in table
                 if case.pairing == appcases.PAIR and case.stock}
        with_guest = [case for case in table if case.pairing == appcases.GUEST]
        self.assertEqual({case.program.name for case in with_guest}, names)
        sessions = [case.session for case in with_guest]
        for case in with_guest:
            self.assertEqual(sessions.count(case.session), 2)


if __name__ == "__main__":
    unittest.main()
