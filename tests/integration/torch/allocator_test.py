"""Who owns which block, and that all of them come and go as PyTorch expects."""

import gc
import os
import pickle
import subprocess
import threading
import unittest

import torch
from support import MIB, TorchTest, answer_of, block, run_python


class OwnershipTest(TorchTest):
    def test_large_blocks_are_ours_and_small_ones_native(self):
        large, edge, small = block(4), block(1 + 1 / MIB), block(1)
        self.assertTrue(self.engine.owns(large))
        self.assertTrue(self.engine.owns(edge))
        self.assertFalse(self.engine.owns(small))

    def test_backend_is_named(self):
        block(2)
        self.assertEqual(torch.cuda.get_allocator_backend(), "spillway")

    def test_empty_tensors_hold_nothing_but_have_a_device(self):
        before = self.engine.count("allocations")
        empty = torch.empty(0, device="cuda")
        self.assertEqual((empty.data_ptr(), empty.device.type), (0, "cuda"))
        self.assertEqual(self.engine.count("allocations"), before)

    def test_a_free_gives_the_block_back(self):
        before = self.engine.count("live")
        tensor = block(6)
        self.assertEqual(self.engine.count("live") - before, 6 * MIB)
        del tensor
        self.assertEqual(self.engine.count("live"), before)

    def test_resize_and_raw_calls(self):
        tensor = block(2)
        tensor.untyped_storage().resize_(0)
        tensor.untyped_storage().resize_(8 * MIB)
        self.assertTrue(self.engine.owns(tensor))
        for size in (1000, 3 * MIB):
            pointer = torch.cuda.caching_allocator_alloc(size)
            self.assertEqual(bool(self.engine.library.fake_owns(pointer)), size > MIB)
            torch.cuda.caching_allocator_delete(pointer)

    def test_raw_alloc_on_a_stream(self):
        stream = torch.cuda.Stream()
        pointer = torch.cuda.caching_allocator_alloc(2 * MIB, stream=stream)
        self.assertTrue(self.engine.library.fake_owns(pointer))
        torch.cuda.caching_allocator_delete(pointer)

    @unittest.skipUnless(hasattr(torch.cuda, "caching_allocator_enable"), "this PyTorch cannot switch caching off")
    def test_caching_switched_off_goes_to_native(self):
        torch.cuda.caching_allocator_enable(False)
        try:
            uncached = block(4)
            self.assertFalse(self.engine.owns(uncached))
            del uncached
        finally:
            torch.cuda.caching_allocator_enable(True)
        self.assertTrue(self.engine.owns(block(4)))

    def test_record_stream_reaches_the_owner(self):
        stream = torch.cuda.Stream()
        large, small = block(4), block(0.25)
        before = self.engine.count("records")
        large.record_stream(torch.cuda.current_stream())  # the allocation's own: nothing to record
        small.record_stream(stream)
        self.assertEqual(self.engine.count("records"), before)
        large.record_stream(stream)
        self.assertEqual(self.engine.count("records"), before + 1)
        self.assertEqual(self.engine.count("recorded_stream"), stream.cuda_stream)

    def test_bytes_survive_copies_pickling_and_dlpack(self):
        values = torch.arange(MIB, dtype=torch.int64)
        there = values.to("cuda")
        self.assertTrue(self.engine.owns(there))
        self.assertTrue(torch.equal(there.cpu(), values))
        self.assertTrue(torch.equal(there.clone().cpu(), values))
        self.assertTrue(torch.equal(pickle.loads(pickle.dumps(there)).cpu(), values))
        shared = torch.from_dlpack(there)
        self.assertEqual(shared.data_ptr(), there.data_ptr())
        del there
        gc.collect()
        self.assertTrue(torch.equal(shared.cpu(), values))

    def test_each_step_of_an_optimizer_is_marked(self):
        block(2)
        weight = torch.nn.Parameter(torch.ones(4))
        before = self.engine.count("marks")
        for optimizer in (torch.optim.SGD([weight], lr=0.1), torch.optim.AdamW([weight], lr=0.1, foreach=True)):
            for _ in range(3):
                weight.grad = torch.ones(4)
                optimizer.zero_grad(set_to_none=False)
                optimizer.step()
        with torch.autograd.profiler.record_function("something else"):
            weight.sum()
        self.assertEqual(self.engine.count("marks") - before, 6)

    def test_threads_allocate_at_once(self):
        failures = []

        def work():
            try:
                for _ in range(40):
                    held = [block(2), block(3), block(0.1)]
                    del held
            except Exception as failure:  # a test must see what a thread met
                failures.append(failure)

        before = self.engine.count("live")
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertEqual(self.engine.count("live"), before)

    def test_sharing_with_another_process_is_refused_in_words(self):
        with self.assertRaisesRegex(RuntimeError, "Spillway: a CUDA tensor of more than 1 MiB cannot be shared"):
            block(4).untyped_storage()._share_cuda_()


