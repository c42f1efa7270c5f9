"""Private pools: native cuts them from blocks of the engine, and keeps its own rules and figures."""

import sys
import unittest
from pathlib import Path

import torch
import torch.multiprocessing.reductions
from support import MIB, TorchTest, answer_of, block, figure

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "integration" / "python"))
import spillway  # noqa: E402  (the path comes first)

OLD = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 11)


@unittest.skipUnless(OLD and hasattr(torch.cuda, "MemPool"), "pools are cut from blocks, or there are none of the user's")
class NativePoolTest(TorchTest):
    def test_a_pool_of_the_users_stays_native(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            inside = block(4)
        self.assertFalse(self.engine.owns(inside))
        self.assertTrue(self.engine.owns(block(4)))


@unittest.skipIf(OLD, "pools are native's")
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

    def test_a_pool_of_the_users_is_cut_from_blocks(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            inside = block(4)
        outside = block(4)
        self.assertTrue(self.engine.owns(inside) and self.engine.owns(outside))
        with self.assertRaisesRegex(RuntimeError, r"cannot be shared .* inside torch.cuda.use_mem_pool\(spillway.unmanaged_pool\(\)\)"):
            torch.multiprocessing.reductions.reduce_tensor(inside)
        self.assertEqual([segment["segment_pool_id"] for segment in pool.snapshot()], [pool.id])
        blocks = self.engine.count("allocations") - self.engine.count("frees")
        place = inside.data_ptr()
        del inside
        with torch.cuda.use_mem_pool(pool):
            again = block(4)
        self.assertEqual(again.data_ptr(), place)
        del again, pool
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.assertEqual(self.engine.count("allocations") - self.engine.count("frees"), blocks - 1)

    def test_a_pool_with_an_allocator_is_its_owners(self):
        pool = spillway.unmanaged_pool()
        with torch.cuda.use_mem_pool(pool):
            inside = block(40)
            graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool.id):
            captured = block(4)
        self.assertFalse(self.engine.owns(inside) or self.engine.owns(captured))
        torch.multiprocessing.reductions.reduce_tensor(inside)  # it can be shared with another process
        del inside, captured, graph, pool
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    def test_a_handle_that_is_used_again_is_of_blocks_again(self):
        handle = torch.cuda.graph_pool_handle()
        for _ in range(2):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=handle):
                inside = block(3)
            self.assertTrue(self.engine.owns(inside))
            del inside, graph
            torch.cuda.synchronize()
            torch.cuda.empty_cache()

    def test_the_cache_is_emptied_where_there_were_pools_alone(self):
        self.assertEqual(answer_of("""
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    inside = torch.ones(100, device="cuda")
del inside, graph
torch.cuda.synchronize()
before = support.engine().count("empties")
torch.cuda.empty_cache()
print(json.dumps([support.engine().count("empties") - before, torch.cuda.memory_reserved(), torch.cuda.max_memory_reserved() < 32 << 20]))
"""), [1, 0, True])

    def test_the_peak_does_not_rise_when_a_pool_goes(self):
        kept = block(4)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            inside = block(64)
        torch.cuda.reset_peak_memory_stats()
        peak = torch.cuda.max_memory_reserved()
        del inside, graph
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        kept = block(8)
        self.assertLessEqual(torch.cuda.max_memory_reserved(), peak + 8 * MIB)
        del kept

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
