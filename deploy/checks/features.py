"""`FEATURES.md`: the features, written by hand, and the behaviours, made from the sources.

What stands above the mark is kept as it is. Below it there is a line for each row of `rows.txt`,
with the files that cite it and the tests that prove it. Lines of sources are not named, so that the
file changes only when a behaviour, a file or a test does.
"""

import collections

MARK = "<!-- The rest is written by `deploy/test checks --features`. -->"
# The groups of rows, by the letter of their ids.
GROUPS = {
    "A": "Loss, duplicates and order (RC)",
    "B": "Timers and retries",
    "C": "READ",
    "D": "Atomics",
    "E": "Malformed and misdirected packets",
    "F": "Memory and keys",
    "G": "Completions, errors and events",
    "H": "QP states and attributes",
    "I": "Path migration",
    "J": "Connection management",
    "K": "Congestion",
    "L": "UC, UD and multicast",
    "P": "ATOMIC WRITE and FLUSH",
    "S": "Static rate",
    "W": "Raw",
    "X": "XRC",
    "R": "RD",
}


def stale(path, rows, found):
    """Whether the file is not what its rows and citations make of it."""
    text = path.read_text()
    return text != updated(text, rows, found)


def updated(text, rows, found):
    """The file's text with the part below the mark made anew.

    Raises ValueError if it has no mark."""
    head, mark, _ = text.partition(MARK)
    if not mark:
        raise ValueError(f"FEATURES.md has no line {MARK}")
    return f"{head}{MARK}\n{table(rows, found)}"


def table(rows, found):
    """All rows, by group."""
    code, tests = collections.defaultdict(set), collections.defaultdict(set)
    for citation in found:
        if citation.is_test:
            tests[citation.row].add((str(citation.path), citation.function))
        else:
            code[citation.row].add(str(citation.path))
    lines, group = [], None
    for name, row in rows.items():
        if name[0] != group:
            group = name[0]
            lines += ["", f"### {group}: {GROUPS[group]}", ""]
            lines.append("| row | behaviour | clause | code | tests |")
            lines.append("| --- | --- | --- | --- | --- |")
        cells = (name, row.title, row.clause, listed(code[name]), by_file(tests[name]))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def listed(paths):
    """File names, each a link."""
    return ", ".join(link(path) for path in sorted(paths)) or "none"


def by_file(tests):
    """Tests, behind the file that they stand in."""
    files = collections.defaultdict(list)
    for path, function in sorted(tests):
        files[path].append(f"`{function}`")
    return "; ".join(f"{link(path)}: {', '.join(names)}" for path, names in files.items()) or "none"


def link(path):
    """A source file, as its crate's part of the path, linked from deploy/checks."""
    crate, _, rest = path.partition("/src/")
    if not rest:
        crate, _, rest = path.partition("/tests/")
        rest = f"tests/{rest}"
    return f"[{crate.rsplit('/')[-1]}/{rest}](../../{path})"
