"""Assembles the PTX that only a driver would: tests/gpu/kernels.ptx.h, and the content hash. Skipped where there is no ptxas.

ptxas is what a driver compiles PTX with. It is taken from PATH, from a toolkit, or from Triton's wheel in a given Python.

    tests/gpu/ptx_test.py [--python PATH]
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("tests/gpu/kernels.ptx.h", "allocator/driver/content_hash.ptx.inc")
TARGETS = ("sm_80", "sm_89", "sm_90", "sm_100")
SKIPPED = 77
WRONG = "  cvta.to.global.u32 %nonsense, %base;\n"  # what must be refused


def find_ptxas(python):
    """Paths of the assemblers that are here, each once."""
    wheel = "import importlib.util as u; s = u.find_spec('triton'); print(s.submodule_search_locations[0] if s else '')"
    found = [shutil.which("ptxas"), Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin" / "ptxas"]
    for interpreter in filter(shutil.which, filter(None, (python, sys.executable))):
        said = subprocess.run([interpreter, "-c", wheel], text=True, capture_output=True, check=False).stdout.strip()
        found += [Path(said) / "backends" / "nvidia" / "bin" / "ptxas"] if said else []
    return sorted({Path(path).resolve() for path in found if path and Path(path).exists()})


def text_of(source):
    literal = re.search(r'R"(\w*)\((.*?)\)\1"', (ROOT / source).read_text(encoding="utf-8"), re.DOTALL)
    return literal[2]


def assemble(ptxas, target, text):
    """What ptxas says of it, empty where it has nothing to say; and the code."""
    with tempfile.TemporaryDirectory() as folder:
        source, code = Path(folder) / "text.ptx", Path(folder) / "code.cubin"
        source.write_text(text, encoding="utf-8")
        done = subprocess.run([ptxas, f"-arch={target}", source, "-o", code], text=True, capture_output=True, check=False)
        said = (done.stdout + done.stderr).strip()
        return said or ("" if done.returncode == 0 else f"status {done.returncode}"), code.read_bytes() if code.exists() else b""


def knows(ptxas, target):
    return not assemble(ptxas, target, ".version 6.0\n.target sm_70\n.address_size 64\n")[0]


def problems_of(ptxas, target, source):
    text = text_of(source)
    entries = re.findall(r"\.entry\s+(\w+)", text)
    said, code = assemble(ptxas, target, text)
    problems = [f"{source} for {target}: {said}"] if said else []
    problems += [f"{source} for {target}: no code for {entry}" for entry in entries if f".text.{entry}".encode() not in code]
    for entry in entries:  # each body is read: a line that is wrong is found in any of them
        body = text.index("{", text.index(f".entry {entry}")) + 2
        if not assemble(ptxas, target, text[:body] + WRONG + text[body:])[0]:
            problems.append(f"{source} for {target}: nonsense in {entry} is accepted")
    return problems if entries else [f"{source}: no entry was found"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", help="a Python whose Triton may bring a ptxas")
    assemblers = find_ptxas(parser.parse_args().python)
    if not assemblers:
        print("no ptxas is here")
        return SKIPPED
    problems, known = [], 0
    for ptxas in assemblers:
        targets = [target for target in TARGETS if knows(ptxas, target)]
        known += len(targets)
        print(f"{ptxas}: {', '.join(targets) or 'none of the targets'}")
        problems += [problem for target in targets for source in SOURCES for problem in problems_of(ptxas, target, source)]
    if not known:
        problems.append(f"no ptxas here knows any of {', '.join(TARGETS)}")
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
