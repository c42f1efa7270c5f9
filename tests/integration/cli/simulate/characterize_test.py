"""`spillway characterize`: figures of a small trace by hand, as text and as JSON, and what is refused."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from simulate_helpers import PROGRAM, write_csv  # noqa: E402


def characterize(*options):
    return subprocess.run([PROGRAM, "characterize", *map(str, options)], capture_output=True, text=True, check=False, timeout=60)


class CharacterizeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # 100 MB made by the first of twelve kernels of 10 ms, read by the last; idle for 100 ms.
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        kernels = [("k", 10000, [], [], 0) for _ in range(12)]
        kernels[0], kernels[11] = ("k", 10000, [], [0], 0), ("k", 10000, [0], [], 0)
        cls.trace = write_csv(os.path.join(cls.folder.name, "trace"), [(100_000_000, False)], kernels)

    def test_json(self):
        for rate, movable in (("2e9", 100_000_000), ("1e9", 0)):
            run = characterize("--trace", self.trace, "--rate", rate, "--json")
            self.assertEqual((run.returncode, run.stderr), (0, ""))
            found = json.loads(run.stdout)
            self.assertEqual(found["peak_live_bytes"], 100_000_000)
            self.assertAlmostEqual(found["active_percent_by_kernel"], 100 * 2 / 12)
            self.assertEqual(found["active_percent_most"], 100)
            self.assertEqual(found["all"]["idle_intervals_longer_than"],
                             {"10us": 1, "100us": 1, "1ms": 1, "10ms": 1, "100ms": 0, "1s": 0})  # fmt: skip
            self.assertEqual(found["all"]["movable_bytes"], movable)
            self.assertEqual([row["tensors"] for row in found["sizes"]], [0, 0, 0, 1, 0])

    def test_text(self):
        run = characterize("--trace", self.trace)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        lines = run.stdout.splitlines()
        self.assertEqual(lines[0], "12 kernels, 0.120 s; 0.100 GB live at the peak")
        rows = {line[:15].strip(): line[15:].split() for line in lines}
        self.assertEqual(rows["100 MB to 1 GB"], ["1", "0.100", "1", "100.0", "100.0", "100.0", "100.0", "0.0", "0.0", "0.0", "100.0"])
        self.assertEqual(rows["under 1 MB"], ["0", "0.000", "0"] + ["-"] * 8)

    def test_wrong_use(self):
        for options, said in ((("--trace", self.trace, "--rate", "0"), "rate=0 is invalid; expected: bytes/s"),
                              (("--trace", self.trace, "--rate", "fast"), "rate=fast is invalid"),
                              (("--trace", self.trace + "-missing"), "trace-missing"),
                              ((), "--trace is required")):  # fmt: skip
            run = characterize(*options)
            self.assertEqual((run.returncode, run.stdout), (2, ""))
            self.assertIn(said, run.stderr)


if __name__ == "__main__":
    unittest.main()
