"""Tests FEATURES.md: how it is made, and that the committed one is up to date."""

import unittest
from pathlib import Path

import citations
import features
from citations import Citation, Row

CHECKS = Path(__file__).resolve().parent
ROWS = {"A1": Row("9.7.5", "a lost packet"), "B1": Row("-", "31 codes")}
FOUND = [
    Citation("A1", Path("dataplane/transport/src/rc/retry.rs"), 7, False, ""),
    Citation("A1", Path("dataplane/transport/tests/checks/read.rs"), 9, True, "a_lost_packet"),
]


class Features(unittest.TestCase):
    """The part that is generated."""

    def test_a_row_has_its_code_and_its_tests_without_line_numbers(self):
        row = ("| A1 | a lost packet | 9.7.5 | [transport/rc/retry.rs]"
               "(../../dataplane/transport/src/rc/retry.rs) | [transport/tests/checks/read.rs]"
               "(../../dataplane/transport/tests/checks/read.rs): `a_lost_packet` |")
        self.assertIn(row, features.table(ROWS, FOUND).splitlines())

    def test_a_row_without_citations_says_so(self):
        self.assertIn("| B1 | 31 codes | - | none | none |",
                      features.table(ROWS, FOUND).splitlines())

    def test_what_stands_above_the_mark_is_kept(self):
        text = features.updated(f"By hand.\n\n{features.MARK}\nold\n", ROWS, FOUND)
        self.assertTrue(text.startswith(f"By hand.\n\n{features.MARK}\n"))
        self.assertNotIn("old", text)
        self.assertEqual(text, features.updated(text, ROWS, FOUND))

    def test_a_file_without_a_mark_is_an_error(self):
        with self.assertRaises(ValueError):
            features.updated("By hand.\n", ROWS, FOUND)

    def test_the_committed_file_is_up_to_date(self):
        rows, found = citations.rows(CHECKS / "rows.txt"), citations.collect(CHECKS.parent.parent)
        self.assertFalse(features.stale(CHECKS / "FEATURES.md", rows, found),
                         "run `deploy/test checks --features` and commit deploy/checks/FEATURES.md")


if __name__ == "__main__":
    unittest.main()
