"""Tests the parts of deploy/peer-rxe that need no kernel: configuration, the guest's lines."""

import os
import pathlib
import tempfile
import time
import unittest

from report.failure import LabFailure
from rxe import bounded, guest, kernel, measure

BANDWIDTH = """\
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      9000             0.00               2.31                 0.004406"""
DURATION = """\
 #bytes        #iterations       t_avg[usec]    tps average
 64            20000             48.10          10395.01"""
TURNS = """\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    \
t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 64      20000          40.10          900.50       47.20              48.00          \
3.10            60.30                   120.40"""


def spoken(test, size, path_mtu, samples, output, status=0, counters=()):
    """The lines of a measurement with their times."""
    lines = [(0, f"begin {test} {size} {path_mtu}")]
    lines += [(0, f"counter before rxe{end} {name} 5") for end, name, _ in counters]
    lines += [(moment, f"sample {first} {second}") for moment, first, second in samples]
    lines += [(9, f"status {part} {end} {status}")
              for part in output for end in ("server", "client")]
    lines += [(9, f"output {part} client {line}")
              for part, text in output.items() for line in text.splitlines()]
    lines += [(9, f"counter after rxe{end} {name} {5 + more}") for end, name, more in counters]
    return [*lines, (9, "end")]


def read(lines):
    """What a reader makes of lines: the figures of the last."""
    reader = measure.Reader()
    return [reader.take(moment, line) for moment, line in lines][-1]


class Figures(unittest.TestCase):
    def test_throughput_is_the_senders_packets_over_the_time_between_the_samples(self):
        # 16 packets for a message: 2,000 messages in two seconds.
        samples = [(10.0, 7, 1000), (12.0, 99, 33000)]
        point = read(spoken("write_bw", 65536, 4096, samples, {"run": BANDWIDTH}))
        self.assertEqual(point["messages_per_second"], 1000)
        self.assertAlmostEqual(point["gbps"], 1000 * 65536 * 8 / 1e9)
        self.assertEqual((point["perftest_gbps"], point["repairs"]), (2.31, {}))

    def test_reads_are_counted_at_the_server_which_sends_the_data(self):
        samples = [(0.0, 100, 0), (1.0, 500, 9)]
        point = read(spoken("read_bw", 4000, 1024, samples, {"run": BANDWIDTH}))
        self.assertEqual(point["messages_per_second"], 100)

    def test_the_latency_of_a_read_is_a_whole_turn(self):
        samples = [(0.0, 0, 0), (1.0, 20000, 9)]
        point = read(spoken("read_lat", 8192, 4096, samples, {"run": DURATION, "turns": TURNS}))
        self.assertEqual((point["usec"], point["perftest_usec"]), (100, 48.1))
        self.assertEqual([point[name] for name in ("p50_usec", "p99_usec", "p999_usec")],
                         [47.2, 60.3, 120.4])

    def test_perftest_without_a_clock_has_no_figures(self):
        said = f"Correlation coefficient r^2: 0.8 < 0.9\n{BANDWIDTH}"
        point = read(spoken("write_bw", 64, 1024, [(0, 0, 0), (1, 0, 9)], {"run": said}))
        self.assertEqual((point["messages_per_second"], point["perftest_gbps"]), (9, None))

    def test_what_was_sent_again_is_named(self):
        counters = [(0, "out_of_seq_request", 3), (1, "completer_retry_err", 1),
                    (1, "sent_pkts", 9)]
        point = read(spoken("send_bw", 64, 1024, [(0, 0, 0), (1, 0, 9)], {"run": BANDWIDTH},
                            counters=counters))
        self.assertEqual(point["repairs"], {"out_of_seq_request": 3, "completer_retry_err": 1})

    def test_a_failure_of_perftest_is_an_error_with_its_words(self):
        said = {"run": "Couldn't connect to 127.0.0.1:18515"}
        point = read(spoken("send_bw", 64, 1024, [], said, status=1))
        self.assertIn("ib_send_bw of 64 bytes, path MTU 1024 failed", point["error"])
        self.assertIn("Couldn't connect", point["error"])

    def test_a_sample_after_the_end_is_an_error(self):
        lines = spoken("send_bw", 64, 1024, [(0, 0, 4), (2, 0, 9)], {"run": BANDWIDTH})
        self.assertIn("too busy", read([*lines[:3], (2, "late"), *lines[3:]])["error"])

    def test_a_run_without_packets_is_an_error(self):
        point = read(spoken("send_bw", 64, 1024, [(0, 0, 4), (2, 0, 4)], {"run": BANDWIDTH}))
        self.assertIn("no packet in 2.0 s", point["error"])

    def test_a_table_without_a_time_has_no_figures(self):
        for row in (" 64 1000 -nan -nan inf", " 64 1000 0.00", ""):
            self.assertEqual(measure.table([BANDWIDTH.splitlines()[0], row]), {})

    def test_the_path_mtu_leaves_room_for_headers(self):
        self.assertEqual([measure.path_mtu(mtu) for mtu in (9000, 4200, 4175, 1500, 336)],
                         [4096, 4096, 2048, 1024, 256])

    def test_a_broken_line_is_quoted(self):
        for line in ("sample 1 x", "begin write_bw", "counter before rxe0"):
            with self.assertRaisesRegex(LabFailure, f"cannot be read: {line}"):
                read([(0, "begin write_bw 64 1024"), (0, line)])

    def test_a_guest_without_soft_roce_is_told_of(self):
        with self.assertRaisesRegex(LabFailure, "no Soft-RoCE on peer0"):
            read([(0, "failed no Soft-RoCE on peer0")])


