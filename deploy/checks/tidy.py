#!/usr/bin/env python3
"""House rules that no compiler checks: prints `file:line: rule: what to do` for each breach.

  tidy.py [REPOSITORY]     exit status 0 if there is none, 1 if there is one

Places that broke a rule when the rule was made stand in tidy-known.txt; an entry that no longer
breaks its rule is a breach itself, so that the list only becomes shorter.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import imports

FOLDERS = ("dataplane", "controlplane", "bindings", "bench", "deploy")
COLUMNS = 100
FUNCTION_LINES = 70
README_BYTES = 10_240
CIRCLE_FILES = 3

COMMENT = re.compile(r"^\s*//[/!]?(?!=)\s?(.*)")
DOC = re.compile(r"^\s*//[/!](?!/)\s?(.*)")
PERSONS = re.compile(r"\b(?:who|whoever|whom|whose|nobody|somebody)\b", re.IGNORECASE)
OPENINGS = re.compile(r"(?:The same\b|As (?:there|above|here)\b|As \[|Of )")
RELATIVE_SAFETY = re.compile(r"SAFETY: (?:as (?:above|there|in|before)|the same)\b", re.IGNORECASE)
QUALIFIERS = r"(?:pub(?:\([^)]*\))? )?(?:(?:const|async|unsafe|extern \"C\") )*"
FUNCTION = re.compile(rf"^(\s*){QUALIFIERS}fn (\w+)")
ALLOWS_UNSAFE = re.compile(r"#!?\[allow\([^)]*\bunsafe_code\b")
PATH_ATTRIBUTE = re.compile(r'#\[path = "([^"]+)"\]')
LEFT_OVER = re.compile(r"\b(?:todo!|unimplemented!|dbg!)\s*[(\[{]|\b(?:FIXME|XXX)\b")

# Files and folders in which `allow(unsafe_code)` may stand: FFI, shared memory, the processor.
UNSAFE = (
    "bench/src/cost/valgrind.rs",
    "bindings/dpdk-sys/src/lib.rs",
    "bindings/verbs/src/mr.rs",
    "bindings/verbs/src/raw/memory.rs",
    "controlplane/command/src/peer.rs",
    "controlplane/command/src/run_dir.rs",
    *(
        f"dataplane/engine/src/{name}.rs"
        for name in (
            "control/memory", "control/signals", "dpdk/eal", "dpdk/mbuf", "dpdk/port",
            "dpdk/telemetry",
        )
    ),
    *(f"dataplane/local/src/{name}.rs" for name in ("memory", "system")),
    *(
        f"dataplane/shared/src/{name}.rs"
        for name in (
            "copy/guarded", "copy/prefetch", "copy/sum", "memory/mr_table", "memory/mw",
            "memory/resolve", "models", "seat/contention", "sync", "sync/eventfd", "sync/model",
            "sync/peer", "table/published", "time/clock",
        )
    ),
)

# Crates that each crate of ours may depend on.
LAYERS = {
    "uroce-wire": (),
    "uroce-transport": ("uroce-wire",),
    "uroce-wirecheck": ("uroce-wire",),
    "uroce-sim": ("uroce-transport", "uroce-wire", "uroce-wirecheck"),
    "uroce-cm": ("uroce-transport", "uroce-wire"),
    "uroce-cm-sim": ("uroce-cm", "uroce-transport", "uroce-wire"),
    "dpdk-sys": (),
    "uroce-shared": ("uroce-transport", "uroce-wire"),
    "uroce-udp": ("uroce-wire",),
    "uroce-local": ("uroce-shared", "uroce-transport", "uroce-wire"),
    "uroce-engine": (
        "dpdk-sys", "uroce-local", "uroce-shared", "uroce-transport", "uroce-udp", "uroce-wire",
    ),
    "uroce-command": (),
    "uroce-controlplane": (
        "uroce-cm", "uroce-command", "uroce-engine", "uroce-transport", "uroce-wire",
    ),
    "uroce": ("uroce-controlplane", "uroce-engine", "uroce-transport", "uroce-wire"),
    "uroce-cli": ("uroce", "uroce-command"),
}

# Folders whose modules stand on floors, from the ground up: each imports from those before it only.
FLOORS = {
    "dataplane/shared/src": (
        "sync", "copy", "time", "table", "memory", "wake", "queue", "seat", "models",
    ),
    "dataplane/engine/src": (
        "limits", "counters", "dpdk", "port", "lane", "qp", "rx", "lcore", "control",
    ),
    "bindings/verbs/src": (
        "core", "context", "event", "channel", "cq", "pd", "mr", "mw", "ah", "wr", "srq", "qp",
        "raw", "cm",
    ),
    "bindings/verbs-abi/src": (
        "abi", "errno", "handle", "quota", "room", "runtime", "acks", "event_queue", "entry",
        "objects", "ibv", "rdma",
    ),
}
CRATE_PATH = re.compile(r"\bcrate::(?:(\w+)|\{[^;]*\};)")


@dataclass(frozen=True)
class Breach:
    """A place where a rule is broken."""

    path: str
    line: int
    rule: str
    remedy: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.rule}: {self.remedy}"


def check(repository):
    """The breaches of the tree that are not known, and known places that are none any more."""
    known = read_known(repository / "deploy/checks/tidy-known.txt")
    found = list(breaches(repository))
    unknown = [breach for breach in found if (breach.rule, breach.path) not in known]
    used = {(breach.rule, breach.path) for breach in found}
    remedy = "no longer breaks its rule; delete the entry"
    stale = [
        Breach("deploy/checks/tidy-known.txt", line, "known", f"{rule} {path} {remedy}")
        for (rule, path), line in known.items()
        if (rule, path) not in used
    ]
    return unknown + stale


def read_known(path):
    """Known breaches, as (rule, path), with the line of each."""
    if not path.exists():
        return {}
    lines = enumerate(path.read_text().splitlines(), 1)
    return {tuple(line.split()): number for number, line in lines if line and line[0] != "#"}


def breaches(repository):
    """All breaches of the tree."""
    for path in sources(repository):
        text = path.read_text()
        name = str(path.relative_to(repository))
        yield from of_lines(name, text.splitlines())
        if path.suffix == ".rs":
            yield from of_rust(name, text.splitlines())
            yield from of_paths(repository, path, text)
    yield from of_documents(repository)
    yield from of_layers(repository)
    yield from of_circles(repository)
    yield from of_floors(repository)


def sources(repository):
    """Files of program text, without what was built."""
    for folder in FOLDERS:
        for path in sorted((repository / folder).rglob("*")):
            is_source = path.suffix in (".rs", ".py", ".sh") and path.is_file()
            if is_source and "target" not in path.relative_to(repository).parts:
                yield path


def of_lines(name, lines):
    """Rules for each line of any file."""
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS and not is_unbreakable(name, line):
            yield Breach(name, number, "columns", f"{len(line)} columns; at most {COLUMNS}")


def is_unbreakable(name, line):
    """Whether the line holds a link, or is Rust code with a text, which rustfmt leaves alone."""
    is_rust_text = name.endswith(".rs") and '"' in line and not COMMENT.match(line)
    return is_rust_text or max(map(len, line.split())) > COLUMNS - 30


def of_rust(name, lines):
    """Rules for one Rust file."""
    allows = name in UNSAFE
    for number, line in enumerate(lines, 1):
        if match := COMMENT.match(line):
            yield from of_comment(name, number, match[1], bool(DOC.match(line)))
        elif ALLOWS_UNSAFE.search(line) and not allows:
            yield Breach(name, number, "unsafe", "keep unsafe code in the files that tidy.py names")
        elif match := LEFT_OVER.search(line):
            yield Breach(name, number, "left-over", f"finish or remove {match[0]}")
    yield from of_functions(name, lines)


def of_comment(name, number, text, is_doc):
    """Rules for the language of one comment line."""
    if match := PERSONS.search(text):
        yield Breach(name, number, "language", f"name the thing instead of “{match[0]}”")
    if is_doc and (match := OPENINGS.match(text)):
        yield Breach(name, number, "language", f"a doc comment names its subject, not “{match[0]}”")
    if match := RELATIVE_SAFETY.search(text):
        yield Breach(name, number, "language", f"state the fact instead of “{match[0]}”")


def of_functions(name, lines):
    """Functions that are too long: rustfmt puts a function's end in its own column."""
    for begin, line in enumerate(lines):
        if not (match := FUNCTION.match(line)) or line.rstrip().endswith((";", "}")):
            continue
        for end in range(begin + 1, len(lines)):
            if lines[end].startswith(match[1] + ")") and lines[end].endswith(";"):
                # The function of a trait, without a body.
                break
            if lines[end] == match[1] + "}":
                if end - begin + 1 > FUNCTION_LINES:
                    remedy = f"{match[2]} has {end - begin + 1} lines; at most {FUNCTION_LINES}"
                    yield Breach(name, begin + 1, "function", remedy)
                break


