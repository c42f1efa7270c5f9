"""Checks that each message of docs/troubleshooting.md is the product's, and is produced by the test in its row.

A message may have gaps, written `...`. The longest piece between gaps must stand in a source of the product and in the test
(quotes and escapes of both do not count, so that a message may be split over lines).
"""

import re
from pathlib import Path

import common

PAGE = Path("docs/troubleshooting.md")
HEAD = "| message | meaning | what to do | test |"
FEWEST_ROWS = 30
SHORTEST_PIECE = 9
PRODUCT_ENDINGS = (".cc", ".c", ".h", ".def", ".py")


def rows(page):
    """(message, test) of each row of the page's tables."""
    for line in page.splitlines():
        if line.startswith("| `"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
            yield cells[0].strip("`"), cells[-1]


def piece_of(message):
    return max((part.strip(" ,:;(") for part in message.split("...")), key=len)


def plain(text):
    """Without what stands between the pieces of a literal, and without escapes."""
    return re.sub(r"\s+", " ", re.sub(r'"\s*\n\s*[fr]*"', "", text).replace("\\", ""))


def product_text(root):
    paths = [p for layer in common.LAYERS for p in sorted((root / layer).rglob("*"))
             if p.suffix in PRODUCT_ENDINGS and p.is_file()]  # fmt: skip
    return plain("\n".join(common.read(root, path.relative_to(root)) for path in paths))


def find_problems(root, fewest=FEWEST_ROWS):
    page = common.read(root, PAGE)
    product, problems, found = product_text(root), [], list(rows(page))
    if len(found) < fewest:
        problems.append(f"{PAGE}: {len(found)} messages, fewer than {fewest}")
    for message, test in found:
        piece = piece_of(message)
        if len(piece) < SHORTEST_PIECE:
            problems.append(f"{PAGE}: too little of a message: {message}")
        if piece not in product:
            problems.append(f"{PAGE}: the product does not say: {piece}")
        if not test.startswith("tests/") or not (root / test).is_file():
            problems.append(f"{PAGE}: no such test: {test}")
        elif piece not in plain(common.read(root, test)):
            problems.append(f"{PAGE}: {test} does not produce: {piece}")
    return problems


if __name__ == "__main__":
    common.run_check(__doc__, lambda args: find_problems(args.root))
