#!/usr/bin/env python3
"""Builds the library for every PyTorch minor of integration/torch/versions.txt, trains on simcuda with each, and writes
the table of docs/compatibility.md from what was seen.

    tests/minors/minors.py build               fetches headers (0.5 to 0.9 GB a minor pass by, 70 MB stay), compiles, and
                                               compares PyTorch's virtual functions with ours
    tests/minors/minors.py train [MINOR...]    an environment of 5 GB for one minor at a time, removed afterwards
    tests/minors/minors.py table               writes docs/compatibility.md's table

Training is tests/jobs/minors.py: half of the job's memory, both ways of loading, the bits of the uncapped run. What was
seen stays in build/minors/results.json, with a digest of the sources: a run that was ended goes on where it was, and
what has passed on the same sources is not run again.
"""

import argparse
import datetime
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ROOT / "integration" / "torch" / "versions.txt"
FETCH = ROOT / "integration" / "torch" / "fetch_headers.py"
PAGE = ROOT / "docs" / "compatibility.md"
FOLDER = ROOT / "build" / "minors"
BUILD = FOLDER / "build"
RESULTS = FOLDER / "results.json"
# At least these are trained; the others are built, and their interface is compared.
TRAINED = ("2.4", "2.6", "2.8", "2.10", "2.11", "2.13", "2.15")
ENVIRONMENT_BYTES = 7 << 30
KEEP_FREE = 15 << 30
SOURCES = ("allocator", "integration", "io", "policy", "tests/integration/torch", "tests/jobs", "tests/minors",
           "CMakeLists.txt")  # fmt: skip
BEGIN, END = "<!-- minors: begin -->\n", "<!-- minors: end -->\n"


def releases():
    """Minor -> release, in the order of versions."""
    lines = [line.split() for line in VERSIONS.read_text(encoding="utf-8").splitlines() if line[:1].isdigit()]
    found = {".".join(line[0].split(".")[:2]): line[0] for line in lines}
    return dict(sorted(found.items(), key=lambda item: [int(part) for part in item[0].split(".")]))


def environments():
    """Minor -> the Python of an environment that tests/run.sh has made."""
    lines = [line.split() for line in VERSIONS.read_text(encoding="utf-8").splitlines() if line[:1].isdigit()]
    pythons = {".".join(line[0].split(".")[:2]): ROOT / line[1] / "bin" / "python" for line in lines if line[2:] != ["headers"]}
    return {minor: python for minor, python in pythons.items() if python.is_file()}


def use_build(folder):
    global BUILD
    BUILD = folder


def library(minor):
    return BUILD / "lib" / f"libspillway_torch_{minor.replace('.', '_')}.so"


def sources_digest():
    listed = subprocess.run(["git", "ls-files", "-z", "--", *SOURCES], cwd=ROOT, check=True, capture_output=True).stdout
    digest = hashlib.sha256()
    for name in listed.decode().split("\0"):
        path = ROOT / name
        if name and path.is_file():
            digest.update(name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def read_results():
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}


def note(minor, **facts):
    results = read_results()
    results.setdefault(minor, {}).update(facts)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    aside = RESULTS.with_suffix(".part")
    aside.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(aside, RESULTS)


def run(*command, log=None, **variables):
    """True when it exits with 0."""
    text = [str(word) for word in command]
    print("--", " ".join(text), flush=True)
    environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    with open(log, "a", encoding="utf-8") if log else open(os.devnull, "w", encoding="utf-8") as file:
        out = file if log else None
        return subprocess.run(text, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT if log else None).returncode == 0


def configure(base, others):
    launcher = shutil.which("ccache") or ""
    (FOLDER / "configure.log").unlink(missing_ok=True)  # what it says is read afterwards
    return run("cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", f"-DCMAKE_C_COMPILER_LAUNCHER={launcher}",
               f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}", "-DSPILLWAY_TESTS=ON", "-DSPILLWAY_BENCH=OFF",
               f"-DSPILLWAY_PYTHON={base}", f"-DSPILLWAY_TORCH_PYTHONS={';'.join(map(str, others))}",
               log=FOLDER / "configure.log")  # fmt: skip


def configured(minor):
    """Of that minor, what configuring wrote: release, folder, string ABI, folders of CUDA headers."""
    lines = (FOLDER / "configure.log").read_text(encoding="utf-8").splitlines()
    pattern = re.compile(rf"-- PyTorch ({re.escape(minor)}\.\S+) at (.*), string ABI (\d), CUDA headers (\S+)")
    found = [match for match in map(pattern.match, lines) if match]
    if not found:
        raise SystemExit(f"configuring found no PyTorch {minor}: see {FOLDER / 'configure.log'}; its environment is missing or broken")
    return found[-1].groups()


