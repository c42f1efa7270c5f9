"""PyTorch comes after the CUDA runtime that it shares was started by another library, so that no cuInit follows its import."""

import unittest

from routing_case import OVERSUBSCRIBE, RoutingCase

# Another library's first call. The library stays, and PyTorch uses the same one.
OTHER_FIRST = """
import ctypes
runtime = ctypes.CDLL("libcudart.so.13")
memory = ctypes.c_void_p()
assert runtime.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(1 << 20)) == 0
"""
BACKEND = "\nprint(torch.cuda.memory.get_allocator_backend(), right())"
# All modules that `import torch` may open after PyTorch's own: nothing then tells that PyTorch is there.
OPENED_BEFORE = """
import contextlib, importlib, os, sysconfig
for file in os.listdir(sysconfig.get_config_var("DESTSHARED")):
    with contextlib.suppress(ImportError):
        importlib.import_module(file.partition(".")[0])
import numpy, numpy.fft, numpy.linalg, numpy.random
with contextlib.suppress(ImportError):
    import cuda.bindings.driver, cuda.bindings.runtime
"""
ONE_TENSOR = "\nimport torch\nprint(torch.ones(4, device='cuda').sum().item(), torch.cuda.memory.get_allocator_backend())"
LEFT = "spillway: PyTorch is left as it is: CUDA is already initialized in PyTorch"


class LateTorchTest(RoutingCase):
    def test_served_all_the_same(self):
        done = self.run_job(OTHER_FIRST + OVERSUBSCRIBE + BACKEND)
        self.assertEqual(done.stdout.split(), ["spillway", "True"], done.stderr)
        self.assertEqual([line for line in self.words(done) if "left" in line], [], done.stderr)

    def test_what_comes_too_late_is_told(self):
        done = self.run_job(OPENED_BEFORE + OTHER_FIRST + ONE_TENSOR)
        self.assertEqual(done.stdout.split(), ["4.0", "native"], done.stderr)
        self.assertEqual(self.words(done), [LEFT + " (SPILLWAY_REQUIRE=1 ends the job instead)"], done.stderr)

    def test_what_comes_too_late_ends_a_job_that_requires_spillway(self):
        done = self.run_job(OPENED_BEFORE + OTHER_FIRST + ONE_TENSOR, status=2, SPILLWAY_REQUIRE=1)
        self.assertEqual((done.stdout, len(self.words(done))), ("", 1), done.stderr)
        self.assertIn(LEFT, done.stderr)


if __name__ == "__main__":
    unittest.main()
