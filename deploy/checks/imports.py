"""Which files of a crate import which, from their `use` items and their paths; and the circles."""

import re

USE = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?use ((?:crate|super|self)::[^;]+);", re.MULTILINE)
INLINE = re.compile(r"\b((?:crate|super)(?:::\w+)+)")
TESTS = re.compile(r"#\[cfg\(test\)\]\s*mod \w+ \{")
COMMENT = re.compile(r"//.*")


def circles(source):
    """Sets of files below a crate's `src` each of which imports all others, at least by detours."""
    files = {module(source, path): path for path in sorted(source.rglob("*.rs"))}
    graph = {name: imported(name, path, files) for name, path in files.items()}
    return [{files[name] for name in part} for part in components(graph) if len(part) > 1]


def module(source, path):
    """The module of a file, as a tuple of names; of lib.rs and main.rs the empty one."""
    parts = path.relative_to(source).with_suffix("").parts
    if parts[-1] == "mod" or parts in (("lib",), ("main",)):
        parts = parts[:-1]
    return parts


def imported(name, path, files):
    """Modules with files of their own that the file imports from, without its unit tests.

    A module that names its own submodules, and a submodule that names its parents, make no arrow:
    a folder's file may use what lies in it, and what it declares is for all below it.
    """
    text = COMMENT.sub("", TESTS.split(path.read_text())[0])
    found = set()
    for use in USE.findall(text):
        for names in expand(re.sub(r"\s+", "", use)):
            found.add(resolve(name, names, files))
    for inline in INLINE.findall(USE.sub("", text)):
        found.add(resolve(name, inline.split("::"), files))
    return {
        other
        for other in found
        if other is not None and not is_prefix(other, name) and not is_prefix(name, other)
    }


def is_prefix(one, other):
    """Whether one module is the other or around it."""
    return other[: len(one)] == one


def expand(use):
    """The paths of a `use` item, whose braces may nest: `a::{b, c::{d}}` is a::b and a::c::d."""
    if "{" not in use:
        yield use.split("::")
        return
    begin = use.index("{")
    head, body, depth, item = use[:begin].rstrip(":").split("::"), use[begin + 1 :], 0, ""
    for letter in body:
        if letter == "}" and depth == 0 or letter == "," and depth == 0:
            if item:
                for rest in expand(item):
                    yield head + rest
            item = ""
            if letter == "}":
                return
            continue
        depth += {"{": 1, "}": -1}.get(letter, 0)
        item += letter


def resolve(name, names, files):
    """The module with a file that a path leads to; None if it stays in the file itself."""
    at = ()
    for index, part in enumerate(names):
        if part == "crate":
            at = ()
        elif part == "self":
            at = name if index == 0 else at
        elif part == "super":
            at = (name if index == 0 else at)[:-1]
        elif at + (part,) in files:
            at += (part,)
        else:
            break
    return at if at in files and at != name else None


def components(graph):
    """The strongly connected parts of a graph (Tarjan's algorithm, without recursion)."""
    order, low, stack, on_stack, found = {}, {}, [], set(), []
    for root in graph:
        if root in order:
            continue
        work = [(root, iter(graph[root]))]
        order[root] = low[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, following = work[-1]
            for other in following:
                if other not in order:
                    order[other] = low[other] = len(order)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(graph[other])))
                    break
                if other in on_stack:
                    low[node] = min(low[node], order[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    part = set()
                    while node not in part:
                        part.add(stack.pop())
                    on_stack -= part
                    found.append(part)
    return found
