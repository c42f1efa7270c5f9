"""spillway.pause(), resume() and region() in a running job on simcuda: memory really goes, values stay, wrong use has words."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BUILD = os.environ.get("SPILLWAY_BUILD", str(ROOT / "build"))
MIB = 1 << 20

BEGIN = """
import json, spillway, threading, torch
def filled(value):
    return torch.full((4 << 20,), float(value), device="cuda")
def right(tensor, value):
    return bool((tensor == value).all())
def driver_free():  # what the driver has, whatever we say
    import ctypes
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert ctypes.CDLL("libcuda.so.1").cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value
def attempt(call, *arguments, **named):
    try:
        return call(*arguments, **named)
    except Exception as error:
        return [type(error).__name__, str(error)]
"""


def run(code, memory="256MiB", **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPILLWAY", "PYTORCH_"))}
    environment.update(PYTHONPATH=str(ROOT / "integration" / "python"), OMP_NUM_THREADS="1",
                       LD_PRELOAD=f"{BUILD}/lib/libspillway.so",
                       **{"SPILLWAY_HOST_MEMORY": "1GiB", "SPILLWAY_DIRS": "none", **variables})  # fmt: skip
    command = [f"{BUILD}/bin/simcuda-run", "--memory", memory, "--", sys.executable, "-c", BEGIN + code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


class PauseTest(unittest.TestCase):
    def test_everything_goes_and_comes_back(self):
        found = run("""
tensors = [filled(i) for i in range(6)]
torch.cuda.synchronize()
places, before = [t.data_ptr() for t in tensors], driver_free()
result = spillway.pause()
paused = driver_free()
other = [filled(9) for i in range(8)]
torch.cuda.synchronize()
others = all(right(t, 9) for t in other)
del other
spillway.resume(wait=True)
print(json.dumps([result.host_bytes, result.remaining_bytes, paused - before, others, places == [t.data_ptr() for t in tensors],
                  all(right(t, i) for i, t in enumerate(tensors)), spillway.stats()["pause"]["pauses"]]))
""")
        self.assertEqual(found, [96 * MIB, 0, 96 * MIB, True, True, True, 1])

    def test_by_regions_of_which_one_drops_its_bytes(self):
        found = run("""
with spillway.region("weights"):
    weights = filled(1)
    with spillway.region("cache", keep=False):
        cache = filled(2)
    more = filled(3)
mine = filled(4)
first = spillway.pause("cache")
usable = right(weights, 1) and right(more, 3)
second = spillway.pause("weights")
usable &= right(mine, 4)
spillway.resume("weights")
kept = right(weights, 1) and right(more, 3)
spillway.resume("cache")
cache.fill_(5)
print(json.dumps([first.dropped_bytes, first.host_bytes, second.host_bytes, usable, kept, right(cache, 5)]))
""")
        self.assertEqual(found, [16 * MIB, 0, 32 * MIB, True, True, True])

    def test_what_has_not_changed_is_not_copied_again(self):
        found = run("""
tensors = [filled(i) for i in range(6)]
spillway.pause()
spillway.resume()
for _ in range(10):
    sums = [float(t[:4].sum()) for t in tensors]
tensors[0].add_(1)
again = spillway.pause()
spillway.resume()
print(json.dumps([again.clean_bytes, again.host_bytes, right(tensors[0], 1), right(tensors[5], 5)]))
""")
        self.assertEqual(found, [80 * MIB, 16 * MIB, True, True])

    def test_an_operation_on_a_paused_tensor_says_what_to_do(self):
        found = run("""
tensor = filled(1)
spillway.pause()
words = attempt(lambda: tensor.add_(1))
copied = attempt(lambda: tensor.cpu())
spillway.resume()
print(json.dumps([words, copied, right(tensor, 1), spillway.last_error()]))
""")
        for kind, words in found[:2]:
            self.assertIn(kind, ("AcceleratorError", "RuntimeError"))
        self.assertTrue(found[2])
        self.assertRegex(found[3], r"names memory that spillway\.pause\(\) has paused\. To do: call spillway\.resume\(\) before$")

    def test_wrong_use(self):
        found = run("""
