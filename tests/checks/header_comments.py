"""Checks that headers say what their names do not.

Every header begins with a comment of two lines or more, before its include guard: what the module is for, who calls it,
on which thread, what can fail. In the headers of the layers and of bench, 20 % of the lines or more carry a comment.
Headers of tests need the head alone: how a helper is used stands in the tests beside it, and nobody else calls it.

How it is counted: blank lines do not count at all. Any other line carries a comment when a comment, or a part of a
longer one, stands on it, alone or behind code, and has a letter. What repeats code or talks to a tool is no comment:
behind #endif, behind the brace that ends a namespace or extern "C", the name of an argument (/*name=*/), and NOLINT or
clang-format without a reason.
"""

import re

import common

SHARE = 20  # percent of the lines that are not blank
HEAD_LINES = 2
EXPLAINED = (*common.LAYERS, "bench")
FEWEST = 300  # headers of this tree; fewer: it was not read
LOWEST_SHOWN = 5

# Comments and, so that what looks like one inside of them is none, strings and characters.
TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
HEAD = re.compile(r"\s*((//[^\n]*\n\s*)+|/\*.*?\*/)", re.DOTALL)
CLOSING = re.compile(r"\s*(#\s*endif\b|}\s*(//|/\*)\s*(namespace\b|extern\b))")
NO_WORDS = re.compile(r"/\*\w+=\*/|NOLINT\w*(\([^)]*\))?|clang-format (on|off)")


def has_words(comment):
    return re.search(r"[^\W\d_]", NO_WORDS.sub("", comment)) is not None


def comments_by_line(text):
    """The text of the comments on each line; empty where there is none."""
    found = [""] * (text.count("\n") + 1)
    for match in TEXT.finditer(text):
        if match.group().startswith(("//", "/*")):
            first = text.count("\n", 0, match.start())
            for number, line in enumerate(match.group().split("\n"), first):
                found[number] += line
    return found


def lines_and_comments(text):
    """How many lines are not blank, and how many of these carry a comment."""
    lines = [(line, comment) for line, comment in zip(text.split("\n"), comments_by_line(text)) if line.strip()]
    return len(lines), sum(has_words(comment) and not CLOSING.match(line) for line, comment in lines)


def head_lines(text):
    """The lines of the comment that a header begins with; none when it begins with something else."""
    head = HEAD.match(text)
    return sum(has_words(line) for line in head.group().split("\n")) if head else 0


def find_problems(root, fewest=0):
    headers = [path for path in common.source_files(root) if path.suffix == ".h"]
    problems = [] if len(headers) >= fewest else [f"only {len(headers)} headers found, expected {fewest}"]
    shares = []
    for path in headers:
        text = common.read(root, path)
        head = head_lines(text)
        if head < HEAD_LINES:
            problems.append(f"{path}: begins with {head} line(s) of comment, {HEAD_LINES} are the fewest")
        if path.parts[0] in EXPLAINED:
            lines, commented = lines_and_comments(text)
            shares.append((100 * commented / max(lines, 1), path))
            if 100 * commented < SHARE * lines:
                problems.append(f"{path}: {commented} of {lines} lines carry a comment, {SHARE} % are the fewest")
    lowest = ", ".join(f"{path} {share:.1f} %" for share, path in sorted(shares)[:LOWEST_SHOWN])
    print(f"{len(headers)} headers; the fewest comments: {lowest}")
    return problems


if __name__ == "__main__":
    common.run_check(__doc__, lambda args: find_problems(args.root, fewest=FEWEST))
