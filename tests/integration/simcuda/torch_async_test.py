"""Launches do not wait: queue depth, order, streams, events, recorded streams, threads, and what the driver sees of an
operator (its name, one launch each)."""

import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from torch_common import CUDA, Driver, torch

import torch.cuda._gpu_trace as gpu_trace

KERNEL_US = 20_000

LOGGED = """
import torch
x = torch.ones(4, 4, device="cuda")
for _ in range(2):
    y = torch.add(x, 1)
    y.mul_(2)
    torch._foreach_add_([x, y, y.clone()], 1.0)
torch.cuda.synchronize()
"""


class AsynchronousTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.driver = Driver()

    def tearDown(self):
        self.driver.hold_streams(False)
        self.driver.set("KERNEL_TIME", 0)
        torch.cuda.synchronize()

    def test_known_signatures_queue_behind_a_held_stream(self):
        x = torch.arange(12.0, device=CUDA).reshape(3, 4)
        compute = lambda: (x @ x.T + 1).relu().sum(0)
        expected = compute().cpu()
        torch.empty_like(x).zero_()
        torch.cuda.synchronize()
        before = self.driver.stats().launches
        self.driver.hold_streams(True)
        result = compute()
        x.zero_()  # queued after: must not change what came before
        self.assertFalse(torch.cuda.current_stream().query())
        self.driver.hold_streams(False)
        torch.testing.assert_close(result.cpu(), expected, rtol=0, atol=0)
        self.assertEqual(self.driver.stats().launches - before, 5)
        self.assertEqual(x.abs().sum().item(), 0)

    def test_the_host_runs_ahead_of_slow_kernels(self):
        x = torch.ones(8, 8, device=CUDA)
        x.add_(1)
        y = x * 2
        torch.cuda.synchronize()
        self.driver.set("KERNEL_TIME", KERNEL_US)
        start = time.perf_counter()
        for _ in range(8):
            x.add_(1)
            y = x * 2
        submitted = time.perf_counter() - start
        torch.cuda.synchronize()
        finished = time.perf_counter() - start
        self.assertGreaterEqual(finished, 16 * KERNEL_US * 1e-6)
        self.assertLess(submitted, finished / 2)
        self.assertEqual(y[0, 0].item(), 20)

    def test_host_arguments_may_change_after_the_call(self):
        x = torch.zeros(3, device=CUDA)
        scale = torch.tensor(2.0)
        x.add_(scale), x[1:2].fill_(3)  # learn the signatures: an unknown one waits
        x.zero_()
        self.driver.hold_streams(True)
        x.add_(scale)
        scale.fill_(100)
        x[1:2].fill_(7)
        self.driver.hold_streams(False)
        self.assertEqual(x.tolist(), [2, 7, 2])

    def test_freed_memory_is_reused_in_stream_order(self):
        def chain():
            value = torch.ones(1 << 16, device=CUDA)
            for _ in range(20):
                value = value + 1
            return value

        chain()
        torch.cuda.synchronize()
        self.driver.set("KERNEL_TIME", 500)
        results = [chain() for _ in range(3)]
        for result in results:
            self.assertTrue(bool((result == 21).all()))

    def test_those_who_watch_synchronisations_see_the_ones_of_a_gpu(self):
        """Waiting to learn a shape is the stand-in's own; nonzero waits on a GPU as well."""
        seen = []
        torch._C._activate_gpu_trace()
        gpu_trace.register_callback_for_stream_synchronization(seen.append)
        x = torch.arange(17.0, device=CUDA)
        x.add(1).cumsum(0)
        self.assertEqual(seen, [])
        x.nonzero()
        self.assertEqual(seen, [torch.cuda.current_stream().cuda_stream])

    def test_side_stream_with_events(self):
        x = torch.zeros(1 << 16, device=CUDA)
        side = torch.cuda.Stream()
        x.add_(1), (x * 3).sum()
        torch.cuda.synchronize()
        self.driver.set("KERNEL_TIME", 2000)
        for step in range(5):
            x.add_(1)
            ready = torch.cuda.current_stream().record_event()
            with torch.cuda.stream(side):
                side.wait_event(ready)
                y = x * 3
            done = side.record_event()
            torch.cuda.current_stream().wait_event(done)
            self.assertEqual(y.sum().item(), 3.0 * (step + 2) * (1 << 16))
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record(), x.add_(1), end.record()
        end.synchronize()
        self.assertGreaterEqual(start.elapsed_time(end), 1.9)

    def test_record_stream_keeps_memory_until_the_other_stream_is_done(self):
        side = torch.cuda.Stream()
        total = torch.zeros((), device=CUDA)
        size = 1 << 18

        def use(value):
            source = torch.full((size,), value, device=CUDA)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                total.add_(source.sum())
                source.record_stream(side)
            del source
            torch.full((size,), -1.0, device=CUDA)  # would take the memory over

        use(0.0)
        torch.cuda.synchronize()
        self.driver.set("KERNEL_TIME", 3000)
        for value in (1.0, 2.0, 3.0):
            use(value)
        torch.cuda.synchronize()
        self.assertEqual(total.item(), 6.0 * size)

    def test_threads_with_streams_of_their_own(self):
        expected = torch.linspace(0, 1, 4096).reshape(64, 64)
        expected = ((expected @ expected).softmax(1) * 3).sum(0)
        failures = []

        def work(seed):
            try:
                with torch.cuda.stream(torch.cuda.Stream()):
                    for _ in range(30):
                        x = torch.linspace(0, 1, 4096).reshape(64, 64).to(CUDA)
                        y = ((x @ x).softmax(1) * 3).sum(0)
                        torch.testing.assert_close(y.cpu(), expected)
            except BaseException as error:  # noqa: B902 - reported by the main thread
                failures.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_each_operator_is_one_launch_of_its_name(self):
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "log")
            subprocess.run([sys.executable, "-c", LOGGED], env={**os.environ, "SIMCUDA_LOG": log}, check=True)
            with open(log, encoding="utf-8") as file:
                names = [line.split("\t")[-1].strip() for line in file if "aten::" in line]
        for name, count in (("aten::add.Tensor", 2), ("aten::mul_.Tensor", 2), ("aten::_foreach_add_.Scalar", 6)):
            self.assertEqual(names.count(name), count, names)


if __name__ == "__main__":
    unittest.main()
