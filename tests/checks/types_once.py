"""Checks that a type of the product is defined in one header: one name means one thing wherever it is read.

Namespaces do not tell two such types apart for a reader. simcuda is a program of its own, and a type that a single source
keeps for itself is seen by nobody else.
"""

import re

import common

FEWEST = 500  # types of this tree; fewer: it was not read
DEFINITION = re.compile(r"^(?:struct|class|enum class|enum|union)\s+(?:\[\[\w+\]\]\s+|[A-Z_]+(?:\([^)]*\))?\s+)?(\w+)\b(?!::)[^;(]*\{", re.MULTILINE)


def find_problems(root, fewest=0):
    headers_of = {}
    for path in common.source_files(root, common.LAYERS):
        if path.suffix == ".h" and "simcuda" not in path.parts:
            for name in DEFINITION.findall(common.read(root, path)):
                headers_of.setdefault(name, []).append(str(path))
    print(f"{len(headers_of)} types in headers")
    problems = [] if len(headers_of) >= fewest else [f"only {len(headers_of)} types found, expected {fewest}"]
    for name, headers in sorted(headers_of.items()):
        if len(headers) > 1:
            problems.append(f"{name} is defined in {', '.join(headers)}: name each after what it is")
    return problems


if __name__ == "__main__":
    common.run_check(__doc__, lambda args: find_problems(args.root, fewest=FEWEST))
