"""The program `spillway`: its version, and what it cannot print."""

import os
import subprocess
import unittest

PROGRAM = os.environ["SPILLWAY_BUILD"] + "/bin/spillway"


class VersionTest(unittest.TestCase):
    def test_version(self):
        done = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, timeout=100)
        self.assertRegex(done.stdout, r"^spillway \d+\.\d+\.\d+\n$")


class FullOutputTest(unittest.TestCase):
    def test_what_cannot_be_printed_is_no_success(self):
        for arguments in (("doctor", "--installation"), ("doctor", "--installation", "--json"), ("--version",), ("run", "--help")):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=100)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertRegex(done.stderr, r"(?m)^spillway: standard output cannot be written(: No space left on device)?$")


if __name__ == "__main__":
    unittest.main()
