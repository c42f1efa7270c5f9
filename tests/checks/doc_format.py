"""Checks the form of the documentation: lines within 110 columns, table cells within 120 characters, links that lead somewhere.

Free are output and code (in fences or indented), table rows as lines, and lines that are mostly one link. The README has
at most 60 lines. A mention of a page of docs/ in any text of the tree, code comments too, names a page that exists.
"""

import re
from pathlib import Path

import common
import text_rules

LONGEST_LINE = 110
LONGEST_CELL = 120
README_LINES = 60
# (page, beginning of the line) -> why it may be longer. One that is not needed any more is a problem.
EXCEPTIONS = {}

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
URL_OR_LINK = re.compile(r"\[[^\]]*\]\([^)]*\)|https?://\S+")
MENTION = re.compile(r"(?<![\w./-])docs/[\w./-]+\.md\b")
LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s")


def doc_pages(root):
    """Paths of all pages (Markdown, and text files below docs/), relative to root, sorted."""
    pages = [p.relative_to(root) for p in [*root.rglob("*.md"), *(root / "docs").rglob("*.txt")]]
    return sorted(p for p in pages if not common.SKIPPED_FOLDERS & set(p.parts))


def prose_lines(text):
    """(number, line) of what is neither in a fence nor an indented block of code."""
    fenced = in_code = in_list = False
    blank = True
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        if fenced:
            continue
        indented = line.startswith("    ")
        if line.strip() and not indented:
            in_code = False
            in_list = bool(LIST_ITEM.match(line)) or (in_list and line.startswith(" "))
        elif indented and blank and not in_list:
            in_code = True
        blank = not line.strip()
        if not (in_code and indented):
            yield number, line


def cells(row):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip().strip("|"))]


def length_problem(line):
    """What is too long about a line of prose or a table row, or None."""
    if line.lstrip().startswith("|"):
        longest = max(map(len, cells(line)))
        return f"a table cell of {longest} characters (most: {LONGEST_CELL})" if longest > LONGEST_CELL else None
    links = max((len(found) for found in URL_OR_LINK.findall(line)), default=0)
    if len(line) <= LONGEST_LINE or links > len(line) / 2:
        return None
    return f"{len(line)} columns (most: {LONGEST_LINE})"


def anchors(text):
    """The anchors of a page's headings, as GitHub forms them."""
    headings = [line.lstrip("#").strip() for _, line in prose_lines(text) if re.match(r"#+ ", line)]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def link_problem(root, path, target):
    """What is wrong with one link of a page, or None."""
    if re.match(r"[a-z]+:", target):
        return None
    name, _, anchor = target.partition("#")
    page = (root / path.parent / name) if name else root / path
    if not page.exists():
        return f"leads to {target}, which is not there"
    if anchor and page.suffix == ".md" and anchor not in anchors(page.read_text(encoding="utf-8")):
        return f"leads to {target}, but no heading has that name"
    return None


def page_problems(root, path, used):
    text = common.read(root, path)
    if path == Path("README.md") and text.count("\n") > README_LINES:
        yield f"{path}: {text.count(chr(10))} lines (most: {README_LINES})"
    for number, line in prose_lines(text):
        problem = length_problem(line)
        excepted = [key for key in EXCEPTIONS if key[0] == path.as_posix() and line.startswith(key[1])]
        if problem and excepted:
            used.update(excepted)
        elif problem:
            yield f"{path}:{number}: {problem}"
        for target in LINK.findall(re.sub(r"`[^`]*`", "", line)):
            problem = link_problem(root, path, target)
            if problem:
                yield f"{path}:{number}: {problem}"


def mention_problems(root):
    for path in text_rules.all_text_files(root):
        for number, line in enumerate(common.read(root, path).splitlines(), 1):
            for name in MENTION.findall(line):
                if not (root / name).is_file():
                    yield f"{path}:{number}: {name} is not there"


def find_problems(root: Path):
    used = set()
    problems = [p for path in doc_pages(root) for p in page_problems(root, path, used)]
    problems += [f"{page}: the exception for \"{line}\" is not needed" for page, line in EXCEPTIONS.keys() - used]
    return problems + list(mention_problems(root))


if __name__ == "__main__":
    common.run_check(__doc__, lambda args: find_problems(args.root))
