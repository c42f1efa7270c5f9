#!/usr/bin/env python3
"""Runs PyTorch's own tests of torch.cuda natively on simcuda and with Spillway, and compares.

    SPILLWAY_PYTORCH_TESTS=TREE tests/pytorch/run.py --build build [--python PYTHON] [--minutes N] [--only REGEX]

TREE is a source tree of PyTorch, of 2.4 or newer (docs/contributing.md says how to get one); nothing in it is changed or
copied. Each test runs in a process that starts clean (server.py), in four ways: `native`, `fitting` (Spillway, the whole
device), `quarter` (Spillway, a quarter of it) and `reach` (what `quarter` refuses, with more host memory). Outcomes stay in
BUILD/pytorch_tests/RELEASE/WAY.jsonl: a run that was ended goes on; other libraries begin anew (--keep: do not). With
Spillway only what passes natively runs.

Exit status: 0 if whatever differs has a cause in expected.txt, 1 if not, 3 if --minutes ended it, 77 without a tree.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

import outcomes  # noqa: E402  (the path comes first)

SKIPPED = 77  # ctest's SKIP_RETURN_CODE of this project
UNFINISHED = 3
# File -> devices of the machine it runs on.
FILES = {"test_cuda.py": 1, "test_cuda_trace.py": 1, "test_cuda_expandable_segments.py": 1, "test_cuda_multigpu.py": 2}
DEVICE_MEMORY = "8191MiB"  # some tests want 6 GB; half of it is no whole number of 2 MiB, as of GPUs; host memory only as touched
PACKAGES = ("expecttest", "hypothesis", "packaging", "psutil")  # what PyTorch's tests import beside PyTorch and NumPy
SECONDS = 300  # of a test
# What Spillway may use beside the GPU: as much in all as the device has, since tests want to be refused what exceeds it.
WAYS = {
    outcomes.NATIVE: None,
    "fitting": {"SPILLWAY_HOST_MEMORY": "0", "SPILLWAY_DIRS": "none"},
    "quarter": {"SPILLWAY_GPU_MEMORY": "25%", "SPILLWAY_HOST_MEMORY": "1GiB", "SPILLWAY_DIRS": "{work}:5GiB"},
    # Host memory in place of the disk, and a launch's headroom more: kernels reach tensors that are larger than the budget.
    "reach": {"SPILLWAY_GPU_MEMORY": "25%", "SPILLWAY_HOST_MEMORY": "6GiB", "SPILLWAY_DIRS": "{work}:1GiB"},
}
OTHERS_CHOICE = r"SPILLWAY(?!_DISK_RESERVE$)|SIMCUDA|PYTORCH_|LD_PRELOAD|CI$|GITHUB_|PYTHONPATH"


def environment(args, way):
    """The caller's, without its choice of allocator, and what the way sets."""
    kept = {name: value for name, value in os.environ.items() if not re.match(OTHERS_CHOICE, name)}
    kept.update(OMP_NUM_THREADS="1", PYTHONPATH=str(args.packages), SIMCUDA_POISON="recycle")
    if WAYS[way] is not None:
        kept.update(LD_PRELOAD=str(args.build / "lib" / "libspillway.so"))
        kept.update({name: value.format(work=args.work) for name, value in WAYS[way].items()})
        kept.setdefault("SPILLWAY_DISK_RESERVE", "1GiB")
    return kept


class Server:
    """server.py on a simcuda of its own; one order at a time."""

    def __init__(self, args, way, devices):
        command = (args.build / "bin" / "simcuda-run", "--memory", DEVICE_MEMORY, "--devices", devices, "--", args.python, "-B",
                   HERE / "server.py", args.tree)  # fmt: skip
        self.child = subprocess.Popen([str(word) for word in command], env=environment(args, way), stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)  # fmt: skip

    def ask(self, **order):
        self.child.stdin.write(json.dumps(order) + "\n")
        self.child.stdin.flush()
        line = self.child.stdout.readline()
        if not line:
            raise SystemExit(f"the server of tests has ended with status {self.child.wait()}")
        return json.loads(line)

    def close(self):
        self.child.stdin.close()
        self.child.wait()


def list_tests(args, file):
    """[(Class.method, reason of a decorator to skip it or None), ...]"""
    digest = hashlib.sha256((args.tree / "test" / file).read_bytes()).hexdigest()[:16]
    to, log = args.work / f"{file}.{digest}.json", args.work / f"{file}.log"
    if not to.is_file():
        server = Server(args, outcomes.NATIVE, FILES[file])
        server.ask(list=file, to=str(to), log=str(log))
        server.close()
    if not to.is_file():
        raise SystemExit(f"{file} cannot be read by this PyTorch: {outcomes.last_error(log.read_text(encoding='utf-8'))}")
    return json.loads(to.read_text(encoding="utf-8"))


class Keeper:
    """Writes outcomes of one way as they come."""

    def __init__(self, path):
        self.path, self.lock = path, threading.Lock()

    def keep(self, test, outcome, reason, seconds):
        line = json.dumps({"test": test, "outcome": outcome, "reason": reason, "seconds": seconds})
        with self.lock, open(self.path, "a", encoding="utf-8") as file:
            file.write(line + "\n")


