"""Which test a citation means, and what became of it: nextest is asked for both. What passed in a
run before, by its log, is not run again."""

import json
import os
import re
import subprocess
from dataclasses import dataclass
from xml.etree import ElementTree

# All packages at once, as `deploy/test all` builds them.
BUILD = ("--workspace", "--all-features")
PROFILE = "checks"
# Where .config/nextest.toml has this profile's report; CARGO_TARGET_DIR does not move it.
JUNIT = f"target/nextest/{PROFILE}/junit.xml"
CAPTURE_DIR = "UROCE_CAPTURE_DIR"
# A line of nextest's log: time, place in the run, binary and name.
PASSED = re.compile(r"^ *PASS \[[^\]]*\] \([ \d]+/\d+\) (\S+) (\S+)$", re.MULTILINE)


@dataclass(frozen=True, order=True)
class Test:
    """A test as nextest names it."""

    binary: str
    name: str

    def __str__(self):
        return f"{self.binary} {self.name}"


class CheckFailure(Exception):
    """Carries a sentence for the person at the terminal."""


def listed(repository):
    """All tests that are not ignored."""
    command = ["cargo", "nextest", "list", "--message-format", "json", *BUILD]
    done = subprocess.run(command, cwd=repository, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise CheckFailure("the tests do not build, see above")
    return {
        Test(binary, name)
        for binary, suite in json.loads(done.stdout)["rust-suites"].items()
        for name, case in suite["testcases"].items()
        if not case["ignored"]
    }


def resolve(citation, tests, repository):
    """The test that a citation stands at, among those listed."""
    package, binary, module = place(citation.path, repository)
    names = [
        test for test in tests
        if test.binary == (f"{package}::{binary}" if binary else package)
        and test.name.split("::")[-1] == citation.function
        and test.name.startswith(module)
    ]
    return sorted(names)


def place(path, repository):
    """Package, test binary (or nothing: the library) and module prefix of a source file."""
    crate = path.parent
    while not (repository / crate / "Cargo.toml").exists():
        crate = crate.parent
    manifest = (repository / crate / "Cargo.toml").read_text()
    package = re.search(r'^name = "(.*)"', manifest, re.MULTILINE)[1]
    folder, *parts = path.relative_to(crate).with_suffix("").parts
    binary = ""
    if folder == "tests":
        binary, *parts = parts
    elif parts[0] == "bin":
        binary, parts = f"bin/{parts[1]}", parts[2:]
    if parts and parts[-1] in ("main", "lib", "mod"):
        parts.pop()
    return package, binary, "".join(f"{part}::" for part in parts)


def passed_before(logs):
    """The tests that passed in the runs of these logs."""
    return {Test(*found) for log in logs for found in PASSED.findall(log.read_text())}


def run(repository, tests, captures):
    """Runs these tests and tells of each whether it passed."""
    if not tests:
        return {}
    junit = repository / JUNIT
    junit.unlink(missing_ok=True)
    environment = dict(os.environ)
    if captures:
        environment[CAPTURE_DIR] = str(captures)
    command = ["cargo", "nextest", "run", "--profile", PROFILE, "--no-fail-fast",
               "--status-level", "fail", "--final-status-level", "fail", *BUILD]
    for binary in sorted({test.binary for test in tests}):
        names = sorted(test.name for test in tests if test.binary == binary)
        some = " | ".join(f"test(={name})" for name in names)
        command += ["-E", f"binary_id(={binary}) & ({some})"]
    subprocess.run(command, cwd=repository, env=environment, stdout=subprocess.DEVNULL)
    if not junit.exists():
        raise CheckFailure("the tests did not run, see above")
    return {
        Test(suite.get("name"), case.get("name")): passed(case)
        for suite in ElementTree.parse(junit).getroot().iter("testsuite")
        for case in suite.iter("testcase")
    }


def passed(case):
    """Did this test case of a JUnit report pass?"""
    return case.find("failure") is None and case.find("error") is None
