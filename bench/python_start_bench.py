"""What the installed package adds to Python's start where nothing asks for Spillway.

  bench/python_start_bench.py [--wheel build/wheels/spillway-*.whl] [--starts 400]

Two fresh environments of one Python, alike but for the package, are started in turn; prints the medians in milliseconds,
the median of what a start with it takes longer than the one before it without, and the spread of ten parts. The wheel is made by integration/packaging/make_wheel.py.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_MS = 1.0
PARTS = 10


def environment(folder, wheel):
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    if wheel:
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", wheel], check=True)
    return python


def start(python, variables):
    """Milliseconds: elapsed, and of processor time."""
    begin = time.perf_counter()
    child = subprocess.Popen([python, "-c", "pass"], env=variables)
    _, status, usage = os.wait4(child.pid, 0)
    elapsed = time.perf_counter() - begin
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, str(python))
    return elapsed * 1000, (usage.ru_utime + usage.ru_stime) * 1000


def measure(pythons, starts):
    """The times of each start, a list for each Python; which is first changes from pair to pair."""
    variables = {k: v for k, v in os.environ.items() if not re.match("SPILLWAY|PYTORCH|PYTHON|LD_", k)}
    times = [[] for _ in pythons]
    order = list(range(len(pythons)))
    for _ in range(starts):
        for i in order:
            times[i].append(start(pythons[i], variables))
        order.reverse()
    return times


def compare(what, without, installed):
    """Prints one row; the median of what the pairs differ by."""
    added_each = [b - a for a, b in zip(without, installed)]
    size = max(len(added_each) // PARTS, 1)
    parts = [statistics.median(added_each[i : i + size]) for i in range(0, len(added_each) - size + 1, size)]
    added = statistics.median(added_each)
    print(f"  {what}: without {statistics.median(without):.2f} ms, installed {statistics.median(installed):.2f} ms, "
          f"added {added:.2f} ms (parts {min(parts):.2f} to {max(parts):.2f})")  # fmt: skip
    return added


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path)
    parser.add_argument("--starts", type=int, default=400)
    arguments = parser.parse_args()
    wheel = arguments.wheel or next((ROOT / "build" / "wheels").glob("spillway-*.whl"), None)
    if wheel is None:
        raise SystemExit("no wheel: integration/packaging/make_wheel.py makes it")
    with tempfile.TemporaryDirectory() as folder:
        pythons = [environment(Path(folder) / "without", None), environment(Path(folder) / "with", wheel)]
        measure(pythons, 20)  # what Python writes at a first start
        without, installed = measure(pythons, arguments.starts)
    print(f"Python {sys.version.split()[0]}, {arguments.starts} starts each")
    added = compare("elapsed", [row[0] for row in without], [row[0] for row in installed])
    compare("processor", [row[1] for row in without], [row[1] for row in installed])
    return 0 if added <= MOST_MS else 1


if __name__ == "__main__":
    sys.exit(main())
