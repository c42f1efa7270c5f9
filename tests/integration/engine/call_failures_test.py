"""Every call of the driver that Spillway makes fails at its first time, its third, and from the first on.

The calls are the product's own lists: driver_entries.def, and the rows of driver_symbols.def that it uses itself. The
job (call_failures_job.cc) holds twice what its GPU does. Whatever fails, it ends right, or with an error that has words
or is the driver's own code: never with wrong bytes, a signal, a hang or a touch of memory that is not there.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor

BUILD = os.environ["SPILLWAY_BUILD"]
SOURCE = os.environ["SPILLWAY_SOURCE"]
JOB = os.environ["CALL_FAILURES_JOB"]

NOT_READY, UNKNOWN = 600, 999
# What a driver says of these, besides "unknown": memory is short, not ready, nothing more of that.
CODES = {"cuMemCreate": 2, "cuMemSetAccess": NOT_READY, "cuFuncGetParamInfo": 801, "cuKernelGetParamInfo": 801,
         "cuMemHostRegister_v2": 2, "cuEventQuery": UNKNOWN, "cuMemAddressReserve": 2}  # fmt: skip


def product_calls():
    def rows(name, pattern):
        with open(os.path.join(SOURCE, "allocator/driver", name), encoding="utf-8") as file:
            return re.findall(pattern, file.read(), re.M)

    entries = rows("driver_entries.def", r"^DRIVER_ENTRY\((\w+)\)")
    used = rows("driver_symbols.def", r"^DRIVER_SYMBOL\((\w+), USED\)")
    return sorted(set(entries) | set(used))


def play(rule, folder):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPILLWAY_", "SIMCUDA_", "LD_"))}
    environment.update(LD_PRELOAD=f"{BUILD}/lib/libspillway.so", LD_LIBRARY_PATH=f"{BUILD}/lib/simcuda",
                       SIMCUDA_MEMORY="96MiB", SPILLWAY_GPU_MEMORY="64MiB", SPILLWAY_HOST_MEMORY="32MiB",
                       SPILLWAY_DIRS=folder, SPILLWAY_DISK_RESERVE="1GiB", SIMCUDA_POISON="unmap", SIMCUDA_FAIL=rule)  # fmt: skip
    return subprocess.run([JOB], env=environment, capture_output=True, text=True, timeout=60)


def judge(done):
    """What is wrong with how it ended, or an empty text."""
    if done.returncode < 0:
        return f"signal {-done.returncode}"
    if "is not mapped" in done.stderr or "takes a CU" in done.stderr:
        return "the stand-in driver complains"
    last = done.stdout.strip().splitlines()[-1:] or [""]
    if done.returncode == 0:
        return "" if last[0] == "right" else "no word of success"
    if done.returncode == 3:
        return "" if re.match(r"refused: .+: -?\d+ ", last[0] + " ") else "refused without a word"
    return f"exit status {done.returncode}"


class CallFailuresTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="spillway_calls_", dir="/var/tmp")
        self.addCleanup(self.folder.cleanup)

    def test_without_a_failure_it_spills_and_is_right(self):
        done = play("", self.folder.name)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "right"), done.stderr)
        self.assertIn("spilling starts", done.stderr)

    def test_every_call(self):
        rules = []
        for call in product_calls():
            code = CODES.get(call, UNKNOWN)
            rules += [f"{call}:1:{code}", f"{call}:3:{code}", f"{call}:1+:{code}"]
        with ThreadPoolExecutor(2) as pool:
            ends = list(pool.map(lambda rule: (rule, self.outcome(rule)), rules))
        wrong = [f"{rule}: {why}" for rule, (why, _) in ends if why]
        kinds = [kind for _, (_, kind) in ends]
        print(f"{len(rules)} cases: {kinds.count('right')} right, {kinds.count('refused')} refused", file=sys.stderr)
        self.assertEqual(wrong, [], "\n".join(wrong))
        self.assertGreater(kinds.count("right"), 0)
        self.assertGreater(kinds.count("refused"), 0)

    def outcome(self, rule):
        try:
            done = play(rule, self.folder.name)
        except subprocess.TimeoutExpired:
            return "hung", ""
        why = judge(done)
        shown = f"{why}\n{done.stdout[-300:]}{done.stderr[-1500:]}" if why else ""
        return shown, "right" if done.returncode == 0 else "refused"


if __name__ == "__main__":
    unittest.main(verbosity=2)
