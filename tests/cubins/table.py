"""Precision and recall of the reader on kernels whose kind is known (known.txt).

  table.py RESULTS.jsonl... [--known FILE]     a table, and an exit status of 1 when one of the figures is below LEAST or
                                               a kernel was not read
  table.py --pattern [--known FILE]            what read.py's --only must be to read these kernels alone
"""

import argparse
import dataclasses
import json
import re
import sys
from pathlib import Path

LEAST = 0.8
KINDS = ("follower", "writer", "plain")
STUB_BYTES = 512  # of a kernel that its source leaves empty on this architecture, at most


@dataclasses.dataclass
class Known:
    kind: str
    pattern: str
    why: str


def reasoned_lines(path):
    """Number, words and reason of each line WORDS...  # reason."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text, _, why = line.partition("#")
        if text.strip():
            yield number, text.split(), why.strip()


def read_known(path):
    rows = []
    for number, words, why in reasoned_lines(path):
        if len(words) != 2 or words[0] not in KINDS or not why:
            sys.exit(f"{path}:{number}: a line is KIND REGEX  # why, and KIND one of {', '.join(KINDS)}")
        rows.append(Known(*words, why))
    return rows


def is_stub(kernel):
    """Whether it has no code to speak of; a short one that stores an address (MAGMA's set_pointer) has."""
    return kernel["bytes"] <= STUB_BYTES and not kernel.get("follows") and not kernel.get("stores")


def judged(kernel):
    """The kind that the reader gives a kernel."""
    if kernel.get("follows"):
        return "follower"
    return "writer" if kernel.get("stores") else "plain"


def choose(known, kernels):
    """The kernel that a row is about; None when none of that name was read."""
    matching = [k for k in kernels if "follows" in k and not is_stub(k) and re.search(known.pattern, k["kernel"])]
    return max(matching, key=lambda k: (k["bytes"], k["kernel"]), default=None)


def why_not(known, kernels):
    """What the reader says of the kernels of a row of which it has read none."""
    return next((k["not_read"] for k in kernels if "not_read" in k and re.search(known.pattern, k["kernel"])), "not read")


def figures(pairs, kind):
    """(precision, recall) of one kind over (known, judged) pairs; None where there is nothing to divide by."""
    right = sum(known == kind and seen == kind for known, seen in pairs)
    seen, known = (sum(pair[i] == kind for pair in pairs) for i in (1, 0))
    return right / seen if seen else None, right / known if known else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="*")
    parser.add_argument("--known", type=Path, default=Path(__file__).resolve().parent / "known.txt")
    parser.add_argument("--pattern", action="store_true")
    args = parser.parse_args()
    rows = read_known(args.known)
    if args.pattern:
        print("|".join(f"(?:{row.pattern})" for row in rows))
        return
    read = [json.loads(line) for path in args.results for line in path.read_text().splitlines()]
    kernels = list({(k["kernel"], k["bytes"]): k for k in read}.values())  # the last reading of each
    pairs = []
    for row in rows:
        kernel = choose(row, kernels)
        seen = judged(kernel) if kernel else why_not(row, kernels)
        pairs += [(row.kind, seen)] if kernel else []
        detail = f"{kernel['follows']:>4} {kernel['stores']:>4} {kernel['bytes']:>7}" if kernel else ""
        print(f"{'' if seen == row.kind else 'WRONG':5} {row.kind:8} {seen:8} {detail:17} {row.pattern}")
    good = len(pairs) == len(rows)
    for kind in KINDS[:2]:
        both = figures(pairs, kind)
        good &= all(figure is not None and figure >= LEAST for figure in both)
        print(f"{kind}: precision and recall {both} on {len(pairs)} kernels")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
