"""spillway.stats() is what its types say: on jobs of the stand-in device that show every key, in docs/metrics.md, and for mypy.

Every key that a job's figures have must be declared, with its type; every declared one must be there, or be one that may be
absent; and of those each must have been seen in one of the jobs. mypy judges code that uses the types, where it is installed.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import typing
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BUILD = os.environ.get("SPILLWAY_BUILD", str(ROOT / "build"))
PACKAGE = ROOT / "integration" / "python"
sys.path.insert(0, str(PACKAGE))

from spillway import stats_types  # noqa: E402  (the path comes first)

# Iterations over more than fits: something is moved, paused, and recurs.
JOB = """
import json, sys, torch, spillway
held = [torch.ones(4 << 20, device="cuda") for _ in range(8)]
for _ in range(int(sys.argv[1])):
    for tensor in held:
        tensor.add_(1)
    torch.cuda.synchronize()
if sys.argv[2] == "pause":
    spillway.pause()
    spillway.resume(wait=True)
torch.cuda.synchronize()
print(json.dumps(spillway.stats()))
"""


def stats_of(iterations, pause, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPILLWAY", "PYTORCH_"))}
    environment.update(PYTHONPATH=str(PACKAGE), OMP_NUM_THREADS="1", LD_PRELOAD=f"{BUILD}/lib/libspillway.so", **variables)
    command = [f"{BUILD}/bin/simcuda-run", "--memory", "256MiB", "--", sys.executable, "-c", JOB, str(iterations), pause]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


class Walk:
    """A value beside its type; `problems` says where they differ, `seen` has (class, key) of all keys."""

    def __init__(self):
        self.problems, self.seen = [], set()

    def look(self, value, kind, place):
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if typing.is_typeddict(kind):
            self.look_at_dict(value, kind, place)
        elif origin is list and isinstance(value, list):
            for i, one in enumerate(value):
                self.look(one, arguments[0], f"{place}[{i}]")
        elif origin is dict and isinstance(value, dict):
            for key, one in value.items():
                if typing.get_origin(arguments[0]) is typing.Literal and key not in typing.get_args(arguments[0]):
                    self.problems.append(f"{place}.{key} is not declared")
                self.look(one, arguments[1], f"{place}.{key}")
        elif origin is typing.Union:
            if value is not None:
                self.look(value, arguments[0], place)
        # JSON writes 0.0 and 0 apart, and so does the engine; True is an int to Python alone.
        elif type(value) is not kind:
            self.problems.append(f"{place} is {value!r}, not of {kind}")

    def look_at_dict(self, value, kind, place):
        hints = typing.get_type_hints(kind)
        if not isinstance(value, dict):
            self.problems.append(f"{place} is {value!r}, not of {kind}")
            return
        self.problems += [f"{place}.{key} is not declared" for key in value.keys() - hints.keys()]
        self.problems += [f"{place}.{key} is not there" for key in kind.__required_keys__ - value.keys()]
        for key in value.keys() & hints.keys():
            self.seen.add((kind.__name__, key))
            self.look(value[key], hints[key], f"{place}.{key}")


def declared(kind, found=None):
    """(class, key) of all that is reached from a type."""
    found = set() if found is None else found
    if typing.is_typeddict(kind):
        for key, one in typing.get_type_hints(kind).items():
            found.add((kind.__name__, key))
            declared(one, found)
    for argument in typing.get_args(kind):
        if not isinstance(argument, str):
            declared(argument, found)
    return found


class StatsTypesTest(unittest.TestCase):
    def test_the_figures_of_jobs_are_of_these_types_and_show_every_key(self):
        walk = Walk()
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            spilling = stats_of(60, "pause", SPILLWAY_GPU_MEMORY="80MiB", SPILLWAY_HOST_MEMORY="32MiB", SPILLWAY_DIRS=folder,
                                SPILLWAY_WRITE_BUDGET="20GiB/day", XDG_CACHE_HOME=folder)  # what was written before is not counted
        walk.look(spilling, stats_types.Stats, "stats")
        walk.look(stats_of(20, "", SPILLWAY="observe", SPILLWAY_DIRS="none"), stats_types.Stats, "observed")
        self.assertEqual(walk.problems, [])
        # On a busy machine the launches' times may not be those of the iteration; then the share is not told.
        seldom = {("Iteration", "percent_of_bound")}
        # There, too, copies in both directions may not run together, and the measurement is dropped.
        link = spilling["devices"][0].get("link", {})
        if link.get("dropped") and "in" not in link:
            seldom |= {("Link", f"{way}{both}") for way in ("in", "out") for both in ("", "_both")}
            seldom |= {("BytesPerSecond", f"host_{way}_both") for way in ("in", "out")}
        self.assertEqual(sorted(declared(stats_types.Stats) - walk.seen - seldom), [])
        self.assertEqual(set(spilling["waits"]), set(typing.get_args(stats_types.WaitKind)))

    def test_a_difference_is_found(self):
        walk = Walk()
        walk.look({"ended": 1.0, "seconds": 0.5, "now": True, "more": 1}, stats_types.WaitStats, "wait")
        self.assertEqual(sorted(walk.problems), ["wait.ended is 1.0, not of <class 'int'>", "wait.longest_now_seconds is not there",
                                                 "wait.more is not declared", "wait.now is True, not of <class 'int'>"])  # fmt: skip

    def test_the_page_has_the_same_keys(self):
        page = (ROOT / "docs" / "metrics.md").read_text()
        keys = {key for _, key in declared(stats_types.Stats)} | set(typing.get_args(stats_types.WaitKind))
        self.assertEqual(sorted(key for key in keys if f"`{key}`" not in page), [])
        first = re.findall(r"^\| (`[^|]*) \|", page, re.M)
        named = {key for cell in first for key in re.findall(r"`([a-z_]+)`", cell)}
        self.assertEqual(sorted(named - keys), [])

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
    def test_mypy_knows_what_stats_gives(self):
        right = "import spillway\ns = spillway.stats()\na: int = s['spilled_bytes']\nb: float = s['devices'][0]['iteration']['seconds']\nc: str = s['directories'][0]['path']\n"
        wrong = {"import spillway\nspillway.stats()['spiled_bytes']\n": "spiled_bytes", "import spillway\na: str = spillway.stats()['pid']\n": "Incompatible"}
        with tempfile.TemporaryDirectory() as folder:
            for number, (code, words) in enumerate({right: "Success", **wrong}.items()):
                name = f"user_{number}.py"  # in one of a name mypy may take what its cache has of the file before
                (Path(folder) / name).write_text(code)
                run = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", folder, name], cwd=folder, capture_output=True, text=True,
                                     env={**os.environ, "MYPYPATH": str(PACKAGE)})  # fmt: skip
                self.assertIn(words, run.stdout, run.stdout + run.stderr)


if __name__ == "__main__":
    unittest.main()