def run_share(args, way, file, tests, keeper, end):
    """One worker: takes tests off the list until it is empty or time is up."""
    server = None
    while time.monotonic() < end:
        try:
            test = tests.pop(0)
        except IndexError:  # another worker took the last one
            break
        server = server or Server(args, way, FILES[file])
        name = f"{Path(file).stem}.{test}"
        log = args.work / "logs" / way / f"{name}.log"
        answer = server.ask(run=file, test=test, log=str(log), seconds=SECONDS)
        text = log.read_text(encoding="utf-8", errors="replace")
        outcome, reason = outcomes.judge(answer["status"], answer["timed_out"], text)
        keeper.keep(name, outcome, reason, answer["seconds"])
        if outcome in (outcomes.PASSED, outcomes.SKIPPED):
            log.unlink()
        else:
            print(f"{way}: {name}: {outcome}: {reason}", flush=True)
    if server:
        server.close()


def run_way(args, way, listed, end):
    path = args.work / f"{way}.jsonl"
    native = outcomes.read(args.work / f"{outcomes.NATIVE}.jsonl")
    quarter = outcomes.read(args.work / "quarter.jsonl")
    known = {test for test in outcomes.read(path) if not (args.again and re.search(args.again, test))}
    keeper = Keeper(path)
    (args.work / "logs" / way).mkdir(parents=True, exist_ok=True)
    for file, tests in listed.items():
        left = []
        for test, reason in tests:
            name = f"{Path(file).stem}.{test}"
            if name in known or not re.search(args.only, name):
                continue
            if reason is not None:
                keeper.keep(name, outcomes.SKIPPED, reason, 0)
            elif way == "reach" and quarter.get(name, {}).get("outcome") in (None, outcomes.SKIPPED, outcomes.PASSED):
                continue
            elif way == outcomes.NATIVE or native.get(name, {}).get("outcome") == outcomes.PASSED:
                left.append(test)
        print(f"{way}: {file}: {len(left)} tests to run of {len(tests)}", flush=True)
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            for worker in [pool.submit(run_share, args, way, file, left, keeper, end) for _ in range(args.jobs)]:
                worker.result()


def install_packages(args):
    """What PyTorch's tests import and the Python lacks, in a folder of ours: the Python stays as it is."""
    if not (args.packages / "complete").is_file():
        subprocess.run([args.python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", args.packages,
                        *PACKAGES], check=True)  # fmt: skip
        (args.packages / "complete").touch()


def begin_anew(args):
    """Outcomes and lists that other libraries gave are removed."""
    digest = hashlib.sha256()
    for path in sorted([*(args.build / "lib").glob("libspillway*.so"), *(args.build / "lib" / "simcuda").glob("*.so*")]):
        digest.update(path.name.encode() + path.read_bytes())
    mark = args.work / "libraries"
    if mark.is_file() and mark.read_text() != digest.hexdigest() and not args.keep:
        print("other libraries than those of the outcomes that are there: all tests run again")
        for path in (*args.work.glob("*.jsonl"), *args.work.glob("*.json")):
            path.unlink()
    # Outcomes that are kept stay those of the libraries that gave them.
    if not (args.keep and mark.is_file()):
        mark.write_text(digest.hexdigest())


def report(args, release):
    """Prints what was seen; the number of differences that nobody has explained."""
    ways = {way: outcomes.read(args.work / f"{way}.jsonl") for way in args.ways}
    exceptions = outcomes.read_exceptions(args.expected)
    found = outcomes.compare(release, ways, exceptions)
    for way, records in ways.items():
        print(f"{way}: " + ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.count(records).items())))
    for test, way, outcome, reason, cause in found:
        print(f"{way}: {test}: {outcome}: {cause or 'UNEXPLAINED: ' + reason}")
    for way, pytorch, test, cause in exceptions.unneeded(release, ways):
        print(f"{args.expected.name}: no longer needed, nor its line in docs/limits-*.md: {way} {pytorch} {test} {cause}")
    return sum(cause is None for *_, cause in found)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--python", default=sys.executable, help="a Python with the PyTorch to test")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--only", default="", help="a regular expression of tests")
    parser.add_argument("--again", help="a regular expression of tests that run again")
    parser.add_argument("--keep", action="store_true", help="keep outcomes that other libraries gave")
    parser.add_argument("--minutes", type=float, default=600, help="then no further test is begun")
    parser.add_argument("--page", action="store_true", help="run nothing; print the letters of docs/results")
    parser.add_argument("--jobs", type=int, default=2, help="tests at a time")
    parser.add_argument("--expected", type=Path, default=HERE / "expected.txt")
    args = parser.parse_args()
    args.ways = [outcomes.NATIVE, *(way for way in args.ways if way != outcomes.NATIVE)]
    args.build = args.build.resolve()
    return args


def main():
    args = parse()
    tree = os.environ.get("SPILLWAY_PYTORCH_TESTS")
    if not tree:
        print("SPILLWAY_PYTORCH_TESTS does not name a source tree of PyTorch: its tests are not run")
        return SKIPPED
    args.tree = Path(tree).resolve()
    release = subprocess.run([args.python, "-c", "import importlib.metadata as m; print(m.version('torch').partition('+')[0])"],
                             check=True, capture_output=True, text=True).stdout.strip()  # fmt: skip
    args.work = args.build / "pytorch_tests" / release
    args.packages = args.work / "packages"
    args.work.mkdir(parents=True, exist_ok=True)
    if args.page:
        print("\n".join(outcomes.page({way: outcomes.read(args.work / f"{way}.jsonl") for way in args.ways})))
        return 0
    install_packages(args)
    begin_anew(args)
    end = time.monotonic() + args.minutes * 60
    listed = {file: list_tests(args, file) for file in FILES}
    for way in args.ways:
        run_way(args, way, listed, end)
    unexplained = report(args, release)
    if time.monotonic() >= end:
        return UNFINISHED
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
