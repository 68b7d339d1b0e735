"""No crate's tests are left out of deploy/test."""

import tomllib
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def manifest(folder):
    """The contents of a folder's Cargo.toml."""
    return tomllib.loads((REPOSITORY / folder / "Cargo.toml").read_text(encoding="utf-8"))


class Suites(unittest.TestCase):
    """The suites of deploy/test beside the members of the workspace."""

    def test_each_member_of_the_workspace_is_in_a_suite(self):
        script = (REPOSITORY / "deploy/test").read_text(encoding="utf-8").replace("\\\n", " ")
        calls = [line.split() for line in script.splitlines()]
        tested = {name for words in calls if words[:1] == ["about"] for name in words[1:]}
        members = manifest(".")["workspace"]["members"]
        names = {manifest(member)["package"]["name"] for member in members}
        self.assertEqual(names - tested, set())


if __name__ == "__main__":
    unittest.main()
