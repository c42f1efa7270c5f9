"""Checks that the table of docs/environment.md is that of settings.def, word for word. --update writes it.

Also: no cell is longer than a reader takes in at once, and a setting of words has an enumerator for each.
"""

import re
from pathlib import Path

import common

SETTINGS = Path("integration/settings/settings.def")
PAGE = Path("docs/environment.md")
HEAD = ["| variable | default | accepted | meaning |", "|---|---|---|---|"]
LONGEST_CELL = 120
TEXT = r'"(?:[^"\\]|\\.)*"'
ROW = re.compile(rf"^(?:MODE_)?SETTING\((\w+),\s*([\w:<>]+)((?:,\s*{TEXT}(?:\s*{TEXT})*){{3}})\)$", re.MULTILINE)
WORDS = re.compile(r"^SETTING_WORDS\((\w+), ([^)]+)\)$", re.MULTILINE)


def variable(name):
    return "SPILLWAY" if name == "spillway" else f"SPILLWAY_{name.upper()}"


def columns(text):
    """The three texts of a row; neighbouring literals are one, as in C."""
    texts = re.findall(rf"{TEXT}(?:\s*{TEXT})*", text)
    return [re.sub(r"\\(.)", r"\1", "".join(part[1:-1] for part in re.findall(TEXT, one))) for one in texts]


def table(definitions):
    """The lines of the table, its head first."""
    rows = [[f"`{variable(name)}`", *columns(texts)] for name, _, texts in ROW.findall(definitions)]
    return HEAD + [f"| {' | '.join(cells)} |" for cells in rows]


def split_page(page):
    """The lines before the table, of the table, and after it."""
    lines = page.split("\n")
    first = lines.index(HEAD[0]) if HEAD[0] in lines else len(lines)
    end = next((i for i in range(first, len(lines)) if not lines[i].startswith("|")), len(lines))
    return lines[:first], lines[first:end], lines[end:]


def row_problems(definitions):
    named = re.findall(r"^(?:MODE_)?SETTING\((\w+)", definitions, re.MULTILINE)
    for name in sorted(set(named) - {name for name, *_ in ROW.findall(definitions)}):
        yield f"{SETTINGS}: {name} has not the form (name, type, default, accepted, meaning)"
    enumerators = {kind: names.split(", ") for kind, names in WORDS.findall(definitions)}
    for name, kind, texts in ROW.findall(definitions):
        wanted, words = enumerators.get(kind.rstrip(">").split("<")[-1]), re.split(", | or ", columns(texts)[1])
        if wanted and len(wanted) != len(words):
            yield f"{SETTINGS}: {name} accepts {len(words)} words and has {len(wanted)} enumerators"
    for line in table(definitions):
        for cell in line.strip("| ").split(" | "):
            if len(cell) > LONGEST_CELL:
                yield f"{SETTINGS}: a cell has {len(cell)} characters, more than {LONGEST_CELL}: {cell}"


def find_problems(root: Path):
    definitions, page = common.read(root, SETTINGS), common.read(root, PAGE)
    problems = list(row_problems(definitions))
    wanted, found = table(definitions), split_page(page)[1]
    problems += [f"{PAGE}: the table lacks: {line}" for line in wanted if line not in found]
    problems += [f"{PAGE}: the table has, and settings.def has not: {line}" for line in found if line not in wanted]
    if not problems and wanted != found:
        problems.append(f"{PAGE}: the rows are not in the order of settings.def, or one stands twice")
    return problems


def update(root):
    before, _, after = split_page(common.read(root, PAGE))
    lines = [*before, *table(common.read(root, SETTINGS)), *after]
    (root / PAGE).write_text("\n".join(lines), encoding="utf-8")


def main(args):
    if args.update:
        update(args.root)
    return find_problems(args.root)


if __name__ == "__main__":
    common.run_check(__doc__, main, [("--update", {"action": "store_true", "help": "write the table"})])
