"""Tests Spillway on the GPU that is here; started by run.sh, which says what it needs and how it ends.

On simcuda (--device simcuda --size small) it shows that its own steps work.
"""

import argparse
import dataclasses
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "integration" / "quickstart"))
sys.path.insert(0, str(ROOT / "tests" / "gpu"))

import host_memory
import job
from conf_python import python_with_start_up

HERE = Path(__file__).resolve().parent
PARTS = ("self-test", "audit", "gpt", "llama", "resnet")
NO_DEVICE, OUT_OF_TIME = 2, 3

# A GPT of several GB, and one for simcuda; likewise the others.
SIZES = {
    "large": {
        "gpt": "--width 1280 --layers 12 --heads 20 --sequence 512 --batch 12 --steps 4",
        "llama": "--steps 3",
        "resnet": "--steps 3",
    },
    "small": {
        "gpt": "--width 512 --layers 3 --heads 8 --sequence 64 --batch 16 --steps 2",
        "llama": "--width 512 --layers 3 --sequence 64 --batch 4 --vocabulary 2048 --steps 2 --autocast 0",
        "resnet": "--width 64 --stages 3 --picture 64 --batch 32 --steps 2",
    },
}
HOST_SHARE = 0.5  # of the uncapped peak
# Of the uncapped peak. The last is also run from disk alone and by the configuration variable.
SHARES = (100, 50, 35)


class Session:
    """What the parts share: where they run, what they found, how much time is left."""

    def __init__(self, args):
        self.args = args
        self.machine = job.Machine(device=args.device, work=args.work, build=args.build, python=sys.executable)
        self.end = time.monotonic() + args.minutes * 60
        if args.device == "gpu" and (job.has_gpu() or Path("/dev/dxg").exists()):  # without one the first program says so
            host_memory.grow()
        self.rows, self.problems, self.left_out = [], [], []
        self.total_bytes = None

    def expect(self, good, words):
        if not good:
            self.problems.append(words)
            print(f"PROBLEM  {words}", flush=True)

    def time_for(self, words, seconds):
        if time.monotonic() + seconds < self.end:
            return True
        self.left_out.append(words)
        print(f"left out for want of time: {words}", flush=True)
        return False

    def run(self, label, mode, arguments, script=job.TRAIN, share=None, peak=None, host_share=None, settings=None,
            simcuda_options=()):  # fmt: skip
        """One run of a training script as a row; None when there was no time for it."""
        if not self.time_for(label, self.seconds_of_a_run()):
            return None
        cap = None
        if share is not None:
            budget = int(peak * share / 100) // (2 * job.MIB) * (2 * job.MIB)
            host = int(peak * (HOST_SHARE if host_share is None else host_share))
            cap = job.Cap(budget, job.size_text(host), settings=settings or {})
        machine, more = dataclasses.replace(self.machine, simcuda_options=simcuda_options), {}
        if mode == job.CONF:
            machine = dataclasses.replace(machine, python=python_with_start_up(self.args.build, self.args.work))
            more = {"SPILLWAY_LIBRARY_DIR": str(self.args.build / "lib")}
        print(f"-- {label}", flush=True)
        result = job.run_job(machine, mode, arguments, cap, self.total_bytes, script=script,
                             name=re.sub("[^a-z0-9]+", "-", label.lower()), timeout=240, extra_environment=more)  # fmt: skip
        if result.keys["status"] == "failed":
            print(result.log[-2500:], flush=True)
        self.rows.append({"case": label, "share": share, "seconds": round(result.seconds, 1), **result.keys})
        return result

    def call(self, words, command, env, timeout):
        """A program's exit status, its output shown. A problem, and None, where it does not end or cannot be started."""
        print(f"-- {words}", flush=True)
        try:
            done = subprocess.run(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout)
        except (OSError, subprocess.TimeoutExpired) as error:
            output = getattr(error, "output", None) or b""
            print(output.decode(errors="replace") if isinstance(output, bytes) else output, flush=True)
            self.expect(False, f"{words}: {error}")
            return None
        print(done.stdout, flush=True)
        if done.returncode == NO_DEVICE:
            raise SystemExit(NO_DEVICE)
        self.expect(done.returncode == 0, f"{words} ends with {done.returncode}")
        return done.returncode

    def part(self, name, function, *arguments):
        """One part of the whole; an error of its own is a problem, and the others go on."""
        print(f"\n== {name}", flush=True)
        try:
            function(self, *arguments)
        except Exception as error:  # whatever it is: what was found so far goes into the report
            traceback.print_exc()
            self.expect(False, f"{name}: {type(error).__name__}: {error}")

    def finish(self, report):
        """Writes the report and says what was wrong; the exit status."""
        if self.args.json:
            report = {**report, "problems": self.problems, "left_out": self.left_out}
            self.args.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        for words in self.problems:
            print(f"PROBLEM  {words}")
        for words in self.left_out:
            print(f"LEFT OUT {words}")
        print(f"{len(self.problems)} problem(s), {len(self.left_out)} left out")
        return 1 if self.problems else OUT_OF_TIME if self.left_out else 0

    def seconds_of_a_run(self):
        """What the next run may take: as the longest yet, with a margin."""
        return 1.2 * max((row["seconds"] for row in self.rows), default=10) + 5


