"""What the checks share: the files of the tree, and the way a check reports."""

import argparse
import sys
from pathlib import Path

LAYERS = ("policy", "io", "allocator", "integration")
SOURCE_ENDINGS = (".h", ".hpp", ".c", ".cc", ".cpp", ".def")
# A file list by pattern and not by git, so that new files are checked before they are committed.
SKIPPED_FOLDERS = {"build", ".git", "__pycache__"}


def source_files(root, folders=(*LAYERS, "tests", "bench")):
    """Paths of the C and C++ files below `folders`, relative to root, sorted."""
    found = []
    for folder in folders:
        for path in (root / folder).rglob("*"):
            inside = path.relative_to(root)
            if path.suffix in SOURCE_ENDINGS and path.is_file() and not SKIPPED_FOLDERS & set(inside.parts):
                found.append(inside)
    return sorted(found)


def read(root, path):
    return (root / path).read_text(encoding="utf-8", errors="replace")


# A limit says what reads well; it is no place to cut at. From nine tenths of it on a check lists what is near, and it fails
# where a limit is passed by more than a tenth.
def is_near(value, limit):
    return 10 * value >= 9 * limit


def is_beyond(value, limit):
    return 10 * value > 11 * limit


def run_check(description, find_problems, more_arguments=()):
    """Parses --root (and others), prints the problems, exits 1 when there are any."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    for flags, options in more_arguments:
        parser.add_argument(flags, **options)
    args = parser.parse_args()
    problems = find_problems(args)
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problem(s)")
    sys.exit(1 if problems else 0)
