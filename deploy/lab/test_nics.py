"""Tests of Linux's Soft-RoCE as the peer of a NIC, and of failures that are expected."""

import contextlib
import json
import signal
import types
import unittest
from unittest import mock

from dataplane import session
from dataplane.cases import RXE_SERVES, UROCE_SERVES
from dataplane.peers import Ending
from nics import drivers, properties, soft_roce
from report.failure import LabFailure
from vm.guest import Output

CONTROL = "198.51.100.1"
LINUX = "198.51.100.3"


class Guest:
    """A guest with a NIC: notes what is run in it, and answers with a report."""

    def __init__(self, report="", output=Output(0, "")):
        self.addresses = types.SimpleNamespace(control=CONTROL)
        self.image = types.SimpleNamespace(base=None)
        self.link = types.SimpleNamespace(interfaces=["nic1p0", "nic1p1"])
        self.pci = ["0000:01:00.0", "0000:02:00.0"]
        self.report, self.output = report, output
        self.said = []

    def begin(self, text, seconds):
        self.said.append((text, seconds))
        return types.SimpleNamespace(
            text=text, ended=lambda: True, wait=lambda: self.output)

    def run(self, text, seconds):
        self.said.append((text, seconds))
        return Output(0, self.report)


def case_of(label, roles):
    """The case of a program and of roles."""
    [case] = [case for case in soft_roce.CASES
              if case.program.label == label and (case.server, case.client) == roles]
    return case


class Known(unittest.TestCase):
    def test_only_the_failure_that_is_expected_has_its_remedy(self):
        for (nic, way, prop), (failure, advice) in drivers.KNOWN.items():
            result = {"nic": nic, "way": way, "property": prop, "reason": f"{failure}: more"}
            self.assertEqual(drivers.remedy(result), advice)
            for other in ({"reason": "no link"}, {"reason": ""}, {"nic": "virtio-net"}):
                self.assertEqual(drivers.remedy({**result, **other}), "")


class Cases(unittest.TestCase):
    def test_each_end_serves_each_program_once(self):
        for label in ("rc_pingpong", "send_bw-rc", "write_bw-rc"):
            for roles in (UROCE_SERVES, RXE_SERVES):
                case = case_of(label, roles)
                self.assertEqual(case.path_mtu, 1024)
        self.assertEqual(len(soft_roce.CASES), 6)

    def test_the_bytes_are_checked_in_each_direction(self):
        self.assertTrue(case_of("rc_pingpong", UROCE_SERVES).program.verifies)

    def test_it_runs_while_the_guest_has_its_nic_and_only_in_the_first_way(self):
        names = [prop.name for prop in properties.PROPERTIES]
        self.assertLess(names.index("Soft-RoCE"), names.index("unplugged"))
        [prop] = [prop for prop in properties.PROPERTIES if prop.name == "Soft-RoCE"]
        self.assertFalse(prop.short or prop.every_way)


