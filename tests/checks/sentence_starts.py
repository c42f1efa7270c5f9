"""Counts sentences that begin with a word that puts the subject late, in pages and comments, by folder.

    tests/checks/sentence_starts.py [--list FOLDER_OR_FILE]

A light, no law: a good sentence may begin with As. It fails above MOST percent in README, docs, headers or sources. A
sentence start is a capitalized word behind a line's beginning, a full stop or a colon, with a lower-case word behind it, in
the joined `//` comments of the product, or in pages without code, tables and headings.
"""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LATE = set("What Where Who That Of With Without From So Else As By To Until Those Whoever Nothing".split())
START = re.compile(r"(?:^|[.:;] )([A-Z][a-z]+) ([a-z]+)", re.MULTILINE)
PRODUCT = ("allocator", "io", "policy", "integration")
MOST = 5.0  # percent


def comments(text):
    """Each run of // lines, joined."""
    runs, run = [], []
    for line in text.splitlines():
        found = re.match(r"\s*// ?(.*)", line)
        if found:
            run.append(found.group(1))
        elif run:
            runs.append(" ".join(run))
            run = []
    return "\n".join([*runs, " ".join(run)])


def prose(text):
    """A page's paragraphs and list items, each joined."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    paragraphs, lines = [], []
    for line in [*text.splitlines(), ""]:
        skipped = not line.strip() or line.startswith(("|", "#", "    "))
        if (skipped or re.match(r"\s*([-*]|\d+\.) ", line)) and lines:
            paragraphs.append(" ".join(lines))
            lines = []
        if not skipped:
            lines.append(re.sub(r"^\s*([-*]|\d+\.) ", "", line).replace("**", "").strip())
    return "\n".join(paragraphs)


def kind_of(path):
    if path.suffix == ".md":
        return "README" if path.name == "README.md" and len(path.parts) == 1 else path.parts[0] + (
            "/" + path.parts[1] if len(path.parts) > 2 else "")  # fmt: skip
    return path.parts[0] + (" headers" if path.suffix == ".h" else " sources")


def starts(path):
    text = (ROOT / path).read_text(encoding="utf-8")
    return START.findall(prose(text) if path.suffix == ".md" else comments(text))


def main(arguments):
    names = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=True).stdout.split()
    paths = [Path(n) for n in names if n.endswith((".h", ".cc")) and n.startswith(PRODUCT) or n.endswith(".md")]
    if arguments[:1] == ["--list"]:
        for path in paths:
            for word, then in starts(path) if str(path).startswith(arguments[1]) else ():
                if word in LATE:
                    print(f"{path}: {word} {then}")
        return 0
    sums = defaultdict(lambda: [0, 0])
    for path in paths:
        for word, _ in starts(path):
            sums[kind_of(path)][0] += word in LATE
            sums[kind_of(path)][1] += 1
    for kind, (late, all_of_them) in sorted(sums.items()):
        print(f"{kind:28} {late:5} of {all_of_them:5} {100 * late / all_of_them:5.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
