"""Blocks up to 1 MiB, with the product: PyTorch's own allocator packs and counts them as without Spillway."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import product  # noqa: E402  (the path comes first)

MIB = 1 << 20

# What PyTorch's pools hold for four blocks of a size.
FOUR_BLOCKS = """
import json, torch
held = [torch.zeros({size}, dtype=torch.uint8, device="cuda") for _ in range(4)]
stats = torch.cuda.memory_stats()
figures = ("segment", "reserved_bytes", "active", "active_bytes")
print(json.dumps({{f"{{figure}}.{{pool}}": stats[f"{{figure}}.{{pool}}_pool.current"] for figure in figures for pool in ("small", "large")}}))
"""

# What a capture adds to the small pool, beside an input of 1 MiB: what the capture's own random numbers need lies in the
# input's segment.
CAPTURE = """
import json, torch
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    source = torch.ones((1 << 20) // 4, device="cuda")
    before = torch.cuda.memory_stats()
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    result = source + 1
    graph.capture_end()
torch.cuda.current_stream().wait_stream(side)
after = torch.cuda.memory_stats()
graph.replay()
added = {name: after[name] - before[name] for name in ("segment.small_pool.current", "reserved_bytes.small_pool.current",
                                                       "active.small_pool.current", "active_bytes.small_pool.current")}
print(json.dumps({**added, "sum": result.sum().item()}))
"""


class SmallBlocksTest(unittest.TestCase):
    def test_a_block_of_1_mib_shares_a_segment_of_2_mib(self):
        ours = product.run(FOUR_BLOCKS.format(size=MIB))
        self.assertEqual(ours, product.run(FOUR_BLOCKS.format(size=MIB), preload=False))
        self.assertEqual((ours["segment.small"], ours["reserved_bytes.small"]), (2, 4 * MIB))

    def test_one_byte_more_is_ours(self):
        ours = product.run(FOUR_BLOCKS.format(size=MIB + 1))
        self.assertEqual((ours["segment.small"], ours["active.large"], ours["reserved_bytes.large"]), (0, 4, 8 * MIB))
        native = product.run(FOUR_BLOCKS.format(size=MIB + 1), preload=False)
        self.assertEqual(native["reserved_bytes.large"], 20 * MIB)

    def test_a_capture_beside_a_block_of_1_mib_counts_as_natives(self):
        self.assertEqual(product.run(CAPTURE), product.run(CAPTURE, preload=False))


if __name__ == "__main__":
    unittest.main()
