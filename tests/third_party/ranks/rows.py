"""Runs the jobs of this folder uncapped, with PyTorch alone at 50 % of the peak, and there with Spillway: one row each.

Losses and final state are hashed here, outside the jobs, from the files that they write: losses.RANK.txt (hexadecimal),
state.RANK.pt or .bin, peak.RANK.txt.  rows.py [--only NAME] [--steps N] [--without-plain] [--json FILE]
"""

import argparse
import dataclasses
import hashlib
import json
import shutil
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "integration" / "quickstart"))

import job  # noqa: E402  (the path comes first)

MIB = job.MIB
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--log-dir")


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    ranks: int
    devices: int
    host: float  # Spillway's host memory on this node, as a share of what all ranks lack; the rest goes to the disk

    def command(self, args, folder):
        """The job's own command: a program, a script, or a script under torchrun."""
        more = ["--output", str(folder), "--steps", str(args.steps)]
        if self.name == "libtorch":
            return [str(args.build / "tests" / "libtorch_job"), str(folder), str(args.steps), "12"]
        if self.ranks == 1:
            return [sys.executable, str(HERE / f"{self.name}.py"), *more]
        return [sys.executable, *TORCHRUN, str(folder / "ranks"), str(HERE / f"{self.name}.py"), *more]


ROWS = (
    Row("libtorch", ranks=1, devices=1, host=0.4),
    Row("pipeline", ranks=1, devices=2, host=0.4),
    Row("data_parallel", ranks=2, devices=2, host=0.4),
    Row("fully_sharded", ranks=2, devices=1, host=0.4),
)


def add_value(digest, value):
    """A state as PyTorch saves it: nested dicts and lists of tensors and plain values."""
    if isinstance(value, dict):
        for key in sorted(value, key=str):
            digest.update(str(key).encode())
            add_value(digest, value[key])
    elif isinstance(value, (list, tuple)):
        for entry in value:
            add_value(digest, entry)
    elif isinstance(value, torch.Tensor):
        digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    else:
        digest.update(repr(value).encode())


def hash_results(row, folder):
    """One hash of all ranks' losses and states; None when a file is missing."""
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
            add_value(digest, torch.load(states[0], map_location="cpu", weights_only=True))
    return digest.hexdigest()


@dataclasses.dataclass
class Finished:
    status: str
    digest: str | None
    seconds: float
    log: str
    folder: Path

    def peaks(self, row):
        return [int((self.folder / f"peak.{rank}.txt").read_text()) for rank in range(row.ranks)]

    def metrics(self, row):
        """Spillway's figures of each rank."""
        found = [job.read_json(self.folder / f"metrics.{rank}.json") for rank in range(row.ranks)]
        return [figures for figures in found if figures is not None]


def run(args, row, mode, cap=None):
    folder = args.work / row.name / mode
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    machine = job.Machine(device="simcuda", work=folder, build=args.build)
    env = job.environment(machine, mode, cap, folder / "metrics.%r.json", None)
    memory = machine.uncapped_memory if mode == job.UNCAPPED else cap.gpu_bytes
    command = [str(args.build / "bin" / "simcuda-run"), "--memory", job.size_text(memory), "--devices", str(row.devices),
               "--mode", "strict", "--", *row.command(args, folder)]  # fmt: skip
    start = job.time.monotonic()
    status = job.call(command, env, folder / "log", lambda line: False, 900)
    seconds = job.time.monotonic() - start
    log = (folder / "log").read_text(errors="replace")
    digest = hash_results(row, folder)
    word = "ok" if status == 0 and digest else "out_of_memory" if "OutOfMemoryError" in log else "failed"
    return Finished(word, digest, seconds, log, folder)


def cap_of(row, peaks, spill):
    """Half of the peak on each device; host memory for the whole node, which its ranks must share."""
    peak = max(peaks)
    budget = peak // 2 // (2 * MIB) * (2 * MIB)
    host = int(sum(peaks) * max(1, row.devices if row.ranks == 1 else 1) * 0.5 * row.host)
    return job.Cap(budget, job.size_text(host), str(spill))


