"""Jobs of two ranks, of two devices, and without Python, with half of the device memory that they take: rows of ../run.py.

Each job runs uncapped, with PyTorch alone at the cap, and there with Spillway. Losses and final state are hashed here,
outside the jobs, from what they write: losses.RANK.txt (hexadecimal), state.RANK.pt or .bin, memory.RANK.json.
Here alone:  rows.py [--ci] [JOB...]
"""

import dataclasses
import hashlib
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "jobs"), str(HERE.parent)]

import harness  # noqa: E402  (the path comes first)
import held  # noqa: E402
import job  # noqa: E402
from harness import MIB  # noqa: E402
from held import Waste  # noqa: E402

PERCENT = 50  # of the uncapped peak of a device
HOST_PERCENT = 20  # pinned host memory of the node, of the peaks of all its ranks and devices; the rest goes to the disk
LARGE_SHARE = 0.8  # of the peak that must lie in blocks of more than 1 MiB
STEPS = 6
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    ranks: int
    devices: int  # that the machine has
    used: int  # by each rank
    waste: Waste
    layers: int = 6


# Reasons as in ../run.py.
ROWS = (
    Row("libtorch", 1, 1, 1, Waste(0, "8.0 in 8"), layers=12),
    Row("pipeline", 1, 2, 2, Waste(0, "8.0 in 8")),
    Row("data_parallel", 2, 2, 1, Waste(0.021, "gradients in buckets: weights of 8.0 and some KiB")),
    Row("fully_sharded", 2, 1, 1, Waste(0.063, "weights gathered with their biases: 16.0 and some KiB in 18"), layers=12),
)
NAMES = tuple(row.name for row in ROWS)


# ---- One run.


def program(args):
    """The C++ job: as the build made it, else compiled here as its user would do it."""
    built = args.build / "tests" / "libtorch_job"
    if built.is_file():
        return built
    wheel, made = Path(torch.__file__).parent, args.work / "libtorch_job"
    includes = [wheel / "include", wheel / "include" / "torch" / "csrc" / "api" / "include",
                *wheel.parent.glob("nvidia/cu*/include"), Path("/usr/local/cuda/include"),
                wheel.parent / "triton" / "backends" / "nvidia" / "include"]  # fmt: skip
    made.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["c++", "-std=c++20", "-O1", str(HERE / "libtorch_job.cc"), "-o", str(made),
                    *(f"-isystem{path}" for path in includes), f"-L{wheel / 'lib'}", f"-Wl,-rpath,{wheel / 'lib'}",
                    "-Wl,--no-as-needed", "-ltorch", "-ltorch_cuda", "-ltorch_cpu", "-lc10_cuda", "-lc10",
                    "-Wl,--allow-shlib-undefined"], check=True)  # fmt: skip
    return made


def command(args, row, steps, folder):
    if row.name == "libtorch":
        return [str(program(args)), str(folder), str(steps), str(row.layers)]
    page = [str(HERE / f"{row.name}.py"), "--output", str(folder), "--steps", str(steps), "--layers", str(row.layers)]
    return [sys.executable, *(TORCHRUN if row.ranks > 1 else ()), *page]


class Steps:
    """When each step's line was first seen."""

    def __init__(self):
        self.times = {}

    def __call__(self, line):
        found = re.search(r"\bstep (\d+) loss", line)
        if found:
            self.times.setdefault(int(found[1]), time.monotonic())
        return False

    def per_second(self):
        first, last = min(self.times), max(self.times)
        return (last - first) / (self.times[last] - self.times[first]) if last > first else None


@dataclasses.dataclass
class Finished:
    status: str
    digest: str | None
    speed: float | None  # steps a second after the first
    seconds: float
    log: str
    memory: list  # PyTorch's figures of each device that each rank used
    metrics: list  # Spillway's of each rank

    def peak(self):
        return max(one["reserved_bytes.all.peak"] for one in self.memory)

    def total(self, key):
        return sum(one[key] for one in self.metrics)


