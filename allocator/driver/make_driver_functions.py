#!/usr/bin/env python3
"""Writes driver_functions.def: every public function of the CUDA driver, as the union of several toolkits' headers.

Owns the way from headers to rows: the exported symbols come from the prototypes (cuda.h and its companions for GL,
EGL, VDPAU and the profiler, preprocessed so that every ABI of a name is visible), the versions from the PFN_ types
of the *Typedefs.h beside them. Leaves the table itself to git, and what the rows are used for to their readers.

    make_driver_functions.py INCLUDE_DIR... [--names FILE]... > driver_functions.def
    make_driver_functions.py --check driver_functions.def INCLUDE_DIR... [--names FILE]...
    make_driver_functions.py --list "nvidia-cuda-runtime 13.5.37" INCLUDE_DIR > tests/allocator/driver/cuda_headers.txt

--names adds exported symbols, one a line (of the toolkit's stub library, say): those that no header declares get
version 0, which means: not to be had through cuGetProcAddress. --check prints what the table lacks and exits 1.
--list prints the functions of one toolkit, each with the ways in which its parameters may name memory, for the test that
compares the tables with it.
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys
import tempfile

COMPANIONS = ("cuda", "cudaGL", "cudaEGL", "cudaVDPAU", "cudaProfiler")
OTHER_HEADERS = ("GL/gl.h", "EGL/egl.h", "EGL/eglext.h", "vdpau/vdpau.h")
ROW = re.compile(r"^DRIVER_FUNCTION\((\w+), (\w+), (\d+), (DEFAULT|PER_THREAD)\)$", re.M)
SYMBOL = re.compile(r"^(?P<base>cu\w+?)(?:_v(?P<abi>\d+))?(?P<form>_ptsz|_ptds)?$")
PROTOTYPE = re.compile(r"\bCUresult\s+(?:CUDAAPI\s+)?(cu[A-Z]\w*)\s*\(([^;]*?)\)\s*;")
TYPEDEF = re.compile(r"\bPFN_(?P<base>cu\w+?)_v(?P<version>\d{4,})(?P<form>_ptsz|_ptds)?\b")

HEAD = """// Every public function of the CUDA driver, union of the toolkits
// {toolkits}:
// exported symbol, its name for cuGetProcAddress, the CUDA version from which that name means this symbol (0: only
// by symbol), and whether it is the entry that CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM asks for. Of several
// rows with one name and form, a request for version V means the row with the greatest version <= V.
// Sorted by symbol. Written by make_driver_functions.py; a test compares it with the installed headers. No include
// guard: included with DRIVER_FUNCTION(symbol, name, version, form) defined by the reader.
"""


# Parameters by which a call may name memory, or what will.
KINDS = {
    "address": r"\bCUdeviceptr",
    "capture": r"\bCUstreamCaptureMode\b",
    "copy": r"\bCUDA_MEMCPY|_COPY_BATCH_OP\b",
    "launch": r"\bCUfunction \w+, .*\*\*|\bCUDA_LAUNCH_PARAMS\b",
    "node": r"\bCUgraphNodeParams\b|_NODE_PARAMS",
    "resource": r"\bCUDA_RESOURCE_DESC\b",
    "tensor_map": r"\bCUtensorMap\b",
    "words": r"\bCUstreamBatchMemOpParams\b",
}
LIST_HEAD = """# The functions that the headers of {source} declare: symbol, name, version, form, and by
# which of its parameters a call may name memory (- for none).
# Written by allocator/driver/make_driver_functions.py --list; driver_tables_test compares the tables with it."""


def kinds_of(parameters):
    return ",".join(kind for kind, pattern in KINDS.items() if re.search(pattern, parameters)) or "-"


def form_of(suffix):
    return "PER_THREAD" if suffix else "DEFAULT"


def toolkit_version(include):
    number = int(re.search(r"^#define CUDA_VERSION (\d+)", (include / "cuda.h").read_text(), re.M).group(1))
    return f"{number // 1000}.{number % 1000 // 10}"


