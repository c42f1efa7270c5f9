"""Compact trace files, as SPILLWAY_TRACE writes them: with lives of tensors, names of kernels, and damage."""

import os
import random
import sys
import tempfile
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from simulate_helpers import MIB, encode, result_of, simulate  # noqa: E402

# An iteration of four launches. Memory lives on after the last use until it is freed; the gradient lives over the iteration's end.
ACTIVATION, WEIGHT, GRADIENT, SCRATCH = range(4)
TENSORS = [(64 * MIB, False, (0, 3)), (32 * MIB, True, None), (16 * MIB, False, (3, 0)), (40 * MIB, False, (2, 2))]
KERNELS = [
    ("gemm<float; 4>", 1_500_000, [GRADIENT, WEIGHT], [ACTIVATION]),
    ("relu", 250_000, [ACTIVATION], [ACTIVATION]),
    ("", 1_000_000, [WEIGHT], [SCRATCH]),
    ("update", 2_000_000, [WEIGHT], [WEIGHT, GRADIENT]),
]


class TraceFile(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.path = os.path.join(self.scratch.name, "step.trace")
        self.whole = encode(TENSORS, KERNELS)
        self.write(self.whole)

    def write(self, content):
        with open(self.path, "wb") as file:
            file.write(content)

    def test_a_step_of_a_job_is_simulated(self):
        own = result_of(self.path)
        self.assertEqual((own["kernels"], own["tensors"]), (4, 4))
        self.assertEqual(own["ideal_us"], 4750)
        self.assertEqual(own["peak_live_bytes"], (64 + 32 + 40) * MIB)  # at the third launch, activation not yet freed
        self.assertEqual(own["percent_of_ideal"], 100)
        text = simulate(self.path).stdout
        self.assertIn("trace: 4 kernels, 4 tensors, 0.13 GiB live at the peak", text)
        self.assertIn("ideal 0.005 s", text)

    def test_memory_that_is_not_read_again_leaves_and_does_not_come_back(self):
        # At the third launch 32 + 40 MiB are needed beside the activation, whose last use is over.
        own = result_of(self.path, "--gpu-memory", "120MiB", "--piece", 0)
        self.assertEqual(own["host_to_gpu_bytes"] + own["ssd_to_gpu_bytes"], 0)
        self.assertEqual(own["gpu_to_host_bytes"], 64 * MIB)
        self.assertEqual(own["peak_gpu_bytes"], (64 + 32 + 16) * MIB)
        self.assertEqual(own["read_wait_us"], 0)

    def test_as_csv_lives_become_uses(self):
        folder = os.path.join(self.scratch.name, "csv") + "/"
        self.assertEqual(simulate(self.path, "--convert", folder).returncode, 0)
        with open(folder + "tensors.csv", encoding="utf-8") as file:
            self.assertEqual(file.read().splitlines()[1:], [f"0,{64 * MIB},0", f"1,{32 * MIB},1", f"2,{16 * MIB},1", f"3,{40 * MIB},0"])
        own = result_of(folder)
        self.assertEqual((own["kernels"], own["ideal_us"]), (4, 4750))
        self.assertEqual(own["peak_live_bytes"], (64 + 32 + 16) * MIB)  # at the first two launches

    def test_damage_is_an_error_with_its_offset_and_nothing_is_printed(self):
        rng = random.Random(4)
        cases = [self.whole[:size] for size in range(0, len(self.whole), 7)]
        for _ in range(40):
            place = rng.randrange(len(self.whole))
            cases.append(self.whole[:place] + bytes([self.whole[place] ^ 1 << rng.randrange(8)]) + self.whole[place + 1 :])
        for case in cases:
            self.write(case)
            run = simulate(self.path)
            self.assertEqual(run.returncode, 2, case)
            self.assertRegex(run.stderr, r"^spillway: .*step\.trace: at offset \d+: ")
            self.assertEqual(run.stdout, "")


if __name__ == "__main__":
    unittest.main()