class LifeTest(unittest.TestCase):
    def test_native_takes_over_when_the_engine_has_ended(self):
        code = (
            "a = support.block(4); e = support.engine(); ours = e.owns(a); e.end()\n"
            "b = support.block(4); native = not e.owns(b); del a, b\n"
            "print(json.dumps([ours, native]))"
        )
        self.assertEqual(answer_of(code), [True, True])

    def test_a_forked_child_frees_nothing(self):
        code = (
            "import os, gc\n"
            "a = support.block(4); frees = support.engine().count('frees')\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    del a; gc.collect()\n"
            "    os._exit(0 if support.engine().count('frees') == frees else 1)\n"
            "print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))"
        )
        self.assertEqual(answer_of(code), 0)

    def test_no_handler_of_fork_is_registered(self):
        # With glibc before 2.36 that can wait for ever: see fork_mark.h.
        names = subprocess.run(
            ["nm", "-D", "--undefined-only", os.environ["ALLOCATOR_LIBRARY"]], capture_output=True, text=True, check=True
        ).stdout
        self.assertIn("madvise", names)
        self.assertNotIn("atfork", names)

    def test_tensors_may_outlive_the_interpreter(self):
        status, _, errors = run_python("import builtins; builtins.kept = [support.block(4), support.block(0.1)]")
        self.assertEqual((status, errors), (0, ""))

    def test_an_explicit_native_backend_still_parses(self):
        code = "a = support.block(4).cpu().pin_memory(); print(json.dumps(torch.cuda.get_allocator_backend()))"
        variables = {"PYTORCH_CUDA_ALLOC_CONF": "backend:native,max_split_size_mb:64"}
        self.assertEqual(answer_of(code, variables), "spillway")

    def test_pytorchs_start_opens_no_context(self):
        """Each would take some hundred MB of a GPU that the job may never use, and be the current one."""
        code = """
import ctypes
torch.cuda.init()
flags, active = ctypes.c_uint(), ctypes.c_int(-1)
ctypes.CDLL("libcuda.so.1").cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active))
print(json.dumps([active.value, torch.cuda.get_allocator_backend()]))"""
        self.assertEqual(answer_of(code), [0, "spillway"])

    def test_refusals_leave_pytorch_as_it_is(self):
        look = "e = support.FakeEngine()\nprint(json.dumps([e.error, torch.cuda.get_allocator_backend()]))"
        error, backend = answer_of(look, {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, fake=False)
        self.assertIn("PYTORCH_NO_CUDA_MEMORY_CACHING", error)
        self.assertEqual(backend, "native")
        error, backend = answer_of(look, {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}, fake=False)
        self.assertIn("'cudaMallocAsync'", error)
        self.assertEqual(backend, "cudaMallocAsync")
        error, backend = answer_of("torch.cuda.init()\n" + look, fake=False)
        self.assertEqual((error, backend), ("CUDA is already initialized in PyTorch", "native"))

    def test_a_development_build_is_served_by_a_library_of_its_own_only(self):
        look = "e = support.FakeEngine(release=%r)\nprint(json.dumps([e.error, torch.cuda.get_allocator_backend()]))"
        for release in ("2.11.0a0+git1234", "2.11.0.dev20260101", "2.11.0rc2", "2.11.1a0+50eac81.nv25.09"):
            error, backend = answer_of(look % release, fake=False)
            self.assertIn(f"{release} is a development build, and this Spillway was compiled against", error)
            self.assertEqual(backend, "native")
        for release in ("2.11.0", "2.11.1+cu130", "2.11.0.post3"):
            self.assertEqual(answer_of(look % release, fake=False), ["", "spillway"])


if __name__ == "__main__":
    unittest.main()
