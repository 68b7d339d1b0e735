"""Each house rule fires where it is broken, and is silent where it holds."""

import tempfile
import unittest
from pathlib import Path

import imports
import tidy

LONG = "//! " + "word " * 20 + "\n"
GOOD = """//! Counts frames.

/// Returns the number of frames since the start.
pub fn frames() -> u64 {
    0
}
"""


def rules(**files):
    """The rules that a tree of these files breaks, with the line of each."""
    with tempfile.TemporaryDirectory(prefix="uroce-tidy-") as folder:
        repository = Path(folder)
        (repository / "README.md").write_text("")
        for name, text in files.items():
            path = repository / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return [(breach.rule, breach.line) for breach in tidy.check(repository)]


def rust(text):
    """The rules that a Rust file breaks."""
    return rules(**{"bench/src/a.rs": text})


class Lines(unittest.TestCase):
    """Rules for lines, functions and words."""

    def test_a_file_that_keeps_the_rules_is_silent(self):
        self.assertEqual(rust(GOOD), [])

    def test_long_lines_are_found_in_comments_too_and_links_are_not(self):
        self.assertEqual(rust(LONG), [("columns", 1)])
        self.assertEqual(rust("// <https://" + "a" * 100 + ">\n"), [])

    def test_things_are_not_persons(self):
        self.assertEqual(rust("/// The thread that polls.\n/// Whoever polls drives.\n"),
                         [("language", 2)])
        self.assertEqual(rust('let text = "who";\n'), [])

    def test_a_doc_comment_names_its_subject(self):
        self.assertEqual(rust("/// The same.\n//! As there.\n/// Of a port.\n"),
                         [("language", line) for line in (1, 2, 3)])
        self.assertEqual(rust("// The same is true of port 2.\n"), [])

    def test_a_safety_comment_states_the_fact(self):
        self.assertEqual(rust("    // SAFETY: as above.\n"), [("language", 1)])
        self.assertEqual(rust("    // SAFETY: as `at < len`, it is inside.\n"), [])

    def test_functions_fit_a_screen(self):
        step = "    step();\n"
        long, fits = step * tidy.FUNCTION_LINES, step * (tidy.FUNCTION_LINES - 2)
        self.assertEqual(rust(f"fn short() {{}}\npub(crate) fn long() {{\n{long}}}\n"),
                         [("function", 2)])
        self.assertEqual(rust(f"fn fits() {{\n{fits}}}\n"), [])
        bodiless = f"trait A {{\n    fn of(\n    ) -> u8;\n{long}    fn or() {{\n    }}\n}}\n"
        self.assertEqual(rust(bodiless), [])

    def test_nothing_is_left_over(self):
        self.assertEqual(rust("    todo!()\n"), [("left-over", 1)])
        self.assertEqual(rust("    dbg!(frames);\n"), [("left-over", 1)])


class Walls(unittest.TestCase):
    """Rules between files and crates."""

    def test_unsafe_code_is_allowed_in_named_files_only(self):
        text = "#![allow(unsafe_code)]\n"
        self.assertEqual(rust(text), [("unsafe", 1)])
        self.assertEqual(rules(**{tidy.UNSAFE[0]: text}), [])

    def test_no_file_is_compiled_into_a_second_crate(self):
        manifest = '[package]\nname = "a"\n'
        tree = {"bench/Cargo.toml": manifest, "dataplane/x/Cargo.toml": manifest}
        outside = '#[path = "../../dataplane/x/src/b.rs"]\nmod b;\n'
        inside = '#[path = "other.rs"]\nmod b;\n'
        self.assertEqual(rules(**tree, **{"bench/src/a.rs": outside}), [("path", 1)])
        self.assertEqual(rules(**tree, **{"bench/src/a.rs": inside}), [])

    def test_dependencies_run_down(self):
        manifest = '[package]\nname = "uroce-wire"\n\n[dependencies]\n{}.workspace = true\n'
        path = "dataplane/wire/Cargo.toml"
        self.assertEqual(rules(**{path: manifest.format("uroce-engine")}), [("layers", 5)])
        self.assertEqual(rules(**{path: manifest.format("thiserror")}), [])

    def test_readme_is_short_and_the_paths_of_documents_exist(self):
        self.assertEqual(rules(**{"README.md": "a" * 10_241}), [("document", 1)])
        text = "[a](deploy/none.md)\n`bench/none.rs`\n`bench/a.rs --flag`\n[b](https://c.d/e)\n"
        self.assertEqual(rules(**{"README.md": text, "bench/a.rs": ""}),
                         [("document", 1), ("document", 2)])
        links = {"bench/B.md": "[a](a.rs#part)\n[b](bench/a.rs)\n", "bench/a.rs": ""}
        self.assertEqual(rules(**links), [("document", 2)])

    def test_circles_of_more_than_three_files_are_found(self):
        def ring(count):
            names = [chr(ord("a") + at) for at in range(count)]
            following = names[1:] + names[:1]
            tree = {"bench/Cargo.toml": '[package]\nname = "uroce-bench"\n'}
            for name, other in zip(names, following):
                tree[f"bench/src/{name}.rs"] = f"use crate::{{{other}::Thing}};\n"
            return tree

        self.assertEqual(rules(**ring(3)), [])
        self.assertEqual(rules(**ring(4)), [("circle", 1)])

    def test_imports_between_the_floors_of_a_crate_run_down(self):
        path = "dataplane/engine/src/rx/group.rs"
        self.assertEqual(rules(**{path: "use crate::lane::Lane;\n"}), [])
        self.assertEqual(rules(**{path: "// crate::lcore\nfn a(_: crate::lcore::Lcore) {}\n"}),
                         [("floors", 2)])
        grouped = "use crate::{\n    lane::Lane,\n    control::Engine,\n};\n"
        self.assertEqual(rules(**{path: grouped}), [("floors", 1)])

    def test_known_places_are_tolerated_until_they_are_mended(self):
        known = {"deploy/checks/tidy-known.txt": "# why\nlanguage bench/src/a.rs\n"}
        self.assertEqual(rules(**known, **{"bench/src/a.rs": "// Who polls.\n"}), [])
        self.assertEqual(rules(**known, **{"bench/src/a.rs": GOOD}), [("known", 2)])


class Imports(unittest.TestCase):
    """What a `use` item leads to."""

    def test_braces_nest(self):
        paths = list(imports.expand("crate::{a::{B,C},d::*,e}"))
        self.assertEqual(paths, [["crate", "a", "B"], ["crate", "a", "C"], ["crate", "d", "*"],
                                 ["crate", "e"]])

    def test_paths_end_at_the_deepest_module_with_a_file(self):
        files = {(): 0, ("a",): 1, ("a", "b"): 2}
        self.assertEqual(imports.resolve((), ["crate", "a", "b", "Thing"], files), ("a", "b"))
        self.assertEqual(imports.resolve(("a", "b"), ["super", "Thing"], files), ("a",))
        self.assertIsNone(imports.resolve(("a",), ["self", "Thing"], files))


if __name__ == "__main__":
    unittest.main()
