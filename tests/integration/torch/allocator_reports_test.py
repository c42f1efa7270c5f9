"""What PyTorch says about memory while our blocks are among it: statistics, errors, snapshots, history, profiler."""

import unittest

import torch
from support import BUDGET, MIB, TorchTest, answer_of, block, figure, run_python

# Sizes that native splits exactly, so that its figures are those of the request: whole segments and their halves.
SCENARIO = """
names = ["allocated_bytes", "requested_bytes", "active_bytes", "allocation", "active"]
def look():
    stats = torch.cuda.memory_stats()
    return {f"{n}.{p}.{k}": stats[f"{n}.{p}.{k}"] for n in names for p in ("all", "large_pool", "small_pool")
            for k in ("current", "peak", "allocated", "freed")}
seen = []
a = support.block(32); b = support.block(0.5); c = support.block(64); seen.append(look())
del a; seen.append(look())
d = support.block(16); e = support.block(0.25); seen.append(look())
torch.cuda.reset_peak_memory_stats(); seen.append(look())
del c, b; f = support.block(0.75); seen.append(look())
torch.cuda.reset_accumulated_memory_stats(); g = support.block(48); seen.append(look())
del d, e, f, g; seen.append(look())
"""


class StatisticsTest(TorchTest):
    def test_figures_equal_those_of_native(self):
        code = SCENARIO + "print(json.dumps(seen))"
        ours, native = answer_of(code), answer_of(code, fake=False)
        for step, (mine, theirs) in enumerate(zip(ours, native, strict=True)):
            self.assertEqual(mine, theirs, f"step {step}")
        self.assertGreater(ours[0]["allocated_bytes.large_pool.current"], 0)

    def test_keys_equal_those_of_native(self):
        code = "support.block(4); print(json.dumps(sorted(torch.cuda.memory_stats())))"
        self.assertEqual(answer_of(code), answer_of(code, fake=False))

    def test_the_peak_is_that_of_both_together(self):
        # Ours first 8 then 2, native 0 then 4 (of 0.5 each): the sum never reaches 8 + 4.
        large = block(8)
        del large
        rest = block(2)
        small = [block(0.5) for _ in range(8)]
        self.assertEqual(torch.cuda.max_memory_allocated(), 8 * MIB)
        torch.cuda.reset_peak_memory_stats()
        self.assertEqual(torch.cuda.max_memory_allocated(), 6 * MIB)
        del rest, small
        self.assertEqual(torch.cuda.max_memory_allocated(), 6 * MIB)

    def test_reserved_is_what_the_engine_holds_and_empty_cache_gives_it_back(self):
        start = torch.cuda.memory_reserved()
        tensor = block(8)
        self.assertEqual(torch.cuda.memory_reserved() - start, 8 * MIB)
        del tensor
        self.assertEqual(torch.cuda.memory_reserved() - start, 8 * MIB)
        torch.cuda.empty_cache()
        self.assertEqual(torch.cuda.memory_reserved(), start)
        self.assertEqual(torch.cuda.max_memory_reserved() - start, 8 * MIB)
        self.assertEqual(figure("reserved_bytes.large_pool.freed"), 8 * MIB)

    def test_a_refusal_that_empties_natives_cache_keeps_the_common_peak(self):
        small = [block(0.5) for _ in range(8)]
        del small
        cached = torch.cuda.memory_reserved()
        ours = block(8)
        with self.assertRaises(torch.cuda.OutOfMemoryError):
            block(300)
        del ours
        self.assertEqual(torch.cuda.max_memory_reserved(), cached + 8 * MIB)

    def test_memory_info_and_summary(self):
        free, total = torch.cuda.mem_get_info()
        self.assertGreaterEqual(total, free)
        tensor = block(4)
        self.assertIn("Allocated memory", torch.cuda.memory_summary())
        self.assertIn("Allocated memory", torch.cuda.memory_summary(abbreviated=True))
        self.assertGreaterEqual(torch.cuda.memory_allocated(), tensor.nbytes)
        if hasattr(torch, "accelerator") and hasattr(torch.accelerator, "memory_allocated"):  # from 2.9 on
            self.assertEqual(torch.accelerator.memory_allocated(), torch.cuda.memory_allocated())


