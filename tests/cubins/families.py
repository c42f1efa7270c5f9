"""Judges every follower and writer that read.py found: each must belong to a family (families.txt), and the shipped deny list
must have those families that say so, and no other.

  families.py RESULTS.jsonl... [--families FILE]    a row for each family, what is wrong, and an exit status of 1 for that

Of libraries that may not be read, the kernels that may be writers by the types in their names are judged (closed.py).
"""

import argparse
import collections
import dataclasses
import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import closed
import names
import shipped
import table

KINDS = ("follower", "writer")
PLACES = ("shipped", "not")
NAMED = 20  # kernels of one kind of problem that are named


@dataclasses.dataclass
class Family:
    kind: str
    place: str  # whether the shipped deny list has it
    pattern: str  # looked for in LIBRARY:KERNEL
    why: str

    def __post_init__(self):
        self.regex = re.compile(self.pattern)

    @property
    def is_shipped(self):
        return self.place == "shipped"


@dataclasses.dataclass(frozen=True)
class Kernel:
    library: str
    name: str
    kinds: tuple  # of KINDS; a kernel may be of both

    def __str__(self):
        return f"{self.library}:{self.name}"


def read_families(path):
    rows = []
    for number, words, why in table.reasoned_lines(path):
        if len(words) != 3 or words[0] not in KINDS or words[1] not in PLACES or not why:
            sys.exit(f"{path}:{number}: a line is KIND PLACE REGEX  # why, KIND one of {', '.join(KINDS)}, PLACE one of {', '.join(PLACES)}")
        rows.append(Family(*words, why))
    return rows


def read_kernels(path):
    """The kernels of one library that were read, and those that were not and may be writers by the types in their names."""
    facts = {(fact["kernel"], fact["bytes"]): fact for fact in map(json.loads, path.read_text().splitlines())}
    unread = sorted({fact["kernel"] for fact in facts.values() if "follows" not in fact})
    suspects = {name for name, readable in zip(unread, names.demangle(unread)) if closed.is_suspect(readable)}
    found = set()
    for (name, _), fact in facts.items():
        if "follows" in fact and not table.is_stub(fact):
            kinds = tuple(kind for kind, seen in zip(KINDS, (fact["follows"], fact["stores"])) if seen)
        elif name in suspects:
            kinds = ("writer",)
        else:
            continue
        found.add(Kernel(path.name.removesuffix(".jsonl"), name, kinds))
    return found


def family_of(kernel, kind, families):
    """The first family of that kind that has the kernel; None."""
    return next((f for f in families if f.kind == kind and f.regex.search(str(kernel))), None)


def list_problems(families, rows):
    """Rows of the shipped list that no family says to be there, and families without their row."""
    def belong(family, row):
        return family.is_shipped and family.kind == row.kind and family.regex.search(row.example)

    for row in rows:
        if not any(belong(family, row) for family in families):
            yield f"no family says that the shipped list has the {row.kind}s {row.name}"
    for family in families:
        if family.is_shipped and not any(belong(family, row) for row in rows):
            yield f"the shipped list has no row for the {family.kind}s {family.pattern}"


def kernel_problems(kernel, families, rows, counts):
    """What is wrong with one follower or writer: (problem, kernel). Counts it."""
    row = next((row for row in rows if row.matches(kernel.name, kernel.library)), None)
    everything = row is not None and row.kind == "follower"  # then its tables do not matter either
    for kind in kernel.kinds:
        if kind == "writer" and everything and "follower" in kernel.kinds:
            continue
        family = family_of(kernel, kind, families)
        if family is None:
            yield f"{kind}s of no family", kernel
            continue
        counts[family.kind, family.pattern] += 1
        if family.is_shipped and (row is None or row.kind != kind):
            yield f"{kind}s that the shipped list should have and has not", kernel
        elif not family.is_shipped and row is not None and row.kind == kind:
            yield f"{kind}s that the shipped list has though their family is not on it", kernel


def judge(kernels, families, rows, counts):
    """The problems as lines: each with some of its kernels."""
    problems = collections.defaultdict(list)
    for kernel in sorted(kernels, key=str):
        for problem, which in kernel_problems(kernel, families, rows, counts):
            problems[problem].append(str(which))
    for problem, which in problems.items():
        yield f"{len(which)} {problem}:"
        yield from (f"  {name}" for name in which[:NAMED])
        if len(which) > NAMED:
            yield f"  and {len(which) - NAMED} more"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--families", type=Path, default=Path(__file__).resolve().parent / "families.txt")
    args = parser.parse_args()
    families, rows = read_families(args.families), shipped.shipped_rows()
    kernels = set().union(*map(read_kernels, args.results))
    counts = collections.Counter()
    problems = [*list_problems(families, rows), *judge(kernels, families, rows, counts)]
    for family in families:
        print(f"{counts[family.kind, family.pattern]:>5} {family.kind:8} {family.place:7} {family.pattern}")
    for row in rows:
        plain = sum(not kernel.kinds and row.matches(kernel.name, kernel.library) for kernel in kernels)
        if plain:
            print(f"{plain:>5} plain kernels that the shipped list has by {row.name} {row.library}")
    print("\n".join(problems) or f"all {sum(bool(k.kinds) for k in kernels)} followers and writers are of known families")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