def run(args, row, steps, mode, cap=None):
    folder = args.work / row.name / mode
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    machine = job.Machine(device="simcuda", work=folder, build=args.build)
    env = job.environment(machine, mode, cap, folder / "metrics.%r.json")
    memory = machine.uncapped_memory if mode == job.UNCAPPED else cap.gpu_bytes
    full = [str(args.build / "bin" / "simcuda-run"), "--memory", job.size_text(memory), "--devices", str(row.devices),
            "--mode", "strict", "--", *command(args, row, steps, folder)]  # fmt: skip
    seen, start = Steps(), time.monotonic()
    status = job.call(full, env, folder / "log", seen, 900)
    seconds, log = time.monotonic() - start, (folder / "log").read_text(errors="replace")
    digest = hash_results(row, folder) if status == 0 else None
    word = "ok" if digest else "out_of_memory" if "OutOfMemoryError" in log else "failed"
    memory, metrics = ([job.read_json(folder / f"{name}.{rank}.json") for rank in range(row.ranks)] for name in ("memory", "metrics"))
    return Finished(word, digest, seen.per_second() if digest else None, seconds, log,
                    [one for rank in memory if rank for one in rank], [one for one in metrics if one])  # fmt: skip


# ---- Hashes.


def add(digest, value):
    """A state as PyTorch saves it: nested containers of tensors and plain values."""
    if isinstance(value, dict):
        for key in sorted(value, key=str):
            digest.update(str(key).encode())
            add(digest, value[key])
    elif isinstance(value, (list, tuple)):
        for entry in value:
            add(digest, entry)
    elif isinstance(value, torch.Tensor):
        digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
        digest.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    else:
        digest.update(repr(value).encode())


def hash_results(row, folder):
    """One hash of all ranks' losses and states; None when something is missing."""
    digest = hashlib.sha256()
    for rank in range(row.ranks):
        losses = folder / f"losses.{rank}.txt"
        states = [path for path in (folder / f"state.{rank}.pt", folder / f"state.{rank}.bin") if path.is_file()]
        if not losses.is_file() or len(states) != 1:
            return None
        digest.update(losses.read_bytes())
        if states[0].suffix == ".bin":
            digest.update(states[0].read_bytes())
        else:
            add(digest, torch.load(states[0], map_location="cpu", weights_only=True))
    return digest.hexdigest()


# ---- Judging.


def cap_of(row, uncapped, spill):
    budget = uncapped.peak() * PERCENT // 100 // (2 * MIB) * (2 * MIB)
    host = sum(one["reserved_bytes.all.peak"] for one in uncapped.memory) * HOST_PERCENT // 100
    return job.Cap(budget, job.size_text(host), str(spill), {"log": "info"}), host


def judge_parts(row, capped, host, problems):
    """Each rank says what it may take: equal parts of the node's host memory. A disk is not divided beforehand."""
    line = r"on GPU \d+ \(\d+ visible\): budget [\d.]+ \w+ of [\d.]+ \w+ \([^)]*\), host memory up to ([\d.]+ \w+), disk /"
    hosts = [size_of(text) for text in re.findall(line, capped.log)]
    if not problems.expect(len(hosts) == row.ranks * row.used, f"{row.name}: {len(hosts)} devices reported what they have"):
        return
    host_sum = sum(hosts[:: row.used])  # the devices of a process have one pool
    problems.expect(0 < host_sum <= host, f"{row.name}: host tiers of together {host_sum} bytes, {host} is the node's")


def size_of(text):
    number, unit = text.split()
    return float(number) * {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}[unit]


