"""Records jobs of tests/jobs/changing_script.py as streams.

    cmake --build build --target product recording_engine
    build/venv/bin/python tests/policy/streams/record.py KIND [--steps 14] [--seed 1] [--out FILE.txt.gz] [--build build]

The job runs on simcuda, where all of it fits, with an engine whose predictor writes what it sees. Large matrix products are
left out: it launches the same without them. What is known of writes comes from the streams of this folder; an access of which
none knows anything counts as a write.
"""

import argparse
import gzip
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "integration" / "quickstart"))

import job  # noqa: E402  (the path comes first)

SCRIPT = ROOT / "tests" / "jobs" / "changing_script.py"
DEVICE_BYTES = 4 << 30


def known_facts():
    """The facts of this folder's streams, by function and place; where two differ, the access writes."""
    facts = {}
    for path in sorted(HERE.glob("*.txt.gz")):
        for line in gzip.decompress(path.read_bytes()).decode().splitlines():
            if line.startswith("O "):
                _, tag, operand, fact = line.split()
                facts[tag, operand] = max(int(fact), facts.get((tag, operand), 0))
    return facts


def record(args, folder):
    """The lines of the job's stream."""
    build, stream = args.build.resolve(), folder / "stream.txt"
    for library in (build / "lib" / "libspillway.so", build / "tests" / "recording" / "libspillway_engine.so",
                    *(build / "lib").glob("libspillway_torch_*.so")):  # fmt: skip
        shutil.copy(library, folder)
    machine = job.Machine("simcuda", folder, build=build, simcuda_options=("--mode", "strict"))
    train = ["--kind", args.kind, "--steps", str(args.steps), "--seed", str(args.seed), "--no-products"]
    done = job.run_job(machine, job.PRELOAD, train, job.Cap(DEVICE_BYTES, "1GiB", "none"), script=SCRIPT, show=lambda line: False,
                       extra_environment={"LD_PRELOAD": str(folder / "libspillway.so"), "STREAM_FILE": str(stream),
                                          "SPILLWAY_PROFILE": "off"})  # fmt: skip
    if done.keys["status"] != "ok":
        raise SystemExit(f"{done.keys['status']}\n{done.log[-3000:]}")
    lines = stream.read_text().splitlines()
    if "lost" in lines:
        raise SystemExit("The predictor has lost launches: the machine is too busy. Record again.")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind")
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="default: KIND.txt.gz of this folder")
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines = record(args, Path(folder))
    names = [words[2] for words in (line.split() for line in lines) if words[0] == "L"]
    facts = {place: fact for place, fact in known_facts().items() if place[0] in set(names)}
    lines += [f"O {tag} {operand} {fact}" for (tag, operand), fact in sorted(facts.items())]
    out = args.out or HERE / f"{args.kind}.txt.gz"
    out.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), 9, mtime=0))
    print(f"{out}: {len(names)} launches, {out.stat().st_size >> 10} KiB")


if __name__ == "__main__":
    main()