def torch_folder(minor):
    return Path(configured(minor)[1])


def facts_of(minor):
    """The release, the string ABI of the wheel, and the version of its CUDA headers."""
    release, _, abi, folders = configured(minor)
    (header, *_) = [path for path in (Path(folder, "cuda_runtime_api.h") for folder in folders.split(";")) if path.is_file()]
    text = header.read_text(encoding="utf-8", errors="replace")
    version = int(re.search(r"^#define CUDART_VERSION +(\d+)", text, re.MULTILINE)[1])
    return {"release": release, "string_abi": int(abi), "cuda": f"{version // 1000}.{version % 1000 // 10}"}


def symbols(path, *which):
    """The names in the library's dynamic table, without their versions."""
    text = subprocess.run(["nm", "-D", *which, str(path)], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1].partition("@")[0] for line in text.splitlines()}


def unresolved(minor):
    """Names of PyTorch's that our library wants and the wheel's libraries lack: it could not be opened."""
    wheel = torch_folder(minor) / "lib"
    there = symbols(wheel / "libc10.so", "--defined-only") | symbols(wheel / "libc10_cuda.so", "--defined-only")
    wanted = {name for name in symbols(library(minor), "--undefined-only") if re.match(r"_Z\w*(3c10|2at)", name)}
    return sorted(wanted - there)


def other_strings(minor):
    """Names in our library, of whatever object, that have the other ABI of strings than the wheel."""
    mark = r"__cxx11" if facts_of(minor)["string_abi"] == 0 else r"^_ZN(3c10|2at|8spillway)\w*RKSs"
    text = subprocess.run(["nm", str(library(minor))], check=True, capture_output=True, text=True).stdout
    return sorted(line.split()[-1] for line in text.splitlines() if re.search(mark, line.split()[-1]))


def overrides_all(minor):
    """Whether our allocator overrides every virtual function of that PyTorch's, or the test lists it with a reason."""
    return run("ctest", "--test-dir", BUILD, "--output-on-failure", "--no-tests=error", "-R",
               f"^torch_virtuals_test_{minor.replace('.', '_')}$", log=FOLDER / "virtuals.log")  # fmt: skip


def build(base):
    if not run(sys.executable, FETCH) or not configure(base, environments().values()):
        return False
    for minor in releases():
        library(minor).unlink(missing_ok=True)  # one of before must not pass for one that no longer compiles
    built = run("ninja", "-C", BUILD, "-k", "0", "spillway_torch", log=FOLDER / "build.log")
    (FOLDER / "virtuals.log").unlink(missing_ok=True)
    for minor in releases():
        missing = unresolved(minor) + other_strings(minor) if library(minor).is_file() else ["the library"]
        if missing:
            print(f"PyTorch {minor}: not there, or with other strings: {' '.join(missing)}", file=sys.stderr)
        overridden = overrides_all(minor)
        if not overridden:
            print(f"PyTorch {minor}: virtual functions that are not ours, see {FOLDER / 'virtuals.log'}", file=sys.stderr)
        passed = overridden and not missing
        note(minor, **facts_of(minor), built=passed, built_on=sources_digest())
        built = built and passed
    return built


def make_environment(minor, release):
    """A Python with that PyTorch; None where the disk is too full or the installation fails."""
    folder = FOLDER / f"venv-{minor}"
    python = folder / "bin" / "python"
    if not python.is_file() and shutil.disk_usage(FOLDER).free < ENVIRONMENT_BYTES + KEEP_FREE:
        print(f"too little disk for an environment with PyTorch {release}: {KEEP_FREE >> 30} GiB stay free", file=sys.stderr)
        return None
    # Before 2.6 PyTorch knows numpy 1 only.
    numpy = "numpy<2" if [int(part) for part in minor.split(".")] < [2, 6] else "numpy"
    interpreter = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
    if not python.is_file() and not run(interpreter, "-m", "venv", folder):
        return None
    pip = (python, "-m", "pip", "install", "-q", "--no-cache-dir", "--disable-pip-version-check")
    return python if run(*pip, f"torch=={release}", numpy) else None


