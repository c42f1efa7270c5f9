"""What integration/quickstart/progress.sh prints of long commands, of failed ones, and when it is interrupted."""

import os
import re
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / "integration" / "quickstart" / "progress.sh"


class ProgressTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def start(self, code):
        environment = {**os.environ, "PROGRESS_SECONDS": "0.2", "LOG": str(self.folder / "logs" / "x.log")}
        return subprocess.Popen(["bash", "-euc", f". {SCRIPT}\n{code}"], env=environment, cwd=self.folder,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)  # fmt: skip

    def run_code(self, code, status=0):
        child = self.start(code)
        out, err = child.communicate(timeout=60)
        self.assertEqual(child.returncode, status, out + err)
        return out.splitlines(), err.splitlines()

    def test_a_short_command_prints_nothing(self):
        self.assertEqual(self.run_code('progress "$LOG" true echo words'), ([], []))
        self.assertEqual((self.folder / "logs" / "x.log").read_text(), "words\n")

    def test_a_long_one_says_how_far_it_is(self):
        os.mkfifo(self.folder / "end")
        child = self.start('build() { echo "[0/4] a"; echo "[1/4] b"; cat end; }; progress "$LOG" steps_done build')
        for line in child.stdout:
            words = re.match(r"^   (\d+) s(: 1 of 4 steps, some (\d+) s more)?$", line)
            self.assertTrue(words, line)
            if words[3] and words[1] != "0":
                break
        self.assertEqual(int(words[3]), 3 * int(words[1]))
        (self.folder / "end").write_text("")
        out, err = child.communicate(timeout=60)
        self.assertEqual((child.returncode, err), (0, ""), out)

    def test_durations(self):
        lines, _ = self.run_code("for s in 0 89 90 149 150 3600; do duration $s; done")
        self.assertEqual(lines, ["0 s", "89 s", "2 min", "2 min", "3 min", "60 min"])

    def test_what_failed_is_shown_with_its_status(self):
        code = 'bad() { seq 1000; echo "FAILED: unit.o"; echo "unit.cc:3: error"; return 7; }; progress "$LOG" true bad'
        _, lines = self.run_code(code, status=7)
        self.assertEqual(lines, ["FAILED: unit.o", "unit.cc:3: error", f"All of it: {self.folder}/logs/x.log"])
        _, lines = self.run_code('bad() { seq 1000; return 1; }; progress "$LOG" true bad', status=1)
        self.assertEqual(lines, [*map(str, range(961, 1001)), f"All of it: {self.folder}/logs/x.log"])

    def test_nothing_goes_on_after_an_interrupt(self):
        child = self.start('progress "$LOG" true tail -f /dev/null')
        self.assertRegex(child.stdout.readline(), "^   [01] s$")
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does
        began = time.monotonic()
        child.communicate(timeout=30)  # until the last holder of its output has ended
        self.assertLess(time.monotonic() - began, 15)


if __name__ == "__main__":
    unittest.main()
