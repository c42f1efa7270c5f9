"""A driver newer than Spillway's table: looking an unknown function up changes nothing, and its first call brings
everything back; evictions end then, with one line and a counter. A new driver with the libraries that ask it for more.
"""

import json
import shutil
import unittest

from routing_case import BUILD, OVERSUBSCRIBE, STAGE, RoutingCase

TOO_SMALL = "112MiB"  # for the 128 MiB of OVERSUBSCRIBE, with all lent
RIGHT = "\nprint(torch.cuda.memory.get_allocator_backend(), right())"
# What a newer runtime would do at its start.
ASK = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
pointer = ctypes.c_void_p()
for _ in range(2):
    assert driver.cuGetProcAddress_v2(b"cuReadOfTheFuture", ctypes.byref(pointer), 99000, ctypes.c_uint64(0), None) == 0
"""
# And what a newer library would do with it: no launch names the blocks that are read.
READ = """
def read(blocks):
    addresses = (ctypes.c_uint64 * len(blocks))(*[block.data_ptr() for block in blocks])
    found = ctypes.c_double()
    result = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(pointer.value)(
        ctypes.addressof(addresses), len(blocks), ctypes.addressof(found))
    return result, found.value
"""
# The newest CUDA library of Python, which torch.compile imports, asks for all functions that it knows.
BINDINGS = """
from cuda.bindings import driver as bindings
assert bindings.cuInit(0)[0] == bindings.CUresult.CUDA_SUCCESS
assert bindings.cuDriverGetVersion()[0] == bindings.CUresult.CUDA_SUCCESS
"""
# Those that CUPTI 13.0.85 asks for, as it asks a driver that has them all.
PROFILER_TABLES = """
2c8e0ad80710ab4e90dd54719fe5f74b 21318c60971432488ca641ff7324c8f2 fc58ac1a057c444fa97772ee9aefdb89
b10541e1f7c7c74a9f64f223be99f1e2 c98d1afaf2275b42b12dcd81b5f21ec1 d7bd8af8e7acca4abdbcfb1f1b3fcf33
c2db37e3c4754247b3a8a079f37202ec b9fd53270628c24f87a9988cddf73089 35770f1b092e0348a48e056fc423968d
ff9ab8ee28d40e4cb3b7fd724a6277a8 bfdb432dbf3c5a4a945eb34029e81e75 6e163fbeb958444d835ce182aff1991e
7cb63f9b9ca48e42a484beb66e6aed7f a6b1ff99ecc4c94f92f91928663d5585 127d4831ee3357449742b8447b7a2364
c83963f617f7e241a5749143314dff9f cc529e945c4e9d46837c9625868334e4 42d85a8123f6cb478298f6e78a3aecdc
12458358a7c21e592177ef3556188709 6fbd4b79aa8c8e46baf3c103b6d18e3c 41ae717da9eba64f999be3c27f3c140f
36b889606158f543bbd9ac633878b6b1 1406180d72d6cb47ab6eb963e51bf4c6 06ac4921c9a9e61180f576304dec7eb7
bd91fa4d185f964a8b17f3805601413f 7a7125c2f716ea118d71362b9e155667 32683f42be9652459950838b1c3de155
dccdd90889660045bb1f77598aca1133 a259cffb1846e8488957bfc72ceb58b8 5b618f5a1202684781e4a7765ac9f359
f6d3f4d92de380409f0c058cf1b2906b 0e7af9b33460794470edf020433b7ef9 fe605bbf8542924ca91268bee10b29e7
e9ff28a90c61b4499c09e567201b05f0 1ad5eede0290c64eba8100f425b38aa5 e01b33cec3b7ce4dbe3caba233b1a9cc
a5987389dd8f6b4bbddbc24bf650aa18
"""
ASK_FOR_TABLES = """
import ctypes, torch
torch.ones(1 << 20, device="cuda")
driver = ctypes.CDLL("libcuda.so.1")
for name in {names!r}.split():
    table = ctypes.c_void_p()
    assert driver.cuGetExportTable(ctypes.byref(table), bytes.fromhex(name)) == 0 and table.value