tensor = filled(1)
with spillway.region("weights"):
    pass
print(json.dumps([attempt(spillway.pause, "wieghts"), attempt(spillway.resume, "x"), attempt(spillway.pause, ""),
                  attempt(spillway.pause, 3), attempt(lambda: spillway.region("").__enter__()), right(tensor, 1)]))
""")
        self.assertEqual(found[0], ["ValueError", "no spillway.region() has had the tag 'wieghts'; known: 'weights'"])
        self.assertEqual(found[1][0], "ValueError")
        for kind, words in found[2:5]:
            self.assertEqual(kind, "ValueError")
            self.assertIn("the tag of a region must be a text that is not empty", words)
        self.assertTrue(found[5])

    def test_where_there_is_no_place(self):
        found = run("""
tensors = [filled(i) for i in range(6)]
torch.cuda.synchronize()
print(json.dumps([attempt(spillway.pause), all(right(t, i) for i, t in enumerate(tensors))]))
""", SPILLWAY_HOST_MEMORY="32MiB")  # fmt: skip
        self.assertEqual(found[0][0], "MemoryError")
        self.assertRegex(found[0][1], r"^host memory and disk have no place for [0-9.]+ MiB of the 96.00 MiB that are to be paused "
                                      r"\(.*\)\. To do: raise SPILLWAY_HOST_MEMORY, or name more directories in SPILLWAY_DIRS$")  # fmt: skip
        self.assertTrue(found[1])

    def test_during_a_capture(self):
        found = run("""
tensor = filled(1)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    tensor.add_(1)
    inside = attempt(spillway.pause)
graph.replay()
torch.cuda.synchronize()
print(json.dumps([inside, right(tensor, 2)]))
""")
        self.assertEqual(found[0], ["RuntimeError", "nothing can be paused while a stream is captured"])
        self.assertTrue(found[1])

    def test_a_graphs_tensor_goes_and_the_graph_waits_for_the_resume(self):
        found = run("""
tensor, other = filled(1), filled(2)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    tensor.add_(1)
result = spillway.pause()
refused = attempt(graph.replay)
spillway.resume()
graph.replay()
print(json.dumps([result.pinned_bytes, result.host_bytes, refused, right(tensor, 2), right(other, 2)]))
""")
        self.assertEqual(found[:2] + found[3:], [0, 32 * MIB, True, True])
        self.assertEqual(found[2][0], "AcceleratorError")
        self.assertIn("the operation cannot be performed in the present state", found[2][1])

    def test_its_intervals_are_in_the_report(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.json")
            found = run("""
with spillway.region("cache", keep=False):
    cache = filled(1)
weights = filled(2)
torch.cuda.synchronize()
spillway.pause("cache")
spillway.pause()
spillway.resume("cache")
spillway.resume()
spillway.pause("cache")
print(json.dumps(True))
""", SPILLWAY_REPORT=path)  # fmt: skip
            self.assertTrue(found)
            with open(path) as file:
                data = json.load(file)
        pauses = data["pauses"]
        self.assertEqual([(pause["by"], pause.get("region")) for pause in pauses], [("job", "cache"), ("job", None), ("job", "cache")])
        self.assertEqual([(pause["dropped_bytes"], pause["host_bytes"]) for pause in pauses],
                         [(16 * MIB, 0), (0, 16 * MIB), (0, 0)])  # fmt: skip
        first, second, last = pauses
        self.assertLess(first["start_s"], second["start_s"])
        self.assertLess(first["start_s"] + first["seconds"], second["start_s"] + second["seconds"])
        self.assertLessEqual(first["leaving_s"], first["seconds"])
        self.assertNotIn("seconds", last)

    def test_from_two_threads_and_twice(self):
        found = run("""
with spillway.region("a"):
    a = filled(1)
with spillway.region("b"):
    b = filled(2)
