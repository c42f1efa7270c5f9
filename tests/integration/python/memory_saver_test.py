"""Programs written for torch_memory_saver's calls, over spillway.compat, on simcuda: memory goes by tag, addresses stay, graphs replay."""

import unittest

import pause_test  # its runner

MIB = pause_test.MIB

BEGIN = """
import json, os, spillway.compat
spillway.compat.install()
import torch
from torch_memory_saver import configure_subprocess, torch_memory_saver as saver
def filled(value, mib=16):
    return torch.full((mib << 18,), float(value), device="cuda")
def right(tensor, value):
    return bool((tensor == value).all())
def free():
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0]
def attempt(call):
    try:
        return call()
    except Exception as error:
        return [type(error).__name__, str(error)]
"""


def run(code, **variables):
    return pause_test.run(BEGIN + code, **variables)


class MemorySaverTest(unittest.TestCase):
    def test_simple(self):
        found = run("""
normal = filled(7)
with saver.region():
    pausable = filled(1, 64)
place, before = pausable.data_ptr(), free()
saver.pause()
during = free()
other = filled(3, 64)
others = right(other, 3)
del other
torch.cuda.empty_cache()
saver.resume()
pausable.fill_(2)
print(json.dumps([during - before, others, place == pausable.data_ptr(), right(pausable, 2), right(normal, 7)]))
""")
        self.assertEqual(found, [64 * MIB, True, True, True, True])

    def test_with_a_backup(self):
        found = run("""
with saver.region(enable_cpu_backup=True):
    kept = filled(1)
with saver.region(enable_cpu_backup=False):
    dropped = filled(2)
before = free()
none = saver.get_cpu_backup(kept)
saver.pause()
went = free() - before
backup = saver.get_cpu_backup(kept[1000:2000])
no_backup = saver.get_cpu_backup(dropped)
saver.resume()
dropped.fill_(3)
print(json.dumps([went, none is None, right(backup, 1), list(backup.shape), no_backup is None, right(kept, 1), right(dropped, 3)]))
""")
        self.assertEqual(found, [32 * MIB, True, True, [1000], True, True, True])

    def test_to_the_disk(self):
        found = run("""
with saver.region(enable_disk_backup=True):
    kept = filled(1)
saver.set_disk_backup_dir("/var/tmp")
wrong = attempt(lambda: saver.set_disk_backup_dir("/proc"))
saver.pause()
backup = saver.get_cpu_backup(kept)
saver.resume()
both = attempt(lambda: saver.region(enable_cpu_backup=True, enable_disk_backup=True).__enter__())
print(json.dumps([right(kept, 1), backup is None, wrong[0], both[0]]))
""", SPILLWAY_HOST_MEMORY="0", SPILLWAY_DIRS="/var/tmp")  # fmt: skip
        self.assertEqual(found, [True, True, "ValueError", "ValueError"])

    def test_nested_regions_and_tags(self):
        found = run("""
with saver.region(tag="outer", enable_cpu_backup=True):
    first = filled(1)
    with saver.region(tag="inner", enable_cpu_backup=True):
        second = filled(2)
        with saver.disable():
            third = filled(3)
    fourth = filled(4)
before = free()
saver.pause("inner")
inner = free() - before
usable = right(first, 1) and right(third, 3) and right(fourth, 4)
before = free()
saver.pause("outer")
outer = free() - before
saver.resume("outer")
usable &= right(first, 1) and right(fourth, 4)
saver.resume("inner")
saver.pause("never heard of")
print(json.dumps([inner, outer, usable, right(second, 2)]))
""")
        self.assertEqual(found, [16 * MIB, 32 * MIB, True, True])

    def test_a_graph_replays_with_a_changed_input(self):
        found = run("""
with saver.region(tag="cache"):
    cache = filled(5)
value = torch.ones(4, device="cuda")
result = torch.zeros(4, device="cuda")
graph = torch.cuda.CUDAGraph()
with saver.cuda_graph(graph, tag="graph"):
    result.copy_(value * 2 + 1)
graph.replay()
saver.pause()
saver.resume()
cache.fill_(6)
value.fill_(4)
graph.replay()
print(json.dumps([result.tolist(), right(cache, 6)]))
""")
        self.assertEqual(found, [[9.0] * 4, True])

    def test_a_trainer_and_a_generator_by_turns(self):
        code = """
torch.manual_seed(0)
with saver.region(tag="train", enable_cpu_backup=True):
    model = torch.nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
with saver.region(tag="weights", enable_cpu_backup=True):
    copy = torch.nn.Linear(1024, 1024).cuda()
with saver.region(tag="cache"):
    cache = torch.zeros(4096, 1024, device="cuda")
losses = []
for turn in range(3):
    if BY_TURNS:
        saver.pause("weights"), saver.pause("cache")
    with saver.region(tag="train", enable_cpu_backup=True):
        for step in range(2):
            loss = model(torch.full((64, 1024), 0.01 * (turn + 1), device="cuda")).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
    if BY_TURNS:
        saver.resume("weights")
    copy.load_state_dict(model.state_dict())
    if BY_TURNS:
        saver.pause("train")
        saver.resume("cache")
    with torch.no_grad():
        cache.copy_(copy(torch.full((4096, 1024), 0.5, device="cuda")))
    losses.append([loss.item().hex() if not BY_TURNS else loss.detach().cpu().item().hex(), cache.sum().item().hex()])
    if BY_TURNS:
        saver.resume("train")
print(json.dumps(losses))
"""
        self.assertEqual(run("BY_TURNS = True\n" + code), run("BY_TURNS = False\n" + code))

    def test_children_and_the_rest(self):
        found = run("""
with configure_subprocess():
    inside = os.environ["LD_PRELOAD"]
saver.hook_mode = "torch"
saver.memory_margin_bytes = 5
saver.retain_cpu_backup = True
def wrong():
    saver.hook_mode = "x"
print(json.dumps([inside.split(":")[0].endswith("libspillway.so"), os.environ["LD_PRELOAD"] != inside, saver.enabled, saver.hook_mode,
                  saver.memory_margin_bytes, saver.retain_cpu_backup, attempt(wrong)[0]]))
""")
        self.assertEqual(found, [True, True, True, "torch", 5, True, "ValueError"])

    def test_another_one_that_came_first(self):
        found = pause_test.run("""
import sys, types
sys.modules["torch_memory_saver"] = types.ModuleType("torch_memory_saver")
import spillway.compat
print(json.dumps(attempt(spillway.compat.install)))
""")
        self.assertEqual(found[0], "RuntimeError")


if __name__ == "__main__":
    unittest.main()