def train_in(minor, python, base, log):
    name = minor.replace(".", "_")
    if not configure(base, {*environments().values(), python}):
        return False
    runtime = "simcuda_runtime_12" if facts_of(minor)["cuda"].startswith("12") else "simcuda_runtime"
    pip = (python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--force-reinstall", "--no-deps")
    targets = ("spillway_preload", "spillway_engine", f"spillway_torch_{name}", "simcuda_driver", runtime, f"simcuda_torch_{name}",
               "simcuda-run", "spillway_fake_engine")  # fmt: skip
    if not run("ninja", "-C", BUILD, *targets, log=log):
        return False
    if not run(*pip, ROOT / "integration" / "python", log=log, SPILLWAY_BUILD_LIB=BUILD / "lib"):
        return False
    # The allocator against a stand-in for the engine: statistics, history, pools, errors.
    simcuda = (BUILD / "bin" / "simcuda-run", "--memory", "1GiB", "--", python, "-B")
    for test in ("allocator_test.py", "allocator_reports_test.py"):
        if not run(*simcuda, ROOT / "tests" / "integration" / "torch" / test, log=log, OMP_NUM_THREADS=1,
                   ALLOCATOR_LIBRARY=library(minor), FAKE_ENGINE=BUILD / "tests" / "libspillway_fake_engine.so"):  # fmt: skip
            return False
    return run(python, "-B", ROOT / "tests" / "jobs" / "minors.py", "--build", BUILD, "--torch", minor, log=log)


def train(minor, base):
    release = releases()[minor]
    known = read_results().get(minor, {})
    if known.get("trained") and known.get("trained_on") == sources_digest():
        print(f"PyTorch {release}: trained on these sources on {known['date']}")
        return True
    python = environments().get(minor)
    own = python is None
    if own:
        python = make_environment(minor, release)
    if python is None:
        return False
    log = FOLDER / f"train-{minor}.log"
    log.unlink(missing_ok=True)
    begin = time.monotonic()
    passed = train_in(minor, python, base, log)
    note(minor, trained=passed, trained_on=sources_digest(), seconds=round(time.monotonic() - begin),
         date=datetime.date.today().isoformat(), **facts_of(minor))  # fmt: skip
    print(f"PyTorch {release}: {'trained' if passed else f'FAILED, see {log}'}", flush=True)
    if own:
        shutil.rmtree(FOLDER / f"venv-{minor}", ignore_errors=True)
    return passed


def rows_of(text):
    """Of the page's table: minor -> cells."""
    lines = [line for line in text.split(BEGIN)[1].split(END)[0].splitlines() if re.match(r"\| \d", line)]
    return {cells[0]: cells for cells in ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)}


def table(before):
    """`before`: the page's rows. What this folder has not seen stays as it stands there."""
    results = read_results()
    lines = ["| minor | compiled against | CUDA headers | strings | library | trained on simcuda |", "|---|---|---|---|---|---|"]
    for minor, release in releases().items():
        facts = results.get(minor, {})
        seen = [
            minor,
            facts.get("release", release),
            facts.get("cuda"),
            {0: "before GCC 5", 1: "of today"}.get(facts.get("string_abi")),
            {True: "built", False: "does not build"}.get(facts.get("built")),
            {True: f"same bits, {facts.get('date')}", False: f"failed, {facts.get('date')}"}.get(facts.get("trained")),
        ]
        known = before.get(minor, [minor, release, "-", "-", "-", "not run"])
        lines.append("| " + " | ".join(new or old for new, old in zip(seen, known, strict=True)) + " |")
    return "\n".join(lines) + "\n"


def write_table():
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    PAGE.write_text(before + BEGIN + table(rows_of(text)) + END + rest.split(END)[1], encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("build", "train", "table"))
    parser.add_argument("minors", nargs="*", help="for train; without one, those that are always trained")
    parser.add_argument("--base", type=Path, default=ROOT / "build" / "venv" / "bin" / "python",
                        help="a Python with the first PyTorch of versions.txt")  # fmt: skip
    parser.add_argument("--build", type=Path, default=BUILD, help="another build folder; it is configured anew")
    args = parser.parse_args()
    use_build(args.build.resolve())
    unknown = [minor for minor in args.minors if minor not in releases()]
    if unknown:
        parser.error(f"not in {VERSIONS.name}: {' '.join(unknown)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    if args.what == "table":
        write_table()
        return 0
    if args.what == "build":
        return 0 if build(args.base) else 1
    failed = [minor for minor in args.minors or TRAINED if not train(minor, args.base)]
    print(f"failed: {' '.join(failed)}" if failed else "all trained")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
