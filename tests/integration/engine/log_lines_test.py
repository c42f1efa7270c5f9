"""SPILLWAY_LOG_FILE and SPILLWAY_LOG_FORMAT in jobs without PyTorch; what SPILLWAY_LOG=info tells of one with it."""

import json
import os
import pathlib
import re
import stat
import subprocess
import sys
import tempfile
import unittest

BUILD = os.environ["SPILLWAY_BUILD"]
PYTHON = os.environ.get("SPILLWAY_TEST_PYTHON", "")
# Six blocks of 16 MiB in a budget for fewer, until the log has the line that is waited for.
RING = """
import os, time, torch
ring = [torch.zeros(4 << 20, device="cuda") for _ in range(6)]
end = time.monotonic() + 120
while os.environ["AWAITED"] not in open(os.environ["SPILLWAY_LOG_FILE"]).read() and time.monotonic() < end:
    for block in ring:
        block.add_(1.0)
    torch.cuda.synchronize()
"""
JOB = [sys.executable, "-I", "-S", "-c", "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"]
# A slip that costs a line.
SLIP = {"SPILLWAY_GPU_MEMROY": "1GiB"}
LINE = "SPILLWAY_GPU_MEMROY is unknown and ignored; the nearest name is SPILLWAY_GPU_MEMORY"


class LogLinesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="spillway_log_")
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name, "job.log")

    def run_job(self, job=(), **variables):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPILLWAY", "PYTORCH_", "LD_PRELOAD"))}
        environment.update(SPILLWAY_CONF="none", SPILLWAY_DISK_RESERVE="1GiB", LD_PRELOAD=f"{BUILD}/lib/libspillway.so")
        environment.update({**SLIP, **variables})
        command = [f"{BUILD}/bin/simcuda-run", "--memory", "256MiB", "--", *(job or JOB)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, "" if job else "0\n"), done.stderr)
        return done.stderr

    def test_the_file_has_each_line_with_time_level_and_process(self):
        for _ in range(2):
            self.assertEqual(self.run_job(SPILLWAY_LOG_FILE=str(self.file)), f"spillway: warning {LINE}\n")
        lines = self.file.read_text(encoding="utf-8").splitlines()
        self.assertEqual(len(lines), 2, "the second job appends")
        for line in lines:
            self.assertRegex(line, rf"^\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{{3}}Z warning \d+: {re.escape(LINE)}$")
        self.assertEqual(stat.S_IMODE(self.file.stat().st_mode), 0o600)

    def test_json_has_the_rank(self):
        said = self.run_job(SPILLWAY_LOG_FILE=str(self.file.with_name("%r.log")), SPILLWAY_LOG_FORMAT="json", LOCAL_RANK="3",
                            LOCAL_WORLD_SIZE="8")  # fmt: skip
        text = self.file.with_name("3.log").read_text(encoding="utf-8")
        self.assertEqual(said, text)
        line = json.loads(text)
        self.assertEqual((line["level"], line["rank"], line["text"]), ("warning", 3, LINE))
        self.assertGreater(line["pid"], 1)

    def test_a_file_that_cannot_be_written_costs_one_line(self):
        said = self.run_job(SPILLWAY_LOG_FILE=str(self.file / "none"))
        self.assertRegex(said, rf"^spillway: warning cannot write SPILLWAY_LOG_FILE: .*none.*\nspillway: warning {LINE}\n$")

    @unittest.skipUnless(PYTHON, "no PyTorch")
    def test_info_tells_what_happens_to_a_job(self):
        awaited = "GPU 0: the first blocks are in host memory"
        settings = {"SPILLWAY_GPU_MEMORY": "64MiB", "SPILLWAY_HOST_MEMORY": "128MiB", "SPILLWAY_DIRS": "none"}
        said = self.run_job([PYTHON, "-c", RING], SPILLWAY_LOG="info",
                            SPILLWAY_LOG_FILE=str(self.file), AWAITED=awaited, **settings)  # fmt: skip
        self.assertIn(f"spillway: info {awaited}\n", said)
        self.assertRegex(self.file.read_text(encoding="utf-8"), rf"(?m)Z info \d+: {awaited}$")
        self.assertNotIn("debug", said)

    def test_off_is_nothing_at_all(self):
        self.run_job(SPILLWAY_LOG_FILE=str(self.file), SPILLWAY="off")
        self.assertFalse(self.file.exists())


if __name__ == "__main__":
    unittest.main()
