"""Runs the example job in one of four ways and collects what was seen: losses, hashes, bytes, speed.

Used by quickstart.py and by the end-to-end tests. It knows how each way is started on a GPU and on simcuda, and where
the figures come from; it judges nothing.
"""

import dataclasses
import glob
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TRAIN = ROOT / "integration" / "examples" / "train_gpt.py"
LIMITED = Path(__file__).resolve().parent / "limited.py"
MIB = 1 << 20

UNCAPPED, PLAIN, PRELOAD, CONF = "uncapped", "capped-plain", "capped-preload", "capped-conf"
ENABLE = "capped-enable"  # a script that calls spillway.enable() with the settings of JOB_SETTINGS, in JSON
MODES = (UNCAPPED, PLAIN, PRELOAD, CONF)
SPILLWAY_MODES = (PRELOAD, CONF)
SERVED_MODES = (*SPILLWAY_MODES, ENABLE)
# What of the caller's environment a run leaves out. The disk's reserve and the profile belong to the machine and stay.
OTHERS_CHOICE = r"SPILLWAY(?!_DISK_RESERVE$|_PROFILE$)|SIMCUDA|PYTORCH_.*ALLOC_CONF|LD_PRELOAD"

# The keys of one run in the report, in the order of docs and tables; null where one does not apply.
KEYS = (
    "mode", "status", "first_loss", "last_loss", "losses_sha256", "state_sha256", "steps", "seed", "peak_bytes",
    "budget_bytes", "spilled_bytes", "host_spilled_bytes", "fetched_bytes", "disk_written_bytes", "missed_accesses",
    "tokens_per_s",
)  # fmt: skip


@dataclasses.dataclass
class Machine:
    """Where the job runs."""

    device: str  # "gpu" or "simcuda"
    work: Path  # logs and reports of the runs
    build: Path = ROOT / "build"
    python: str = sys.executable
    simcuda_options: tuple = ()  # more options of simcuda-run
    uncapped_memory: int = 32 << 30  # simcuda's device when nothing is capped; only what is touched takes host memory
    threads: int = 1  # results depend on the number of OpenMP threads, so all compared runs have the same


@dataclasses.dataclass
class Cap:
    """What a capped run may use."""

    gpu_bytes: int
    host_memory: str = "0"
    dirs: str | None = None  # None: Spillway's default
    settings: dict = dataclasses.field(default_factory=dict)  # more of Spillway's options, by the names of the conf


@dataclasses.dataclass
class Run:
    """One finished run: the report's keys, and the files it left."""

    keys: dict
    report: dict | None  # train_gpt.py --json
    metrics: dict | None  # Spillway's
    stats: dict | None  # simcuda's
    log: str
    seconds: float
    exit_status: int | None = None  # negative: the signal that ended it


def has_gpu():
    return bool(glob.glob("/dev/nvidia[0-9]*"))


def spillway_settings(cap, machine, metrics):
    settings = {"host_memory": cap.host_memory, "metrics": str(metrics), **cap.settings}
    if cap.dirs is not None:
        settings["dirs"] = cap.dirs
    if machine.device == "gpu":
        settings["gpu_memory"] = size_text(cap.gpu_bytes)
    return settings


def size_text(size):
    return f"{size // MIB}MiB"


def conf_value(value):
    """A list has brackets in PyTorch's configuration grammar."""
    return f"[{value}]" if re.search("[,;/]", value) and not value.startswith("[") else value


def environment(machine, mode, cap, metrics):
    """The environment of one run: the caller's, without its own choice of allocator, plus what the mode sets."""
    kept = {k: v for k, v in os.environ.items() if not re.match(OTHERS_CHOICE, k)}
    kept["OMP_NUM_THREADS"] = str(machine.threads)
    if mode == PRELOAD:
        kept["LD_PRELOAD"] = str(machine.build / "lib" / "libspillway.so")
        for key, value in spillway_settings(cap, machine, metrics).items():
            kept[f"SPILLWAY_{key.upper()}"] = value
    if mode == CONF:
        entries = [f"{key}:{conf_value(value)}" for key, value in spillway_settings(cap, machine, metrics).items()]
        kept["PYTORCH_CUDA_ALLOC_CONF"] = ",".join(["backend:spillway", *entries])
    if mode == ENABLE:
        kept["JOB_SETTINGS"] = json.dumps(spillway_settings(cap, machine, metrics))
    return kept


