"""One visit to a GPU in four stages, each in under nine minutes; started by visit.sh, which says what it needs.

    1 facts   what the driver and the device do that the design takes for granted; figures, most without a judgement
    2 truth   jobs with and without PyTorch, capped: the bits of the uncapped run; graphs, compile, profiler; one audit
    3 others  models of other people's packages, of whatever version is installed
    4 speed   what launches and jobs cost, beside the uncapped run

A row is written down as soon as it has ended (JSON), and all logs go into one archive. On simcuda the same stages run; a row
that only hardware can answer says so there and does not pass.
"""

import argparse
import contextlib
import dataclasses
import importlib.metadata
import json
import os
import platform
import resource
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import host_memory
import visit_device
import visit_disk
import visit_facts
import visit_jobs
import visit_plain
import visit_rows as rows
import visit_watch as watch
from run import SIZES
from visit_jobs import ROOT, Case, Jobs, Way, job

HERE = Path(__file__).resolve().parent
THIRD_PARTY = ROOT / "tests" / "third_party"
NO_DEVICE = 2
# Of a stage on a GPU. With the machine's start and the copies to it and back, all four fit half an hour, 1, 2, 4 and 3 in turn.
MINUTES = {1: 6, 2: 8, 3: 5, 4: 5}
SIMCUDA_MINUTES = 8.5
PACKAGES = ("torch", "triton", "transformers", "accelerate", "peft", "timm", "torchvision", "nvidia-nccl-cu13", "nvidia-cublas")
FEATURES = {"large": "--steps 4", "small": "--width 512 --layers 10 --batch 256 --steps 2"}
# Of tests/third_party: page, and iterations.
PAGES = (("llama", 2), ("gpt2", 2), ("resnet", 3), ("vit", 3), ("lora", 3), ("side_stream", 3), ("hf_trainer", 4))


def gpt(args, dtype="fp32", sdpa="math", more=()):
    return Case(f"gpt {dtype} {'fused' if sdpa == 'auto' else 'math'}", job.TRAIN,
                (*SIZES[args.size]["gpt"].split(), "--dtype", dtype, "--sdpa", sdpa, *more))  # fmt: skip


# ---- the stages


def facts(visit):
    visit_facts.all_of(visit.args, visit.rows)


def truth(visit):
    args, jobs = visit.args, visit.jobs
    visit.measure_disk()
    if jobs.wanted("plain job"):
        visit_plain.plain_job(args, visit.rows, jobs)
    if not visit.serves_pytorch():
        return
    first = gpt(args)
    if jobs.wanted(first.name):
        reference = jobs.first(first)
        if reference is not None:
            jobs.compare(first, (Way(50), Way(50, mode=job.CONF)), reference)
            jobs.compare_on_disk(first, Way(35, host=0.05), reference, steps=2)
    audited = gpt(args, more=("--steps", "1"))
    jobs.compare(dataclasses.replace(audited, name="one iteration"), (Way(150),), settings={"audit": "on"})
    jobs.compare(Case("llama", HERE / "llama_step.py", tuple(SIZES[args.size]["llama"].split())), (Way(50),))
    jobs.compare(Case("resnet", HERE / "resnet_step.py", tuple(SIZES[args.size]["resnet"].split())), (Way(50),))
    for feature in ("graphs", "compile", "profiler"):
        # The stand-in runs no generated kernels and has no tracing of its own: the rest of the feature is shown there.
        name = "aot_eager" if feature == "compile" and jobs.simcuda() else feature
        jobs.compare(Case(feature, HERE / "features_step.py", (name, *FEATURES[args.size].split()), feature=True), (Way(70),))
    jobs.compare(gpt(args, "bf16", "auto"), (Way(50), Way(35)) if args.size == "large" else (Way(50),))


def others(visit):
    if not visit.serves_pytorch():
        return
    visit.measure_disk()
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(visit.args.work / "hf"), "TOKENIZERS_PARALLELISM": "false",
               "HF_HUB_DISABLE_TELEMETRY": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}  # fmt: skip
    for page, iterations in PAGES:
        case = Case(page, THIRD_PARTY / "observe.py", (page, "--steps", str(iterations)), tuple(offline.items()))
        visit.jobs.compare(case, (Way(50, host=0.2),))


def speed(visit):
    args, jobs = visit.args, visit.jobs
    with visit.rows.guarded("a launch"):
        visit_facts.launch_cost(args, visit.rows)
    if not visit.serves_pytorch():
        return
    visit.measure_disk()
    case = gpt(args, "bf16" if args.size == "large" else "fp32", "auto" if args.size == "large" else "math",
               ("--steps", "8" if args.size == "large" else "3"))  # fmt: skip
    case = dataclasses.replace(case, feature=True)
    reference = jobs.compare(case, (Way(100, host=1.0), Way(50, host=1.0), Way(35, host=1.0)))
    if reference is None:
        return
    jobs.compare_on_disk(case, Way(50, host=0.05), reference, steps=3)
    with visit.rows.guarded("save_on_cpu, uncapped"):
        save_on_cpu(visit, case, reference)


def save_on_cpu(visit, case, reference):
    jobs = visit.jobs
    saved = Case("save_on_cpu", ROOT / "bench" / "gpu" / "save_on_cpu.py", case.arguments)
    run, ended = jobs.train("", saved, job.UNCAPPED)
    status = rows.FAILED if run.keys["status"] != "ok" else rows.NEEDS_HARDWARE if jobs.simcuda() else rows.MEASURED
    visit.rows.judge("save_on_cpu, uncapped", ended, status, jobs.ending(run, ended) if status == rows.FAILED else "",
                     **jobs.figures(run, reference))  # fmt: skip


