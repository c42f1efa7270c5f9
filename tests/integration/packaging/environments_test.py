"""What the nightly run says of a part that could not be tried, that failed, and that was finished before."""

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path

import environments


class EnvironmentsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.finished = self.folder / "finished.txt"

    def one_part(self, function, values=(), done=()):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            outcome = environments.one_part("part", function, values, self.folder, self.finished, "mark part", done)
        return outcome, said.getvalue()

    def test_absent_python_is_skipped_and_not_kept_as_finished(self):
        with self.assertRaisesRegex(environments.Skipped, "no Python 3.99"):
            environments.find_python("3.99")
        outcome, said = self.one_part(environments.try_without_torch, ("no.whl", "3.99"))
        self.assertEqual((outcome, said), ("skipped", "  part: there is no Python 3.99 on this machine\n"))
        self.assertFalse(self.finished.exists())

    def test_library_that_was_not_built_is_skipped(self):
        minor = ".".join(map(str, sys.version_info[:2]))
        outcome, said = self.one_part(environments.try_training, ("no.whl", self.folder, f"{minor}:2.99.0"))
        self.assertEqual((outcome, said), ("skipped", "  part: libspillway_torch_2_99.so was not built\n"))

    def test_failure_is_told_and_not_kept_as_finished(self):
        outcome, said = self.one_part(lambda folder: environments.expect(False, "left: x"))
        self.assertEqual((outcome, said), ("FAILED", "  part: left: x\n"))
        self.assertFalse(self.finished.exists())

    def test_finished_part_is_not_tried_again(self):
        self.assertEqual(self.one_part(lambda folder: None), ("ok", ""))
        done = self.finished.read_text().splitlines()
        self.assertEqual(self.one_part(lambda folder: environments.expect(False, "again"), done=done), ("ok", ""))


if __name__ == "__main__":
    unittest.main()
