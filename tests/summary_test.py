"""What summary.py says of runs of ctest that end in different ways."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).with_name("summary.py")
PASSED = '<testcase name="good" status="run" time="3.5"><system-out>fine</system-out></testcase>'
FAILED = '<testcase name="bad" status="fail" time="1.0"><failure message=""/><system-out>broken</system-out></testcase>'
SKIPPED = ('<testcase name="left" status="notrun" time="0"><skipped message="SKIP_RETURN_CODE=77"/>'
           "<system-out>first words\na_test.cc:3: Skipped\nskipped: no disk may be mounted\n</system-out></testcase>")  # fmt: skip
MISSING = '<testcase name="gone" status="notrun" time="0"><skipped message="Unable to find executable"/></testcase>'


class SummaryTest(unittest.TestCase):
    def run_with(self, *cases, file=True, more=()):
        with tempfile.TemporaryDirectory() as folder:
            junit = Path(folder) / "results.xml"
            if file:
                junit.write_text(f"<testsuite>{''.join(cases)}</testsuite>", encoding="utf-8")
            command = [sys.executable, "-B", str(SCRIPT), str(junit), "--name", "tests", "--seconds", "600", "--logs", "build/x", *more]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout.splitlines()

    def test_the_last_line_has_counts_time_and_logs(self):
        status, lines = self.run_with(PASSED, PASSED)
        self.assertEqual((status, lines), (0, ["tests: 2 passed, 0 failed, 0 skipped; 10.0 min; logs: build/x"]))

    def test_skipped_tests_are_named_with_their_reason(self):
        status, lines = self.run_with(PASSED, SKIPPED)
        self.assertEqual(status, 0)
        self.assertIn("skipped: left: skipped: no disk may be mounted", lines)

    def test_a_failure_and_a_test_that_is_not_there_fail_the_run(self):
        for case in (FAILED, MISSING):
            status, lines = self.run_with(PASSED, case)
            self.assertEqual((status, lines[-1]), (1, "tests: 1 passed, 1 failed, 0 skipped; 10.0 min; logs: build/x"))

    def words_of(self, output):
        case = f'<testcase name="bad" status="fail" time="1"><system-out>{output}</system-out></testcase>'
        return [line.strip() for line in self.run_with(case)[1][1:-1]]

    def test_a_failed_test_is_named_with_what_failed(self):
        googletest = ("[ RUN      ] A.b\na_test.cc:3: Failure\nFailed\nblock 0: wrong\n[  FAILED  ] A.b (3 ms)\n"
                      "[ RUN      ] A.c\na_test.cc:9: Failure\nblock 1: wrong\n[  FAILED  ] A.c (3 ms)\n[       OK ] A.d")  # fmt: skip
        expected = ["a_test.cc:3: Failure", "Failed", "block 0: wrong", "a_test.cc:9: Failure", "block 1: wrong"]
        self.assertEqual(self.words_of(googletest), expected)
        unit = "FAIL: test_a (__main__.B)\n-----\nTraceback\nAssertionError: 1 != 2\n\n=====\nERROR: test_b\n-----\nRan 2 tests in 3 s"
        expected = ["FAIL: test_a (__main__.B)", "-----", "Traceback", "AssertionError: 1 != 2", "", "ERROR: test_b", "-----"]
        self.assertEqual(self.words_of(unit), expected)
        self.assertEqual(self.words_of("PROBLEM  on (): wrong\na line\n\n1 problem(s)\nlast")[0], "PROBLEM  on (): wrong")

    def test_of_long_words_the_beginning_is_shown_and_of_unknown_ones_the_end(self):
        lines = "\n".join(f"line {number}" for number in range(50))
        self.assertEqual(self.words_of(lines)[0::11], ["line 38", "line 49"])
        shown = self.words_of(f"a.cc:1: Failure\n{lines}")
        self.assertEqual((shown[0], shown[-1], len(shown)), ("a.cc:1: Failure", "line 10", 12))
        shown = self.words_of("\n".join(f"a.cc:{number}: Failure\nwrong" for number in range(9)))
        self.assertEqual((len(shown), shown[-1]), (11, "(4 more failures)"))

    def test_a_run_without_tests_fails(self):
        self.assertEqual(self.run_with(file=False)[0], 1)
        self.assertEqual(self.run_with(SKIPPED)[0], 1)

    def test_the_slowest_come_first_when_times_are_asked_for(self):
        self.assertEqual(self.run_with(FAILED, PASSED, more=("--times", "1"))[1][0].split(), ["3.5", "s", "good"])


if __name__ == "__main__":
    unittest.main()
