"""One GPU session, in stages; started by visit.sh, which says what it needs. The rows of a stage: visit_stages.py.

A row is written down as soon as it has ended (JSON), and all logs go into one archive. On simcuda the same stages run; a row
that only hardware can answer says so there and does not pass.
"""

import argparse
import contextlib
import glob
import importlib.metadata
import json
import os
import platform
import re
import resource
import shutil
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import host_memory
import visit_disk
import visit_facts
import visit_jobs
import visit_rows as rows
import visit_stages as stages
import visit_table
import visit_watch as watch
from visit_jobs import ROOT, Jobs, job

NO_DEVICE = 2
WRONG_ARGUMENT = 2  # as argparse ends
# Of a stage on a GPU; then what is cut off at the end, and the archive, still have the rest of the command's time.
MINUTES = {"first": 8.6, "second": 2.6, "table": 7.6, "rest": 20}
SIMCUDA_MINUTES = 20
LARGE = 16 << 30  # bytes of a device: what the large jobs need
HOST_SHARE = 1.5  # host memory that is touched before the first job, of the device's
PACKAGES = ("torch", "triton", "transformers", "accelerate", "peft", "timm", "torchvision", "nvidia-nccl-cu13", "nvidia-cublas")
SANITIZER_SECONDS = 60


class Visit:
    def __init__(self, args):
        self.args = args
        head = {"machine": machine(args), "arguments": sys.argv[1:]}
        page = visit_table.page if args.stage == "table" else None
        self.rows = rows.Rows(args.stage, head, (args.home, args.out), args.work, args.minutes, page)
        self.program = visit_facts.Program(args, self.rows)
        self.disk = visit_disk.Disk(self.program)
        self.jobs = Jobs(args, self.rows, self.disk)
        self.served = None  # whether Spillway has a library for this PyTorch; None: nobody has asked

    def serves_pytorch(self):
        """Whether Spillway has a library for the PyTorch that is installed; else a row says so, once."""
        if self.served is None:
            self.served = False
            version = version_of("torch")
            library = self.args.build / "lib" / f"libspillway_torch_{'_'.join((version or '').split('.')[:2])}.so"
            if version is None:
                self.rows.add("jobs of PyTorch", rows.MISSING, "no PyTorch")
            elif library.exists():
                self.served = True
            else:
                self.rows.add("jobs of PyTorch", rows.MISSING, f"Spillway has no library for PyTorch {version} in {library.parent}")
        return self.served

    def run(self):
        with self.rows.guarded("device"):
            find_size(self)
        for row in second_rows(self) if self.args.stage == "second" else stages.STAGES[self.args.stage](self.args.size):
            with self.rows.guarded(row.name):
                row.run(self)
        self.rows.repeat()


