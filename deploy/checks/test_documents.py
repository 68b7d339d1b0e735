"""Tests the documents: README stays short, and every file that a document links to is there."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README_BYTES = 10240
DOCUMENTS = [
    "README.md", "bench/EXPERIMENTS.md", "bench/RESULTS.md", "bindings/verbs-abi/README.md",
    "dataplane/README.md", "deploy/checks/FEATURES.md",
    *(f"{folder}/DECISIONS.md" for folder in
      ("bench", "bindings", "controlplane", "dataplane", "deploy")),
]
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


class Documents(unittest.TestCase):
    """The Markdown files that are written by hand, and FEATURES.md."""

    def test_readme_can_be_read_to_its_end(self):
        self.assertLessEqual((ROOT / "README.md").stat().st_size, README_BYTES)

    def test_links_lead_to_files(self):
        for name in DOCUMENTS:
            document = ROOT / name
            for target in LINK.findall(document.read_text()):
                if "://" not in target:
                    with self.subTest(document=name, target=target):
                        self.assertTrue((document.parent / target).exists())


if __name__ == "__main__":
    unittest.main()