class Configuration(unittest.TestCase):
    def test_an_option_that_is_lost_is_named(self):
        kernel.check("CONFIG_A=y\nCONFIG_B=n\n# CONFIG_C is not set\n", "CONFIG_A=y\n")
        for got in ("# CONFIG_A is not set\n", "CONFIG_A=m\n", ""):
            with self.assertRaisesRegex(LabFailure, r"CONFIG_A=y \(it has [nm]\)"):
                kernel.check("CONFIG_A=y\n", got)
        with self.assertRaisesRegex(LabFailure, r"CONFIG_B=n \(it has y\)"):
            kernel.check("CONFIG_B=n\n", "CONFIG_B=y\n")

    def test_the_options_ask_for_soft_roce(self):
        wanted = kernel.settings(kernel.CONFIG.read_text())
        self.assertEqual({wanted[f"CONFIG_{name}"] for name in
                          ("RDMA_RXE", "VETH", "UML_PCI_OVER_VIRTIO")}, {"y"})

    def test_only_a_kernel_with_the_present_options_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            self.assertIsNone(kernel.find(folder))
            for name in ("kernel-6.1-00000000", f"kernel-6.1-{kernel.config_hash()}"):
                (folder / name).mkdir()
                (folder / name / "linux").touch()
            self.assertEqual(kernel.find(folder).folder.name, f"kernel-6.1-{kernel.config_hash()}")


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.log = pathlib.Path(folder.name, "log")

    def test_a_program_that_takes_too_long_is_killed_with_its_children(self):
        begin = time.monotonic()
        with self.assertRaisesRegex(LabFailure, "sleeping took longer than 0.2 s"):
            bounded.run(["sh", "-c", "sleep 60 & echo $!; wait"], 0.2, self.log, "sleeping")
        self.assertLess(time.monotonic() - begin, 30)
        child = int(self.log.read_text())
        deadline = time.monotonic() + 10
        while running(child) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertFalse(running(child))

    def test_a_program_that_fails_is_quoted(self):
        script = "echo compiling; echo 'x.c: error: no'; echo stop; exit 3"
        with self.assertRaisesRegex(LabFailure, "status 3(.|\n)*x.c: error: no$"):
            bounded.run(["sh", "-c", script], 10, self.log, "building")

    def test_whole_lines_arrive_until_nothing_is_said(self):
        reading, writing = os.pipe()
        os.write(writing, b"uroce: one\r\nuroce: tw")
        lines = [line for _, line in guest.arriving(reading, 0.05)]
        os.close(writing)
        os.close(reading)
        self.assertEqual(lines, ["uroce: one"])


def running(process):
    """Whether a process is there and no zombie."""
    try:
        state = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


if __name__ == "__main__":
    unittest.main()
