"""Checks that a function which a source keeps for itself has a name that no header of its folder declares.

Sources of a target are compiled several at once. A local function then hides the header's function of that name from the
sources behind it, whatever its parameters: a call that meant the other becomes this one where an argument converts.
"""

import re

import common

FEWEST = 1000  # functions of this tree; fewer: it was not read
FUNCTION = re.compile(
    r"^(?!using|return|class|struct|enum|namespace|template|friend|else|case)(?:\[\[\w+\]\] )?[a-zA-Z][\w:<>,*& ]*?[ *&](\w+)\((?!.*ABSL_GUARDED)",
    re.MULTILINE)  # fmt: skip
LOCAL = re.compile(r"^namespace \{\n(.*?)^\}  // namespace$", re.MULTILINE | re.DOTALL)


def folder_of(path):
    """What is compiled together lies in one of these: a layer, or a folder of integration or of simcuda."""
    return "/".join(path.parts[: 3 if "simcuda" in path.parts else 2 if path.parts[0] == "integration" else 1])


def find_problems(root, fewest=0):
    headers_of, local = {}, []
    for path in common.source_files(root, common.LAYERS):
        text = common.read(root, path)
        if path.suffix == ".h":
            for name in FUNCTION.findall(text):
                headers_of.setdefault((folder_of(path), name), path)
        elif path.suffix == ".cc":
            local += [(path, name) for part in LOCAL.findall(text) for name in FUNCTION.findall(part)]
    print(f"{len(local)} local functions, {len(headers_of)} in headers")
    problems = [] if len(local) + len(headers_of) >= fewest else [f"only {len(local) + len(headers_of)} functions found, expected {fewest}"]
    for path, name in sorted(set(local)):
        header = headers_of.get((folder_of(path), name))
        if header:
            problems.append(f"{path} has a {name} of its own, which hides that of {header}: name it after what it does")
    return problems


if __name__ == "__main__":
    common.run_check(__doc__, lambda args: find_problems(args.root, fewest=FEWEST))