def judge(row, steps, uncapped, plain, capped, problems):
    if plain is not None:
        problems.expect(plain.status == "out_of_memory", f"{row.name}, PyTorch alone at the cap: {plain.status}\n{plain.log[-2000:]}")
    if not problems.expect(capped.status == "ok", f"{row.name} with Spillway: {capped.status}\n{capped.log[-4000:]}"):
        return
    problems.expect(capped.digest == uncapped.digest, f"{row.name}: losses or final state are not the same bits")
    held.judge(row.name, row.waste, capped.metrics, capped.log, problems)
    problems.expect(len(capped.metrics) == row.ranks, f"{row.name}: figures of {len(capped.metrics)} ranks, not {row.ranks}")
    for rank, figures in enumerate(capped.metrics):
        problems.expect(len(figures["devices"]) == row.used, f"{row.name}: rank {rank} used {len(figures['devices'])} devices")
        for device in figures["devices"]:
            where = f"{row.name}: rank {rank}, device {device['device']}"
            problems.expect(device["peak_bytes"] <= device["budget_bytes"], f"{where}: peak {device['peak_bytes']} over the budget")
            for key in ("spilled_bytes", "fetched_bytes"):
                problems.expect(device[key] > 0, f"{where}: {key} is {device[key]}")


class Words(list):
    """What is wrong, in words."""

    def expect(self, good, words):
        if not good:
            self.append(words)
        return bool(good)


def run_row(args, row):
    """The row of one job, with the keys of ../run.py's and "problems"; without "equal" when there was nothing to compare.

    args: build, work, steps, and without_plain, which leaves out PyTorch alone at the cap.
    """
    steps, problems = args.steps, Words()
    uncapped = run(args, row, steps, job.UNCAPPED)
    if not problems.expect(uncapped.status == "ok", f"{row.name} uncapped: {uncapped.status}\n{uncapped.log[-3000:]}"):
        return {"job": row.name, "problems": problems}
    large = min(one["allocated_bytes.large_pool.peak"] / one["allocated_bytes.all.peak"] for one in uncapped.memory)
    problems.expect(large > LARGE_SHARE, f"{row.name}: only {large:.0%} of the peak is in large blocks")
    spill = args.work / row.name / "spill"
    spill.mkdir(exist_ok=True)
    cap, host = cap_of(row, uncapped, spill)
    plain = None if args.without_plain else run(args, row, steps, job.PLAIN, cap)
    capped = run(args, row, steps, job.PRELOAD, cap)
    judge(row, steps, uncapped, plain, capped, problems)
    if capped.status == "ok":
        judge_parts(row, capped, host, problems)
    problems.expect(not list(spill.iterdir()), f"{row.name}: left behind: {[path.name for path in spill.iterdir()]}")
    speeds = (capped.speed, uncapped.speed)
    return {
        "job": row.name, "steps": steps, "peak_bytes": uncapped.peak(), "large_share": large, "cap_bytes": cap.gpu_bytes,
        "plain": plain.status if plain else "not run", "status": capped.status, "equal": capped.digest == uncapped.digest,
        "waste": harness.largest_waste(capped.metrics),
        "speed_ratio": speeds[0] / speeds[1] if all(speeds) else None,
        "seconds": {job.UNCAPPED: uncapped.seconds, job.PRELOAD: capped.seconds},
        "problems": problems,
        **{key: capped.total(key) for key in ("spilled_bytes", "host_spilled_bytes", "fetched_bytes", "disk_written_bytes")},
    }  # fmt: skip


def main():
    args = harness.arguments(__doc__, ("jobs", {"nargs": "*", "metavar": "JOB", "help": f"of {', '.join(NAMES)}"}),
                             ("--ci", {"action": "store_true", "help": "the shorter runs of tests/run.sh"}))  # fmt: skip
    args.work, args.without_plain = args.work / "ranks", args.ci
    problems = harness.Problems()
    for row in ROWS:
        if row.name not in (args.jobs or NAMES):
            continue
        args.steps = 2 if args.ci else STEPS
        print(f"\n== {row.name}, {args.steps} steps", flush=True)
        figures = run_row(args, row)
        for words in figures.pop("problems"):
            problems.expect(False, words)
        print(figures, flush=True)
    problems.exit()


if __name__ == "__main__":
    main()