class OutOfMemoryTest(TorchTest):
    def test_text_is_pytorchs_with_one_line_of_ours(self):
        held = block(200)
        with self.assertRaises(torch.cuda.OutOfMemoryError) as caught:
            block(100)
        first, second = str(caught.exception).split("\n", 1)
        self.assertRegex(
            first,
            r"^CUDA out of memory\. Tried to allocate 100\.00 MiB\. GPU 0 has a total capacity of 256\.00 MiB of "
            r"which 56\.00 MiB is free\. Including non-PyTorch memory, this process has 200\.00 MiB memory in use\. "
            r"Of the allocated memory 200\.00 MiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but "
            r"unallocated\.$",
        )
        self.assertTrue(second.startswith(f"Spillway: the fake budget of {BUDGET} bytes is used up"), second)
        self.assertEqual((figure("num_ooms"), figure("num_alloc_retries")), (1, 1))
        del held
        self.assertTrue(self.engine.owns(block(100)))

    def test_text_begins_as_natives(self):
        code = (
            "try: support.block(1 << 20)\n"
            "except torch.OutOfMemoryError as e: print(json.dumps(str(e).split('GPU')[0]))"
        )
        self.assertEqual(answer_of(code), answer_of(code, fake=False))

    def test_cached_memory_is_given_back_before_giving_up(self):
        del_me = block(10)
        del del_me
        before = self.engine.count("empties")
        with self.assertRaises(torch.cuda.OutOfMemoryError):
            block(1000)
        self.assertEqual(self.engine.count("empties"), before + 1)
        self.assertEqual(self.engine.count("held"), self.engine.count("live"))

    def test_observers_hear_of_it(self):
        seen = []
        torch._C._cuda_attach_out_of_memory_observer(lambda *arguments: seen.append(arguments))
        with self.assertRaises(torch.cuda.OutOfMemoryError):
            block(300)
        self.assertEqual(len(seen), 1)
        device, asked, total, free = seen[0]
        self.assertEqual((device, asked, total), (0, 300 * MIB, BUDGET))
        self.assertLessEqual(free, total)

    def test_the_fraction_is_told_to_the_engine_as_bytes(self):
        torch.cuda.set_per_process_memory_fraction(0.25)  # 64 MiB of 256
        try:
            if hasattr(torch.cuda, "get_per_process_memory_fraction"):  # from 2.6 on
                self.assertEqual(torch.cuda.get_per_process_memory_fraction(), 0.25)
            held = block(40)
            with self.assertRaisesRegex(torch.cuda.OutOfMemoryError, r"64\.00 MiB allowed; "):
                block(40)
            del held
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        self.assertTrue(self.engine.owns(block(80)))

    def test_impossible_sizes(self):
        with self.assertRaisesRegex(torch.cuda.OutOfMemoryError, "more than 1EB"):
            torch.empty(1 << 60, dtype=torch.uint8, device="cuda")


class OtherErrorsTest(TorchTest):
    """What the driver says is raised as PyTorch raises it; what only we know, with our words."""

    def setUp(self):
        super().setUp()
        self.addCleanup(self.engine.fail, 0)

    def test_a_device_side_error(self):
        held = block(4)
        for code, words in ((710, "device-side assert triggered"), (700, "an illegal memory access was encountered")):
            self.engine.fail(code)
            for call in (lambda: block(4), torch.cuda.empty_cache):
                with self.assertRaises(getattr(torch, "AcceleratorError", RuntimeError)) as caught:  # from 2.8 on
                    call()
                self.assertTrue(str(caught.exception).startswith("CUDA error: " + words), str(caught.exception))
                self.assertNotIsInstance(caught.exception, torch.cuda.OutOfMemoryError)
        frees = self.engine.count("frees")
        del held
        self.assertEqual(self.engine.count("frees"), frees + 1)

    def test_a_failure_of_ours(self):
        block(4)
        for code in (1, 909, 999):
            self.engine.fail(code)
            with self.assertRaisesRegex(RuntimeError, "Spillway could not allocate: the fake engine fails"):
                block(4)


