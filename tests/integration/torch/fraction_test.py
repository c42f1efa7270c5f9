"""The memory fraction, with the product: a limit on the budget, at a part of the device's memory as PyTorch shows it. What
is above it leaves the GPU, and what no launch could use is refused, in PyTorch's words."""

import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import product  # noqa: E402  (the path comes first)

MIB = 1 << 20

PRELUDE = """
import json, torch
MIB = 1 << 20
def block(size): return torch.empty(size, dtype=torch.uint8, device="cuda")
small = torch.zeros(1024, device="cuda")
TOTAL = torch.cuda.get_device_properties(0).total_memory
def refused(size):
    try:
        block(size)
    except torch.cuda.OutOfMemoryError as error:
        return str(error)
def twelve(): return [torch.full((10 * MIB,), i, dtype=torch.uint8, device="cuda") for i in range(12)]
def values(held): return [int(x.sum(dtype=torch.int64)) // x.numel() for x in held]
def many(count, mib):
    held = []
    for number in range(count):
        try:
            held.append(block(mib * MIB))
        except torch.cuda.OutOfMemoryError as error:
            return held, str(error)
    return held, None
def answer(**what):
    small.fill_(1)  # what was refused has left the device as it was
    assert small.sum().item() == 1024
    print(json.dumps(what))
"""


def run(code, *arguments, **more):
    return product.run(PRELUDE + code, *arguments, **more)


def without_figures(text):
    """PyTorch's text; what the process has in use, it says only where NVML answers, which the stand-in has not."""
    text = re.sub(r"Including non-PyTorch memory, .*? in use\. ", "", text.split("\nSpillway:")[0])
    return re.sub(r"[0-9.]+ (bytes|[KMG]iB)", "SIZE", text.split(" If reserved")[0])


class FractionTest(unittest.TestCase):
    HALF = (
        "torch.cuda.set_per_process_memory_fraction(0.5)\n"
        "fits = block(int(TOTAL * 0.499) - torch.cuda.max_memory_reserved()).numel()\n"
        "torch.cuda.empty_cache()\n"
        "answer(total=TOTAL, fits=fits, refused=refused(int(TOTAL * 0.5)))"
    )

    def test_half_of_the_device(self):
        ours, native = run(self.HALF), run(self.HALF, preload=False)
        self.assertGreater(ours["fits"], 500 * MIB)
        self.assertEqual(ours["total"], native["total"])
        text = ours["refused"]
        self.assertRegex(
            text,
            r"^CUDA out of memory\. Tried to allocate 512\.00 MiB\. GPU 0 has a total capacity of .+ of which .+ is free\. "
            r"Including non-PyTorch memory, this process has .+ memory in use\. 512\.00 MiB allowed; Of the allocated "
            r"memory .+ is allocated by PyTorch, and .+ is reserved by PyTorch but unallocated\.\nSpillway: ",
        )
        self.assertEqual(text.count("Spillway:"), 1, text)
        self.assertIn("510 MiB of GPU memory (a limit of 512 MiB, less 2 MiB of other memory of this process)", text)
        self.assertIn("To do: raise the job's limit (set_per_process_memory_fraction, set_gpu_memory) by that", text)
        self.assertEqual(without_figures(text), without_figures(native["refused"]))

    def test_a_job_outgrows_it(self):
        code = (
            "torch.cuda.set_per_process_memory_fraction(0.25)\n"  # 64 MiB
            "held = twelve()\n"
            "sums = values(held)\n"
            "import spillway; limited = spillway.stats()['devices'][0]\n"
            "total = torch.cuda.mem_get_info()[1]\n"
            "torch.cuda.set_per_process_memory_fraction(1.0)\n"
            "later = spillway.stats()['devices'][0]['budget_bytes']\n"
            "answer(sums=sums, later=later, total=total, **{name: limited[name] for name in\n"
            "       ('peak_bytes', 'spilled_bytes', 'budget_in_force_bytes')})"
        )
        found = run(code, "256MiB", SPILLWAY_HOST_MEMORY="600MiB")
        self.assertEqual(found["sums"], list(range(12)))
        self.assertLessEqual(found["peak_bytes"], 64 * MIB)
        self.assertGreater(found["spilled_bytes"], 50 * MIB)
        self.assertEqual(found["budget_in_force_bytes"], 64 * MIB)
        self.assertEqual(found["total"], 256 * MIB, "as native's: the limit is not the device")
        self.assertEqual(found["later"], 224 * MIB)

    def test_a_limit_below_what_is_there_makes_it_leave(self):
        code = (
            "held = twelve()\n"
            "torch.cuda.set_per_process_memory_fraction(0.25)\n"
            "first = refused(70 * MIB)\n"
            "sums = values(held)\n"
            "answer(sums=sums, first=first)"
        )
        found = run(code, "256MiB", SPILLWAY_HOST_MEMORY="600MiB")
        self.assertEqual(found["sums"], list(range(12)))
        self.assertIn("64.00 MiB allowed; ", found["first"])

    def test_a_budget_below_the_fraction_does_not_speak_of_it(self):
        code = "torch.cuda.set_per_process_memory_fraction(0.9)\nheld, why = many(40, 10)\nanswer(why=why, count=len(held))"
        found = run(code, "256MiB", SPILLWAY_GPU_MEMORY="100MiB", SPILLWAY_ON_FULL="error")
        self.assertLess(found["count"], 10)
        self.assertEqual(found["why"].count("Spillway:"), 1, found["why"])
        self.assertNotIn("fraction", found["why"])

    def test_small_blocks_make_large_ones_leave(self):
        code = (
            "torch.cuda.set_per_process_memory_fraction(0.25)\n"  # 64 MiB
            "large = torch.full((50 * MIB,), 7, dtype=torch.uint8, device='cuda')\n"
            "small_ones = [torch.full((900 << 10,), 3, dtype=torch.uint8, device='cuda') for _ in range(40)]\n"
            "sums = sorted({int(x.sum(dtype=torch.int64)) // x.numel() for x in small_ones})\n"
            "del small_ones; torch.cuda.empty_cache()\n"
            "answer(sums=sums, large=int(large.sum(dtype=torch.int64)) // large.numel())"
        )
        found = run(code, "256MiB", SPILLWAY_HOST_MEMORY="600MiB")
        self.assertEqual(found, {"sums": [3], "large": 7})

    def test_pytorchs_variable(self):
        code = "x = block(10 * MIB); answer(free=torch.cuda.mem_get_info()[0], refused=refused(128 * MIB))"
        found = run(code, "256MiB", PYTORCH_CUDA_ALLOC_CONF="per_process_memory_fraction:0.5")
        self.assertLess(found["free"], 128 * MIB)
        self.assertIn("128.00 MiB allowed; ", found["refused"])

    def test_impossible_sizes(self):
        code = "answer(huge=refused(800000000 << 30), more=refused(1 << 60))"
        found = run(code)
        self.assertIn("Tried to allocate 800000000.00 GiB. GPU 0 has a total capacity of", found["huge"])
        self.assertIn("Tried to allocate more than 1EB memory", found["more"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
