"""Tests the parsing of rows and of citations."""

import tempfile
import unittest
from pathlib import Path

import citations
from citations import Citation, Row

SOURCE = """
    //= check A1 — one NAK for the missing PSN
    fn nak() {}

    #[test] //= check A1 test
    //= check B2 test
    fn a_lost_packet() {
        //= check C3 test
    }
""".splitlines()


def rows(text):
    """The rows of a file with this text."""
    with tempfile.TemporaryDirectory(prefix="uroce-rows-") as folder:
        path = Path(folder) / "rows.txt"
        path.write_text(text)
        return citations.rows(path)


class Rows(unittest.TestCase):
    """Rows of an id, a clause and a title."""

    def test_a_row_has_an_id_a_clause_and_a_title(self):
        table = rows("# a comment\n\nA1  9.7.5,C9-105  a lost packet\nL3  A17.4.5.1  UD\nJ1 12 x\n")
        self.assertEqual(table, {
            "A1": Row("9.7.5,C9-105", "a lost packet"),
            "L3": Row("A17.4.5.1", "UD"),
            "J1": Row("12", "x"),
        })

    def test_a_dash_stands_for_a_clause_that_is_not_known(self):
        self.assertEqual(rows("A20 -  loss on one QP\n"), {"A20": Row("-", "loss on one QP")})

    def test_a_row_without_a_clause_or_a_title_or_twice_is_refused(self):
        for text in ("A1 a lost packet", "A1 9.7.5", "A1 9.7. x", "A1 - x\nA1 - y"):
            with self.assertRaises(ValueError, msg=text):
                rows(text)

    def test_the_stored_rows_are_read(self):
        table = citations.rows(Path(citations.__file__).with_name("rows.txt"))
        self.assertEqual(table["A4"].clause, "C9-105")
        self.assertGreater(len(table), 150)


class Citations(unittest.TestCase):
    """Citations in a source file."""

    def test_code_and_tests_are_told_apart(self):
        path = Path("dataplane/transport/src/rc/responder.rs")
        self.assertEqual(citations.in_file(path, SOURCE), [
            Citation("A1", path, 2, False, ""),
            Citation("A1", path, 5, True, "a_lost_packet"),
            Citation("B2", path, 6, True, "a_lost_packet"),
            Citation("C3", path, 8, True, "a_lost_packet"),
        ])

    def test_code_of_tests_and_of_the_simulator_is_no_product(self):
        for path in ("dataplane/sim/src/world/tap.rs", "dataplane/sim/tests/found.rs"):
            found = citations.in_file(Path(path), SOURCE)
            self.assertEqual([one.row for one in found if not one.is_test], [])


if __name__ == "__main__":
    unittest.main()
