"""What the end-to-end tests share: the job runner of the quickstart, the model they train, and how they report."""

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT / "integration" / "quickstart"), str(ROOT / "tests" / "fakes")]

import job  # noqa: E402  (the paths come first)
from slowdown import in_time  # noqa: E402, F401

PROBE = HERE / "step_probe.py"
MIB = job.MIB
SKIPPED = 77  # ctest's SKIP_RETURN_CODE of this project

# Of the machine, as in tests/environment.cmake: the default reserve may be more than is free on it. Jobs that set one of
# their own win.
os.environ.setdefault("SPILLWAY_DISK_RESERVE", "1GiB")

# A job that begins with what another has learnt is another job.
os.environ.setdefault("SPILLWAY_PROFILE", "off")

# Small enough for a second a step, and almost all of it in blocks of more than 1 MiB.
MODEL = ("--width", "512", "--layers", "4", "--heads", "8", "--sequence", "64", "--batch", "16")


class Problems:
    """Collects what is wrong; the test goes on, so that one run shows everything."""

    def __init__(self):
        self.found = []

    def expect(self, good, words):
        if not good:
            self.found.append(words)
            print(f"PROBLEM  {words}", flush=True)
        return bool(good)

    def exit(self):
        print(f"{len(self.found)} problem(s)")
        sys.exit(1 if self.found else 0)


def skip_without_keys():
    """Ends a test that is to run with device memory closed to the host where the machine cannot close it."""
    wanted = os.environ.get("SIMCUDA_PROTECTION_KEYS") == "on"
    if wanted and not re.search(r"\bospke\b", Path("/proc/cpuinfo").read_text()):
        print("skipped: this machine has no memory protection keys (ospke in /proc/cpuinfo)")
        sys.exit(SKIPPED)


def arguments(description, *more):
    """--build and --work of every driver, and others as (flag, options).

    The driver's jobs become a session of their own: processes of a session share a size of host memory, and other
    tests that run at the same time are not meant.
    """
    with contextlib.suppress(OSError):
        os.setsid()
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--work", type=Path, help="logs and reports (default: BUILD/jobs)")
    for flag, options in more:
        parser.add_argument(flag, **options)
    args = parser.parse_args()
    skip_without_keys()
    args.build = args.build.resolve()
    args.work = (args.work or args.build / "jobs").resolve()
    return args


def machine(args, name, *simcuda_options, **more):
    return job.Machine(device="simcuda", work=args.work / name, build=args.build,
                       simcuda_options=simcuda_options or ("--mode", "strict"), **more)  # fmt: skip


def whole_chunks(size):
    return (size + 2 * MIB - 1) // (2 * MIB) * (2 * MIB)


def start(here, mode, cap, script, *script_arguments, **variables):
    """Starts any script as run_job starts the training, with its output in one pipe."""
    here.work.mkdir(parents=True, exist_ok=True)
    env = job.environment(here, mode, cap, here.work / f"{mode}.metrics.json")
    env["SIMCUDA_STATS"] = str(here.work / f"{mode}.simcuda.json")
    command = job.command(here, mode, cap, script_arguments, here.work / f"{mode}.json", script)
    return subprocess.Popen(command, env={**env, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, errors="replace")  # fmt: skip


def run_scene(args, name, cap, script, *script_arguments, **variables):
    """Runs a script of this folder that prints `RESULT` and JSON; exit status, output, and the result or None."""
    here = machine(args, name, "--mode", "strict")
    python = {"PYTHONPATH": str(ROOT / "integration" / "python")}
    child = start(here, job.PRELOAD, cap, HERE / script, *(str(word) for word in script_arguments), **python, **variables)
    output = child.communicate(timeout=300)[0]
    found = re.search(r"^RESULT (.*)$", output, re.MULTILINE)
    return child.returncode, output, json.loads(found[1]) if found else None


def waste_of(device):
    """Bytes that a device held at the peak beyond those asked for, as a share of the latter; None: nothing was asked for."""
    asked = device["peak_requested_bytes"]
    return device["peak_live_bytes"] / asked - 1 if asked else None


def largest_waste(metrics):
    """Of all devices of all ranks, each with its file of SPILLWAY_METRICS or None; None where nothing was asked for."""
    found = [waste_of(device) for one in metrics if one for device in one["devices"]]
    return max((waste for waste in found if waste is not None), default=None)


def free_bytes(folder):
    stat = os.statvfs(folder)
    return stat.f_bfree * stat.f_frsize
