"""Runs pages of scenes/ one after another in this process and writes down what was seen, without the pages' help.

    python scene_page.py PAGE... --seed N --json FILE [--spill-folder FOLDER]

A page is what somebody may write: plain PyTorch with a main(scene). What it returns is compared between runs: a list of
what happened, in order (losses, names of exceptions, batch sizes), and a dict of state, which is hashed here. Times
and other figures that may differ go to scene.figures. An exception that leaves a page is written down and raised again.
"""

import argparse
import gc
import importlib
import json
import random
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "scenes"), str(HERE.parent / "third_party")]

import observe  # noqa: E402  (the paths come first)


class Scene:
    """What a page may ask for."""

    def __init__(self, name, seed, folder, spill_folder):
        self.name, self.seed, self.folder, self.spill_folder = name, seed, folder, spill_folder
        self.random = random.Random(f"{seed} {name}")
        self.figures = {}


def plain(value):
    """As JSON keeps it without loss."""
    return value.hex() if isinstance(value, float) else value


def run_page(name, args, report):
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(dir=args.json.parent) as folder:
        scene = Scene(name, args.seed, Path(folder), args.spill_folder)
        entry = report["pages"][name] = {"figures": scene.figures}
        try:
            seen, state = importlib.import_module(name).main(scene)
            entry.update(seen=[plain(one) for one in seen], hashes={key: observe.sha256(value) for key, value in state.items()})
        except BaseException as error:
            entry["left_by"] = type(error).__name__
            raise
        finally:
            entry["seconds"] = time.monotonic() - begin


def write(report, path):
    pages = report["pages"].values()
    report["losses_sha256"] = observe.sha256([entry.get("seen") for entry in pages])
    report["state_sha256"] = observe.sha256([entry.get("hashes") for entry in pages])
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="+")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--spill-folder", type=Path)
    args = parser.parse_args()
    observe.make_repeatable()
    report = {"pages": {}}
    try:
        for name in args.pages:
            run_page(name, args, report)
            gc.collect()
    finally:
        write(report, args.json)


if __name__ == "__main__":
    sys.exit(main())
