"""What Spillway leaves free for others, with the product: a job that stock PyTorch can run on a device runs here, too, though
it needs memory that is left free while nobody needs it."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import product  # noqa: E402  (the path comes first)

MIB = 1 << 20
PRELUDE = "import json, torch\nMIB = 1 << 20\n"


class LendingTest(unittest.TestCase):
    def both(self, code, memory, **settings):
        ours, native = (product.run(PRELUDE + code, memory, preload=preload, **settings) for preload in (True, False))
        self.assertEqual(ours["result"], native["result"])
        return ours

    def test_small_tensors_beside_few_large_ones(self):
        # Packed weights and adapters: nearly all of the memory is in tensors that never move.
        code = (
            "small = [torch.ones(1 << 18, device='cuda') for _ in range(276)]\n"
            "a = torch.ones(3 << 19, device='cuda'); b = a.exp()\n"
            "print(json.dumps({'result': [round(b.sum().item()), sum(t[0].item() for t in small[::46])]}))"
        )
        self.both(code, "312MiB", SPILLWAY_HOST_MEMORY="64MiB")

    def test_one_launch_that_takes_nearly_all(self):
        code = (
            "a, b, c = (torch.full((400 * MIB,), i, dtype=torch.uint8, device='cuda') for i in (1, 2, 3))\n"
            "torch.add(a, b, out=c); result = int(c.sum(dtype=torch.int64)) // c.numel()\n"
            "del a, b, c; torch.cuda.empty_cache()\n"
            "preloaded = torch.cuda.memory.get_allocator_backend() == 'spillway'\n"
            "import spillway; device = spillway.stats()['devices'][0] if preloaded else {}\n"
            "total = torch.cuda.mem_get_info()[1]\n"
            "print(json.dumps({'result': [result, total], 'budget': device.get('budget_in_force_bytes')}))"
        )
        # 3 % of 1,232 MiB are 37, which the default budget leaves free.
        found = self.both(code, "1232MiB", SPILLWAY_HOST_MEMORY="2GiB")
        self.assertLess(found["budget"], 1200 * MIB, "given back")

    def test_a_budget_of_the_users_is_kept_to(self):
        code = (
            "x = torch.zeros(1024, device='cuda')\n"
            "try: torch.empty(102 * MIB, dtype=torch.uint8, device='cuda'); text = ''\n"
            "except torch.cuda.OutOfMemoryError as error: text = str(error)\n"
            "y = torch.full((96 * MIB,), 5, dtype=torch.uint8, device='cuda')\n"
            "print(json.dumps({'text': text, 'sum': int(y.sum(dtype=torch.int64)) // y.numel()}))"
        )
        found = product.run(PRELUDE + code, "256MiB", SPILLWAY_GPU_MEMORY="100MiB", SPILLWAY_HOST_MEMORY="300MiB", SPILLWAY_REACH="off")
        self.assertIn("of GPU memory (a budget of 100 MiB", found["text"])
        self.assertEqual(found["sum"], 5)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