class Peer(unittest.TestCase):
    def ending(self, label, report, output=Output(0, "")):
        """The ending of a client, by its report and the output of its program."""
        peer = soft_roce.NicPeer(Guest(report, output))
        return peer.begin(case_of(label, RXE_SERVES), LINUX).wait()

    def test_both_roles_use_the_guests_configuration(self):
        guest = Guest()
        peer = soft_roce.NicPeer(guest)
        peer.begin(case_of("write_bw-rc", UROCE_SERVES))
        peer.begin(case_of("rc_pingpong", RXE_SERVES), LINUX)
        (server, patience), (client, _) = guest.said
        self.assertEqual(patience, soft_roce.SECONDS)
        self.assertEqual(
            server, "rm -f /tmp/report.json; exec uroce-perf write_bw --config /tmp/nic.toml "
                    "-x 0 -p 18515 -s 16384 -m 1024 -n 30 -F -c RC -u 16 "
                    "--out_json_file /tmp/report.json")
        self.assertEqual(
            client, "rm -f /tmp/report.json; exec uroce-perf rc_pingpong --config /tmp/nic.toml "
                    f"-g 0 -p 18515 -s 16384 -m 1024 -n 30 -c -u 16 --json {LINUX} "
                    ">/tmp/report.json")
        self.assertEqual(peer.host, CONTROL)

    def test_a_pingpong_has_to_report_that_it_has_verified(self):
        good = self.ending("rc_pingpong", 'text\n{"verified": true, "retransmissions": 3}')
        self.assertEqual((good.fault, good.retransmissions), ("", 3))
        for report in ("", '{"verified": false}', "cat: no such file"):
            self.assertIn("not verified", self.ending("rc_pingpong", report).fault)

    def test_the_messages_of_perftest_are_counted(self):
        def report(count, size=16384):
            return json.dumps({"results": {"n_iterations": count, "MsgSize": size},
                               "uroce": {"retransmissions": 1}}, indent=2)

        self.assertEqual(self.ending("write_bw-rc", report(30)).fault, "")
        self.assertEqual(self.ending("write_bw-rc", report(30)).retransmissions, 1)
        self.assertIn("29 messages", self.ending("write_bw-rc", report(29)).fault)
        self.assertIn("8 bytes", self.ending("write_bw-rc", report(30, 8)).fault)
        self.assertIn("no messages", self.ending("write_bw-rc", "").fault)

    def test_a_program_that_fails_is_told_with_its_last_line(self):
        failed = self.ending("write_bw-rc", "", Output(1, "a table\nretries exceeded\n"))
        self.assertEqual(failed.fault, "status 1: retries exceeded")
        killed = self.ending("write_bw-rc", "", Output(128 + signal.SIGKILL, ""))
        self.assertEqual(killed.fault, "broken off")


class Exchange(unittest.TestCase):
    def held(self, faults):
        """The outcome if cases end with these faults at Linux's end, and the cases that ran."""
        ran = []

        def hold(case, server, client):
            ran.append(case)
            return {server.name: Ending("", 2, 0, ""),
                    client.name: Ending(faults.get(case.name, ""), 0, 0, "said")}

        ends = [types.SimpleNamespace(name=name) for name in ("uroce", "rxe")]
        with mock.patch.object(session, "hold", hold):
            return soft_roce.exchange(*ends), ran

    def test_all_cases_run(self):
        outcome, ran = self.held({})
        self.assertEqual((outcome.fault, ran), ("", soft_roce.CASES))
        self.assertEqual(outcome.notes, "retransmissions: 6 by rxe, 6 by uroce")

    def test_the_first_fault_is_told_with_its_case(self):
        wrong = soft_roce.CASES[1]
        outcome, ran = self.held({wrong.name: "status 1: no"})
        self.assertEqual(ran, soft_roce.CASES[:2])
        self.assertEqual(outcome.fault, f"{wrong.name}: {wrong.client}: status 1: no")
        self.assertIn("said", outcome.log)


class Linux(unittest.TestCase):
    def setUp(self):
        self.calls = []
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        stack.enter_context(mock.patch.object(
            soft_roce.network, "ip", lambda *words: self.calls.append(" ".join(words))))
        self.second = stack.enter_context(mock.patch.object(soft_roce, "Guest"))
        self.guest = Guest()
        self.ends = types.SimpleNamespace(guest=self.guest, work=None,
                                          write_config=lambda setting: None)

    def test_the_second_guest_is_on_a_bridge_with_the_first_nic(self):
        with mock.patch.object(soft_roce, "exchange", return_value="done"):
            self.assertEqual(soft_roce.soft_roce(self.ends), "done")
        self.assertIn("link set nic1p0 master roce", self.calls)
        self.assertEqual(self.calls[-1], "link delete roce")
        link = self.second.call_args.args[3]
        self.assertEqual((link.interface, link.bridge), ("roce3", "roce"))

    def test_a_guest_that_does_not_boot_leaves_nothing_behind(self):
        self.second.return_value.__enter__.return_value.wait_until_ready.side_effect = (
            LabFailure("no boot"))
        with self.assertRaisesRegex(LabFailure, "no boot"):
            soft_roce.soft_roce(self.ends)
        self.second.return_value.__exit__.assert_called_once()
        self.assertEqual(self.calls[-1], "link delete roce")
        self.assertEqual(self.guest.said[-1][0], "killall -9 uroce-perf")


if __name__ == "__main__":
    unittest.main()
