"""The engine in whole processes: stock PyTorch under the preload on a small device, with settings right and wrong."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

BUILD = os.environ["SPILLWAY_BUILD"]
PYTHON = os.environ["SPILLWAY_TEST_PYTHON"]

# 24 blocks of 16 MiB on a device of 256 MiB, each changed in turn, twice round; the sums show that no byte was lost.
OVERSUBSCRIBED = """
import torch
blocks = [torch.full((4 << 20,), float(i), device="cuda") for i in range(24)]
for step in range(2):
    for i, block in enumerate(blocks):
        block.add_(1.0)
torch.cuda.synchronize()
print([int(b[12345].item()) for b in blocks] == [i + 2 for i in range(24)], all(bool((b == b[0]).all()) for b in blocks))
"""


class ProcessTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="spillway_process_", dir="/var/tmp")
        self.addCleanup(self.folder.cleanup)
        self.metrics = os.path.join(self.folder.name, "metrics.json")

    def run_job(self, code, memory="256MiB", preload=True, **settings):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPILLWAY", "PYTORCH_"))}
        environment.update(OMP_NUM_THREADS="1", SPILLWAY_METRICS=self.metrics, SPILLWAY_DISK_RESERVE="1GiB")
        environment.update(SPILLWAY_DIRS=self.folder.name, SPILLWAY_HOST_MEMORY="64MiB")
        environment.update({k: v for k, v in settings.items() if v is not None})
        for name in [k for k, v in settings.items() if v is None]:
            environment.pop(name, None)
        if preload:
            environment["LD_PRELOAD"] = f"{BUILD}/lib/libspillway.so"
        command = [f"{BUILD}/bin/simcuda-run", "--memory", memory, "--", PYTHON, "-c", code]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250)

    def report(self):
        with open(self.metrics, encoding="utf-8") as file:
            return json.load(file)

    def assert_right(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.strip().splitlines()[-1:], ["True True"], done.stderr)

    def test_more_than_the_device_holds(self):
        done = self.run_job(OVERSUBSCRIBED)
        self.assert_right(done)
        words = "spillway: spilling starts: the job has outgrown its budget of"
        self.assertEqual(done.stderr.count(words), 1, done.stderr)
        self.assertRegex(done.stderr, words + r" [0-9.]+ MiB, of which [0-9.]+ MiB are for its blocks\n")
        # One number for the budget, in each line that names it.
        budgets = re.findall(r"budget of ([0-9.]+ MiB)|: budget ([0-9.]+ MiB)", done.stderr)
        self.assertEqual((len(budgets), len({a or b for a, b in budgets})), (3, 1), done.stderr)
        line = r"spillway: Spillway [0-9.]+ serves PyTorch 2\.\d+ on GPU 0 \(1 visible\): budget [0-9.]+ MiB of 256\.00 MiB \([^()]*\), "
        line += rf"host memory up to 64\.00 MiB, disk {self.folder.name}\n"
        self.assertEqual(len(re.findall(line, done.stderr)), 1, done.stderr)
        words = "lost time: the GPU had to wait"
        self.assertEqual(done.stderr.count(f"spillway: {words}"), 1, done.stderr)
        self.assertEqual(done.stderr.count("spillway: summary: peak"), 1, done.stderr)
        report = self.report()
        self.assertLessEqual(report["peak_bytes"], report["budget_bytes"])
        self.assertEqual(report["spilled_bytes"], report["host_spilled_bytes"] + report["disk_spilled_bytes"])
        for tier in ("host", "disk"):
            self.assertGreater(report[f"{tier}_spilled_bytes"], 0, report)
            self.assertGreater(report[f"{tier}_fetched_bytes"], 0, report)
        self.assertGreaterEqual(report["disk_written_bytes"], report["disk_spilled_bytes"])
        self.assertEqual(os.listdir(self.folder.name), ["metrics.json"])

    def test_one_tier_alone(self):
        self.assert_right(self.run_job(OVERSUBSCRIBED, SPILLWAY_HOST_MEMORY="0"))
        self.assertEqual(self.report()["host_spilled_bytes"], 0)
        self.assert_right(self.run_job(OVERSUBSCRIBED, SPILLWAY_HOST_MEMORY="600MiB", SPILLWAY_DIRS="none"))
        report = self.report()
        self.assertEqual((report["disk_spilled_bytes"], report["disk_written_bytes"]), (0, 0))
        self.assertGreater(report["host_spilled_bytes"], 0)

    def test_least_recently_used(self):
        self.assert_right(self.run_job(OVERSUBSCRIBED, SPILLWAY_POLICY="lru"))
        self.assertEqual(self.report()["prefetched_bytes"], 0)

    def test_without_eviction_memory_runs_out_as_always(self):
        done = self.run_job(OVERSUBSCRIBED, SPILLWAY_ON_FULL="error")
        self.assertEqual(done.returncode, 1)
        self.assertIn("CUDA out of memory. Tried to allocate", done.stderr)
        self.assertRegex(done.stderr, r"\nSpillway: GPU memory is short: \d+ MiB of blocks would be live, nothing is moved")
        self.assertEqual(self.report()["spilled_bytes"], 0)

    def test_off_is_as_if_it_were_not_there(self):
        code = "import torch; torch.ones(4 << 20, device='cuda'); print(torch.cuda.get_allocator_backend())"
        done = self.run_job(code, SPILLWAY="off")
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "native"), done.stderr)
        self.assertFalse(os.path.exists(self.metrics))

    def test_nothing_starts_before_the_first_large_block(self):
        code = "import torch, threading, os; torch.ones(8, device='cuda'); print(len(os.listdir('/proc/self/task')))"
        done = self.run_job(code)
        plain = self.run_job(code, preload=False)
        self.assertEqual(done.stdout, plain.stdout, done.stderr)
        self.assertFalse(os.path.exists(self.metrics))

    def test_a_budget_is_kept(self):
        done = self.run_job(OVERSUBSCRIBED, memory="1GiB", SPILLWAY_GPU_MEMORY="128MiB")
        self.assert_right(done)
        report = self.report()
        self.assertEqual(report["budget_bytes"], 128 << 20)
        self.assertLessEqual(report["peak_bytes"], 128 << 20)

    def test_a_wrong_value_stops_the_job(self):
        code = "import torch; torch.ones(8, device='cuda'); print('went on')"
        done = self.run_job(code, SPILLWAY_POLICY="fifo")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("spillway: SPILLWAY_POLICY=fifo is invalid; expected: plan or lru\n", done.stderr)
        done = self.run_job(code, SPILLWAY_DIRS="/no/such/folder")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("SPILLWAY_DIRS=/no/such/folder is invalid; expected: writable directories on a disk", done.stderr)
        done = self.run_job(
            code, SPILLWAY_HOST_MEMORY=None, PYTORCH_CUDA_ALLOC_CONF="backend:spillway,host_memory:lots"
        )
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("host_memory in PYTORCH_CUDA_ALLOC_CONF=lots is invalid", done.stderr)

    def test_a_default_directory_that_cannot_be_written_is_done_without(self):
        code = """
