"""Checks that the table of tests/README.md says for each folder of the product which tests belong to it: their labels in
ctest, and the shards of tests/nightly.sh.

A folder has the row of its name, else that of the folder around it; the row of a layer adds to those of its folders. Every label of a test and every shard belongs to a
row, what a row names is there, and each test that is nightly has the shard that runs it. --build names the build tree,
whose tests are asked for; without it labels are not compared.
"""

import fnmatch
import json
import re
import subprocess
from pathlib import Path

import common

FOLDERS = (*common.LAYERS, "bench")
ENDINGS = (*common.SOURCE_ENDINGS, ".py")
EVERY = "*"  # the row of what belongs to every folder
BEGIN, END = "<!-- folders: begin -->", "<!-- folders: end -->"
# How a test is chosen, not what it is about.
CHOICE = re.compile(r"^(brief|full|nightly.*)$")
# Labels that a build has only with some compiler.
SELDOM = {"fuzz"}


def rows(page):
    """Folder -> (labels, shards), in the order of the table."""
    table = page.partition(BEGIN)[2].partition(END)[0]
    found = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 3 and cells[0].startswith("`"):
            found[cells[0].strip("`")] = tuple({name for name in re.split(r",\s*", cell) if name} for cell in cells[1:])
    return found


def folders(root):
    """Folders with sources of the product or of bench."""
    found = set()
    for path in (path for folder in FOLDERS for path in (root / folder).rglob("*")):
        inside = path.relative_to(root)
        if path.is_file() and path.suffix in ENDINGS and not common.SKIPPED_FOLDERS & set(inside.parts):
            found.add(str(inside.parent))
    return found


def shards(script):
    """The names in the list of tests/nightly.sh."""
    listed = re.search(r'^SHARDS="\n(.*?)^"', script, re.MULTILINE | re.DOTALL)
    return {line.split()[0] for line in listed[1].splitlines() if line.strip()} if listed else set()


def labels_of(build):
    """Test -> its labels, as ctest says."""
    done = subprocess.run(["ctest", "--test-dir", str(build), "--show-only=json-v1"], capture_output=True, text=True, check=True)
    found = {}
    for test in json.loads(done.stdout)["tests"]:
        properties = {entry["name"]: entry["value"] for entry in test.get("properties", ())}
        found[test["name"]] = set(properties.get("LABELS", ()))
    return found


def folder_problems(table, there):
    alone = set(table) - {layer for layer in FOLDERS if layer not in there}
    for folder in sorted(there):
        around = [str(path) for path in (Path(folder), *Path(folder).parents)]
        if not alone & set(around):
            yield f"tests/README.md: no row for {folder}, nor for a folder around it"
    for folder in table:
        if folder != EVERY and not any(fnmatch.fnmatch(path, f"{folder}/*") or path == folder for path in there):
            yield f"tests/README.md: {folder} is no folder of the product"


def name_problems(table, column, kind, there):
    named = set().union(*(row[column] for row in table.values())) if table else set()
    yield from (f"tests/README.md: no {kind} is called {name}" for name in sorted(named - there - SELDOM))
    yield from (f"tests/README.md: no row names the {kind} {name}" for name in sorted(there - named))


def test_problems(tests, all_shards):
    for test, labels in sorted(tests.items()):
        if not labels:
            yield f"{test}: has no label"
        night = {label.partition(":")[2] for label in labels if label.startswith("nightly")}
        if len(night) > 1 or not night <= all_shards:
            yield f"{test}: its label must be nightly:SHARD with one shard of tests/nightly.sh, not {', '.join(sorted(labels))}"
        if {"brief", "full"} <= labels:
            yield f"{test}: is brief and full"


def find_problems(args):
    table = rows(common.read(args.root, "tests/README.md"))
    all_shards = shards(common.read(args.root, "tests/nightly.sh"))
    problems = [*folder_problems(table, folders(args.root)), *name_problems(table, 1, "shard", all_shards)]
    if args.build:
        tests = labels_of(args.build)
        labels = {label for test in tests.values() for label in test if not CHOICE.match(label)}
        problems += [*name_problems(table, 0, "label", labels), *test_problems(tests, all_shards)]
    return problems


if __name__ == "__main__":
    common.run_check(__doc__.splitlines()[0], find_problems, [("--build", {"type": Path})])