class SnapshotTest(TorchTest):
    def test_our_blocks_are_segments(self):
        tensor, small = block(6), block(0.25)
        segments = {s["address"]: s for s in torch.cuda.memory_snapshot()}
        segment = segments[tensor.data_ptr()]
        self.assertEqual((segment["total_size"], segment["requested_size"]), (6 * MIB, 6 * MIB))
        self.assertEqual((segment["segment_type"], len(segment["blocks"])), ("large", 1))
        self.assertEqual(segment["blocks"][0]["state"], "active_allocated")
        self.assertNotIn(small.data_ptr(), [s["address"] for s in segments.values() if s["segment_type"] == "large"])

    def test_history_holds_both_kinds_in_order_of_time(self):
        torch.cuda.memory._record_memory_history(max_entries=1000)
        try:
            tensor, small = block(6), block(0.25)
            address = tensor.data_ptr()
            del tensor
            snapshot = torch.cuda.memory._snapshot()
        finally:
            torch.cuda.memory._record_memory_history(enabled=None)
        trace = snapshot["device_traces"][0]
        self.assertEqual(
            [e["action"] for e in trace if e["addr"] == address],
            ["segment_alloc", "alloc", "free_requested", "free_completed", "segment_free"],
        )
        self.assertIn(small.data_ptr(), [e["addr"] for e in trace])
        times = [e["time_us"] for e in trace]
        self.assertEqual(times, sorted(times))
        frames = [f["name"] for e in trace if e["addr"] == address and e["action"] == "alloc" for f in e["frames"]]
        self.assertIn("block", frames)
        self.assertEqual(len({e.get("compile_context") for e in trace}), 1)  # from 2.8 on

    @unittest.skipUnless(hasattr(torch.cuda.memory, "_annotate_tensor"), "this PyTorch has no annotations")
    def test_annotations_of_both_kinds(self):
        self.assertTrue(torch.cuda.memory._memory_metadata_supported())
        torch.cuda.memory._record_memory_history(max_entries=1000)
        try:
            tensor, small = block(6), block(0.25)
            for marked in (tensor[MIB:], small):
                torch.cuda.memory._annotate_tensor(marked, "mark")
            trace = torch.cuda.memory._snapshot()["device_traces"][0]
        finally:
            torch.cuda.memory._record_memory_history(enabled=None)
        events = [e for e in trace if e["action"] == "annotate"]
        self.assertEqual([(e["addr"], e["size"], e["user_metadata"]) for e in events],
                         [(tensor.data_ptr(), 6 * MIB, "mark"), (small.data_ptr(), MIB // 4, "mark")])  # fmt: skip
        ours, native = events
        self.assertEqual(ours["compile_context"], native["compile_context"])
        named = [[f["name"] for f in event["frames"] if f["name"] != "??"] for event in events]  # not the libraries' own
        self.assertEqual(named[0], named[1])

    def test_history_has_an_end(self):
        torch.cuda.memory._record_memory_history(max_entries=10)
        try:
            for _ in range(20):
                block(2)
            trace = torch.cuda.memory._snapshot()["device_traces"][0]
        finally:
            torch.cuda.memory._record_memory_history(enabled=None)
        self.assertLessEqual(len([e for e in trace if e["size"] == 2 * MIB]), 10)
        self.assertEqual(torch.cuda.memory._snapshot()["device_traces"][0], [])


class ProfilerTest(TorchTest):
    def test_memory_of_our_blocks_is_seen(self):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            tensor = block(6)
            del tensor
        used = [event.device_memory_usage for event in profile.events()]
        self.assertIn(6 * MIB, [abs(bytes_) for bytes_ in used])

    def test_gpu_trace_callbacks_fire(self):
        code = (
            "from torch.cuda import _gpu_trace\n"
            "import torch._C; torch._C._activate_gpu_trace(); seen = []\n"
            "_gpu_trace.register_callback_for_memory_allocation(lambda p: seen.append(('a', p)))\n"
            "_gpu_trace.register_callback_for_memory_deallocation(lambda p: seen.append(('d', p)))\n"
            "t = support.block(4); p = t.data_ptr(); del t\n"
            "print(json.dumps([['a', p] in [list(s) for s in seen], ['d', p] in [list(s) for s in seen]]))"
        )
        status, output, errors = run_python(code)
        self.assertEqual((status, output.strip().splitlines()[-1:]), (0, ["[true, true]"]), errors)


if __name__ == "__main__":
    unittest.main()
