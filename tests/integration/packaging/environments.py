"""The repaired wheel in fresh environments of several Pythons, nightly. A part that cannot be tried is skipped, by name.

  environments.py --build build [--python 3.10 ...] [--train 3.10:2.6.0 3.11:2.11.0 3.13:2.15.0]

First the same wheel in each Python, without PyTorch and without Debian's abseil: it installs, opens its engine, its
command runs, nothing is left of it. Then, for each PYTHON:PYTORCH, PyTorch from PyPI (5 GB, removed afterwards) and the example
job on half of its memory on the stand-in device: by the configuration variable, by enable() and by LD_PRELOAD, the bits those
of the run with all the memory. Finished pairs are kept in BUILD/wheels/finished.txt, so that a run that was ended goes on.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import fresh
import job
import make_wheel

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
PAIRS = ("3.10:2.6.0", "3.11:2.11.0", "3.13:2.15.0")
TRAIN = ["--steps", "3", "--width", "384", "--layers", "4", "--sequence", "128", "--batch", "8"]
GIB_FREE = 12  # an environment with PyTorch, and what pip keeps beside it
ENABLED = """
import runpy, sys, spillway
spillway.enable({settings})
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Skipped(Exception):
    """Why a part was not tried."""


def find_python(minor):
    """A Python of that minor: on the path, or among those of pyenv."""
    candidates = [shutil.which(f"python{minor}"), *sorted(Path.home().glob(f".pyenv/versions/{minor}.*/bin/python"))]
    for python in filter(None, candidates):
        code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip() == minor:
            return str(python)
    raise Skipped(f"there is no Python {minor} on this machine")


def expect(good, words):
    if not good:
        raise AssertionError(words)


def try_without_torch(wheel, minor, folder):
    hidden = fresh.can_hide()
    with fresh.Environment(folder / minor, find_python(minor)) as place:
        before = place.files()
        place.pip("install", "--no-index", "--no-deps", wheel)
        shown = place.run("python", "-m", "spillway", "--installation", "--json", hidden=hidden)
        findings = {it["what"]: it["verdict"] for it in json.loads(shown.stdout or "{}").get("findings", [])}
        # Not usable, since this Python has no PyTorch; all else is there.
        expect(shown.returncode == 1 and findings.get("engine") == "good", f"{shown.stdout}{shown.stderr}")
        version = place.run("spillway", "--version", hidden=hidden)
        expect(version.returncode == 0 and version.stdout.startswith("spillway "), f"{version}")
        quiet = place.run("python", "-c", "import sys; print([m for m in sys.modules if 'spillway' in m])")
        expect(quiet.stdout == "[]\n", f"not asked for, and yet imported: {quiet}")
        place.pip("uninstall", "-y", "spillway")
        expect(place.files() == before, f"left after uninstalling: {place.files() ^ before}")
    if not hidden:
        raise Skipped("it works, but abseil could not be hidden (that needs root)")


def install_torch(place, release):
    """That PyTorch from PyPI; its default build has CUDA."""
    place.pip("install", "--no-cache-dir", f"torch=={release}", "numpy")


def enabled_script(folder, settings):
    """train_gpt.py behind spillway.enable()."""
    script = folder / "enabled.py"
    script.write_text(ENABLED.format(settings=", ".join(f"{key}={value!r}" for key, value in settings.items())))
    return script


