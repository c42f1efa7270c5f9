"""Checks that no function is a tenth longer than 59 lines, and counts those of 54 and more: C, C++ (by clang-format's layout)
and Python.

Counted from its first line to its last. A class, a namespace or a table of rows is no function. A lambda counts as
part of the function that it stands in.
"""

import ast
import re

import common

MOST = 59
FEWEST = 3000  # of this tree; fewer: it was not read
# "path: function": reason.
ALLOWED = {
}

NOT_A_FUNCTION = re.compile(r"(namespace|class|struct|union|enum|extern|if|else|for|while|switch|do|try|catch|case|default|return)\b")


def without_comment(line):
    return re.sub(r"\s*//.*$", "", line.rstrip())


def first_line_of_statement(lines, at):
    """The statement that ends on line `at` begins here: behind the last line that ended another one."""
    first = at
    while first > 0:
        before = without_comment(lines[first - 1]).strip()
        if not before or before.startswith("#") or before[-1] in ";{}:" or before.endswith("*/"):
            break
        if lines[first - 1].lstrip().startswith("//"):
            break
        first -= 1
    return first


def is_function(statement):
    """Whether a statement that opens a brace is a function's head: name, arguments, no control word before."""
    if NOT_A_FUNCTION.match(statement) or "(" not in statement:
        return False
    head = statement.split("(", 1)[0]
    if "=" in head and "operator" not in head or "[" in head.split("operator")[0]:
        return False  # a table, or a lambda
    return re.search(r"\)[^()=]*(\{|:)$", statement) is not None or re.search(r"\).*[)}\]] ?\{$", statement) is not None


def name_of(statement):
    found = re.search(r"([\w:~]+(?:operator\S+)?)\s*\(", statement)
    name = found.group(1) if found else statement[:40]
    if name.startswith("TEST"):
        name = re.sub(r"\s+", "", statement.split("{")[0])
    return name


def c_functions(text):
    """(name, first line, number of lines) of each function; those inside of another are not listed apart."""
    lines = text.splitlines()
    at, past = 0, 0  # past: end of the last function found
    while at < len(lines):
        code = without_comment(lines[at])
        if code.endswith("{") and not code.lstrip().startswith("#"):
            first = max(first_line_of_statement(lines, at), past)
            statement = " ".join(without_comment(line).strip() for line in lines[first : at + 1])
            indent = len(lines[first]) - len(lines[first].lstrip())
            if is_function(statement):
                closing = re.compile(rf"^ {{{indent}}}\}}")
                last = next((i for i in range(at + 1, len(lines)) if closing.match(lines[i])), None)
                if last is not None:
                    yield name_of(statement), first + 1, last - first + 1
                    at = past = last + 1
                    continue
        at += 1


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def all_functions(root):
    """(path, name, first line, number of lines) over the tree."""
    for path in common.source_files(root):
        if path.suffix != ".def":
            for name, first, count in c_functions(common.read(root, path)):
                yield path, name, first, count
    for folder in (*common.LAYERS, "tests", "bench"):
        for file in sorted((root / folder).rglob("*.py")):
            path = file.relative_to(root)
            if not common.SKIPPED_FOLDERS & set(path.parts):
                for name, first, count in python_functions(common.read(root, path)):
                    yield path, name, first, count


def find_problems(root, allowed=None, fewest=0):
    allowed = ALLOWED if allowed is None else allowed
    found = list(all_functions(root))
    few = [] if len(found) >= fewest else [f"only {len(found)} functions found, expected {fewest}"]
    long = [row for row in found if common.is_beyond(row[3], MOST)]
    problems = [f"{path}:{first}: {name} has {count} lines, more than a tenth over {MOST}" for path, name, first, count in long
                if f"{path}: {name}" not in allowed]  # fmt: skip
    stale = set(allowed) - {f"{path}: {name}" for path, name, _, _ in long}
    largest = max(found, key=lambda row: row[3], default=None)
    if largest:
        near = sum(common.is_near(row[3], MOST) for row in found)
        print(f"{len(found)} functions, {near} near the limit of {MOST} lines or over it; the largest is {largest[1]} in {largest[0]}, {largest[3]}")
    return few + problems + [f"{entry}: listed as long, but is not" for entry in sorted(stale)]


if __name__ == "__main__":
    common.run_check(__doc__, lambda args: find_problems(args.root, fewest=FEWEST))