def judge(row, uncapped, plain, capped, figures):
    """What is wrong with the row, in words."""
    wrong = []
    if plain is not None and plain.status != "out_of_memory":
        wrong.append(f"PyTorch alone at the cap: {plain.status}, not out of memory")
    if capped.status != "ok":
        return [*wrong, f"with Spillway: {capped.status}\n{capped.log[-3000:]}"]
    if capped.digest != uncapped.digest:
        wrong.append("losses or final state differ from the uncapped run")
    if len(figures) != row.ranks:
        return [*wrong, f"figures of {len(figures)} ranks instead of {row.ranks}"]
    for rank, one in enumerate(figures):
        for device in one["devices"]:
            if device["peak_bytes"] > device["budget_bytes"]:
                wrong.append(f"rank {rank}, device {device['device']}: peak over the budget")
            if device["spilled_bytes"] == 0 or device["fetched_bytes"] == 0:
                wrong.append(f"rank {rank}, device {device['device']}: nothing was moved")
        if len(one["devices"]) != (row.devices if row.ranks == 1 else 1):
            wrong.append(f"rank {rank} used {len(one['devices'])} devices")
    return wrong


def run_row(args, row):
    uncapped = run(args, row, job.UNCAPPED)
    if uncapped.status != "ok":
        return {"job": row.name, "problems": [f"uncapped: {uncapped.status}\n{uncapped.log[-3000:]}"]}
    spill = args.work / row.name / "spill"
    spill.mkdir(exist_ok=True)
    cap = cap_of(row, uncapped.peaks(row), spill)
    plain = None if args.without_plain else run(args, row, job.PLAIN, cap)
    capped = run(args, row, job.PRELOAD, cap)
    figures = capped.metrics(row)
    problems = judge(row, uncapped, plain, capped, figures)
    if list(spill.iterdir()):
        problems.append(f"left behind in the spill folder: {[path.name for path in spill.iterdir()]}")
    return {
        "job": row.name, "peak_bytes": max(uncapped.peaks(row)), "cap_bytes": cap.gpu_bytes, "host_memory": cap.host_memory,
        "plain": plain.status if plain else None, "spilled_bytes": sum(f["spilled_bytes"] for f in figures),
        "fetched_bytes": sum(f["fetched_bytes"] for f in figures),
        "ssd_written_bytes": sum(f["ssd_written_bytes"] for f in figures), "equal": capped.digest == uncapped.digest,
        "speed_ratio": uncapped.seconds / capped.seconds, "problems": problems,
    }  # fmt: skip


def show(figures):
    if "equal" in figures:
        sizes = "  ".join(f"{key.removesuffix('_bytes')} {figures[key] / MIB:.0f}" for key in
                          ("peak_bytes", "cap_bytes", "spilled_bytes", "fetched_bytes", "ssd_written_bytes"))  # fmt: skip
        print(f"{figures['job']:14} {sizes} (MiB)  plain {figures['plain']}  equal {'yes' if figures['equal'] else 'NO'}  "
              f"ratio {figures['speed_ratio']:.2f}", flush=True)  # fmt: skip
    for words in figures["problems"]:
        print(f"PROBLEM  {figures['job']}: {words}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--work", type=Path, help="logs and files of the runs (default: BUILD/jobs/ranks)")
    parser.add_argument("--only", choices=[row.name for row in ROWS], action="append")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--without-plain", action="store_true", help="do not run PyTorch alone at the cap")
    parser.add_argument("--json", type=Path, help="the rows as JSON")
    args = parser.parse_args()
    args.build = args.build.resolve()
    args.work = (args.work or args.build / "jobs" / "ranks").resolve()
    finished = []
    for row in ROWS:
        if not args.only or row.name in args.only:
            finished.append(run_row(args, row))
            show(finished[-1])
    if args.json:
        args.json.write_text(json.dumps(finished, indent=2) + "\n")
    sys.exit(1 if any(row["problems"] for row in finished) else 0)


if __name__ == "__main__":
    main()