def run_ways(place, build, folder, ended=lambda name: None):
    """The runs by name: uncapped, then the three ways on half of its peak. `ended`: called with the name of the first of these."""
    machine = job.Machine("simcuda", folder / "runs", build, str(place.python))
    quiet = {"show": lambda line: False}
    runs = {"uncapped": job.run_job(machine, job.UNCAPPED, TRAIN, **quiet)}
    peak = runs["uncapped"].keys["peak_bytes"]
    expect(runs["uncapped"].keys["status"] == "ok" and peak, f"uncapped: {runs['uncapped'].log[-2000:]}")
    cap = job.Cap(peak // 2 // (2 * job.MIB) * (2 * job.MIB), job.size_text(peak // 8), str(folder))
    preload = place.output("-m", "spillway", "--library").strip()
    runs["conf"] = job.run_job(machine, job.CONF, TRAIN, cap, **quiet)
    ended("conf")
    runs["preload"] = job.run_job(machine, job.PRELOAD, TRAIN, cap, extra_environment={"LD_PRELOAD": preload}, **quiet)
    metrics = folder / "runs" / "enable.figures"
    script = enabled_script(folder, job.spillway_settings(cap, machine, metrics))
    # Neither variable nor preload: started as a run without Spillway on a device that is too small.
    runs["enable"] = job.run_job(machine, job.PLAIN, [str(job.TRAIN), *TRAIN], cap, script=script, name="enable", **quiet)
    runs["enable"].keys["spilled_bytes"] = (job.read_json(metrics) or {}).get("spilled_bytes", 0)
    return runs


def judge(runs):
    uncapped = runs.pop("uncapped")
    for name, run in runs.items():
        expect(run.keys["status"] == "ok", f"{name}: {run.keys['status']}\n{run.log[-2000:]}")
        for key in ("losses_sha256", "state_sha256"):
            expect(run.keys[key] == uncapped.keys[key], f"{name}: {key} differs")
        expect(run.keys["spilled_bytes"] > 0, f"{name}: nothing was spilled")


def try_training(wheel, build, pair, folder):
    minor, release = pair.split(":")
    python = find_python(minor)
    library = f"torch_{'_'.join(release.split('.')[:2])}.so"
    for name in (f"libspillway_{library}", f"simcuda/libsimcuda_{library}"):
        if not (build / "lib" / name).is_file():
            raise Skipped(f"{name} was not built")
    if shutil.disk_usage(folder).free < GIB_FREE << 30:
        raise Skipped(f"less than {GIB_FREE} GiB are free in {folder}")
    with fresh.Environment(folder / f"torch-{release}", python) as place:
        install_torch(place, release)
        place.pip("install", "--no-index", "--no-deps", wheel)
        judge(run_ways(place, build, folder))


def built_hash(build):
    """Of the libraries: a part that was finished counts while they are the same."""
    digest = hashlib.sha256()
    for path in sorted((build / "lib").glob("libspillway*.so")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=fresh.ROOT / "build")
    parser.add_argument("--python", nargs="*", default=PYTHONS, help="minors to install into")
    parser.add_argument("--train", nargs="*", default=PAIRS, metavar="PYTHON:PYTORCH")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    wheel = make_wheel.make(build, build / "wheels")
    finished = build / "wheels" / "finished.txt"
    mark = built_hash(build)
    done = finished.read_text().splitlines() if finished.is_file() else []
    parts = [(f"Python {minor}", try_without_torch, (wheel, minor)) for minor in arguments.python]
    parts += [(f"Python {pair.replace(':', ', PyTorch ')}", try_training, (wheel, build, pair)) for pair in arguments.train]
    outcomes = []
    with tempfile.TemporaryDirectory(dir=build) as folder:
        for name, function, values in parts:
            outcomes.append(one_part(name, function, values, Path(folder), finished, f"{mark} {name}", done))
            print(f"{outcomes[-1]:8} {name}", flush=True)
    return 1 if "FAILED" in outcomes else fresh.SKIPPED if "skipped" in outcomes else 0


def one_part(name, function, values, folder, finished, line, done):
    if line in done:
        return "ok"
    try:
        function(*values, folder)
    except Skipped as why:
        print(f"  {name}: {why}")
        return "skipped"
    except Exception as error:  # the other parts are tried all the same
        print(f"  {name}: {error}")
        return "FAILED"
    with open(finished, "a", encoding="utf-8") as file:
        file.write(line + "\n")
    return "ok"


if __name__ == "__main__":
    sys.exit(main())
