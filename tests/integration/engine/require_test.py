"""SPILLWAY_REQUIRE: what keeps Spillway from serving a job ends it with exit status 2 before its first CUDA call returns;
what comes later is raised, with the reason. Without it the job goes on, and the line says how to have it ended."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

BUILD = Path(os.environ["SPILLWAY_BUILD"])
PYTHON = os.environ["SPILLWAY_TEST_PYTHON"]

FIRST = """
import torch
print("imported", flush=True)
torch.cuda.init()
print("initialised", flush=True)
print(torch.cuda.get_allocator_backend(), float(torch.ones(1 << 20, device="cuda").sum()))
"""
RAISED = """
import torch
print(torch.cuda.is_available())
for _ in range(2):
    try:
        torch.ones(1 << 20, device="cuda")
        print("served")
    except RuntimeError as error:
        print(str(error).splitlines()[0])
print(float(torch.ones(4, device="cuda").sum()))
"""
HOW = "(SPILLWAY_REQUIRE=1 ends the job instead)"
ASKS = "; the job ends, as SPILLWAY_REQUIRE asks"


class RequireTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="spillway_require_", dir="/var/tmp")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for name in ("libspillway.so", "libspillway_engine.so"):  # without a library for PyTorch
            shutil.copy(BUILD / "lib" / name, self.folder)

    def run_job(self, code, library, status=0, **settings):
        """Its lines on standard output, and ours on standard error."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SPILLWAY", "PYTORCH_", "LD_PRELOAD"))}
        clean.update(OMP_NUM_THREADS="1", LD_PRELOAD=str(library), SPILLWAY_DIRS="none", SPILLWAY_HOST_MEMORY="64MiB", **settings)
        command = [BUILD / "bin" / "simcuda-run", "--memory", "256MiB", "--", PYTHON, "-c", code]
        done = subprocess.run(command, env=clean, capture_output=True, text=True, timeout=250)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout.splitlines(), [line for line in done.stderr.splitlines() if line.startswith("spillway: ")]

    def ends(self, reason, library=BUILD / "lib" / "libspillway.so", asks=ASKS, **settings):
        words = settings or {}
        out, ours = self.run_job(FIRST, library, status=2, **words)
        self.assertEqual(out, ["imported"])
        self.assertRegex(ours[-1], reason)
        self.assertTrue(ours[-1].endswith(asks), ours)

    def test_served(self):
        out, ours = self.run_job(FIRST, BUILD / "lib" / "libspillway.so", SPILLWAY_REQUIRE="1")
        self.assertEqual(out, ["imported", "initialised", f"spillway {float(1 << 20)}"])
        self.assertFalse([line for line in ours if "REQUIRE" in line], ours)

    def test_no_library_for_this_pytorch(self):
        reason = r"PyTorch is left as it is: this Spillway supports PyTorch \(none\), and 2\.\d+ is installed; build Spillway "
        out, ours = self.run_job(FIRST, self.folder / "libspillway.so")
        self.assertEqual(out[-1], f"native {float(1 << 20)}")
        self.assertRegex(ours[0], reason)
        self.assertTrue(ours[0].endswith(HOW), ours)
        for settings in ({"SPILLWAY_REQUIRE": "1"}, {"PYTORCH_CUDA_ALLOC_CONF": "backend:spillway,require:on"}):
            self.ends(reason, self.folder / "libspillway.so", **settings)

    def test_an_engine_that_cannot_be_loaded(self):
        (self.folder / "libspillway_engine.so").write_bytes(b"\x7fELF and nothing else")
        self.ends("cannot open the engine: .*libspillway_engine.so", self.folder / "libspillway.so", SPILLWAY_REQUIRE="1")
        out, ours = self.run_job(FIRST, self.folder / "libspillway.so", SPILLWAY_REQUIRE="0")
        self.assertEqual(out[-1], f"native {float(1 << 20)}")
        self.assertTrue(ours[0].endswith("; CUDA is used as without Spillway " + HOW), ours)

    def test_an_allocator_that_the_user_has_chosen(self):
        reason = "PYTORCH_NO_CUDA_MEMORY_CACHING is set"
        self.ends(reason, SPILLWAY_REQUIRE="1", PYTORCH_NO_CUDA_MEMORY_CACHING="1")

    def test_switched_off_is_no_failure(self):
        out, ours = self.run_job(FIRST, self.folder / "libspillway.so", SPILLWAY="off", SPILLWAY_REQUIRE="1")
        self.assertEqual((out[-1], ours), (f"native {float(1 << 20)}", []))

    def test_a_wrong_value_is_refused(self):
        out, ours = self.run_job(FIRST, BUILD / "lib" / "libspillway.so", status=2, SPILLWAY_REQUIRE="yes")
        self.assertEqual(out, ["imported"])
        self.assertEqual(ours, ["spillway: SPILLWAY_REQUIRE=yes is invalid; expected: on, off, 1 or 0"])

    def test_a_device_that_cannot_be_served_is_raised_at_its_first_block(self):
        """No address space is to be had; small blocks, which are PyTorch's, go on."""
        settings = {"SIMCUDA_FAIL": "cuMemAddressReserve:1+"}
        out, ours = self.run_job(RAISED, BUILD / "lib" / "libspillway.so", **settings)
        self.assertEqual(out, ["True", "served", "served", "4.0"])
        lines = [line for line in ours if "not used on GPU 0" in line]
        self.assertEqual(len(lines), 1, ours)
        self.assertTrue(lines[0].endswith(HOW), ours)
        out, _ = self.run_job(RAISED, BUILD / "lib" / "libspillway.so", SPILLWAY_REQUIRE="1", **settings)
        words = "Spillway could not allocate: GPU 0 cannot be served, and SPILLWAY_REQUIRE is set: reserving .*"
        self.assertRegex("\n".join(out), f"^True\n({words})\n\\1\n4.0$")

    def test_a_gpu_before_turing_is_left_to_pytorch(self):
        """Kernels may fail there while memory is mapped."""
        settings = {"SIMCUDA_COMPUTE_CAPABILITY": "7.0"}
        words = "its compute capability is 7.0, and 7.5 or later is needed"
        out, ours = self.run_job(RAISED, BUILD / "lib" / "libspillway.so", **settings)
        self.assertEqual(out, ["True", "served", "served", "4.0"])
        self.assertEqual([words in line and "not used on GPU 0" in line and line.endswith(HOW) for line in ours], [True], ours)
        out, _ = self.run_job(RAISED, BUILD / "lib" / "libspillway.so", SPILLWAY_REQUIRE="1", **settings)
        self.assertRegex("\n".join(out), f"^True\n(Spillway could not allocate: GPU 0 cannot be served, .*{words}.*)\n\\1\n4.0$")


if __name__ == "__main__":
    unittest.main()
