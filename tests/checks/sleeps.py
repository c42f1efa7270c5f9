"""Checks that tests and measurements do not sleep: an order is made, and a condition is waited for by tests/fakes/wait_until.

A sleep is too short on a busy machine, and lost time on any other. Calls that sleep are looked for in tests and bench,
and the program of that name in scripts and commands. sleep_exceptions.txt names what may stay: a line has a glob of
paths, a piece of the line of text, and the reason.
"""

import fnmatch
import re
from pathlib import Path

import common

EXCEPTIONS = "tests/checks/sleep_exceptions.txt"
WAITS = {"tests/fakes/wait_until.h", "tests/fakes/wait_until.py"}
ENDINGS = (*common.SOURCE_ENDINGS, ".py", ".sh", ".cmake")
FEWEST = 500  # files of this tree; fewer: it was not read
CALL = re.compile(r"\b(?:u?sleep|(?:clock_)?nanosleep|sleep_for|sleep_until|SleepFor)\s*\(")
PROGRAM = re.compile(r"""["']sleep["']|\bsleep\s+(?:["$]+\w|[\d.])""")  # an argument of its own, or with its seconds behind it


def checked_files(root):
    found = [path for folder in ("tests", "bench") for path in (root / folder).rglob("*") if path.suffix in ENDINGS]
    inside = [path.relative_to(root) for path in found if path.is_file()]
    return sorted(path for path in inside if path.as_posix() not in WAITS and not common.SKIPPED_FOLDERS & set(path.parts))


def sleeping_lines(root, path):
    for number, line in enumerate(common.read(root, path).split("\n"), 1):
        if CALL.search(line) or PROGRAM.search(line):
            yield number, line.strip()


def exceptions(text):
    """(paths, text, reason) of each line, and what is wrong with those that cannot be read."""
    found, problems = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = tuple(field.strip() for field in line.split(" | "))
        if len(fields) == 3 and all(fields):
            found.append(fields)
        else:
            problems.append(f"{EXCEPTIONS}:{number}: a line is PATHS | TEXT | REASON")
    return found, problems


def find_problems(root, fewest=0):
    allowed, problems = exceptions(common.read(root, Path(EXCEPTIONS)))
    files, used = checked_files(root), set()
    if len(files) < fewest:
        problems.append(f"only {len(files)} files found, expected {fewest}")
    for path in files:
        near = [exception for exception in allowed if fnmatch.fnmatch(path.as_posix(), exception[0])]
        for number, line in sleeping_lines(root, path):
            fits = [exception for exception in near if exception[1] in line]
            used.update(fits)
            if not fits:
                problems.append(f"{path}:{number}: a sleep; make an order, or wait for a condition by wait_until: {line}")
    unused = [f"{EXCEPTIONS}: '{paths} | {text}' allows nothing" for paths, text, why in allowed if (paths, text, why) not in used]
    return problems + unused


if __name__ == "__main__":
    common.run_check(__doc__, lambda args: find_problems(args.root, FEWEST))
