#!/usr/bin/env python3
"""Fetches the drawing library of `spillway report` into the build: Vega, Vega-Lite and Vega-Embed in one script.

  integration/packaging/fetch_vega.py [--build build]

They come out of the package vl-convert-python from PyPI (34 MB, at the version of vega_requirements.txt), which carries
them, by way of an environment in BUILD/vega that is removed again. Writes BUILD/lib/vega.js (0.9 MB) with its licence
texts at its head, so that every page has them. Does nothing where it is there already. Exits with 1, and says so, where
PyPI cannot be reached: the build is whole without it, and `spillway report` says what is missing.
"""

import argparse
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LICENCES = HERE / "vega_licences.txt"
REQUIREMENTS = HERE / "vega_requirements.txt"
VEGA_LITE = "6.4"
SNIPPET = "globalThis.vegaEmbed = vegaEmbed;"
BUNDLE = f"import sys, vl_convert\nsys.stdout.write(vl_convert.javascript_bundle({SNIPPET!r}, vl_version={VEGA_LITE!r}))"


def head():
    """The first lines of the script: what it is, and the licences of all that is in it."""
    text = LICENCES.read_text(encoding="utf-8")
    assert "*/" not in text
    return f"/*!\n{REQUIREMENTS.read_text(encoding='utf-8')}{text}*/\n"


def bundled(folder):
    """The script, by the package installed into `folder`. subprocess.CalledProcessError where that fails."""
    venv.create(folder, with_pip=True, clear=True)
    python = folder / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps",
               "--retries", "1", "--timeout", "15"]  # fmt: skip
    subprocess.run([*install, "-r", REQUIREMENTS], check=True)
    # The script is read back from the package alone: nothing of it depends on the machine.
    done = subprocess.run([python, "-c", BUNDLE], stdout=subprocess.PIPE, check=True, text=True, encoding="utf-8")
    return done.stdout


def fetch(build):
    """The path of the script, made where it is not there or is of another version."""
    target, folder = build / "lib" / "vega.js", build / "vega"
    wanted = head()
    if target.is_file() and target.read_text(encoding="utf-8").startswith(wanted):
        return target
    try:
        script = bundled(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_suffix(".new")
    beside.write_text(f"{wanted}(() => {{\n{script}\n}})();\n", encoding="utf-8")
    beside.replace(target)
    return target


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="the build to fetch it into")
    arguments = parser.parse_args()
    try:
        print(fetch(arguments.build.resolve()))
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"spillway: the drawing library was not fetched ({error}); `spillway report` makes no page without it, "
              "all else works", file=sys.stderr)  # fmt: skip
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
