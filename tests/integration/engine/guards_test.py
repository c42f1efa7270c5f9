"""No exception leaves the engine's C table, whatever fails inside: each call with memory refused at each of its requests in
turn, and with its first lock refused. An address that nobody can answer for is not ours. And a device that could not be
started because a thread was refused stays so."""

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BUILD = os.environ["SPILLWAY_BUILD"]
PYTHON = os.environ["SPILLWAY_TEST_PYTHON"]
FAULTS = os.environ["GUARD_FAULTS"]

ESCAPED = -1
MEMORY, LOCK = 1, 2
# Those that change something come last.
CALLS = ("owns", "find_range", "memory_info", "device_stats", "last_error", "stats_json", "last_refusal", "reserved_bytes",
         "mark_iteration", "take_refused_call", "device_bytes", "record_stream", "empty_cache", "allocate", "free")  # fmt: skip
# nlohmann-json 3.11.2 dereferences a null pointer when memory for an object is refused: not ours to guard.
WITHOUT_MEMORY = tuple(name for name in CALLS if name != "stats_json")

SCRIPT = """
import ctypes, json, os, sys
import torch
from spillway.engine_api import _engine_path
kind, most, names = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
kept = [torch.ones(4 << 20, device="cuda") for _ in range(3)]
torch.cuda.synchronize()
engine = ctypes.CDLL(_engine_path(), mode=os.RTLD_NOLOAD | os.RTLD_NOW)
engine.spillway_engine_api.restype = ctypes.c_void_p
faults = ctypes.PyDLL(None)  # preloaded
faults.faulty_call.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int,
                               ctypes.POINTER(ctypes.c_int)]
def results(name):
    seen = []
    for nth in range(1, most + 1):
        fired = ctypes.c_int()
        result = faults.faulty_call(engine.spillway_engine_api(), name.encode(), kept[0].data_ptr(), kind, nth,
                                    ctypes.byref(fired))
        if not fired.value:
            return seen, result
        seen.append(result)
    return seen, 0
for name in names:
    seen, plain = results(name)
    print(json.dumps({"name": name, "seen": seen, "plain": plain}), flush=True)
os._exit(0)  # what a call has left half done is not this test's matter
"""

# Three blocks one after the other, the nth thread from the first on being refused. Who owns each is asked at the end.
START_SCRIPT = """
import ctypes, json, os, sys
import torch
from spillway.engine_api import _engine_path
torch.cuda.init()
faults = ctypes.PyDLL(None)  # preloaded
faults.refuse_thread(int(sys.argv[1]))
kept, errors = [], []
for _ in range(3):
    try:
        kept.append(torch.empty(4 << 20, dtype=torch.uint8, device="cuda"))
        errors.append("")
    except RuntimeError as error:
        kept.append(None)
        errors.append(str(error).splitlines()[0])
to_come = faults.threads_to_come()
faults.refuse_thread(0)
engine = ctypes.CDLL(_engine_path(), mode=os.RTLD_NOLOAD | os.RTLD_NOW)
engine.spillway_engine_api.restype = ctypes.c_void_p
faults.faulty_call.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int,
                               ctypes.POINTER(ctypes.c_int)]
def owns(tensor):
    return faults.faulty_call(engine.spillway_engine_api(), b"owns", tensor.data_ptr(), 0, 0, ctypes.byref(ctypes.c_int()))
outcomes = [error or owns(tensor) for tensor, error in zip(kept, errors)]
print(json.dumps({"to_come": to_come, "outcomes": outcomes}), flush=True)
os._exit(0)
"""


def run_script(script, *words):
    """What the script printed, a JSON value a line, and what it said on standard error."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPILLWAY", "PYTORCH_"))}
    environment.update(OMP_NUM_THREADS="1", SPILLWAY_DIRS="none", PYTHONPATH=str(ROOT / "integration" / "python"),
                       LD_PRELOAD=f"{FAULTS}:{BUILD}/lib/libspillway.so")  # fmt: skip
    command = [f"{BUILD}/bin/simcuda-run", "--memory", "256MiB", "--", PYTHON, "-B", "-c", script, *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250)
    if done.returncode != 0:
        raise AssertionError(f"exit {done.returncode}\n{done.stdout[-500:]}\n{done.stderr[-3000:]}")
    return [json.loads(line) for line in done.stdout.strip().splitlines()], done.stderr


def run(kind, most, names):
    """For each call: its results where something was refused, and the first one where nothing was left to refuse."""
    answers, _ = run_script(SCRIPT, kind, most, *names)
    return {answer.pop("name"): answer for answer in answers}


class GuardsTest(unittest.TestCase):
    def test_memory_is_refused(self):
        found = run(MEMORY, 40, WITHOUT_MEMORY)
        self.assertEqual(set(found), set(WITHOUT_MEMORY))
        for name, answer in found.items():
            with self.subTest(call=name):
                self.assertNotIn(ESCAPED, answer["seen"] + [answer["plain"]])
        self.assertTrue(found["device_stats"]["seen"] or found["allocate"]["seen"], found)

    def test_a_lock_is_refused(self):
        found = run(LOCK, 1, CALLS)
        self.assertEqual(set(found), set(CALLS))
        for name, answer in found.items():
            with self.subTest(call=name):
                self.assertNotIn(ESCAPED, answer["seen"])
                self.assertNotIn(0, answer["seen"], "a call that failed must not say that it has not")
        fired = {name for name, answer in found.items() if answer["seen"]}
        self.assertLessEqual({"allocate", "reserved_bytes", "mark_iteration", "stats_json"}, fired)

    def test_a_thread_is_refused_while_a_device_starts(self):
        refused, nth = 0, 0
        while True:
            nth += 1
            (answer,), said = run_script(START_SCRIPT, nth)
            if answer["to_come"] > 0:
                break
            refused += 1
            with self.subTest(thread=nth):
                first, *others = answer["outcomes"]
                self.assertEqual(others, [first, first], said[-1500:])
        self.assertEqual(answer["outcomes"], [1, 1, 1])
        self.assertGreaterEqual(refused, 3)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
