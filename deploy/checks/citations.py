"""Citations in the sources: `//= check A1 — …` at code, `//= check A1 test` at a test."""

import re
from dataclasses import dataclass
from pathlib import Path

FOLDERS = ("dataplane", "controlplane", "bindings", "bench")
CITATION = re.compile(r"//= check ([A-Z]\d+)( test\b)?")
CLAUSE = re.compile(r"-|[A-Z]?\d+(?:[.-]\d+)*(?:,[A-Z]?\d+(?:[.-]\d+)*)*")
FUNCTION = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?(?:async |unsafe |const )*fn (\w+)")


@dataclass(frozen=True)
class Citation:
    """One citation and its place."""

    row: str
    path: Path
    line: int
    is_test: bool
    function: str
    """The test function that it belongs to; empty for code."""

    def __str__(self):
        return f"{self.path}:{self.line}"


def collect(repository):
    """All citations of the sources. Code of the simulator and of tests is not product code."""
    found = []
    for folder in FOLDERS:
        for path in sorted((repository / folder).rglob("*.rs")):
            relative = path.relative_to(repository)
            if "target" not in relative.parts:
                found += in_file(relative, path.read_text().splitlines())
    return found


def in_file(path, lines):
    """The citations of one file."""
    is_product = not {"sim", "tests"} & {*path.parts[:-1], path.stem}
    found = []
    for index, line in enumerate(lines):
        for row, test in CITATION.findall(line):
            if test:
                found.append(Citation(row, path, index + 1, True, function_of(lines, index)))
            elif is_product:
                found.append(Citation(row, path, index + 1, False, ""))
    return found


def function_of(lines, index):
    """The function that begins right after the citation, or the one around it."""
    for line in lines[index:]:
        text = line.strip()
        if match := FUNCTION.match(line):
            return match[1]
        if text and not text.startswith(("//", "#[")):
            break
    for line in reversed(lines[:index]):
        if match := FUNCTION.match(line):
            return match[1]
    return ""


@dataclass(frozen=True)
class Row:
    """A behaviour to be proven."""

    clause: str
    """The clauses of the specification that rule it, separated by commas; `-` if none is known."""
    title: str


def rows(path):
    """The rows to be proven: id to row. Raises ValueError for a line that is none."""
    table = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            parts = line.split(maxsplit=2)
            if len(parts) < 3 or not CLAUSE.fullmatch(parts[1]) or parts[0] in table:
                raise ValueError(f"{path.name}: not an id, a clause and a title: {line}")
            table[parts[0]] = Row(parts[1], parts[2])
    return table