import resource, signal, torch
torch.ones(1, device="cuda")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
print(float(torch.full((4 << 20,), 3.0, device="cuda")[0]))
"""
        done = self.run_job(code, SPILLWAY_DIRS=None, SPILLWAY_METRICS=None)
        self.assertEqual((done.returncode, done.stdout), (0, "3.0\n"), done.stderr)
        self.assertIn("spillway: warning no disk tier: ", done.stderr)
        self.assertNotIn("not used on GPU", done.stderr)

    def test_an_unknown_name_warns(self):
        done = self.run_job("import torch; torch.ones(8, device='cuda')", SPILLWAY_GPU_MEMROY="1GiB")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("SPILLWAY_GPU_MEMROY is unknown and ignored; the nearest name is SPILLWAY_GPU_MEMORY", done.stderr)

    def test_a_job_that_outgrows_all_tiers_is_refused_at_the_allocation(self):
        done = self.run_job(OVERSUBSCRIBED, SPILLWAY_HOST_MEMORY="32MiB", SPILLWAY_DIRS="none")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"OutOfMemoryError: CUDA out of memory\. Tried to allocate[^\n]*\nSpillway: ")
        words = re.search(r"\nSpillway: (capacity off the GPU is short: .*)", done.stderr).group(1)
        budget = re.search(r"of GPU memory \(a budget of (\d+) MiB and a reserve of (\d+) MiB(?:, less (\d+) MiB of other memory of this process)?\)", words)
        self.assertTrue(budget, words)
        sizes = [int(number) for number in re.findall(r"(\d+) MiB", words.replace(budget[0], "").partition(" To do: ")[0])]
        live, headroom, needed, on_gpu, host, disk, there, short = sizes
        self.assertEqual(int(budget[1]) + int(budget[2]) - int(budget[3] or 0), on_gpu, words)
        self.assertEqual((live + headroom, on_gpu + host + disk, needed - there), (needed, there, short), words)
        self.assertGreater(short, 0)
        self.assertIn("To do: a SPILLWAY_HOST_MEMORY that gives this process that much more", words)
        blocks = words.partition("The largest live blocks: ")[2].split("; ")
        self.assertEqual(len(blocks), 5, words)
        for block in blocks:
            self.assertRegex(block, r"^16\.00 MiB( off the GPU)?, last used by \S+")

    def test_a_forked_child_goes_on(self):
        code = (
            "import os, torch\n"
            "kept = torch.ones(4 << 20, device='cuda')\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    del kept\n"
            "    os._exit(7 if all('spillway' not in os.readlink(f'/proc/self/fd/{fd}') for fd in range(3, 64)\n"
            "                      if os.path.exists(f'/proc/self/fd/{fd}')) else 8)\n"
            "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), kept.sum().item())\n"
        )
        done = self.run_job(code)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, f"7 {float(4 << 20)}"), done.stderr)

    def test_an_exit_with_live_blocks_is_quiet(self):
        code = "import torch, builtins; builtins.kept = [torch.ones(4 << 20, device='cuda') for _ in range(24)]"
        done = self.run_job(code)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [line for line in done.stderr.splitlines() if line]
        heads = ("spillway: Spillway", "spillway: spilling starts", "spillway: summary", "spillway: lost time")
        self.assertTrue(all(line.startswith(heads) for line in lines), lines)

    def test_with_log_off_nothing_is_written(self):
        done = self.run_job(OVERSUBSCRIBED, SPILLWAY_LOG="off")
        self.assert_right(done)
        self.assertEqual(done.stderr, "")

    def test_lines_name_the_rank_where_there_are_several(self):
        done = self.run_job(OVERSUBSCRIBED, LOCAL_RANK="1", LOCAL_WORLD_SIZE="2")
        self.assert_right(done)
        lines = done.stderr.splitlines()
        self.assertTrue(all(re.match(r"spillway: rank 1, pid \d+: ", line) for line in lines), lines)
        self.assertIn("; rank 1 of 2", lines[0])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
