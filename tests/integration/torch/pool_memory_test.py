"""Pools of CUDA graphs: native cuts them from blocks of the engine, and keeps its own rules and figures."""

import unittest

import torch
from support import MIB, TorchTest, block, figure


@unittest.skipIf(torch.__version__.startswith(("2.4.", "2.5.", "2.6.", "2.7.")), "a pool cannot be given an allocator")
class PoolMemoryTest(TorchTest):
    def test_a_graphs_pool_is_cut_from_blocks(self):
        live = block(4)
        small = block(0.25)
        outside = sum(segment["total_size"] for segment in torch.cuda.memory_snapshot())
        reserved, allocated = figure("reserved_bytes.all.current"), figure("allocated_bytes.all.current")
        blocks = self.engine.count("allocations") - self.engine.count("frees")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            inside = torch.full((3 * MIB,), 7, dtype=torch.uint8, device="cuda")
            sums = inside[:10].add(1)
        self.assertTrue(self.engine.owns(inside) and self.engine.owns(sums) and not self.engine.owns(small))
        self.assertEqual(self.engine.count("allocations") - self.engine.count("frees"), blocks + 2)  # one for each size of native's
        segments = torch.cuda.memory_snapshot()
        pool = [segment for segment in segments if segment["segment_pool_id"] != (0, 0)]
        self.assertEqual(sorted(segment["total_size"] for segment in pool), [2 * MIB, 20 * MIB])
        growth = sum(segment["total_size"] for segment in segments) - outside  # of the generator's, too
        self.assertIn(growth, (22 * MIB, 24 * MIB))
        self.assertEqual(figure("reserved_bytes.all.current"), reserved + growth)  # counted once
        self.assertGreaterEqual(figure("allocated_bytes.all.current"), allocated + 3 * MIB + 512)
        inside.record_stream(torch.cuda.Stream())  # native's to keep
        self.assertEqual(self.engine.count("records"), 0)
        graph.replay()
        self.assertEqual(int(sums.sum()), 80)
        outside = block(4)  # none of the pool's
        segment = max(pool, key=lambda segment: segment["total_size"])
        self.assertFalse(segment["address"] <= outside.data_ptr() < segment["address"] + segment["total_size"])
        del inside, sums, graph, outside
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.assertEqual(self.engine.count("allocations") - self.engine.count("frees"), blocks)
        self.assertEqual(figure("reserved_bytes.all.current"), reserved)
        del live, small

    def test_a_capture_that_outgrows_the_engine_is_out_of_memory(self):
        graph = torch.cuda.CUDAGraph()
        with self.assertRaises(torch.OutOfMemoryError), torch.cuda.graph(graph):
            kept = [block(64) for _ in range(8)]
        kept = None
        del graph
        torch.cuda.empty_cache()
        self.assertTrue(self.engine.owns(block(100)))


if __name__ == "__main__":
    unittest.main()
