"""Tests SEEDS.md: each demand names rows or tests that exist, and each row a test."""

import re
import unittest
from pathlib import Path

import citations
import features

CHECKS = Path(__file__).resolve().parent
LINK = re.compile(r"\[[^]]*\]\(([^)]*)\)")
ID = re.compile(r"\b[A-Z]\d+\b")
# A test in the place of an id: a link to its file, and its name, or several names.
TEST = re.compile(r"\]\(([^)]*)\)::((?:`\w+`(?:, )?)+)")


def demands():
    """The cells of each demand: its number, the demand, what proves it, and a remark."""
    lines = (CHECKS / "SEEDS.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines
            if line.startswith("|")]
    return [row for row in rows if row[0].isdigit()]


def tested():
    """The ids of the rows for which FEATURES.md has a test."""
    _, _, table = (CHECKS / "FEATURES.md").read_text(encoding="utf-8").partition(features.MARK)
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    return {row[0] for row in rows if row[-1] != "none"}


class Seeds(unittest.TestCase):
    """The map from the demands of the seed chapters to rows and tests."""

    def test_each_demand_has_a_row_or_a_test(self):
        self.assertGreater(len(demands()), 100)
        for row in demands():
            self.assertEqual(len(row), 4, row)
            self.assertTrue(ID.search(LINK.sub("", row[2])) or TEST.search(row[2]), row)

    def test_demands_are_numbered_without_a_gap(self):
        numbers = [int(row[0]) for row in demands()]
        for before, number in zip([0, *numbers], numbers):
            self.assertIn(number, (before + 1, 1))

    def test_each_id_is_a_row_that_a_test_cites(self):
        known, cited = citations.rows(CHECKS / "rows.txt"), tested()
        for row in demands():
            for name in ID.findall(LINK.sub("", f"{row[2]} {row[3]}")):
                self.assertIn(name, known, row)
                self.assertIn(name, cited, row)

    def test_each_test_that_is_named_exists(self):
        found = [match for row in demands() for match in TEST.findall(row[2])]
        self.assertTrue(found)
        for path, names in found:
            text = (CHECKS / path).read_text(encoding="utf-8")
            for name in re.findall(r"\w+", names):
                self.assertIn(f"fn {name}()", text, path)


if __name__ == "__main__":
    unittest.main()
