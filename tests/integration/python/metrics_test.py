"""spillway.stats() and spillway.last_error() in processes with and without Spillway."""

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BUILD = os.environ.get("SPILLWAY_BUILD", str(ROOT / "build"))

ACTIVE = """
import json, os, sys, threading, torch, spillway
assert "torch" not in vars(sys.modules["spillway"])
kept = [torch.zeros(4 << 20, device="cuda") for _ in range(3)]
torch.cuda.synchronize()
answers = []
def ask():
    for _ in range(50):
        answers.append(spillway.stats()["live_bytes"])
threads = [threading.Thread(target=ask) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
before = spillway.last_error()
try:
    kept.append(torch.zeros(64 << 20, device="cuda"))
    refused = False
except torch.cuda.OutOfMemoryError:
    refused = True
child = os.fork()
if child == 0:
    try:
        spillway.stats()
        os._exit(1)
    except spillway.NotActiveError:
        os._exit(0)
print(json.dumps({"stats": spillway.stats(), "answers": answers, "before": before, "refused": refused,
                  "error": spillway.last_error(), "child": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}))
"""

INACTIVE = """
import sys, spillway
assert "ctypes" not in sys.modules and "json" not in sys.modules, "importing spillway alone must stay cheap"
for ask in (spillway.stats, spillway.last_error):
    try:
        ask()
    except spillway.NotActiveError as error:
        print(error)
assert "torch" not in sys.modules
"""


def run(code, preload, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPILLWAY", "PYTORCH_"))}
    environment.update(PYTHONPATH=str(ROOT / "integration" / "python"), OMP_NUM_THREADS="1", SPILLWAY_DIRS="none",
                       SPILLWAY_ON_FULL="error", **variables)  # fmt: skip
    if preload:
        environment["LD_PRELOAD"] = f"{BUILD}/lib/libspillway.so"
    command = [f"{BUILD}/bin/simcuda-run", "--memory", "256MiB", "--", sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250)


class MetricsTest(unittest.TestCase):
    def test_in_a_job(self):
        done = run(ACTIVE, preload=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        found = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual(set(found["answers"]), {48 << 20})
        self.assertEqual(len(found["answers"]), 200)
        stats = found["stats"]
        self.assertEqual((stats["live_bytes"], stats["spilled_bytes"]), (48 << 20, 0))
        self.assertEqual([device["device"] for device in stats["devices"]], [0])
        self.assertIn("pinned_bytes_by_reason", stats)
        self.assertEqual((found["before"], found["refused"], found["child"]), ("", True, 0))
        self.assertNotEqual(found["error"], "")

    def test_without_spillway(self):
        for preload, variables in ((False, {}), (True, {}), (True, {"SPILLWAY": "off"})):
            done = run(INACTIVE, preload, **variables)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(done.stdout.count("Spillway is not active in this process"), 2, done.stdout)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
