"""Every call of the driver that Spillway makes fails at its first time, its third, and from the first on.

The calls are the product's own lists: driver_entries.def, and what the wrappers ask (hook_questions.def). The job
(call_failures_job.cc) holds twice what its GPU does. Whatever fails, it ends right, or with an error that has words
or is the driver's own code: never with wrong bytes, a signal, a hang or a touch of memory that is not there. The
stand-in tells how often each failure was made (SIMCUDA_STATS): a case whose call never comes shows nothing.
"""

import json
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


# Calls that the job does not come to, and why.
NOT_REACHED = {
    "cuDeviceGetUuid_v2": "a job that shares its GPU alone; share_test",
    "cuDevicePrimaryCtxRelease_v2": "`spillway doctor` alone; doctor_test",
    "cuMemHostUnregister": "host memory goes back where another process is due it; every_call_test's demotion",
}
# Calls that only the words of another failure need.
BESIDE = {call: "cuMemHostRegister_v2:1+:2" for call in ("cuGetErrorName", "cuGetErrorString")}


def product_calls():
    def rows(path, pattern):
        with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
            return re.findall(pattern, file.read(), re.M)

    entries = rows("allocator/driver/driver_entries.def", r"^DRIVER_ENTRY\((\w+)\)")
    questions = rows("integration/hooks/hook_questions.def", r"^HOOK_QUESTION\((\w+)\)")
    return sorted(set(entries) | set(questions))


def play(rule, folder, stats):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPILLWAY_", "SIMCUDA_", "LD_"))}
    environment.update(LD_PRELOAD=f"{BUILD}/lib/libspillway.so", LD_LIBRARY_PATH=f"{BUILD}/lib/simcuda",
                       SIMCUDA_MEMORY="96MiB", SPILLWAY_GPU_MEMORY="64MiB", SPILLWAY_HOST_MEMORY="32MiB",
                       SPILLWAY_DIRS=folder, SPILLWAY_DISK_RESERVE="1GiB", SPILLWAY_REPORT=f"{stats}.run",
                       SIMCUDA_POISON="unmap", SIMCUDA_FAIL=rule, SIMCUDA_STATS=stats)  # fmt: skip
    # Jobs of one session share host memory: what one gives back to another would go by chance.
    return subprocess.run([JOB], env=environment, capture_output=True, text=True, timeout=60, start_new_session=True)


def counts(stats, call):
    """How often the call came, and how often it was made to fail."""
    with open(stats, encoding="utf-8") as file:
        count = json.load(file)["failures"][call]
    return count["calls"], count["failures"]


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
        done = play("", self.folder.name, os.path.join(self.folder.name, "none.json"))
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "right"), done.stderr)
        self.assertIn("spilling starts", done.stderr)

    def test_every_call(self):
        rules = []
        for call in product_calls():
            code = CODES.get(call, UNKNOWN)
            rules += [(call, f"{call}:{nth}:{code}") for nth in ("1", "3", "1+")]
        with ThreadPoolExecutor(2) as pool:
            ends = list(pool.map(lambda case: (case[1], self.outcome(*case)), rules))
        wrong = [f"{rule}: {why}" for rule, (why, _) in ends if why]
        kinds = [kind for _, (_, kind) in ends]
        words = ", ".join(f"{kinds.count(kind)} {kind}" for kind in ("right", "refused", "rarer", "not reached"))
        print(f"{len(rules)} cases: {words}", file=sys.stderr)
        self.assertEqual(wrong, [], "\n".join(wrong))
        self.assertGreater(kinds.count("right"), 0)
        self.assertGreater(kinds.count("refused"), 0)

    def outcome(self, call, rule):
        """What is wrong, and how it ended: "rarer" when the call did not come a third time."""
        stats = os.path.join(self.folder.name, rule.replace(":", "_") + ".json")
        try:
            done = play(f"{rule},{BESIDE[call]}" if call in BESIDE else rule, self.folder.name, stats)
        except subprocess.TimeoutExpired:
            return "hung", ""
        why = judge(done)
        if why:
            return f"{why}\n{done.stdout[-300:]}{done.stderr[-1500:]}", ""
        calls, failures = counts(stats, call)
        if call in NOT_REACHED:
            return ("it is reached" if calls else ""), "not reached"
        if calls == 0 or (failures == 0 and f"{call}:3:" not in rule):
            return f"never made to fail in {calls} calls", ""
        if failures == 0:
            return ("" if calls < 3 else f"not made to fail in {calls} calls"), "rarer"
        return "", "right" if done.returncode == 0 else "refused"


if __name__ == "__main__":
    unittest.main(verbosity=2)
