"""perftest's options: Debian's programs with them over the drop-in library, among themselves and
with uroce-perf at either end.

Both ends get the same options. Each must end with the status of the case, and the client must print
the columns and a row that perftest has with the option.

Observed with Debian's programs: only the client of a one-sided test checks `-w` and `-y`, and those
of SEND check neither. uroce-perf checks them at every end that has them.
"""

import re
from pathlib import Path

from dataplane import programs

from .programs import PERFTEST_PORT, Program

# First word of the names of these cases.
GROUP = "options"
OURS = "uroce-perf"
# Exit statuses of the server and the client of a stock program.
GOOD, BELOW, UNCHECKED = (0, 0), (0, 1), (0, 0)
# Exit status of uroce-perf if a result is below a limit.
OURS_BELOW = 1
# Limits that no machine reaches.
LIMITS = {"-w 100000000", "-y 100000"}

BANDWIDTH = r" #bytes +#iterations +BW peak\[Mi?B/sec\] +BW average\[Mi?B/sec\] +MsgRate\[Mpps\]"
LATENCY = r" #bytes #iterations +t_min\[usec\] +t_max\[usec\] +t_typical\[usec\]"
CPU = r" +CPU_Util\[%\]"
LISTED = r"^#, usec$"
BOTH = r"^ Local results: ?$", r"^ Remote results: ?$"
XRC = r"^ Connection type : XRC\s+Using SRQ      : ON$"

# Test, options, expressions that the client's output must have, and the stock statuses.
TABLE = (
    ("write_bw", "-n 100 -S 3 --tclass=96", (BANDWIDTH,), GOOD),
    ("send_bw", "-n 100 -s 64 -S 3 --tclass=96 -c UD", (BANDWIDTH,), GOOD),
    ("write_bw", "-D 4 -f 1 --cpu_util", (BANDWIDTH + CPU,), GOOD),
    ("send_lat", "-D 4 -f 1", (r" #bytes +#iterations +t_avg\[usec\] +tps average",), GOOD),
    ("write_bw", "-n 100 --perform_warm_up", (BANDWIDTH,), GOOD),
    ("read_bw", "-n 100 -q 2 --perform_warm_up", (BANDWIDTH,), GOOD),
    ("write_bw", "-n 100 -b --report-both", (BANDWIDTH, *BOTH), GOOD),
    ("write_bw", "-n 100 -w 1 -y 0.000001", (BANDWIDTH,), GOOD),
    ("write_bw", "-n 100 -w 100000000", (BANDWIDTH,), BELOW),
    ("send_bw", "-n 100 -y 100000", (BANDWIDTH,), UNCHECKED),
    ("send_bw", "-n 128 --recv_post_list=16 -s 64", (BANDWIDTH,), GOOD),
    ("send_bw", "-n 100 -e -s 4096", (BANDWIDTH,), GOOD),
    ("send_bw", "-n 100 --use-srq -q 2 -s 64", (BANDWIDTH, r"Using SRQ      : ON"), GOOD),
    ("send_bw", "-n 100 -s 64 -g -M 0:0:0:0:0:0:0:0:0:0:255:255:224:0:0:30", (BANDWIDTH,), GOOD),
    ("write_bw", "-n 100 -q 2 --mr_per_qp", (BANDWIDTH,), GOOD),
    ("send_lat", "-n 100 -U", (LATENCY, LISTED), GOOD),
    ("read_lat", "-n 100 -H", (LATENCY, LISTED), GOOD),
    ("write_lat", "-n 100 -C", (r" #bytes #iterations",), GOOD),
    ("send_lat", "-n 100 --latency_gap=100", (LATENCY,), GOOD),
    ("write_bw", "-n 400 -s 4096 -t 8 --rate_limit=64 --rate_units=M --rate_limit_type=SW "
                 "--burst_size=8", (BANDWIDTH,), GOOD),
    ("send_bw", "-n 100 -s 64 -c XRC -b -q 2", (BANDWIDTH, XRC), GOOD),
    ("write_bw", "-n 100 -c XRC -q 2", (BANDWIDTH, XRC), GOOD),
    ("write_bw", "-n 100 -c XRC -b", (BANDWIDTH, XRC), GOOD),
    ("read_bw", "-n 100 -c XRC -b -q 2", (BANDWIDTH, XRC), GOOD),
    ("atomic_bw", "-n 100 -c XRC", (BANDWIDTH, XRC), GOOD),
    ("send_lat", "-n 100 -c XRC", (LATENCY, XRC), GOOD),
    ("write_lat", "-n 100 -c XRC", (LATENCY, XRC), GOOD),
    ("read_lat", "-n 100 -c XRC", (LATENCY, XRC), GOOD),
    ("atomic_lat", "-n 100 -c XRC", (LATENCY, XRC), GOOD),
)

# Kinds of the programs at the two ends: the server's, and the client's.
PAIRS = (("stock", "stock"), ("ours", "stock"), ("stock", "ours"))


def table(case):
    """All cases, made by the function `case`."""
    for server, client in PAIRS:
        for test, options, texts, stock in TABLE:
            both = program(test, server, client, options, texts, stock)
            yield case(both, tuple(options.split()))


def name_of(kind, test):
    """Program of a test: perftest's, or uroce-perf."""
    return f"ib_{test}" if kind == "stock" else OURS


def program(test, server, client, options, texts, stock):
    """The two programs of a row."""
    below = any(limit in options for limit in LIMITS)
    ours = (OURS_BELOW, OURS_BELOW) if below else GOOD
    statuses = [(stock if kind == "stock" else ours)[role]
                for role, kind in enumerate((server, client))]

    def words(case, here, there, serving):
        kind = server if serving else client
        options = [*([test] if kind == "ours" else ["-F"]), "-p", PERFTEST_PORT, *case.options]
        return options if serving else [*options, there.meeting]

    def fault(_, text, served):
        return "" if served else missing(text, texts)

    return Program(name_of(server, test), words, fault, PERFTEST_PORT, status=statuses[1],
                   client=name_of(client, test), server_status=statuses[0])


def missing(text, texts):
    """What an output lacks of the expressions, and of a row."""
    lacks = [of for of in texts if not re.search(of, text, re.MULTILINE)]
    if lacks:
        return f"did not say: {', '.join(lacks)}"
    timed = re.search(r"^ *\d+ +\d+ +[\d.]+", text, re.MULTILINE)
    return "" if programs.rows(text) or timed else "printed no row"


def search(uroce_perf):
    """Folder in which programs are looked for, so that uroce-perf is found."""
    return Path(uroce_perf).resolve().parent
