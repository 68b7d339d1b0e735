"""Tests of deploy/env/packages.sh with a dpkg that answers as told. Nothing is installed."""

import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Packages(unittest.TestCase):
    def commands(self, audit, configures):
        """The commands that would run as root to mend what `dpkg --audit` prints."""
        with tempfile.TemporaryDirectory() as directory:
            dpkg = pathlib.Path(directory, "dpkg")
            dpkg.write_text(f"#!/bin/sh\n[ \"$*\" = --audit ] && printf '%s' '{audit}'\n")
            dpkg.chmod(0o755)
            script = f"""
                source deploy/env/packages.sh
                packages_as_root() {{ echo "$@"; [[ $1 != dpkg ]] || {configures}; }}
                PATH={directory}:$PATH packages_mend
            """
            run = subprocess.run(["bash", "-ec", script], cwd=ROOT, check=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return run.stdout.splitlines()

    def test_a_whole_installation_is_left_alone(self):
        self.assertEqual(self.commands("", "true"), [])

    def test_an_interrupted_installation_is_completed(self):
        self.assertEqual(self.commands("m4 is unpacked", "true"), ["dpkg --configure -a"])

    def test_what_dpkg_cannot_configure_is_unpacked_again(self):
        first, second = self.commands("libpmix-dev must be reinstalled", "false")
        self.assertEqual(first, "dpkg --configure -a")
        self.assertRegex(second, "^apt-get .* install --fix-broken$")


if __name__ == "__main__":
    unittest.main()
