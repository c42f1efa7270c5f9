"""Stock PyTorch's host side on the stand-in runtime and driver, without any operator: devices, properties, memory,
out-of-memory, streams, events, pinned memory, forked workers. Started through simcuda-run with 1 GiB of device memory
and two devices, under which it prints "skipped" and exits with 77 if PyTorch is not installed."""

import importlib.util
import os
import sys
import time
import unittest

if importlib.util.find_spec("torch") is None:
    print("skipped: PyTorch is not installed in", sys.executable)
    sys.exit(77)

import torch

if torch.version.cuda is None:
    print("skipped: this PyTorch was built without CUDA")
    sys.exit(77)

MIB = 1 << 20
CAPACITY = 1 << 30


class RuntimeUnderTorchTest(unittest.TestCase):
    def tearDown(self):
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    def test_devices_and_properties(self):
        self.assertTrue(torch.cuda.is_available())
        self.assertEqual(torch.cuda.device_count(), 2)
        self.assertEqual(torch.accelerator.current_accelerator().type, "cuda")
        properties = torch.cuda.get_device_properties(0)
        self.assertEqual(properties.total_memory, CAPACITY)
        self.assertTrue(properties.name)
        self.assertEqual(torch.cuda.get_device_capability(0), (properties.major, properties.minor))
        self.assertGreater(properties.multi_processor_count, 0)
        with torch.cuda.device(1):
            self.assertEqual(torch.cuda.current_device(), 1)
            self.assertEqual(torch.empty(4, device="cuda").device.index, 1)
        self.assertEqual(torch.cuda.current_device(), 0)
        self.assertIsInstance(torch.cuda.can_device_access_peer(0, 1), bool)

    def test_memory_is_counted(self):
        free_before, total = torch.cuda.mem_get_info()
        self.assertEqual(total, CAPACITY)
        tensor = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
        free_after, _ = torch.cuda.mem_get_info()
        self.assertGreaterEqual(free_before - free_after, 64 * MIB)
        self.assertGreaterEqual(torch.cuda.memory_allocated(), 64 * MIB)
        self.assertIn("Allocated memory", torch.cuda.memory_summary())
        self.assertGreaterEqual(torch.cuda.memory_stats()["allocated_bytes.all.current"], 64 * MIB)
        del tensor
        torch.cuda.empty_cache()
        self.assertEqual(torch.cuda.mem_get_info()[0], free_before)

    def test_out_of_memory_has_its_usual_text(self):
        with self.assertRaises(torch.cuda.OutOfMemoryError) as caught:
            torch.empty(2 * CAPACITY, dtype=torch.uint8, device="cuda")
        text = str(caught.exception)
        self.assertIn("CUDA out of memory. Tried to allocate 2.00 GiB", text)
        self.assertIn("GPU 0 has a total capacity of 1024.00 MiB" if "1024.00 MiB" in text else
                      "GPU 0 has a total capacity of 1.00 GiB", text)
        # The device is as good as before.
        self.assertEqual(torch.empty(MIB, dtype=torch.uint8, device="cuda").numel(), MIB)

    def test_copies_there_and_back(self):
        source = torch.arange(1 << 18, dtype=torch.int32)
        self.assertTrue(torch.equal(source.cuda().cpu(), source))
        pinned = source.pin_memory()
        self.assertTrue(pinned.is_pinned())
        self.assertFalse(source.is_pinned())
        back = torch.empty_like(source).pin_memory()
        back.copy_(pinned.to("cuda", non_blocking=True), non_blocking=True)
        torch.cuda.synchronize()
        self.assertTrue(torch.equal(back, source))

    def test_sleep_runs_on_its_stream_and_events_see_it(self):
        # The first kernel of all: 0.2 s of device clock.
        khz = torch.cuda.get_device_properties(0).clock_rate or 1_000_000
        stream = torch.cuda.Stream()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        started = time.monotonic()
        with torch.cuda.stream(stream):
            begin.record()
            torch.cuda._sleep(200 * khz)
            end.record()
        self.assertLess(time.monotonic() - started, 0.15)
        self.assertFalse(end.query())
        self.assertFalse(stream.query())
        torch.cuda.current_stream().wait_event(end)
        end.synchronize()
        self.assertGreaterEqual(begin.elapsed_time(end), 195)
        self.assertLess(begin.elapsed_time(end), 2000)
        stream.synchronize()
        self.assertTrue(stream.query())

    def test_streams_have_priorities(self):
        least, greatest = torch.cuda.Stream.priority_range()
        self.assertLessEqual(greatest, least)
        self.assertEqual(torch.cuda.Stream(priority=greatest).priority, greatest)
        self.assertFalse(torch.cuda.is_current_stream_capturing())

    def test_the_profiler_switches_are_no_errors(self):
        torch.cuda.profiler.start()
        torch.cuda.profiler.stop()

    def test_a_forked_child_is_refused(self):
        torch.cuda.init()
        child = os.fork()
        if child == 0:
            try:
                torch.empty(1, device="cuda")
            except RuntimeError as error:
                os._exit(0 if "forked subprocess" in str(error) else 2)
            os._exit(1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)


if __name__ == "__main__":
    unittest.main()
