"""`spillway pause` and `resume`, and SIGUSR2, beside real jobs on simcuda: jobs stand still without GPU memory, and go on."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "fakes"))
from wait_until import wait_until  # noqa: E402

BUILD = Path(os.environ["SPILLWAY_BUILD"])
PYTHON = os.environ["SPILLWAY_TEST_PYTHON"]
SPILLWAY = BUILD / "bin" / "spillway"
MIB = 1 << 20

# Steps until its standard input ends, and then says whether all values are right. Another thread counts beside it.
RING = """
import json, select, signal, sys, threading, time, torch
ring = [torch.zeros(4 << 20, device="cuda") for _ in range(6)]
beats, steps, handled, refused = 0, 0, [], []
def beat():
    global beats
    while True:
        beats += 1
        with open(sys.argv[1] + "~", "w") as file:
            json.dump({"beats": beats, "steps": steps}, file)
        __import__("os").rename(sys.argv[1] + "~", sys.argv[1])
        threading.Event().wait(0.01)
threading.Thread(target=beat, daemon=True).start()
signal.signal(signal.SIGTERM, lambda *_: handled.append(steps))
print("begun", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for i, block in enumerate(ring):
        while True:
            try:
                block.add_(1.0)
                break
            except RuntimeError as error:
                refused.append(type(error).__name__)
    steps += 1
    torch.cuda.synchronize()
print(json.dumps([all(bool((block == steps).all()) for block in ring), len(handled), len(refused)]), flush=True)
"""


class PauseTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.env = {**os.environ, "XDG_RUNTIME_DIR": folder.name}

    def job(self, **variables):
        env = {**self.env, "LD_PRELOAD": str(BUILD / "lib" / "libspillway.so"), "SPILLWAY_HOST_MEMORY": "1GiB",
               "SPILLWAY_DIRS": "none", **variables}  # fmt: skip
        job = subprocess.Popen([BUILD / "bin" / "simcuda-run", "--memory", "256MiB", "--", PYTHON, "-c", RING, self.folder / "beats"],
                               env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
        self.addCleanup(self.kill, job)
        self.assertEqual(job.stdout.readline(), "begun\n")
        self.until(lambda: self.state()["steps"] > 0)
        return job, int(next((self.folder / "spillway").iterdir()).name.removesuffix(".sock"))

    def kill(self, job):
        job.kill()
        job.communicate()

    def end(self, job):
        out, err = job.communicate("end\n", timeout=120)
        self.assertEqual(job.returncode, 0, err)
        return json.loads(out.splitlines()[-1]), err

    def spillway(self, *arguments):
        done = subprocess.run([SPILLWAY, *map(str, arguments)], env=self.env, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout, done.stderr

    def must(self, *arguments):
        status, _, err = self.spillway(*arguments)
        self.assertEqual(status, 0, err)

    def state(self):
        try:
            return json.loads((self.folder / "beats").read_text())
        except FileNotFoundError:
            return {"beats": 0, "steps": 0}

    def figures(self, pid):
        return json.loads(self.spillway("top", pid, "--json")[1])[0]["figures"]

    def until(self, condition):
        self.assertTrue(wait_until(condition), "it does not come to that")

    def next_state(self, beats):
        """The state that many beats later: the other thread goes on while the job stands."""
        now = self.state()["beats"]
        self.until(lambda: self.state()["beats"] >= now + beats)
        return self.state()

    def assertStands(self):
        before = self.next_state(2)  # the last one may be older than the pause, and so may the one being written
        self.assertLessEqual(self.next_state(20)["steps"], before["steps"] + 1)

    def assertNothingIsLeft(self, pid):
        status, _, err = self.spillway("resume", pid)  # who looks removes the name of one that was killed
        self.assertEqual(status, 1)
        self.assertIn(f"spillway: {pid} is not resumed: ", err)
        self.assertLessEqual({path.name for path in self.folder.iterdir()}, {"beats", "beats~", "spillway"})
        self.assertEqual(list((self.folder / "spillway").iterdir()), [])

    def test_a_job_stands_without_memory_and_goes_on(self):
        job, pid = self.job()
        for _ in range(2):
            # A launch and the resume may each have taken chunks for one block; those of one of them are free then.
            held = self.figures(pid)["chunk_bytes"]
            self.assertGreaterEqual(held, 96 * MIB)
            status, out, err = self.spillway("pause", pid)
            self.assertEqual((status, err), (0, ""))
            self.assertRegex(out, rf"^{pid}: paused in [0-9.]+ s: 96.00 MiB left the GPU, [0-9.]+ MiB of them by copies; "
                                  rf"{held / MIB:.2f} MiB given back\n$")  # fmt: skip
            self.assertStands()
            figures = self.figures(pid)
            self.assertEqual((figures["chunk_bytes"], figures["pause"]["paused_now"]), (0, True))
            self.assertEqual(self.spillway("resume", pid), (0, f"{pid}: runs again\n", ""))
            steps = self.state()["steps"]
            self.until(lambda: self.state()["steps"] > steps + 1)  # noqa: B023
        (right, _, refused), err = self.end(job)
        self.assertEqual((right, refused), (True, 0))
        self.assertIn(f"launches wait until `spillway resume {pid}`", err)

    def test_paused_twice_it_is_paused_once(self):
        job, pid = self.job()
        self.must("pause", pid, pid)
        self.must("pause", pid)
        self.assertStands()
        self.must("resume", pid)
        self.assertTrue(self.end(job)[0][0])

    def test_a_handler_of_the_job_runs_while_it_is_paused(self):
        job, pid = self.job()
        self.must("pause", pid)
        self.assertStands()
        os.kill(pid, signal.SIGTERM)
        self.assertStands()
        self.must("resume", pid)
        (right, handled, refused), _ = self.end(job)
        self.assertEqual((right, handled, refused), (True, 1, 1), "the launch that waited was refused, and was tried again")

    def test_a_job_that_is_killed_while_it_is_paused_leaves_nothing(self):
        job, pid = self.job(SPILLWAY_HOST_MEMORY="0", SPILLWAY_DIRS=self.env["XDG_RUNTIME_DIR"])
        self.must("pause", pid)
        self.kill(job)
        self.assertNothingIsLeft(pid)

    def test_a_job_that_is_interrupted_while_it_is_paused_ends(self):
        job, pid = self.job(SPILLWAY_HOST_MEMORY="0", SPILLWAY_DIRS=self.env["XDG_RUNTIME_DIR"])
        self.must("pause", pid)
        self.assertStands()
        os.kill(pid, signal.SIGINT)
        _, err = job.communicate(timeout=60)
        self.assertNotEqual(job.returncode, 0)
        self.assertIn("KeyboardInterrupt", err)
        self.assertNothingIsLeft(pid)

    def test_by_signal(self):
        job, pid = self.job(SPILLWAY_PAUSE="signal")
        os.kill(pid, signal.SIGUSR2)
        self.until(lambda: self.figures(pid).get("pause", {}).get("paused_now"))
        self.assertStands()
        os.kill(pid, signal.SIGUSR2)
        steps = self.state()["steps"]
        self.until(lambda: self.state()["steps"] > steps + 1)
        self.assertEqual(self.end(job)[0], [True, 0, 0])

    def test_without_a_place_it_goes_on(self):
        job, pid = self.job(SPILLWAY_HOST_MEMORY="32MiB")
        status, out, err = self.spillway("pause", pid)
        self.assertEqual((status, out), (1, ""))
        self.assertRegex(err, rf"^spillway: {pid} is not paused: host memory and disk have no place for ")
        steps = self.state()["steps"]
        self.until(lambda: self.state()["steps"] > steps + 1)
        self.assertEqual(self.end(job)[0], [True, 0, 0])

    def test_wrong_use(self):
        self.assertEqual(self.spillway("pause")[0], 2)
        self.assertEqual(self.spillway("pause", "1", "--timeout", "-1")[0], 2)
        status, out, err = self.spillway("pause", 999_999_999)
        self.assertEqual((status, out), (1, ""))
        self.assertRegex(err, r"^spillway: 999999999 is not paused: ")


if __name__ == "__main__":
    unittest.main()