# ---- parts


def self_test(session):
    program = session.args.build / "tests" / "gpu_self_test"
    for words, preload in (("alone", None), ("with Spillway", session.args.build / "lib" / "libspillway.so")):
        command = [str(program), "--gtest_brief=1"]
        env = {k: v for k, v in os.environ.items() if not re.match("SPILLWAY(?!_DISK_RESERVE$|_GPU_TEST_DIR$)|SIMCUDA", k)}
        if session.args.device == "simcuda":
            command = [str(session.args.build / "bin" / "simcuda-run"), "--memory", "1GiB", "--", *command]
            env["SIMCUDA_POISON"] = "recycle"
        if preload is not None:
            command.append("--gtest_filter=LookUpTest.*:ContentHashTest.*")
            env["LD_PRELOAD"] = str(preload)
        session.call(f"the self-test {words}", command, env, 180)


def audit(session):
    """One step with everything unmapped that the launch does not name; the same bits as without."""
    arguments = [*SIZES[session.args.size]["gpt"].split(), "--steps", "1"]
    plain = session.run("audit: one step uncapped", job.UNCAPPED, arguments)
    if plain is None or plain.keys["status"] != "ok":
        return session.expect(plain is None, "the uncapped step failed")
    audited = session.run("audit: one step audited", job.PRELOAD, arguments, share=150, peak=plain.keys["peak_bytes"],
                          settings={"audit": "on"}, simcuda_options=("--mode", "fault", "--poison", "recycle"))  # fmt: skip
    if audited is not None:
        compare(session, audited, plain, spills=False)


def compare(session, run, reference, spills=True, budget=True):
    """Judges a finished run, the last row, by the uncapped one."""
    label = session.rows[-1]["case"]
    session.expect(run.keys["status"] == "ok", f"{label}: {run.keys['status']}")
    if run.keys["status"] != "ok":
        return
    equal = all(run.keys[key] == reference.keys[key] for key in ("losses_sha256", "state_sha256"))
    session.rows[-1]["equal"] = equal
    session.rows[-1]["ratio"] = run.keys["tokens_per_s"] / reference.keys["tokens_per_s"]
    session.expect(equal, f"{label}: losses or final state differ from the uncapped run")
    if spills:
        session.expect(run.keys["spilled_bytes"], f"{label}: nothing was spilled")
    if budget:
        over = (run.keys["peak_bytes"] or 0) > run.keys["budget_bytes"]
        session.expect(not over, f"{label}: the peak is over the budget")


def four_ways(session, name, arguments, script=job.TRAIN, shares=None, conf=True, disk=True):
    """Uncapped, capped without Spillway, and with it at each share; the last share also otherwise loaded and from disk."""
    shares = shares or session.args.shares
    uncapped = session.run(f"{name}: uncapped", job.UNCAPPED, arguments, script)
    if uncapped is None:
        return
    session.expect(uncapped.keys["status"] == "ok", f"{name}: the uncapped run: {uncapped.keys['status']}")
    if uncapped.keys["status"] != "ok":
        return
    peak = uncapped.keys["peak_bytes"]
    session.total_bytes = ((uncapped.report or {}).get("memory") or {}).get("device_total_bytes")
    same = session.run(f"{name}: uncapped again", job.UNCAPPED, arguments, script)
    if same is not None and same.keys["losses_sha256"] != uncapped.keys["losses_sha256"]:
        session.expect(False, f"{name}: two uncapped runs differ: nothing can be compared with them")
        return
    plain = session.run(f"{name}: {shares[-1]} %, PyTorch alone", job.PLAIN, arguments, script, shares[-1], peak)
    if plain is not None:
        session.expect(plain.keys["status"] == "out_of_memory", f"{name}: PyTorch alone at {shares[-1]} %: {plain.keys['status']}")
    ways = [(f"{share} %, preload", job.PRELOAD, share, None) for share in shares]
    ways += [(f"{shares[-1]} %, preload, disk", job.PRELOAD, shares[-1], 0.05)] * disk
    ways += [(f"{shares[-1]} %, configuration", job.CONF, shares[-1], None)] * conf
    for words, mode, share, host_share in ways:
        run = session.run(f"{name}: {words}", mode, arguments, script, share, peak, host_share)
        if run is not None:
            compare(session, run, uncapped, spills=share < 90)