def command(machine, mode, cap, train_arguments, report, script, total_bytes=None):
    train = [str(script), *train_arguments, "--json", str(report)]
    if machine.device == "gpu" and mode == PLAIN:
        return [machine.python, str(LIMITED), f"{cap.gpu_bytes / total_bytes:.6f}", *train]
    train = [machine.python, *train]
    if machine.device == "gpu":
        return train
    memory = machine.uncapped_memory if mode == UNCAPPED else cap.gpu_bytes
    simcuda_run = str(machine.build / "bin" / "simcuda-run")
    return [simcuda_run, "--memory", size_text(memory), *machine.simcuda_options, "--", *train]


def call(arguments, env, log_path, show, timeout):
    """Runs a command with its output in a log, its progress lines shown; returns the exit status."""
    with open(log_path, "w", encoding="utf-8", errors="replace") as log, subprocess.Popen(
        arguments, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as child:
        timer = threading.Timer(timeout, child.kill)
        timer.start()
        for line in child.stdout:
            log.write(line)
            if show(line):
                print("   ", line.rstrip(), flush=True)
        status = child.wait()
        timer.cancel()
    return status


def read_json(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def worth_showing(line):
    return bool(re.match(r"step |\[?spillway|spillway:", line)) or "OutOfMemoryError" in line


def run_job(machine, mode, train_arguments, cap=None, total_bytes=None, script=TRAIN, name=None, show=worth_showing,
            timeout=1500, extra_environment=None, prefix=(), runner=None):  # fmt: skip
    """One run. total_bytes: the GPU's memory, for PyTorch's own limit (capped-plain on a GPU). prefix: a command that
    starts the job's command, as prlimit does. runner: what runs a command with an environment and a log and gives its exit
    status, in place of `call` with `show` and `timeout`."""
    runner = runner or (lambda arguments, env, log: call(arguments, env, log, show, timeout))
    machine.work.mkdir(parents=True, exist_ok=True)
    base = machine.work / (name or mode)
    report, metrics, stats, log = (base.with_suffix(s) for s in (".json", ".metrics.json", ".simcuda.json", ".log"))
    for path in (report, metrics, stats):
        path.unlink(missing_ok=True)
    env = environment(machine, mode, cap, metrics)
    if machine.device == "simcuda":
        env["SIMCUDA_STATS"] = str(stats)
    env.update(extra_environment or {})
    start = time.monotonic()
    status = runner([*prefix, *command(machine, mode, cap, train_arguments, report, script, total_bytes)], env, log)
    seconds = time.monotonic() - start
    text = log.read_text(encoding="utf-8", errors="replace")
    run = Run({}, read_json(report), read_json(metrics), read_json(stats), text, seconds, status)
    run.keys = collect(machine, mode, cap, run, status)
    return run


def outcome(status, run):
    if status == 0 and run.report is not None:
        return "ok"
    return "out_of_memory" if "OutOfMemoryError" in run.log else "failed"


def peak_bytes(machine, mode, run):
    """Driver allocations without contexts: seen by the driver on simcuda, by the hooks or PyTorch on a GPU."""
    if machine.device == "simcuda":
        peaks = (run.stats or {}).get("peak_physical_bytes")
        return max(peaks) if isinstance(peaks, list) else peaks
    if mode in SERVED_MODES:
        return (run.metrics or {}).get("peak_bytes")
    return ((run.report or {}).get("memory") or {}).get("max_reserved_bytes")


def collect(machine, mode, cap, run, status):
    report, metrics, stats = run.report or {}, run.metrics or {}, run.stats or {}
    keys = dict.fromkeys(KEYS)
    keys.update(mode=mode, status=outcome(status, run), peak_bytes=peak_bytes(machine, mode, run))
    for key in ("first_loss", "last_loss", "losses_sha256", "state_sha256", "tokens_per_s"):
        keys[key] = report.get(key)
    for key in ("steps", "seed"):
        keys[key] = report.get("arguments", {}).get(key)
    if cap is not None:
        keys["budget_bytes"] = metrics.get("budget_bytes", cap.gpu_bytes)
    if mode in SERVED_MODES:
        for key in ("spilled_bytes", "host_spilled_bytes", "fetched_bytes", "disk_written_bytes"):
            keys[key] = metrics.get(key)
    if "report" in machine.simcuda_options:
        keys["missed_accesses"] = stats.get("missed_accesses")
    return keys
