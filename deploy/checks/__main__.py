"""deploy/test checks: every behaviour that has to be proven, its tests, and their verdicts."""

import argparse
import collections
import sys
import tempfile
from pathlib import Path

import citations
import features
import results
from results import CheckFailure

CHECKS = Path(__file__).resolve().parent
REPOSITORY = CHECKS.parent.parent
FEATURES = CHECKS / "FEATURES.md"
PASS, FAIL, NOT_YET = "pass", "FAIL", "not yet"


def main():
    """Returns the exit status: 0 all rows pass, 1 some do not, 2 nothing could be run."""
    asked = parse()
    rows = citations.rows(CHECKS / "rows.txt")
    unknown = set(asked.rows) - rows.keys()
    if unknown:
        print(f"no such row: {' '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    wanted = [row for row in rows if not asked.rows or row in asked.rows]
    found = citations.collect(REPOSITORY)
    if asked.features:
        text = features.updated(FEATURES.read_text(), rows, found)
        FEATURES.write_text(text)
        return 0
    flaws = one_sided(found, rows)
    if asked.citations:
        if features.stale(FEATURES, rows, found):
            flaws.append(f"{FEATURES.name} is not up to date: run deploy/test checks --features")
        tell(flaws)
        return 1 if flaws else 0
    try:
        with tempfile.TemporaryDirectory(prefix="uroce-checks-") as captures:
            before = results.passed_before(asked.passed)
            verdicts, lost = verdicts_of(found, wanted, captures if asked.pcap else None, before)
            if asked.pcap:
                write_captures(verdicts, wanted, Path(captures), asked.pcap)
    except CheckFailure as failure:
        print(f"checks: {failure}", file=sys.stderr)
        return 2
    count = report(wanted, rows, verdicts, flaws)
    tell(lost)
    print(f"checks: {len(wanted)} rows, {count[PASS]} pass, {count[FAIL]} fail, "
          f"{count[NOT_YET]} not yet")
    return 0 if count[PASS] == len(wanted) and not lost else 1


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="deploy/test checks",
        description="Runs the tests that prove the rows of deploy/checks/rows.txt.",
    )
    parser.add_argument("rows", nargs="*", metavar="ID", help="only these rows, e.g. A1 E20")
    parser.add_argument("--pcap", type=Path, metavar="DIR",
                        help="write the packets of each row to DIR/ID.pcapng; a relative DIR is "
                             "taken from the repository's root")
    parser.add_argument("--passed", type=Path, metavar="LOG", nargs="*", default=[],
                        help="do not run again what passed in the runs of nextest with these logs")
    parser.add_argument("--citations", action="store_true",
                        help="run nothing; tell which rows lack a citation at a test or at code")
    parser.add_argument("--features", action="store_true",
                        help="run nothing; write deploy/checks/FEATURES.md anew")
    return parser.parse_args()


def one_sided(found, rows):
    """Rows that are cited only at tests, only at code, or nowhere."""
    at_test = {citation.row for citation in found if citation.is_test}
    at_code = {citation.row for citation in found if not citation.is_test}
    flaws = [f"{row} no test cites it" for row in rows if row not in at_test]
    flaws += [f"{row} no code cites it" for row in rows if row not in at_code]
    return flaws


def verdicts_of(found, wanted, captures, before):
    """For each row its tests and whether they passed; and citations that belong to no test. Tests
    in `before` have passed and are not run."""
    verdicts = collections.defaultdict(dict)
    tests = results.listed(REPOSITORY)
    cited = {
        citation: results.resolve(citation, tests, REPOSITORY)
        for citation in found if citation.is_test and citation.row in wanted
    }
    wanted_tests = {test for tests in cited.values() for test in tests}
    passed = results.run(REPOSITORY, wanted_tests - before, captures)
    passed.update((test, True) for test in before)
    for citation, tests in cited.items():
        for test in tests:
            verdicts[citation.row][test] = passed.get(test, False)
    unresolved = sorted((citation for citation, tests in cited.items() if not tests), key=str)
    lost = [f"{citation} cites {citation.row} at no test that runs" for citation in unresolved]
    return verdicts, lost


def write_captures(verdicts, wanted, captures, folder):
    """Writes one file per row: its tests' captures one after the other, as pcapng allows."""
    folder.mkdir(parents=True, exist_ok=True)
    for row in wanted:
        parts = [captures / f"{test.name}.pcapng" for test in sorted(verdicts[row])]
        parts = [part.read_bytes() for part in parts if part.exists()]
        if parts:
            (folder / f"{row}.pcapng").write_bytes(b"".join(parts))
        else:
            print(f"{row}: no capture, its tests send over rings or not at all", file=sys.stderr)


def report(wanted, rows, verdicts, flaws):
    """Prints the table. Returns the number of rows with each verdict."""
    count = collections.Counter()
    for row in wanted:
        missing = [flaw.split(maxsplit=1)[1] for flaw in flaws if flaw.split()[0] == row]
        tests = verdicts[row]
        verdict = FAIL if not all(tests.values()) else NOT_YET if missing else PASS
        count[verdict] += 1
        clause = "" if rows[row].clause == "-" else f" [{rows[row].clause}]"
        print(f"{row:4}{verdict:8} {rows[row].title}{clause}"
              f"{''.join(f'; {what}' for what in missing)}")
        for test, has_passed in sorted(tests.items()):
            print(f"            {test}{'' if has_passed else '  FAILED'}")
    return count


def tell(lines):
    """Prints what is wrong besides the verdicts."""
    for line in lines:
        print(line)


if __name__ == "__main__":
    sys.exit(main())