def of_paths(repository, path, text):
    """`#[path]` attributes that compile another crate's file."""
    crate = crate_of(repository, path)
    for number, line in enumerate(text.splitlines(), 1):
        if match := PATH_ATTRIBUTE.search(line):
            # An attribute inside an inline module is relative to that module's folder.
            target = (path.parent / match[1]).resolve()
            if crate not in target.parents:
                name = str(path.relative_to(repository))
                yield Breach(name, number, "path", "depend on the other crate instead")


def crate_of(repository, path):
    """The folder of the crate that a file belongs to."""
    folder = path.parent.resolve()
    while folder != repository.resolve() and not (folder / "Cargo.toml").exists():
        folder = folder.parent
    return folder


def of_documents(repository):
    """README's size, and the paths that documents name."""
    if (size := (repository / "README.md").stat().st_size) > README_BYTES:
        yield Breach("README.md", 1, "document", f"{size} bytes; at most {README_BYTES}")
    for path in sorted([repository / "README.md", *repository.glob("*/**/*.md")]):
        name = str(path.relative_to(repository))
        if "target" in path.relative_to(repository).parts:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            links = linked_paths(line)
            missing = [link for link in links if not (path.parent / link).exists()]
            missing += [word for word in named_paths(line) if not (repository / word).exists()]
            for word in missing:
                yield Breach(name, number, "document", f"there is no {word}")