def prototypes(include, compiler):
    """The parameters of each symbol that the headers of one toolkit declare."""
    found = {}
    with tempfile.TemporaryDirectory() as empty:
        for header in OTHER_HEADERS:  # only names are wanted: types of other headers may be missing
            path = pathlib.Path(empty, header)
            path.parent.mkdir(exist_ok=True)
            path.touch()
        for companion in COMPANIONS:
            path = include / f"{companion}.h"
            if not path.exists():
                continue
            command = [compiler, "-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", f"-I{include}", f"-I{empty}"]
            text = subprocess.run(command + [str(path)], check=True, capture_output=True, text=True).stdout
            found.update((name, " ".join(parameters.split())) for name, parameters in PROTOTYPE.findall(text))
    return found


def typedefs(include):
    """{(base, form): {versions}} of one toolkit."""
    found = collections.defaultdict(set)
    for companion in COMPANIONS:
        path = include / f"{companion}Typedefs.h"
        if not path.exists():
            continue
        text = path.read_text()
        for match in TYPEDEF.finditer(text):
            found[match["base"], form_of(match["form"])].add(int(match["version"]))
    return found


def rows_of(symbols, versions):
    """Pairs the ABIs of each name, oldest first, with its versions, oldest first."""
    groups = collections.defaultdict(list)
    for symbol in symbols:
        match = SYMBOL.match(symbol)
        base, form, abi = match["base"], form_of(match["form"]), int(match["abi"] or 1)
        groups[base, form].append((abi, symbol))
    rows, unpaired = [], []
    for (base, form), members in groups.items():
        members.sort()
        numbers = sorted(versions.get((base, form), ()))
        if len(numbers) != len(members):
            unpaired.append((base, form, [symbol for _, symbol in members], numbers))
        if len(numbers) < len(members):  # an early ABI without a type: the newest symbols have the newest versions
            numbers = [0] * (len(members) - len(numbers)) + numbers
        rows += [(symbol, base, version, form) for (_, symbol), version in zip(members, numbers[-len(members):])]
    return sorted(rows), unpaired


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("includes", nargs="+", type=pathlib.Path)
    parser.add_argument("--names", action="append", default=[], type=pathlib.Path)
    parser.add_argument("--check", type=pathlib.Path)
    parser.add_argument("--list", metavar="SOURCE")
    parser.add_argument("--compiler", default="cc")
    arguments = parser.parse_args()

    symbols, versions, toolkits = {}, collections.defaultdict(set), set()
    for include in arguments.includes:
        symbols |= prototypes(include, arguments.compiler)
        toolkits.add(toolkit_version(include))
        for key, numbers in typedefs(include).items():
            versions[key] |= numbers
    for path in arguments.names:
        symbols |= {name: "" for name in path.read_text().split() if re.match(r"cu[A-Z]", name)}
    rows, unpaired = rows_of(symbols, versions)

    if arguments.list:
        print(LIST_HEAD.format(source=arguments.list))
        for symbol, base, version, form in rows:
            print(symbol, base, version, form, kinds_of(symbols[symbol]))
        return 0

    if arguments.check:
        table = {(m[1], m[2], int(m[3]), m[4]) for m in ROW.finditer(arguments.check.read_text())}
        missing = [row for row in rows if row not in table]
        for row in missing:
            print(f"{arguments.check}: lacks DRIVER_FUNCTION{row}", file=sys.stderr)
        print(f"{len(rows)} functions in the headers, {len(table)} in the table, {len(missing)} missing")
        return 1 if missing or not rows or not table else 0

    for base, form, names, numbers in unpaired:
        print(f"note: {base} {form}: symbols {names}, versions {numbers}", file=sys.stderr)
    ordered = sorted(toolkits, key=lambda text: [int(part) for part in text.split(".")])
    sys.stdout.write(HEAD.format(toolkits=", ".join(ordered)))
    for symbol, base, version, form in rows:
        print(f"DRIVER_FUNCTION({symbol}, {base}, {version}, {form})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
