"""Checks small rules of text: a head in every header and every source without one, include guards by path, no marks of unfinished work.

Prints, without failing, the files of more than 400 lines.
"""

import re
from pathlib import Path

import common

MARKS = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r")\b")
LONG = 400
OTHER_ENDINGS = (".py", ".sh", ".txt", ".md", ".cmake", ".map", ".pth", ".toml")


def guard_name(path):
    return "SPILLWAY_" + re.sub(r"[^A-Z0-9]", "_", path.as_posix().upper()) + "_"


def source_problems(root, path):
    text = common.read(root, path)
    has_header = path.suffix != ".h" and (root / path.with_suffix(".h")).is_file()
    named_after_unit = path.stem.endswith(("_test", "_bench"))  # the name says what it is
    if not (has_header or named_after_unit) and not re.match(r"\s*(//|/\*)", text):
        yield f"{path}: no head that says what the file is"
    if path.suffix == ".h" and f"#define {guard_name(path)}" not in text:
        yield f"{path}: the include guard should be {guard_name(path)}"


def all_text_files(root):
    folders = (*common.ROOMS, "tests", "bench", "docs")
    other = [p.relative_to(root) for f in folders for p in (root / f).rglob("*") if p.suffix in OTHER_ENDINGS]
    other += [Path(name) for name in ("CMakeLists.txt", "README.md") if (root / name).is_file()]
    kept = [p for p in other if not common.SKIPPED_FOLDERS & set(p.parts)]
    return sorted(set(common.source_files(root) + kept))


def mark_problems(root, path):
    for number, line in enumerate(common.read(root, path).splitlines(), 1):
        if MARKS.search(line):
            yield f"{path}:{number}: mark of unfinished work"


def long_files(root):
    sizes = {path: common.read(root, path).count("\n") for path in all_text_files(root) if path.suffix != ".md"}
    return {path: size for path, size in sizes.items() if size > LONG}


def find_problems(root: Path):
    problems = [p for path in common.source_files(root) for p in source_problems(root, path)]
    return problems + [p for path in all_text_files(root) for p in mark_problems(root, path)]


def main(args):
    for path, size in sorted(long_files(args.root).items()):
        print(f"note: {path} has {size} lines (guide: under {LONG})")
    return find_problems(args.root)


if __name__ == "__main__":
    common.run_check(__doc__, main)
