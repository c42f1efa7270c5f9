"""The pieces of run.py: how output is judged, what counts as a difference, and the server of tests, on a tree of our own."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import outcomes  # noqa: E402  (the path comes first)
import run  # noqa: E402

PASSED = "test_a (__main__.T.test_a) ... ok\n\n----\nRan 1 test in 0.1s\n\nOK\n"
SKIPPED = "test_a (__main__.T.test_a) ... skipped 'no memory'\n\n----\nRan 1 test in 0.1s\n\nOK (skipped=1)\n"
FAILED = """test_a (__main__.T.test_a) ... FAIL
Traceback (most recent call last):
AssertionError: 1 != 2

To execute this test, run the following from the base repo dir:
    python test/test_cuda.py T.test_a

----
Ran 1 test in 0.1s

FAILED (failures=1)
"""

TREE_TESTS = '''
import os, signal, subprocess, sys, unittest
class T(unittest.TestCase):
    def test_passes(self):
        self.assertEqual(sys.argv[0], __file__)
    def test_fails(self):
        self.fail("on purpose")
    def test_crashes(self):
        os.kill(os.getpid(), signal.SIGSEGV)
    def test_ends(self):
        os._exit(3)
    def test_hangs(self):
        subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()", os.environ["ITS_CHILD"]])
        signal.pause()
    def test_skips(self):
        self.skipTest("later")
    @unittest.skip("never")
    def test_never(self):
        pass
    def test_state(self):
        self.assertFalse(hasattr(unittest, "left_behind"))
        unittest.left_behind = True
    def test_state_again(self):
        self.test_state()
if __name__ == "__main__":
    unittest.main()
'''


class JudgeTest(unittest.TestCase):
    def test_reads_unittests_last_line(self):
        self.assertEqual(outcomes.judge(0, False, PASSED), (outcomes.PASSED, ""))
        self.assertEqual(outcomes.judge(0, False, SKIPPED), (outcomes.SKIPPED, "no memory"))
        self.assertEqual(outcomes.judge(1, False, FAILED), (outcomes.FAILED, "AssertionError: 1 != 2"))

    def test_an_end_without_that_line_is_a_crash(self):
        self.assertEqual(outcomes.judge(-11, False, "x ... ")[0], outcomes.CRASHED)
        self.assertEqual(outcomes.judge(0, False, "")[0], outcomes.CRASHED)
        self.assertEqual(outcomes.judge(1, False, "ImportError: no")[0], outcomes.CRASHED)
        # It passed, and the process could not end.
        self.assertEqual(outcomes.judge(-6, False, PASSED)[0], outcomes.CRASHED)
        self.assertEqual(outcomes.judge(1, False, PASSED)[0], outcomes.CRASHED)

    def test_time_goes_before_the_signal_that_ended_it(self):
        self.assertEqual(outcomes.judge(-9, True, "x ... ")[0], outcomes.TIMED_OUT)


def record(outcome):
    return {"outcome": outcome, "reason": "why"}


class CompareTest(unittest.TestCase):
    def found(self, native, other, rows=()):
        ways = {"native": {"f.T.a": record(native)}, "fitting": {"f.T.a": record(other)}}
        return [(way, cause) for _, way, _, _, cause in outcomes.compare("2.11.0", ways, outcomes.Exceptions(list(rows)))]

    def test_what_passes_natively_must_pass(self):
        self.assertEqual(self.found("passed", "passed"), [])
        for other in ("failed", "skipped", "crashed", "timed out"):
            self.assertEqual(self.found("passed", other), [("fitting", None)])

    def test_what_fails_natively_wants_a_cause_and_may_fail(self):
        self.assertEqual(self.found("failed", "failed"), [("native", None)])
        self.assertEqual(self.found("failed", "crashed", [("native", "2.11.*", "f.T.*", "old")]), [("native", "old")])

    def test_what_is_skipped_may_not_fail(self):
        self.assertEqual(self.found("skipped", "skipped"), [])
        self.assertEqual(self.found("skipped", "failed"), [("fitting", None)])

    def test_a_row_counts_for_its_way_and_release(self):
        self.assertEqual(self.found("passed", "failed", [("quarter", "*", "*", "cause")]), [("fitting", None)])
        self.assertEqual(self.found("passed", "failed", [("*", "2.6.*", "*", "cause")]), [("fitting", None)])
        self.assertEqual(self.found("passed", "failed", [("*", "2.11.*", "*", "cause")]), [("fitting", "cause")])

    def test_a_row_that_gave_no_cause_is_named(self):
        rows = [("fitting", "*", "f.T.a", "still"), ("*", "*", "f.T.b", "gone"), ("*", "*", "f.T.c", "did not run"),
                ("*", "2.6.*", "f.T.b", "other release"), ("quarter", "*", "f.T.b", "other way")]  # fmt: skip
        ways = {"native": {"f.T.a": record("passed"), "f.T.b": record("passed")}, "fitting": {"f.T.a": record("failed")}}
        exceptions = outcomes.Exceptions(rows)
        outcomes.compare("2.11.0", ways, exceptions)
        self.assertEqual(exceptions.unneeded("2.11.0", ways), rows[1:2])

    def test_the_file_of_the_tree_can_be_read(self):
        for way, _, _, cause in outcomes.read_exceptions(HERE / "expected.txt").rows:
            self.assertIn(way, {"*", *run.WAYS})
            self.assertTrue(cause)

    def test_a_row_without_a_cause_is_refused(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("native 2.11.* f.T.a\n")
            file.flush()
            with self.assertRaisesRegex(ValueError, "cause"):
                outcomes.read_exceptions(Path(file.name))

    def test_the_last_outcome_of_a_test_counts_and_half_a_line_does_not(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write('{"test": "a", "outcome": "failed"}\n{"test": "a", "outcome": "passed"}\n{"test": "b", "outc{"test": "c"}\n{"te')
            file.flush()
            self.assertEqual(outcomes.read(Path(file.name)), {"a": {"test": "a", "outcome": "passed"}})


class PageTest(unittest.TestCase):
    def test_a_letter_for_each_way(self):
        ways = {"native": {"f.T.a": record("passed"), "f.T.b": record("skipped")}, "fitting": {"f.T.a": record("timed out")}}
        self.assertEqual(outcomes.page(ways), ["f.T", "p T a", "s - b"])


class ServerTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.tree = Path(self.folder.name)
        (self.tree / "test").mkdir()
        (self.tree / "test" / "t.py").write_text(TREE_TESTS, encoding="utf-8")

    def ask(self, *orders):
        """The server without PyTorch: it imports what is there."""
        done = subprocess.run([sys.executable, "-B", "-S", HERE / "server.py", self.tree], check=True, text=True, timeout=100,
                              input="".join(json.dumps(order) + "\n" for order in orders), capture_output=True)  # fmt: skip
        return [json.loads(line) for line in done.stdout.splitlines()]

    def outcome(self, test, seconds=50):
        log = self.tree / f"{test}.log"
        answers = self.ask({"run": "t.py", "test": f"T.{test}", "log": str(log), "seconds": seconds})
        self.assertEqual(len(answers), 1)
        return outcomes.judge(answers[0]["status"], answers[0]["timed_out"], log.read_text(encoding="utf-8"))

    def test_each_end_of_a_test_has_its_outcome(self):
        self.assertEqual(self.outcome("test_passes")[0], outcomes.PASSED)
        self.assertEqual(self.outcome("test_fails"), (outcomes.FAILED, "AssertionError: on purpose"))
        self.assertEqual(self.outcome("test_crashes")[0], outcomes.CRASHED)
        self.assertEqual(self.outcome("test_ends")[0], outcomes.CRASHED)
        self.assertEqual(self.outcome("test_skips"), (outcomes.SKIPPED, "later"))

    def test_a_test_that_hangs_ends_with_its_children(self):
        name = f"child of {os.getpid()}"  # nobody else's
        with unittest.mock.patch.dict(os.environ, ITS_CHILD=name):
            self.assertEqual(self.outcome("test_hangs", seconds=2)[0], outcomes.TIMED_OUT)
        running = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.parent.exists()]
        self.assertFalse([line for line in running if line.endswith(f"\0{name}\0".encode())])

    def test_tests_do_not_see_each_other(self):
        logs = [str(self.tree / name) for name in ("one", "two")]
        answers = self.ask({"run": "t.py", "test": "T.test_state", "log": logs[0]}, {"run": "t.py", "test": "T.test_state_again", "log": logs[1]})
        self.assertEqual([answer["status"] for answer in answers], [0, 0])

    def test_lists_tests_and_what_decorators_skip(self):
        to = self.tree / "list.json"
        self.ask({"list": "t.py", "to": str(to)})
        listed = dict(json.loads(to.read_text(encoding="utf-8")))
        self.assertEqual(listed["T.test_never"], "never")
        self.assertIsNone(listed["T.test_skips"])
        self.assertEqual(len(listed), 9)


if __name__ == "__main__":
    unittest.main()