"""
SHARED_BY_LIBRARIES = "21318c60971432488ca641ff7324c8f2"
PROFILED = """
import torch
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]):
    torch.ones(1 << 20, device="cuda").add_(1)
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
        """The job, and its figures at the end."""
        metrics = self.folder / "metrics.json"
        done = self.run_job(code, SPILLWAY_CUDA_DRIVER=self.place / "libcuda.so.1", NEWER_DRIVER=mode,
                            SPILLWAY_METRICS=metrics, **options)  # fmt: skip
        return done, json.loads(metrics.read_text()) if metrics.exists() else {}

    def test_a_driver_that_is_not_newer(self):
        done, figures = self.run_on_it(OVERSUBSCRIBE + RIGHT, "no")
        self.assertEqual(done.stdout.split(), ["spillway", "True"])
        self.assertEqual(len(self.words(done, "spillway: spilling starts")), 1, done.stderr)
        self.assertEqual((figures["evictions_ended"], figures["newer_calls"]), ("", 0))

    def test_unknown_function_that_is_looked_up(self):
        done, figures = self.run_on_it(ASK + OVERSUBSCRIBE + RIGHT, "invented")
        self.assertEqual(done.stdout.split(), ["spillway", "True"])
        self.assertNotIn("OfTheFuture", done.stderr)
        self.assertEqual((figures["evictions_ended"], figures["newer_calls"]), ("", 0))
        self.assertGreater(figures["evictions"], 0)

    def test_unknown_function_that_is_called_before_there_is_a_block(self):
        done, figures = self.run_on_it(ASK + READ + "assert read([]) == (0, 0)\n" + OVERSUBSCRIBE + RIGHT, "invented")
        self.assertEqual(done.stdout.split(), ["spillway", "True"])
        self.assertEqual((figures["evictions_ended"], figures["newer_calls"]), ("", 1))
        self.assertGreater(figures["evictions"], 0)

    def test_unknown_function_that_is_called(self):
        """Half of the blocks are freed, so what is left fits: it is all there for the first call, and stays."""
        code = ASK + READ + OVERSUBSCRIBE + """
del blocks[8:]
torch.cuda.synchronize()
print(read(blocks), read(blocks))
more = [torch.ones(1 << 20, device="cuda") for _ in range(2)]
torch.cuda.synchronize()
print(read(more))
try:
    torch.ones(64 << 20, device="cuda")
except torch.cuda.OutOfMemoryError as error:
    print("evictions have ended, since cuReadOfTheFuture (newer than this version of Spillway)" in str(error))
for block in blocks:
    block.add_(1.0)
print([block[0].item() for block in blocks] == [i + 3.0 for i in range(8)])
"""
        done, figures = self.run_on_it(code, "invented")
        total = sum(i + 2.0 for i in range(8))
        self.assertEqual(done.stdout.splitlines(), [f"(0, {total}) (0, {total})", "(0, 2.0)", "True", "True"])
        reason = "cuReadOfTheFuture (newer than this version of Spillway)"
        self.assertEqual(self.words(done, "spillway: nothing more"),
                         [f"spillway: nothing more will be moved off the GPU: {reason} cannot be followed"])  # fmt: skip
        self.assertEqual((figures["evictions_ended"], figures["newer_calls"]), (reason, 3))
        self.assertGreater(figures["evictions"], 0, "before the call")

    def test_unknown_function_that_is_called_in_a_job_that_does_not_fit(self):
        """It is refused, since it might reach what is not there, until everything fits."""
        code = ASK + READ + OVERSUBSCRIBE + """
print(read(blocks)[0])
del blocks[8:]
torch.cuda.synchronize()
print(read(blocks))
"""
        done, figures = self.run_on_it(code, "invented", memory=TOO_SMALL)
        self.assertEqual(done.stdout.splitlines(), ["2", f"(0, {sum(i + 2.0 for i in range(8))})"], done.stderr)
        self.assertEqual(len(self.words(done, "spillway: nothing more will be moved off the GPU")), 1)
        self.assertEqual(figures["newer_calls"], 2)

    def test_launch_function_that_cannot_be_wrapped(self):
        """The job fits: it runs on, and one line says that nothing will be moved."""
        done, figures = self.run_on_it(OVERSUBSCRIBE + RIGHT, "must", memory="512MiB")
        self.assertEqual(done.stdout.split(), ["spillway", "True"])
        self.assertEqual(len([line for line in self.words(done) if "cuLaunchKernel" in line]), 1, done.stderr)
        self.assertIn("cuLaunchKernel", figures["evictions_ended"])

    def test_launch_function_that_cannot_be_wrapped_in_a_job_that_does_not_fit(self):
        done, _ = self.run_on_it(OVERSUBSCRIBE, "must", memory=TOO_SMALL, status=1)
        self.assertIn("OutOfMemoryError", done.stderr)
        self.assertFalse(self.words(done, "spillway: spilling starts"), done.stderr)
        self.assertEqual(len([line for line in self.words(done) if "cuLaunchKernel" in line]), 1, done.stderr)

    def test_the_newest_bindings(self):
        """On a driver with the functions of the table, and on one whose newest are not in it."""
        for mode in ("no", "graphs"):
            done, figures = self.run_on_it(BINDINGS + OVERSUBSCRIBE + RIGHT, mode)
            self.assertEqual(done.stdout.split(), ["spillway", "True"])
            self.assertEqual(self.words(done, "spillway: nothing more"), [])
            self.assertEqual((figures["evictions_ended"], figures["newer_calls"]), ("", 0), mode)
            self.assertGreater(figures["evictions"], 0, mode)

    def test_a_profilers_private_tables_cost_one_line(self):
        self.assertEqual(len(PROFILER_TABLES.split()), 37)
        done, figures = self.run_on_it(ASK_FOR_TABLES.format(names=PROFILER_TABLES) + OVERSUBSCRIBE + RIGHT, "tables")
        self.assertEqual(done.stdout.split(), ["spillway", "True"])
        self.assertEqual(len([line for line in done.stderr.splitlines() if "private driver table" in line]), 1, done.stderr)
        self.assertGreater(figures["evictions"], 0)

    def test_a_table_that_libraries_share_ends_nothing_in_strict_mode(self):
        code = ASK_FOR_TABLES.format(names=SHARED_BY_LIBRARIES) + OVERSUBSCRIBE + RIGHT
        done, figures = self.run_on_it(code, "tables", SPILLWAY_TRUST="strict")
        self.assertEqual(done.stdout.split(), ["spillway", "True"])
        self.assertEqual(figures["evictions_ended"], "")
        self.assertNotIn("private driver table", done.stderr)

    def test_pytorchs_profiler(self):
        done, figures = self.run_on_it(PROFILED + OVERSUBSCRIBE + RIGHT, "tables")
        self.assertEqual(done.stdout.split(), ["spillway", "True"])
        lines = [line for line in done.stderr.splitlines() if "private driver table" in line]
        self.assertLessEqual(len(lines), 1, done.stderr)
        self.assertTrue(all("libcupti" in line for line in lines), lines)
        self.assertEqual(figures["evictions_ended"], "")


if __name__ == "__main__":
    unittest.main()
