"""Checks that the preload's C files call each other in one direction only: no circle of two files or more.

A file uses another when it names a function that the other defines, also where it only takes its address. What a file
needs of one above it comes as an argument. trampolines.S is left out: it is the jump table that function_table.c fills.
"""

import re
from pathlib import Path

import common

FOLDER = "integration/preload"
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
# At the beginning of a line: a type, a name, arguments, and a body; `static` ones are nobody else's.
DEFINITION = re.compile(r"^(?!static\b)[A-Za-z_][\w \t*]*?\b(\w+)\([^;{}]*\)\s*\{", re.MULTILINE)
OWN = re.compile(r"^static\b[\w \t*]*?\b(\w+)\(", re.MULTILINE)
NAME = re.compile(r"\b[A-Za-z_]\w*")


def calls(root):
    """File -> the other files whose functions it names, with one such name each."""
    texts = {path.name: NOT_CODE.sub(" ", common.read(root, path.relative_to(root)))
             for path in sorted((root / FOLDER).glob("*.c"))}  # fmt: skip
    home = {name: file for file, text in texts.items() for name in DEFINITION.findall(text)}
    used = {}
    for file, text in texts.items():
        names = set(NAME.findall(text)) - set(OWN.findall(text))
        used[file] = {home[name]: name for name in sorted(names) if home.get(name, file) != file}
    return used


def find_circle(used):
    """The files of one circle, the first again at the end; None when there is none."""
    done = set()

    def visit(file, path):
        if file in path:
            return path[path.index(file) :] + [file]
        if file in done:
            return None
        circles = (visit(other, [*path, file]) for other in sorted(used[file]))
        circle = next((found for found in circles if found), None)
        done.add(file)
        return circle

    return next((circle for circle in (visit(file, []) for file in sorted(used)) if circle), None)


def find_problems(root: Path):
    used = calls(root)
    circle = find_circle(used)
    if not circle:
        return []
    steps = [f"{file} uses {used[file][other]} of {other}" for file, other in zip(circle, circle[1:])]
    return [f"{FOLDER}: files call each other in a circle: {', '.join(steps)}"]


if __name__ == "__main__":
    common.run_check(__doc__, lambda args: find_problems(args.root))
