"""Published traces, planned and carried out as at run time, beside `spillway simulate` with whole tensors.

    python3 tests/policy/planner/traces.py [--build build]

Percent of the kernels' own time; GPU 40 GiB, link 15.754e9, disk 3.2e9, as in docs/results/policy.md. At run time a plan is
carried out by what has completed, and the host asks ahead: a job that has repeated its iteration for long leaves less memory
free and runs less far ahead.
"""

import argparse
import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TRACES = ROOT / "tests" / "policy" / "g10"
HOSTS = (128, 32, 8, 4, 0)  # GiB


def run(*command):
    return json.loads(subprocess.run([str(one) for one in command], stdout=subprocess.PIPE, check=True, timeout=600).stdout)


def judge(build, trace, host):
    """Percent: at run time before and after the job counts as steady, and of simulate's plan."""
    replay = [build / "tests" / "trace_replay", "--trace", TRACES / trace, "--host-memory", host]
    first, steady = run(*replay), run(*replay, "--steady")
    offline = run(build / "bin" / "spillway", "simulate", "--trace", TRACES / trace, "--gpu-memory", "40GiB", "--host-memory",
                  f"{host}GiB", "--pcie", "15.754e9", "--ssd-read", "3.2e9", "--ssd-write", "3.2e9", "--piece", "0", "--json")  # fmt: skip
    return {"first": first["replay_percent"], "steady": steady["replay_percent"], "forecasts": (first["forecast_percent"], steady["forecast_percent"]),
            "offline": 100 * offline["ideal_us"] / offline["iteration_us"],
            "bound": 100 * offline["ideal_us"] / offline["bound_us"]}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    build = parser.parse_args().build.resolve()
    print(f"{'':20} {'first':>6} {'steady':>6} {'offline':>7} {'bound':>6}")
    for trace in sorted(path.name for path in TRACES.iterdir() if path.is_dir()):
        for host in HOSTS:
            row = judge(build, trace, host)
            print(f"{trace:15} {host:4} {row['first']:6.2f} {row['steady']:6.2f} {row['offline']:7.2f} {row['bound']:6.2f}", flush=True)


if __name__ == "__main__":
    main()
