"""spillway.set_gpu_memory() in a running job on simcuda: blocks leave, values stay, and what cannot be is refused in words."""

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BUILD = os.environ.get("SPILLWAY_BUILD", str(ROOT / "build"))
MIB = 1 << 20

# Six blocks of 16 MiB; `attempt` says what a call came to.
BEGIN = """
import json, spillway, time, torch
ring = [torch.full((4 << 20,), float(i), device="cuda") for i in range(6)]
def step():
    for block in ring:
        block.add_(1.0)
    torch.cuda.synchronize()
def attempt(*arguments):
    try:
        return spillway.set_gpu_memory(*arguments)
    except (ValueError, MemoryError) as error:
        return [type(error).__name__, str(error)]
def in_force():
    return spillway.stats()["budget_in_force_bytes"]
def settled(most):
    end = time.monotonic() + 60
    while spillway.stats()["resident_bytes"] > most and time.monotonic() < end:
        step()
    return spillway.stats()
def values(added):
    return all(bool((block == i + added).all()) for i, block in enumerate(ring))
"""


def run(code, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPILLWAY", "PYTORCH_"))}
    environment.update(PYTHONPATH=str(ROOT / "integration" / "python"), OMP_NUM_THREADS="1", SPILLWAY_DIRS="none",
                       LD_PRELOAD=f"{BUILD}/lib/libspillway.so", **{"SPILLWAY_HOST_MEMORY": "1GiB", **variables})  # fmt: skip
    command = [f"{BUILD}/bin/simcuda-run", "--memory", "256MiB", "--", sys.executable, "-c", BEGIN + code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


class GpuMemoryTest(unittest.TestCase):
    def test_less_and_what_it_began_with(self):
        found = run("""
step()
began = in_force()
answer = attempt("72MiB")
moved = settled(72 << 20)
less, right = in_force(), values(float(ring[0][0]))
back = attempt(None)
step()
share = attempt("50%")
print(json.dumps([began, answer, less, moved["resident_bytes"], moved["evictions"], right, back, in_force(), share,
                  values(float(ring[0][0]))]))
""")
        began, answer, less, resident, evictions, right, back, shared, share, still = found
        self.assertEqual((answer, back, share, right, still), (None, None, None, True, True))
        self.assertGreater(began, 200 * MIB)
        self.assertEqual(less, 72 * MIB)
        self.assertLessEqual(resident, 72 * MIB)
        self.assertGreater(evictions, 0)
        self.assertEqual(shared, 128 * MIB, "half of the device")

    def test_the_budget_that_it_began_with_is_no_limit(self):
        found = run("""
step()
print(json.dumps([attempt("128MiB"), attempt("100MiB"), attempt("128MiB"), in_force(), attempt(None)]))
""", SPILLWAY_GPU_MEMORY="128MiB")  # fmt: skip
        self.assertEqual(found, [None, None, None, 128 * MIB, None])

    def test_of_it_and_of_pytorchs_fraction_the_last_call_counts(self):
        found = run("""
step()
torch.cuda.set_per_process_memory_fraction(0.4)
fraction = in_force()
print(json.dumps([fraction, attempt("128MiB"), in_force(), attempt(None), in_force()]))
""")
        self.assertLess(found[0], 110 * MIB)
        self.assertEqual(found[1:4], [None, 128 * MIB, None])
        self.assertGreater(found[4], 200 * MIB)

    def test_where_nothing_leaves_all_blocks_are_needed(self):
        found = run("""
step()
print(json.dumps([attempt("72MiB"), attempt("128MiB"), values(1)]))
""", SPILLWAY_ON_FULL="error")  # fmt: skip
        self.assertEqual(found[0][0], "MemoryError")
        self.assertEqual(found[1:], [None, True])

    def test_words_that_are_no_size(self):
        found = run("""
step()
print(json.dumps([[attempt(wrong) for wrong in ("lots", "20", "-1GiB", "200GiB", 63 << 20, "")], in_force()]))
""")
        for kind, words in found[0]:
            self.assertEqual(kind, "ValueError")
            self.assertRegex(words, r"^set_gpu_memory\(.*\) is invalid; expected: none, or ")
        self.assertRegex(found[0][3][1], r"at most [0-9.]+ MiB, which the device had for the job$")
        self.assertGreater(found[1], 200 * MIB, "nothing has changed")

    def test_what_one_launch_needs_stays(self):
        found = run("""
three = [torch.ones(8 << 20, device="cuda") for _ in range(3)]
three[0].addcmul_(three[1], three[2])
torch.cuda.synchronize()
print(json.dumps([attempt("72MiB"), in_force(), values(0)]))
""")
        self.assertEqual(found[0][0], "MemoryError")
        self.assertRegex(found[0][1], r"^set_gpu_memory\(72MiB\): [0-9.]+ MiB must be on the GPU at once: ")
        self.assertGreater(found[1], 200 * MIB)
        self.assertTrue(found[2])

    def test_blocks_without_another_place_stay(self):
        found = run("""
step()
print(json.dumps([attempt("72MiB"), in_force(), values(1)]))
""", SPILLWAY_HOST_MEMORY="0")  # fmt: skip
        self.assertEqual(found[0][0], "MemoryError")
        self.assertRegex(found[0][1], r"are needed, since host memory and disk have no place for more$")
        self.assertGreater(found[1], 200 * MIB)
        self.assertTrue(found[2])


if __name__ == "__main__":
    unittest.main()
