#!/usr/bin/env python3
"""Instructions that the gate takes for a launch whose blocks are all resident, by form of the parameters, and those of allocating
and freeing a cached block: counts that do not depend on how busy the machine is.

    bench/launch_instructions.py [--build build] [--other OTHER_BUILD] [--only WORDS] [--json FILE]

Runs launch_scan_bench under valgrind's callgrind (Debian: apt-get install valgrind), each form for two lengths of time; the
difference leaves out what comes before the launches that are counted. --other: the same of another build, and the ratio.
Ratios of forms with pointers vary by a few percent from build to build, since the arguments' blocks lie elsewhere.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SECONDS = (0.02, 0.3)  # of valgrind's time
# What a caller's callees took, and how often it called them.
CALLER = r"^ *([\d,]+) .*<.*{}\(.*\(([\d,]+)x\)"
ALLOCATION = "allocate"


def output(command):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def forms(build):
    return [name for name in output([build / "bin" / "launch_scan_bench", "--benchmark_list_tests"]).splitlines()
            if (name.startswith("gate/") and name.endswith("/hot")) or name == ALLOCATION]  # fmt: skip


def counted(build, form, seconds, folder):
    """(instructions, calls) in one run: of the gate, or of an allocation with its end."""
    profile = Path(folder) / "profile"
    wanted = re.sub(r"([+*().])", r"[\1]", form)  # POSIX: a class, since re.escape's backslashes mean other things there
    output(["valgrind", "--tool=callgrind", f"--callgrind-out-file={profile}", build / "bin" / "launch_scan_bench",
            f"--benchmark_filter=^{wanted}$", f"--benchmark_min_time={seconds}"])  # fmt: skip
    caller = re.compile(CALLER.format("AllocateAndFree" if form == ALLOCATION else "PassGate"), re.MULTILINE)
    found = caller.findall(output(["callgrind_annotate", "--inclusive=yes", "--tree=caller", "--threshold=100", profile]))
    if not found:
        sys.exit(f"{build}: the profile does not show what is counted; is it built with debug information?")
    rows = [[int(number.replace(",", "")) for number in row] for row in found]
    # The gate's first row is the launch. An allocation has two callees, called as often as each other.
    most = max(calls for _, calls in rows)
    return [sum(cost for cost, calls in rows if calls == most), most] if form == ALLOCATION else rows[0]


def instructions(build, form):
    with tempfile.TemporaryDirectory() as folder:
        short, long = (counted(build, form, seconds, folder) for seconds in SECONDS)
    return (long[0] - short[0]) / (long[1] - short[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--other", type=Path, help="a build to compare with")
    parser.add_argument("--only", default="", help="forms whose names hold it")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = {}
    for form in filter(lambda name: args.only in name, forms(args.build)):
        rows[form] = {"instructions": round(instructions(args.build, form), 1)}
        if args.other:
            other = instructions(args.other, form)
            rows[form] |= {"other": round(other, 1), "ratio": round(rows[form]["instructions"] / other, 3)}
        print(f"{form:52}", "  ".join(f"{key} {value:8}" for key, value in rows[form].items()), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
