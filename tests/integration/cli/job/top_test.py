"""`spillway top` beside real jobs on simcuda: what it shows, and of jobs that are stopped, killed, ended, or that do not want it."""

import json
import os
import signal
import socket
import subprocess
import tempfile
import unittest
from pathlib import Path

BUILD = Path(os.environ["SPILLWAY_BUILD"])
PYTHON = os.environ["SPILLWAY_TEST_PYTHON"]
TOP = [BUILD / "bin" / "spillway", "top"]

# Spills all the time, until its standard input ends.
RING = """
import select, sys, torch
ring = [torch.zeros(4 << 20, device="cuda") for _ in range(6)]
print("begun", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for block in ring:
        block.add_(1.0)
torch.cuda.synchronize()
"""


class TopTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.env = {**os.environ, "XDG_RUNTIME_DIR": folder.name}

    def job(self, **variables):
        env = {**self.env, "LD_PRELOAD": str(BUILD / "lib" / "libspillway.so"), "SPILLWAY_HOST_MEMORY": "1GiB",
               "SPILLWAY_DIRS": "none", **variables}  # fmt: skip
        job = subprocess.Popen([BUILD / "bin" / "simcuda-run", "--memory", "96MiB", "--", PYTHON, "-c", RING], env=env,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
        self.addCleanup(self.end, job)
        self.assertEqual(job.stdout.readline(), "begun\n")
        return job

    def end(self, job):
        job.kill()
        job.communicate()

    def top(self, *arguments):
        done = subprocess.run([*TOP, *arguments], env=self.env, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout, done.stderr

    def names(self):
        folder = self.folder / "spillway"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def pids(self):
        return [int(name.removesuffix(".sock")) for name in self.names()]

    def test_jobs_that_run_have_rows(self):
        first, second = self.job(RANK="0", LOCAL_RANK="0"), self.job(RANK="1", LOCAL_RANK="1")
        pids = self.pids()
        self.assertEqual(len(pids), 2)
        status, out, err = self.top("--interval", "0.5")
        self.assertEqual((status, err), (0, ""), out)
        for pid, rank in zip(pids, ("[01]", "[01]")):
            self.assertRegex(out, rf"(?m)^ +{pid} +{rank} +[0-9.]+ MiB of [0-9.]+ MiB +[0-9.]+M ")
        self.assertEqual(out.count("-c"), 2, "the commands")
        status, out, err = self.top(str(pids[0]), "--once")
        self.assertEqual((status, err), (0, ""))
        self.assertRegex(out, r"(?m)^spillway: .*spilling starts: the job has outgrown its budget")
        self.assertNotIn("\033", out)
        for job in (first, second):
            job.communicate("end\n", timeout=120)
        self.assertEqual((first.returncode, second.returncode, self.names()), (0, 0, []), "what is left of them")

    def test_the_answers_themselves(self):
        job = self.job()
        status, out, err = self.top("--json")
        self.assertEqual((status, err), (0, ""))
        answer = json.loads(out)[0]
        self.assertEqual(answer["figures"]["pid"], self.pids()[0])
        self.assertGreater(answer["figures"]["live_bytes"], 90 << 20)
        self.assertTrue(any("serves PyTorch" in line for line in answer["lines"]))
        with socket.socket(socket.AF_UNIX) as other:
            other.connect(str(self.folder / "spillway" / self.names()[0]))
            other.sendall(b"fortune\n")
            self.assertIn("accepts the requests status, pause, resume and pause state", json.loads(other.recv(1 << 16))["error"])
        self.end(job)

    def test_a_job_that_is_stopped_and_one_that_was_killed(self):
        job = self.job()
        pid = self.pids()[0]
        os.kill(pid, signal.SIGSTOP)
        status, out, _ = self.top("--once")
        self.assertEqual(status, 0)
        self.assertIn(f"process {pid} does not answer; it may be stopped", out)
        os.kill(pid, signal.SIGKILL)
        job.communicate()
        status, out, err = self.top()
        self.assertEqual((status, out, self.names()), (1, "", []))
        self.assertIn("no job of yours runs under Spillway here", err)
        status, out, err = self.top(str(pid))
        self.assertEqual((status, out, err), (1, "", f"spillway: process {pid} is not a job of yours under Spillway\n"))

    def test_a_job_may_be_closed(self):
        job = self.job(SPILLWAY_SOCKET="off")
        self.assertEqual(self.names(), [])
        self.end(job)

    def test_without_a_folder_of_its_own_the_job_goes_on(self):
        (self.folder / "spillway").mkdir(mode=0o755)
        (self.folder / "spillway").chmod(0o755)
        job = self.job(SPILLWAY_LOG="info")
        _, err = job.communicate("end\n", timeout=120)
        self.assertEqual(job.returncode, 0, err)
        self.assertIn("spillway top, pause and resume do not reach this job", err)
        self.assertIn("it is not a folder of this user alone", err)

    def test_wrong_use(self):
        for wrong in ("0", "-1", "nan", "4000"):
            status, out, err = self.top("--interval", wrong)
            self.assertEqual((status, out), (2, ""))
            self.assertIn("expected: seconds from 0.1 to 3600", err)
        self.assertEqual(self.top("train.py")[0], 2)


if __name__ == "__main__":
    unittest.main()
