"""A driver newer than Spillway's table: what is unknown is passed through with one line, and only a launch or copy
function that could not be wrapped switches eviction off.
"""

import shutil
import unittest

from routing_case import BUILD, OVERSUBSCRIBE, STAGE, RoutingCase

RIGHT = "\nprint(torch.cuda.memory.get_allocator_backend(), right())"
# What a newer runtime would do at its start.
ASK = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
pointer = ctypes.c_void_p()
for _ in range(2):
    assert driver.cuGetProcAddress_v2(b"cuLaunchKernelOfTheFuture", ctypes.byref(pointer), 99000, ctypes.c_uint64(0), None) == 0
"""


class NewerDriverTest(RoutingCase):
    def setUp(self):
        super().setUp()
        self.place = self.folder / "driver"
        self.place.mkdir()
        shutil.copy(STAGE / "newer/libcuda.so.1", self.place)
        data = (BUILD / "lib/simcuda/libcuda.so.1").read_bytes()
        old, new = b"\0libcuda.so.1\0", b"\0libcudb.so.1\0"
        self.assertEqual(data.count(old), 1)
        (self.place / "libcudb.so.1").write_bytes(data.replace(old, new))

    def run_on_it(self, code, mode, **options):
        return self.run_job(code, SPILLWAY_CUDA_DRIVER=self.place / "libcuda.so.1", NEWER_DRIVER=mode, **options)

    def test_a_driver_that_is_not_newer(self):
        done = self.run_on_it(OVERSUBSCRIBE + RIGHT, "no")
        self.assertEqual(done.stdout.split(), ["spillway", "True"])
        self.assertEqual(len(self.words(done, "spillway: spilling starts")), 1, done.stderr)

    def test_unknown_function(self):
        done = self.run_on_it(ASK + OVERSUBSCRIBE + RIGHT, "unknown")
        self.assertEqual(done.stdout.split(), ["spillway", "True"])
        self.assertEqual(len(self.words(done, "spillway: cuLaunchKernelOfTheFuture and perhaps others are newer")), 1)
        self.assertEqual(len(self.words(done, "spillway: spilling starts")), 1, done.stderr)

    def test_launch_function_that_cannot_be_wrapped(self):
        """The job fits: it runs on, and one line says that nothing will be moved."""
        done = self.run_on_it(OVERSUBSCRIBE + RIGHT, "must", memory="512MiB")
        self.assertEqual(done.stdout.split(), ["spillway", "True"])
        self.assertEqual(len([line for line in self.words(done) if "cuLaunchKernel" in line]), 1, done.stderr)

    def test_launch_function_that_cannot_be_wrapped_in_a_job_that_does_not_fit(self):
        done = self.run_on_it(OVERSUBSCRIBE, "must", status=1)
        self.assertIn("OutOfMemoryError", done.stderr)
        self.assertFalse(self.words(done, "spillway: spilling starts"), done.stderr)
        self.assertEqual(len([line for line in self.words(done) if "cuLaunchKernel" in line]), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