def gpt(session):
    base = SIZES[session.args.size]["gpt"].split()
    first = True
    for kind, sdpa in (("fp32", "math"), ("bf16", "auto"), ("bf16", "math"), ("fp32", "auto")):
        name = f"gpt {kind} {'fused' if sdpa == 'auto' else 'math'}"
        if session.args.kinds and name.split(" ", 1)[1] not in session.args.kinds:
            continue
        four_ways(session, name, [*base, "--dtype", kind, "--sdpa", sdpa], conf=first, disk=first)
        first = False


def llama(session):
    arguments = SIZES[session.args.size]["llama"].split()
    four_ways(session, "llama", arguments, HERE / "llama_step.py", shares=(50,), conf=False, disk=False)


def resnet(session):
    arguments = SIZES[session.args.size]["resnet"].split()
    four_ways(session, "resnet", arguments, HERE / "resnet_step.py", shares=(50,), conf=False, disk=False)


# ---- the whole


def machine_words(args):
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise SystemExit(f"There is no PyTorch in {sys.executable}; name a Python that has it with --python.") from None
    lines = [f"{platform.platform()}, Python {platform.python_version()}, PyTorch {torch}"]
    if args.device == "gpu":
        query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,pcie.link.gen.current,pcie.link.width.current",
                 "--format=csv,noheader"]  # fmt: skip
        try:
            lines.append(subprocess.run(query, text=True, capture_output=True, timeout=30).stdout.strip())
        except (OSError, subprocess.TimeoutExpired) as error:
            lines.append(f"nvidia-smi: {error}")
    return lines


def table(rows):
    head = ["", "status", "equal", "peak", "budget", "spilled", "to host", "fetched", "SSD written", "tokens/s", "ratio", "s"]
    lines = [head]
    for row in rows:
        size = [f"{row[k] / job.MIB:.0f}" if row.get(k) is not None else "-" for k in (
            "peak_bytes", "budget_bytes", "spilled_bytes", "host_spilled_bytes", "fetched_bytes", "disk_written_bytes")]  # fmt: skip
        equal = {True: "yes", False: "NO"}.get(row.get("equal"), "-")
        speed = f"{row['tokens_per_s']:.0f}" if row.get("tokens_per_s") else "-"
        ratio = f"{row['ratio']:.3f}" if row.get("ratio") else "-"
        lines.append([row["case"], row["status"], equal, *size, speed, ratio, f"{row['seconds']:.0f}"])
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return ["  ".join(text.ljust(w) if i < 2 else text.rjust(w) for i, (text, w) in enumerate(zip(line, widths))).rstrip()
            for line in lines]  # fmt: skip


def parse_arguments(parts=PARTS, name="tests/gpu/run.sh", description=__doc__):
    parser = argparse.ArgumentParser(prog=name, description=description)
    add = parser.add_argument
    bundle = ROOT / "build" / "gpu"
    add("--build", type=Path, default=bundle if bundle.exists() else ROOT / "build", help="default: build/gpu, else build")
    add("--device", choices=["gpu", "simcuda"], default="gpu")
    add("--size", choices=list(SIZES), default="large")
    add("--minutes", type=float, default=8.5)
    add("--only", help=f"some of {', '.join(parts)}, with commas between")
    add("--kinds", help="some of fp32 math, bf16 fused, bf16 math, fp32 fused, with commas between")
    add("--shares", type=lambda text: tuple(map(int, text.split(","))), default=SHARES, help="of the peak, in percent: 100,50,35")
    add("--json", type=Path)
    add("--work", type=Path, help="logs of the runs (default: gpu-runs in the build)")
    args = parser.parse_args()
    args.build = args.build.resolve()
    args.work = (args.work or args.build / "gpu-runs").resolve()
    args.work.mkdir(parents=True, exist_ok=True)
    args.kinds = args.kinds.split(",") if args.kinds else None
    args.parts = args.only.split(",") if args.only else list(parts)
    wrong = [part for part in args.parts if part not in parts]
    if wrong:
        parser.error(f"--only {wrong[0]}: accepted are {', '.join(parts)}")
    return args


def main():
    args = parse_arguments()
    for line in machine_words(args):
        print(line, flush=True)
    session = Session(args)
    functions = {"self-test": self_test, "audit": audit, "gpt": gpt, "llama": llama, "resnet": resnet}
    for part in ("self-test", "audit", "llama", "resnet", "gpt"):  # the longest last
        if part in args.parts:
            session.part(part, functions[part])
    print("\nbytes in MiB; equal: losses and final state, bit for bit; ratio: to the uncapped run\n")
    print("\n".join(table(session.rows)))
    return session.finish({"machine": machine_words(args), "arguments": sys.argv[1:], "runs": session.rows})


if __name__ == "__main__":
    sys.exit(main())
