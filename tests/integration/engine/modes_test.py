"""SPILLWAY=off and observe, SPILLWAY_ON_FULL=error and SPILLWAY_STATUS=signal, next to stock PyTorch without a preload."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

BUILD = os.environ["SPILLWAY_BUILD"]
PYTHON = os.environ["SPILLWAY_TEST_PYTHON"]
MIB = 1 << 20

# Three blocks of 16 MiB, each used in turn: with b bytes for them, 48 - b are away at each launch, and a byte that
# leaves is away for two launches.
RING = """
import torch
ring = [torch.zeros(4 << 20, device="cuda") for _ in range(3)]
for step in range(40):
    for block in ring:
        block.add_(1.0)
torch.cuda.synchronize()
print(all(bool((block == 40).all()) for block in ring))
"""

# What a process is, from inside, and the bits of a little training.
PORTRAIT = """
import hashlib, os, torch
torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(64, 512, device="cuda")).square().mean().backward()
    optimizer.step()
bits = b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())
maps = open("/proc/self/maps").read()
stats = torch.cuda.memory_stats()
print(hashlib.sha256(bits).hexdigest(), torch.cuda.get_allocator_backend(), "libspillway_engine" in maps,
      "libspillway_torch" in maps, len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")),
      stats["segment.all.allocated"], stats["reserved_bytes.all.peak"], torch.cuda.memory_allocated(),
      sorted(n for n in os.environ if n.startswith("PYTORCH")))
"""

# Six blocks of 32 MiB are freed into the cache, then one of 160 MiB needs that memory; then too much is asked for.
FULL = """
import torch
small = [torch.ones(8 << 20, device="cuda") for _ in range(6)]
del small
kept = torch.ones(40 << 20, device="cuda")
retries = torch.cuda.memory_stats()["num_alloc_retries"]
try:
    torch.ones(40 << 20, device="cuda")
except torch.cuda.OutOfMemoryError as error:
    print(str(error).splitlines()[0])
again = torch.ones(4 << 20, device="cuda")
print(retries, torch.cuda.memory_stats()["num_ooms"], float(kept.sum()), float(again.sum()))
"""

# Says when it is ready for signals, then waits for the end of its input. It wakes up now and then: Python's handler of a
# signal that comes just before a read would wait for the read's end.
WAITING = """
import os, select, signal, sys, torch
{before}
kept = torch.ones(4 << 20, device="cuda")
{after}
child = os.fork()
if child == 0:
    signal.pause() if {child_waits} else os._exit(0)
    os._exit(0)
print("ready", child, flush=True)
while not select.select([sys.stdin], [], [], 0.1)[0]:
    pass
if {child_waits}:
    os.kill(child, signal.SIGKILL)