def second_rows(visit):
    """All is well: the second stage's own rows. Else what may show why the first failure of the first stage failed."""
    try:
        report = json.loads((visit.args.home / "first.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        visit.rows.add("what the first stage found", rows.MISSING, f"{error}; taken as nothing wrong")
        return stages.second(visit.args.size)
    failed = [row for row in report["rows"] if row["status"] == rows.FAILED]
    for row in failed:
        found = stages.case_of(visit.args.size, row["case"], row["way"]) if "case" in row else None
        if found is not None:
            keys = {known["row"]: known.get("keys") for known in report["rows"]}.get(f"{row['case']}: uncapped")
            return (Search(*found, keys),)
    return stages.second(visit.args.size) if not failed else (Sanitize([row["row"] for row in failed]), *stages.second(visit.args.size))


class Search:
    """A failed job with one thing changed in each run, then under compute-sanitizer."""

    def __init__(self, case, way, keys):
        self.case, self.way, self.keys = case, way, keys
        self.name = f"{case.name}: what is wrong"

    def run(self, visit):
        if self.keys is None or not visit.serves_pytorch():
            visit.rows.add(self.name, rows.MISSING, "there is no uncapped run to compare with")
            return
        reference = job.Run(self.keys, None, None, None, "", visit_jobs.SHORTEST_CUT / visit_jobs.HANG)
        visit.jobs.climb(self.case, self.way, reference)
        sanitized(visit, f"{self.name}, by compute-sanitizer", lambda prefix: visit.jobs.once_more(
            self.case, self.way, reference, "compute-sanitizer", limit=SANITIZER_SECONDS, prefix=prefix))  # fmt: skip


class Sanitize:
    """Failures of programs without PyTorch: what the driver's own checks say of the self-test."""

    def __init__(self, names):
        self.name = f"what is wrong with {', '.join(names)}"[:120]

    def run(self, visit):
        command, env = visit.program.command("gpu_self_test", "--gtest_brief=1")
        sanitized(visit, self.name, lambda prefix: ("", watch.run(
            [*prefix, *command], visit.args.work / "compute-sanitizer.log", SANITIZER_SECONDS, env, left=visit.rows.left())))  # fmt: skip


def sanitized(visit, name, run):
    """The row of a run under compute-sanitizer. run(prefix): a problem, empty for none, and how it ended."""
    sanitizer = find_sanitizer()
    if sanitizer is None:
        visit.rows.add(name, rows.MISSING, "this machine has no compute-sanitizer")
        return
    problem, ended = run((sanitizer, "--target-processes", "all", "--print-limit", "20"))
    said = re.findall(r"^=========.*(?:Invalid|ERROR SUMMARY|at ).*$", ended.text, re.MULTILINE)
    visit.rows.judge(name, ended, rows.MEASURED, " | ".join(filter(None, [problem, *said[:4]]))[:400])


def find_sanitizer():
    return shutil.which("compute-sanitizer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/local/cuda/bin")


def find_size(visit):
    """Jobs as large as the device, and host memory for them that the machine has given."""
    size, visit.args.size = visit.args.size, visit.args.size or "small"
    ended, figures = visit.program.run("device", "gpu_facts", "device", limit=60)
    found = (figures or {}).get("free_bytes", 0)
    visit.args.size = size or ("large" if found >= LARGE else "small")
    words = f"{(figures or {}).get('description', visit.program.last_line(ended))}; {found >> 20} MiB free; {visit.args.size} jobs"
    visit.rows.judge("device", ended, rows.MEASURED if figures else rows.FAILED, words, figures=figures)
    if visit.args.device == "gpu":
        grown = host_memory.grow(min(host_memory.WANTED, int(found * HOST_SHARE)))
        if grown is not None:
            before, after = (grown[key] >> 20 for key in ("total_bytes_before", "total_bytes_after"))
            visit.rows.add("host memory", rows.MEASURED, f"{before} MiB in all, {after} MiB after a use of more", figures=grown)


def device_files():
    return sorted([*glob.glob("/dev/nvidiactl"), *glob.glob("/dev/nvidia[0-9]*")])


def version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def machine(args):
    words = {"platform": platform.platform(), "python": platform.python_version(), "cpus": os.cpu_count(),
             "device": args.device, "debugger": watch.find_debugger(),
             "packages": {name: version_of(name) for name in PACKAGES},
             "wheels": [wheel.stem for wheel in sorted((args.build / "wheels").glob("*.whl"))]}  # fmt: skip
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
    add("--stage", choices=sorted(stages.STAGES), required=True)
    add("--simcuda", action="store_true", help="on the stand-in device, also where there is a GPU")
    add("--build", type=Path, default=bundle if bundle.exists() else ROOT / "build", help="default: build/gpu, else build")
    add("--size", choices=("large", "small"), help="default: as the device's memory allows")
    add("--minutes", type=float, help="of the stage (default on a GPU: "
        + ", ".join(f"{minutes} for {stage}" for stage, minutes in MINUTES.items()) + f"; on simcuda {SIMCUDA_MINUTES})")
    add("--only", type=lambda text: text.split(","), help="rows whose names hold one of these words, with commas between")
    add("--spill", type=Path, help="folder for spill files (default: Spillway's own choice)")
    add("--work", type=Path, help="reports and logs of all stages: the second looks for the first's here (default: visit in the build)")
    add("--out", type=Path, help="report and archive go here, too: STAGE.json, STAGE.tar.gz")
    args = parser.parse_args()
    args.device = "simcuda" if args.simcuda or not (job.has_gpu() or Path("/dev/dxg").exists()) else "gpu"
    args.minutes = args.minutes or (SIMCUDA_MINUTES if args.device == "simcuda" else MINUTES[args.stage])
    args.build = args.build.resolve()
    args.home = (args.work or args.build / "visit").resolve()
    args.work = args.home / args.stage
    args.out = (args.out or args.home).resolve()
    if args.device == "simcuda" and not (args.build / "bin" / "simcuda-run").exists():
        print(f"There is no GPU here, and no simcuda in {args.build}.", file=sys.stderr)
        raise SystemExit(NO_DEVICE)
    for folder in (args.work, args.out):
        folder.mkdir(parents=True, exist_ok=True)
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
            stack.enter_context(watch.held(device_files(), args.work / "device-files.log"))
        visit = Visit(args)
        print(json.dumps(visit.rows.head["machine"]), flush=True)
        try:
            with visit.rows.guarded(f"stage {args.stage}"):
                visit.run()
        finally:
            status = visit.rows.finish()
            print(f"report and archive: {args.out}/{args.stage}.json, .tar.gz", flush=True)
    if args.only and not visit.jobs.any_wanted and visit.served is not False:
        print(f"--only {','.join(args.only)}: the stage {args.stage} has no such row", file=sys.stderr)
        return WRONG_ARGUMENT
    return status


if __name__ == "__main__":
    sys.exit(main())