def linked_paths(line):
    """Files that the links of a line of Markdown lead to."""
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", line)]
    return [link for link in links if link and "://" not in link]


def named_paths(line):
    """Paths of the repository that a line of Markdown has in backticks."""
    words = [word.split()[0] for word in re.findall(r"`([^`]+)`", line) if word.split()]
    begins = tuple(f"{folder}/" for folder in FOLDERS)
    return [word for word in words if word.startswith(begins) and not set(word) & set("*{<…")]


def of_layers(repository):
    """Dependencies that run up between crates."""
    for manifest in sorted(repository.glob("*/**/Cargo.toml")):
        if "target" in manifest.relative_to(repository).parts:
            continue
        lines = manifest.read_text().splitlines()
        crate = next((line.split('"')[1] for line in lines if line.startswith("name = ")), "")
        if crate not in LAYERS:
            continue
        section = ""
        for number, line in enumerate(lines, 1):
            if line.startswith("["):
                section = line.strip("[]")
            dependency = re.match(r"(uroce(?:-\w+)?|dpdk-sys)\b", line)
            if section != "dependencies" or not dependency or dependency[1] in LAYERS[crate]:
                continue
            remedy = f"{crate} is below {dependency[1]} and cannot depend on it"
            yield Breach(str(manifest.relative_to(repository)), number, "layers", remedy)


def of_floors(repository):
    """Imports within a crate that run up."""
    for folder, floors in FLOORS.items():
        source = repository / folder
        for path in sorted(source.rglob("*.rs")):
            own = path.relative_to(source).parts[0].removesuffix(".rs")
            if own not in floors:
                continue
            text = imports.COMMENT.sub("", imports.TESTS.split(path.read_text())[0])
            for found in CRATE_PATH.finditer(text):
                uses = imports.expand(re.sub(r"\s+", "", found[0].rstrip(";")))
                number = text[: found.start()].count("\n") + 1
                for name in sorted({use[1] for use in uses}):
                    if name in floors and floors.index(name) > floors.index(own):
                        remedy = f"{own} stands below {name} and may not use it"
                        yield Breach(str(path.relative_to(repository)), number, "floors", remedy)


def of_circles(repository):
    """Circles of files that import each other, of each crate."""
    for manifest in sorted(repository.glob("*/**/Cargo.toml")):
        source = manifest.parent / "src"
        if "target" in manifest.relative_to(repository).parts or not source.is_dir():
            continue
        for circle in imports.circles(source):
            if len(circle) > CIRCLE_FILES:
                first = str(min(circle).relative_to(repository))
                names = ", ".join(str(path.relative_to(source)) for path in sorted(circle))
                remedy = f"{len(circle)} files import each other: {names}"
                yield Breach(first, 1, "circle", remedy)


def main():
    """Prints the breaches of the repository around this file, or of the one that is named."""
    here = Path(__file__).resolve().parents[2]
    found = check(Path(sys.argv[1]) if len(sys.argv) > 1 else here)
    for breach in found:
        print(breach)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
