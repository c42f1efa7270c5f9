"""A measurement of two builds, by turns in one call: for each figure of its JSON the median ratio of this build to the other.

    build/venv/bin/python bench/pair_builds.py --other OTHER_BUILD [--build build] [--pairs 5] BENCH [ARGUMENTS...]

BENCH is a program of bin/ that takes --json, such as launch_scan_bench. Each pair runs the one build first, the next pair
the other, so that a machine that slows down slows both.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def figures(value, name=""):
    """Every number of the report, by where it stands; rows by what they say of themselves, those without words by number."""
    if isinstance(value, dict):
        texts = [text for text in value.values() if isinstance(text, str)]
        for key, part in value.items():
            yield from figures(part, "/".join(filter(None, [name, *texts, key])))
    elif isinstance(value, list):
        for place, part in enumerate(value):
            says = isinstance(part, dict) and any(isinstance(word, str) for word in part.values())
            yield from figures(part, name if says else "/".join(filter(None, [name, str(place)])))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield name, value


def run(build, bench, arguments):
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        subprocess.run([build / "bin" / bench, *arguments, "--json", report.name], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        return dict(figures(json.loads(Path(report.name).read_text())))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--other", type=Path, required=True, help="the build that is compared with")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("bench", help="program in bin/ of both builds")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    builds = [args.build.resolve(), args.other.resolve()]
    ratios = {}
    for pair in range(args.pairs):
        order = builds if pair % 2 == 0 else builds[::-1]
        reports = {build: run(build, args.bench, args.arguments) for build in order}
        for name, value in reports[builds[0]].items():
            if other := reports[builds[1]].get(name):
                ratios.setdefault(name, []).append(value / other)
    for name, found in ratios.items():
        print(f"{statistics.median(found):6.3f}  ({min(found):.3f} to {max(found):.3f})  {name}")


if __name__ == "__main__":
    main()