torch.cuda.synchronize()
results = {}
threads = [threading.Thread(target=lambda tag=tag: results.update({tag: spillway.pause(tag)})) for tag in "ab"]
[t.start() for t in threads], [t.join() for t in threads]
again = spillway.pause()
spillway.resume()
print(json.dumps([results["a"].host_bytes, results["b"].host_bytes, again.host_bytes + again.clean_bytes, right(a, 1), right(b, 2)]))
""")
        self.assertEqual(found, [16 * MIB, 16 * MIB, 0, True, True])

    def test_beyond_host_memory_bytes_go_to_the_disk(self):
        found = run("""
tensors = [filled(i) for i in range(6)]
result = spillway.pause()
spillway.resume()
print(json.dumps([result.disk_bytes > 0, result.host_bytes + result.disk_bytes, all(right(t, i) for i, t in enumerate(tensors))]))
""", SPILLWAY_HOST_MEMORY="32MiB", SPILLWAY_DIRS="/var/tmp")  # fmt: skip
        self.assertEqual(found, [True, 96 * MIB, True])

    def test_training_goes_on_with_the_same_bits(self):
        code = """
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
data = torch.randn(64, 1024, device="cuda")
losses = []
for step in range(6):
    if PAUSES:
        spillway.pause()
        spillway.resume()
    loss = model(data).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item().hex())
print(json.dumps(losses))
"""
        self.assertEqual(run("PAUSES = True\n" + code), run("PAUSES = False\n" + code))

    def test_a_pool_of_mappings_of_the_jobs_own_is_left_alone(self):
        # As vLLM's sleep mode: physical memory of its own comes and goes at an address that it keeps.
        found = run("""
import ctypes
class Prop(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location_type", ctypes.c_int), ("device", ctypes.c_int),
                ("win32", ctypes.c_void_p), ("compression", ctypes.c_ubyte), ("rdma", ctypes.c_ubyte), ("usage", ctypes.c_ushort),
                ("reserved", ctypes.c_ubyte * 4)]
class Access(ctypes.Structure):
    _fields_ = [("location_type", ctypes.c_int), ("device", ctypes.c_int), ("flags", ctypes.c_int)]
cuda, size = ctypes.CDLL("libcuda.so.1"), ctypes.c_size_t(32 << 20)
def must(result):
    assert result == 0, result
ours = filled(1)
place = ctypes.c_uint64()
must(cuda.cuMemAddressReserve(ctypes.byref(place), size, ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0)))
def wake():
    handle = ctypes.c_uint64()
    must(cuda.cuMemCreate(ctypes.byref(handle), size, ctypes.byref(Prop(1, 0, 1, 0)), ctypes.c_uint64(0)))
    must(cuda.cuMemMap(place, size, ctypes.c_size_t(0), handle, ctypes.c_uint64(0)))
    must(cuda.cuMemSetAccess(place, size, ctypes.byref(Access(1, 0, 3)), ctypes.c_size_t(1)))
    return handle
def asleep(handle):
    must(cuda.cuMemUnmap(place, size)), must(cuda.cuMemRelease(handle))
def word():
    value = ctypes.c_uint32()
    must(cuda.cuMemcpyDtoH_v2(ctypes.byref(value), place, ctypes.c_size_t(4)))
    return value.value
handle = wake()
must(cuda.cuMemsetD32_v2(place, ctypes.c_uint(7), ctypes.c_size_t(size.value // 4)))
torch.cuda.synchronize()
result = spillway.pause()
during = word()
asleep(handle)
spillway.resume()
values = right(ours, 1)
handle = wake()
must(cuda.cuMemsetD32_v2(place, ctypes.c_uint(9), ctypes.c_size_t(size.value // 4)))
print(json.dumps([result.other_bytes >= size.value, during, values, word(), right(ours, 1)]))
""")
        self.assertEqual(found, [True, 7, True, 9, True])

    def test_a_forked_child_does_without(self):
        found = run("""
import os
tensor = filled(1)
torch.cuda.synchronize()
spillway.pause()
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, json.dumps([attempt(spillway.pause)[0], attempt(spillway.resume)[0]]).encode())
    os._exit(0)
answers = json.loads(os.read(reader, 1000))
spillway.resume()
print(json.dumps([answers, right(tensor, 1)]))
""")
        self.assertEqual(found, [["NotActiveError", "NotActiveError"], True])


if __name__ == "__main__":
    unittest.main()