print(os.waitpid(child, 0)[1], kept.sum().item(), flush=True)
"""
OWN_HANDLER = "signal.signal(signal.SIGUSR1, lambda *_: print('mine', flush=True))"


class ModesTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="spillway_modes_", dir="/var/tmp")
        self.addCleanup(self.folder.cleanup)
        self.metrics = os.path.join(self.folder.name, "metrics.json")

    def environment(self, preload, settings):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPILLWAY", "PYTORCH_", "LD_PRELOAD"))}
        environment.update(OMP_NUM_THREADS="1", SPILLWAY_DISK_RESERVE="1GiB", **settings)
        if preload:
            environment.update(LD_PRELOAD=f"{BUILD}/lib/libspillway.so", SPILLWAY_DIRS=self.folder.name,
                               SPILLWAY_HOST_MEMORY="64MiB", SPILLWAY_METRICS=self.metrics)  # fmt: skip
        return environment

    def command(self, code):
        return [f"{BUILD}/bin/simcuda-run", "--memory", "256MiB", "--", PYTHON, "-c", code]

    def run_job(self, code, preload=True, **settings):
        environment = self.environment(preload, settings)
        done = subprocess.run(self.command(code), env=environment, capture_output=True, text=True, timeout=250)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done

    def test_observe(self):
        done = self.run_job(RING, SPILLWAY="observe", SPILLWAY_GPU_MEMORY="64MiB")
        self.assertEqual(done.stdout, "True\n")
        with open(self.metrics, encoding="utf-8") as file:
            report = json.load(file)
        observed = report["devices"][0]["observed"]
        self.assertEqual((report["spilled_bytes"], report["fetched_bytes"]), (0, 0))
        self.assertEqual((observed["iteration_launches"], observed["largest_set_bytes"]), (3, 16 * MIB))
        self.assertEqual([budget["percent"] for budget in observed["budgets"]], [30, 50, 70, None])
        for budget in observed["budgets"]:
            for_blocks = budget["budget_bytes"] - observed["external_bytes"]
            self.assertEqual(budget["possible"], for_blocks >= 16 * MIB)
            if budget["possible"]:
                least = max(0, 3 * (48 * MIB - for_blocks) // 2)
                self.assertAlmostEqual(budget["least_fetched_bytes_per_iteration"], least, delta=2)
                self.assertGreaterEqual(budget["whole_block_fetched_bytes_per_iteration"], least - 2)
        self.assertRegex(done.stderr, r"spillway: observe: 50 % = [0-9.]+ MiB: at least [0-9.]+ MiB back")
        self.assertEqual(os.listdir(self.folder.name), ["metrics.json"])

    def test_off_is_stock_pytorch(self):
        plain = self.run_job(PORTRAIT, preload=False)
        off = self.run_job(PORTRAIT, SPILLWAY="off", PYTORCH_CUDA_ALLOC_CONF="backend:spillway,host_memory:1GiB")
        self.assertEqual((off.stdout, off.stderr), (plain.stdout, plain.stderr))
        self.assertIn(" native False False ", plain.stdout)
        self.assertEqual(os.listdir(self.folder.name), [])

    def test_full_is_an_error_as_without_us(self):
        plain = self.run_job(FULL, preload=False).stdout.splitlines()
        done = self.run_job(FULL, SPILLWAY_ON_FULL="error")
        ours = done.stdout.splitlines()
        numbers = re.compile(r"[0-9.]+ [KMG]iB")
        words = [numbers.sub("N", line).split(" is free. ")[0] for line in (ours[0], plain[0])]
        self.assertEqual(words, ["CUDA out of memory. Tried to allocate N. GPU 0 has a total capacity of N of which N"] * 2)
        self.assertEqual(numbers.findall(ours[0])[:1], numbers.findall(plain[0])[:1])  # what was asked for
        self.assertEqual(ours[1].split()[1:], plain[1].split()[1:])
        self.assertIn("nothing was moved", done.stderr)
        self.assertEqual(os.listdir(self.folder.name), ["metrics.json"])

    def start(self, code, **settings):
        job = subprocess.Popen(self.command(code), env=self.environment(True, settings), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
        self.addCleanup(job.kill)
        words = job.stdout.readline().split()
        self.assertEqual(words[:1], ["ready"], words)
        return job, int(words[1])

    def test_a_status_line_when_asked(self):
        code = WAITING.format(before="", after="", child_waits=True)
        job, child = self.start(code, SPILLWAY_STATUS="signal")
        self.assertIn(" serves PyTorch ", job.stderr.readline())
        os.kill(child, signal.SIGUSR1)  # ignored there: it is the parent's handler, and nothing to report
        for _ in range(2):
            job.send_signal(signal.SIGUSR1)
            line = job.stderr.readline()
            self.assertRegex(line, r"^spillway: status: on the GPU 16\.00 MiB of [0-9.]+ MiB, host 0 B, disk 0 B; moved out "
                                   r"0 B, back 0 B; stalled [0-9.]+ % of [0-9.]+ s\n$")  # fmt: skip
        out, err = job.communicate("", timeout=60)
        self.assertEqual(out.split()[-1], str(float(4 << 20)), err)
        self.assertEqual((job.returncode, err.count("status:")), (0, 0), err)

    def test_the_jobs_own_handler_stays(self):
        for before, after in ((OWN_HANDLER, ""), ("", OWN_HANDLER)):
            job, _ = self.start(WAITING.format(before=before, after=after, child_waits=False), SPILLWAY_STATUS="signal")
            job.send_signal(signal.SIGUSR1)
            self.assertEqual(job.stdout.readline(), "mine\n")
            _, err = job.communicate("", timeout=60)
            self.assertEqual((job.returncode, err.count("status: ")), (0, 0), err)
            self.assertEqual("SIGUSR1 is in use by the job: no status line" in err, before != "", err)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