STAGES = {1: facts, 2: truth, 3: others, 4: speed}


# ---- the whole


class Visit:
    def __init__(self, args, stage):
        self.args = args
        report = args.json or args.work / f"stage-{stage}.json"
        archive = args.archive or args.work.parent / f"visit-stage-{stage}.tar.gz"
        self.rows = rows.Rows(stage, {"machine": machine(args), "arguments": sys.argv[1:]}, report, archive, args.minutes)
        self.disk = visit_disk.Disk(visit_facts.Program(args, self.rows))
        self.jobs = Jobs(args, self.rows, self.disk)

    def measure_disk(self):
        with self.rows.guarded("disk of the spill files"):
            self.disk.measure()

    def give_host_memory(self):
        """A row where the machine's memory was made to grow, or could not."""
        with self.rows.guarded("host memory"):
            grown = host_memory.grow() if self.args.device == "gpu" else None
            if grown is not None:
                before, after = (grown[key] >> 20 for key in ("total_bytes_before", "total_bytes_after"))
                self.rows.add("host memory", rows.MEASURED, f"{before} MiB in all, {after} MiB after a use of more", figures=grown)

    def serves_pytorch(self):
        """Whether Spillway has a library for the PyTorch that is installed; else a row says so."""
        try:
            version = importlib.metadata.version("torch")
        except importlib.metadata.PackageNotFoundError:
            self.rows.add("jobs of PyTorch", rows.MISSING, "no PyTorch")
            return False
        library = self.args.build / "lib" / f"libspillway_torch_{'_'.join(version.split('.')[:2])}.so"
        if library.exists():
            return True
        self.rows.add("jobs of PyTorch", rows.MISSING, f"Spillway has no library for PyTorch {version} in {library.parent}")
        return False


def version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def machine(args):
    words = {"platform": platform.platform(), "python": platform.python_version(), "cpus": os.cpu_count(),
             "device": args.device, "debugger": watch.find_debugger(),
             "packages": {name: version_of(name) for name in PACKAGES}}  # fmt: skip
    if args.device == "gpu":
        query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,pcie.link.gen.current,pcie.link.width.current",
                 "--format=csv,noheader"]  # fmt: skip
        try:
            words["nvidia_smi"] = watch.run(query, args.work / "nvidia-smi.log", 30).text
        except OSError as error:
            words["nvidia_smi"] = str(error)
    return words


def parse_arguments():
    parser = argparse.ArgumentParser(prog="tests/gpu/visit.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    add = parser.add_argument
    bundle = ROOT / "build" / "gpu"
    add("--stage", type=int, choices=sorted(STAGES), required=True)
    add("--simcuda", action="store_true", help="on the stand-in device, also where there is a GPU")
    add("--build", type=Path, default=bundle if bundle.exists() else ROOT / "build", help="default: build/gpu, else build")
    add("--size", choices=("large", "small"), help="default: large on a GPU, small on simcuda")
    add("--minutes", type=float, help="of the stage (default on a GPU: "
        + ", ".join(f"{minutes} for {stage}" for stage, minutes in MINUTES.items()) + f"; on simcuda {SIMCUDA_MINUTES})")
    add("--only", type=lambda text: text.split(","), help="jobs whose names hold one of these words, with commas between")
    add("--spill", type=Path, help="folder for spill files (default: Spillway's own choice)")
    add("--work", type=Path, help="logs of the runs (default: visit/stage-N in the build)")
    add("--json", type=Path, help="the report (default: in the logs' folder)")
    add("--archive", type=Path, help="report and logs (default: beside the logs' folder)")
    args = parser.parse_args()
    args.device = "simcuda" if args.simcuda or not (job.has_gpu() or Path("/dev/dxg").exists()) else "gpu"
    args.size = args.size or ("small" if args.device == "simcuda" else "large")
    args.minutes = args.minutes or (SIMCUDA_MINUTES if args.device == "simcuda" else MINUTES[args.stage])
    args.build = args.build.resolve()
    args.work = (args.work or args.build / "visit" / f"stage-{args.stage}").resolve()
    if args.device == "simcuda" and not (args.build / "bin" / "simcuda-run").exists():
        print(f"There is no GPU here, and no simcuda in {args.build}.", file=sys.stderr)
        raise SystemExit(NO_DEVICE)
    args.work.mkdir(parents=True, exist_ok=True)
    return args


def stopped(_number, _frame):
    raise SystemExit("told to stop")


def main():
    args = parse_arguments()
    signal.signal(signal.SIGTERM, stopped)
    # Some questions crash the process that asks, and what hangs is told to abort.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.ExitStack() as stack:
        if args.spill:
            args.spill = Path(stack.enter_context(visit_jobs.spill_folder(args.spill)))
        if args.device == "gpu":
            stack.enter_context(visit_device.held(visit_device.device_files(), args.work / "device-files.log"))
        visit = Visit(args, args.stage)
        print(json.dumps(visit.rows.head["machine"]), flush=True)
        try:
            with visit.rows.guarded(f"stage {args.stage}"):
                visit.give_host_memory()
                STAGES[args.stage](visit)
        finally:
            status = visit.rows.finish()
            try:
                visit.rows.pack(args.work)
            except OSError as error:
                print(f"there is no archive: {error}", file=sys.stderr, flush=True)
            print(f"report {visit.rows.report}, archive {visit.rows.archive}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
