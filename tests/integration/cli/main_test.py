"""The program `spillway`: its version, and what it cannot print."""

import os
import subprocess
import unittest

PROGRAM = os.environ["SPILLWAY_BUILD"] + "/bin/spillway"


class VersionTest(unittest.TestCase):
    def test_version(self):
        done = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, timeout=100)
        self.assertRegex(done.stdout, r"^spillway \d+\.\d+\.\d+\n$")


class HelpTest(unittest.TestCase):
    def run_it(self, *arguments):
        return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=100)

    def test_help_is_a_word_too(self):
        self.assertEqual(self.run_it("help").stdout, self.run_it("--help").stdout)
        self.assertEqual(self.run_it("help", "report").stdout, self.run_it("report", "--help").stdout)
        self.assertEqual(self.run_it("help", "report", "more").returncode, 0)
        done = self.run_it("help", "nothing")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr, "There is no subcommand nothing.\nRun with --help for more information.\n")

    def test_a_word_that_is_nearly_right(self):
        for arguments, meant in ((("doctr",), "doctor"), (("run", "--gpu-memroy", "1GiB", "--", "true"), "--gpu-memory"),
                                 (("report", "--otuput=x", "file"), "--output"), (("help", "reprot"), "report")):  # fmt: skip
            done = self.run_it(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertTrue(done.stderr.endswith(f"\nDid you mean {meant}?\n"), done.stderr)
        self.assertNotIn("Did you mean", self.run_it("nothing-like-it").stderr)


class FullOutputTest(unittest.TestCase):
    def test_what_cannot_be_printed_is_no_success(self):
        for arguments in (("doctor", "--installation"), ("doctor", "--installation", "--json"), ("--version",), ("run", "--help")):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=100)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertRegex(done.stderr, r"(?m)^spillway: standard output cannot be written(: No space left on device)?$")


if __name__ == "__main__":
    unittest.main()
