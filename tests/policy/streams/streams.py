"""Recorded jobs whose iterations differ: how close the product's plans come to one that knows the whole job.

    python3 tests/policy/streams/streams.py [--build build] [--transfers 0.5] [--gpu-share 0.5] [KIND or FILE.txt.gz...]

Each KIND.txt.gz of this folder, or any file that record.py made, is replayed in virtual time under the product's tracker,
planner and cursor, and on demand, least recently used first; README.md says how. Ratio: time of the launches alone over the time taken.
"""

import argparse
import gzip
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
KINDS = sorted(path.name.removesuffix(".txt.gz") for path in HERE.glob("*.txt.gz"))
STEADY = ("static",)  # the kinds that do not change
ROUNDS = 4  # of finding the link that the clairvoyant plan fills so far


def file_of(kind):
    return Path(kind) if kind.endswith(".txt.gz") else HERE / f"{kind}.txt.gz"


def replay(build, kind, *arguments):
    with gzip.open(file_of(kind)) as stream:
        done = subprocess.run([build / "tests" / "stream_replay", *map(str, arguments)], input=stream.read(),
                              stdout=subprocess.PIPE, check=True, timeout=300)  # fmt: skip
    return json.loads(done.stdout)


def clairvoyant(build, workload, gpu_bytes, link):
    """The plan of `spillway simulate` for all that is measured, as one long iteration of whole blocks."""
    command = [build / "bin" / "spillway", "simulate", "--trace", workload, "--gpu-memory", str(gpu_bytes), "--host-memory", "1TB",
               "--pcie", repr(link), "--piece", "0", "--iterations", "4", "--json"]  # fmt: skip
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=300).stdout)


def judge(build, kind, transfers=0.5, gpu_share=0.5):
    """Ratios of one kind: by plans, on demand and clairvoyant; what the clairvoyant plan fetches takes the part `transfers`."""
    with tempfile.TemporaryDirectory() as folder:
        workload = str(Path(folder) / "workload")
        job = replay(build, kind, "--gpu-share", gpu_share, "--workload", workload)
        link = job["peak_bytes"] / job["ideal_seconds"]
        for _ in range(ROUNDS):
            best = clairvoyant(build, workload, job["gpu_bytes"], link)
            link = best["host_to_gpu_bytes"] / (transfers * job["ideal_seconds"])
        best = clairvoyant(build, workload, job["gpu_bytes"], link)
    found = replay(build, kind, "--gpu-share", gpu_share, "--link", link)
    ratio = best["ideal_us"] / best["iteration_us"]
    return {"kind": kind, "lru": found["lru"]["ratio"], "plan": found["plan"]["ratio"], "clairvoyant": ratio,
            "bound": best["ideal_us"] / best["bound_us"], "percent": 100 * found["plan"]["ratio"] / ratio,
            "stuck": found["plan"]["stuck"] or found["lru"]["stuck"], "departures": found["plan"]["departures"],
            "link": link}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--transfers", type=float, default=0.5, help="part of the time that the clairvoyant plan's fetches take")
    parser.add_argument("--gpu-share", type=float, default=0.5, help="the GPU's memory, as a part of the job's peak")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"a file, or one of {', '.join(KINDS)} (default: all)")
    args = parser.parse_args()
    rows = []
    print(f"{'':16} {'lru':>6} {'plan':>6} {'clairv.':>7} {'bound':>6} {'percent':>7} {'departures':>10}")
    for kind in args.kinds or KINDS:
        row = judge(args.build.resolve(), kind, args.transfers, args.gpu_share)
        rows.append(row)
        name = file_of(kind).name.removesuffix(".txt.gz")
        print(f"{name:16} {row['lru']:6.3f} {row['plan']:6.3f} {row['clairvoyant']:7.3f} {row['bound']:6.3f} {row['percent']:7.1f} "
              f"{row['departures']:10}", flush=True)  # fmt: skip
    changing = [row["percent"] for row in rows if not file_of(row["kind"]).name.startswith(STEADY)]
    if changing:
        print(f"percent of clairvoyant, mean of those that change: {statistics.mean(changing):.1f}")


if __name__ == "__main__":
    main()
