"""Checks that each unit has a test of its name beside its mirror: a/b/unit.cc has tests/a/b/unit_test.cc.

A unit is a header and a source of one name, or one of them alone. mirror_exceptions.txt lists the others, each with the
reason; a line that is no longer needed is reported, too.
"""

from pathlib import Path

import common

ENDINGS = (".h", ".c", ".cc", ".py", ".S")
TEST_ENDINGS = (".cc", ".c", ".py", ".sh")
EXCEPTIONS = Path(__file__).resolve().parent / "mirror_exceptions.txt"
FEWEST = 200  # units of this tree; fewer: it was not read


def find_units(root):
    """Paths without ending, relative to root, sorted."""
    units = set()
    for layer in common.LAYERS:
        for path in (root / layer).rglob("*"):
            inside = path.relative_to(root)
            if path.suffix in ENDINGS and path.is_file() and not common.SKIPPED_FOLDERS & set(inside.parts):
                units.add(inside.with_suffix("").as_posix())
    return sorted(units)


def has_test(root, unit):
    return any((root / "tests" / f"{unit}_test{ending}").is_file() for ending in TEST_ENDINGS)


def read_exceptions(path):
    """Entry -> reason. An entry is a unit, or a folder with a slash at its end. ValueError for a bad line."""
    exceptions = {}
    for line in path.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        entry, colon, reason = line.partition(": ")
        if not colon or not reason.strip() or entry in exceptions:
            raise ValueError(f"{path.name}: no reason, or there twice: {line}")
        exceptions[entry] = reason.strip()
    return exceptions


def exception_for(unit, exceptions):
    """The unit's own entry, else the nearest folder's, else None."""
    if unit in exceptions:
        return unit
    folders = [f"{parent.as_posix()}/" for parent in Path(unit).parents]
    return next((folder for folder in folders if folder in exceptions), None)


def find_problems(root, exceptions=None, fewest=0):
    exceptions = read_exceptions(EXCEPTIONS) if exceptions is None else exceptions
    units = find_units(root)
    problems = [] if len(units) >= fewest else [f"only {len(units)} units found, expected {fewest}"]
    without = [unit for unit in units if not has_test(root, unit)]
    used = {exception_for(unit, exceptions) for unit in without}
    problems += [f"{unit}: no tests/{unit}_test.*" for unit in without if exception_for(unit, exceptions) is None]
    problems += [f"{entry}: listed without need" for entry in sorted(set(exceptions) - used)]
    print(f"{len(units) - len(without)} of {len(units)} units have a test of their name")
    return problems


if __name__ == "__main__":
    common.run_check(__doc__, lambda args: find_problems(args.root, fewest=FEWEST))
