"""SPILLWAY_SHARE=gpu: two training jobs of 70 % of one simcuda device each, by turns, with the bits of jobs that are alone."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "fakes"))
from wait_until import wait_until  # noqa: E402

BUILD = os.environ.get("SPILLWAY_BUILD", str(ROOT / "build"))
MIB = 1 << 20

# Words on standard input, one answer in JSON each. Eleven layers of 4 MiB: with gradients and Adam's moments 176 MiB.
JOB = """
import hashlib, json, sys, spillway, torch
torch.manual_seed(int(sys.argv[1]))
fused = {"foreach": len(sys.argv) > 2}
model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024, bias=False) for _ in range(11)))
inputs = torch.randn(32, 1024)
optimizer = None

def steps(count):
    global optimizer
    if optimizer is None:
        model.cuda()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, **fused)
    for _ in range(count):
        model(inputs.cuda()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    torch.cuda.synchronize()

def bits():
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    return digest.hexdigest()

def share():
    stats = spillway.stats()
    return {key: stats.get(key) for key in ("share_bytes", "idle_pauses", "spilled_bytes")}

def pause():  # what has not changed, as zeroed gradients, is not copied again
    result = spillway.pause()
    return result.host_bytes + result.clean_bytes

for line in sys.stdin:
    word, *arguments = line.split()
    try:
        answer = {"steps": lambda n: steps(int(n)), "bits": bits, "share": share, "pause": pause,
                  "resume": spillway.resume, "free": lambda: torch.cuda.mem_get_info()}[word](*arguments)
    except Exception as error:
        answer = [type(error).__name__, str(error)]
    print(json.dumps(answer), flush=True)
"""


class Job:
    def __init__(self, machine, seed, *arguments, memory="256MiB", **variables):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPILLWAY", "PYTORCH_", "SIMCUDA_"))}
        environment.update(PYTHONPATH=str(ROOT / "integration" / "python"), OMP_NUM_THREADS="1", LD_PRELOAD=f"{BUILD}/lib/libspillway.so",
                           SIMCUDA_MACHINE=machine,
                           **{"SPILLWAY_HOST_MEMORY": "512MiB", "SPILLWAY_DIRS": "none", "SPILLWAY_SHARE": "gpu", **variables})  # fmt: skip
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([f"{BUILD}/bin/simcuda-run", "--memory", memory, "--", sys.executable, "-c", JOB, str(seed), *arguments],
                                        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)  # fmt: skip

    def tell(self, words):
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        assert line, self.words()
        return json.loads(line)

    def ask(self, words):
        self.tell(words)
        return self.answer()

    def words(self):
        self.log.seek(0)
        return self.log.read()

    def end(self):
        self.process.kill()
        self.process.communicate()
        self.log.close()


class ShareTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.machine = os.path.join(folder.name, "machine")

    def job(self, seed, *arguments, machine=None, **options):
        job = Job(self.machine if machine is None else machine, seed, *arguments, **options)
        self.addCleanup(job.end)
        return job

    def bits_alone(self, seed, count, *arguments):
        job = self.job(seed, *arguments, machine="", SPILLWAY="off")
        self.assertIsNone(job.ask(f"steps {count}"))
        return job.ask("bits")

    def test_by_turns_by_pause(self):
        first, second = self.job(1, SPILLWAY_SHARE_IDLE="none"), self.job(2, SPILLWAY_SHARE_IDLE="none")
        self.assertIsNone(first.ask("steps 2"))
        self.assertGreaterEqual(first.ask("share")["share_bytes"], 176 * MIB)
        self.assertEqual(first.ask("pause"), 176 * MIB)
        for _ in range(2):
            self.assertIsNone(second.ask("steps 1"))
            self.assertGreaterEqual(second.ask("share")["share_bytes"], 176 * MIB)
            self.assertEqual(second.ask("pause"), 176 * MIB)
            away = first.ask("share")["spilled_bytes"]
            self.assertIsNone(first.ask("resume"))
            self.assertIsNone(first.ask("steps 1"))
            self.assertEqual(first.ask("share")["spilled_bytes"], away)  # it fits: only pauses move its blocks
            self.assertEqual(first.ask("pause"), 176 * MIB)
            self.assertIsNone(second.ask("resume"))
        self.assertIsNone(second.ask("steps 2"))
        second.ask("pause")
        first.ask("resume")
        self.assertEqual(first.ask("bits"), self.bits_alone(1, 4))
        first.ask("pause")
        second.ask("resume")
        self.assertEqual(second.ask("bits"), self.bits_alone(2, 4))

    def test_by_turns_by_idleness(self):
        # One that names all its tensors in one launch waits for the whole; the other runs in what there is meanwhile.
        for arguments in ((), ("foreach",)):
            with self.subTest(arguments):
                first, second = (self.job(seed, *arguments, SPILLWAY_SHARE_IDLE="1s") for seed in (1, 2))
                self.assertIsNone(first.ask("steps 2"))
                self.assertIsNone(second.ask("steps 2"))
                self.assertIsNone(first.ask("steps 2"))
                self.assertIsNone(second.ask("steps 2"))
                self.assertEqual(second.ask("bits"), self.bits_alone(2, 4, *arguments))
                self.assertEqual(first.ask("bits"), self.bits_alone(1, 4, *arguments))
                self.assertGreaterEqual(first.ask("share")["idle_pauses"], 1)
                self.assertRegex(first.words(), r"spillway: idle for 1 s: [0-9.]+ MiB of GPU memory go to other jobs, and come back for the next launch")
                first.end()
                second.end()

    def test_an_idle_job_keeps_what_nobody_wants(self):
        first, second = (self.job(seed, memory="512MiB", SPILLWAY_SHARE_IDLE="1ms") for seed in (1, 2))
        first.ask("steps 1")
        second.ask("steps 0")  # 44 MiB, which are there
        self.assertEqual(second.ask("free")[1], first.ask("free")[1])
        self.assertEqual(first.ask("share")["idle_pauses"], 0)
        self.assertEqual(second.ask("share")["idle_pauses"], 0)

    def test_what_a_killed_job_had_is_free(self):
        first, second = (self.job(seed, "foreach", SPILLWAY_SHARE_IDLE="none") for seed in (1, 2))
        first.ask("steps 1")
        second.tell("steps 2")
        first.end()
        self.assertIsNone(second.answer())
        self.assertEqual(second.ask("bits"), self.bits_alone(2, 2, "foreach"))

    def test_a_wait_ends_at_the_users_limit(self):
        first = self.job(1, "foreach", SPILLWAY_SHARE_IDLE="none")
        second = self.job(2, "foreach", SPILLWAY_SHARE_IDLE="none", SPILLWAY_WAIT_LIMIT="2s")
        first.ask("steps 1")
        _, words = second.ask("steps 1")
        self.assertIn("waits 2 s for device memory that other jobs have", words)
        first.ask("pause")
        self.assertIsNone(second.ask("steps 1"))

    def test_a_handler_of_the_jobs_runs_in_the_wait(self):
        first, second = (self.job(seed, "foreach", SPILLWAY_SHARE_IDLE="none") for seed in (1, 2))
        first.ask("steps 1")
        second.tell("steps 1")
        wait_until(lambda: "10 s for device memory that other jobs have" in second.words())
        second.process.send_signal(signal.SIGINT)
        second.process.wait()
        self.assertIn("KeyboardInterrupt", second.words())


if __name__ == "__main__":
    unittest.main(verbosity=2)
