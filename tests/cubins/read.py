"""Looks in CUDA libraries for kernels whose addresses no launch shows: those that go through an address which lay in memory
(followers), and those that store an address of their parameters in memory (writers).

  read.py LIBRARY... --work FOLDER [--arch sm_90] [--only REGEX] [--tools FOLDER] [--keep] [--seconds N] [--jobs N]

Instructions are read only of libraries whose licence allows it (READABLE); of all others the names and parameter sizes
that the driver tells as well (closed.py). FOLDER/LIBRARY.jsonl gets one line per kernel, FOLDER/LIBRARY.done one per cubin: a run that
was ended goes on with the next cubin. A cubin that takes the disassembler too long counts as read, and its kernels say that
they were not. The tools are NVIDIA's cuobjdump and nvdisasm, which Triton's wheel brings.
"""

import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import closed
import elf
import flow
import names
import sass
import table

# Libraries whose licence does not forbid disassembly, by the beginning of their file names.
READABLE = {
    "libtorch_cuda": "PyTorch, BSD-3-Clause",
    "libnccl": "NCCL, Apache-2.0 and BSD-3-Clause",
    "flash_attn": "flash attention, BSD-3-Clause",
    "triton": "Triton's own kernels, MIT",
}
FEW = 8  # kernels of a cubin that are disassembled one by one
LARGE_BYTES = 64 << 20  # of a cubin whose kernels are: as a whole it takes the disassembler more than half an hour
DISASSEMBLY_SECONDS = 1800  # of one cubin
NO_CODE = b"does not contain device code"  # what cuobjdump says, and fails


def is_readable(library):
    return any(library.name.startswith(prefix) for prefix in READABLE)


def find_tools():
    """The folder of cuobjdump and nvdisasm in the Triton of this Python; None when there is none."""
    for path in map(Path, sys.path):
        if (path / "triton/backends/nvidia/bin/nvdisasm").is_file():
            return path / "triton/backends/nvidia/bin"
    return None


def extract(library, args):
    """The cubins of a library for one architecture, in a folder that stays until all are read."""
    if library.suffix == ".cubin":
        return [library]
    folder = args.work / f"{library.name}.{args.arch}"
    if not (folder / "complete").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        command = [args.tools / "cuobjdump", "-xelf", args.arch, library.resolve()]
        done = subprocess.run(command, cwd=folder, capture_output=True)
        if NO_CODE not in done.stdout + done.stderr:
            done.check_returncode()
        (folder / "complete").touch()
    return sorted(folder.glob("*.cubin"), key=lambda cubin: (cubin.stat().st_size, cubin.name))


def run_nvdisasm(arguments, tools):
    command = [tools / "nvdisasm", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=DISASSEMBLY_SECONDS).stdout


def disassemble(cubin, data, kernels, args):
    """(name, lines) of each of these kernels: of all in one go, or one by one, where they are few or the cubin is large."""
    if len(kernels) > FEW and len(data) < LARGE_BYTES:
        yield from sass.functions(run_nvdisasm(["-c", cubin], args.tools))
        return
    architecture = args.arch.replace("sm_", "SM") + ("a" if args.arch == "sm_90" else "")
    for name in kernels:
        with tempfile.NamedTemporaryFile(dir=args.work) as code:
            code.write(elf.code_of(data, name))
            code.flush()
            yield name, run_nvdisasm(["-b", architecture, code.name], args.tools).splitlines()


def judge(kernel, lines):
    """What the instructions of one kernel show."""
    seen = flow.Flow(sass.blocks(lines), kernel.is_word).run()
    return {"follows": len(seen.found), "stores": len(seen.stored),
            "first": [f"{address:#x} {name}" for address, name in sorted(seen.found.items())[:3]]}  # fmt: skip


def read_cubin(cubin, args, readable):
    """One dictionary per kernel that is asked for."""
    data = cubin.read_bytes()
    kernels = {name: k for name, k in elf.kernels(data).items() if args.only.search(name)}
    for kernel, readable_name in zip(kernels.values(), names.readable_names(list(kernels))):
        kernel.learn_types(readable_name)
    facts = {name: {"kernel": name, "bytes": k.code_bytes, "parameters": [size for _, size in k.parameters]}
             for name, k in kernels.items()}  # fmt: skip
    if kernels and readable:
        try:
            for name, lines in disassemble(cubin, data, kernels, args):
                if name in kernels:
                    facts[name].update(judge(kernels[name], lines))
        except subprocess.TimeoutExpired as error:
            words = f"nvdisasm took more than {error.timeout:.0f} s"
            print(f"{cubin.name}: {words}", flush=True)
            for fact in facts.values():
                if "follows" not in fact:
                    fact["not_read"] = words
    return list(facts.values())


def read_in_time(cubin, args, readable, until):
    """read_cubin's result; None where the time is over before it begins."""
    return read_cubin(cubin, args, readable) if time.monotonic() <= until else None


def read_library(library, args, until):
    """Reads what has not been read. False when the time is over before the end."""
    results, done_file = (args.work / f"{library.name}.{end}" for end in ("jsonl", "done"))
    done = set(done_file.read_text().split()) if done_file.is_file() else set()
    with open(results, "a") as out, open(done_file, "a") as ends:
        cubins = [c for c in extract(library, args) if identity(c, args) not in done]
        print(f"{library.name}: {len(done)} cubins read before, {len(cubins)} to read", flush=True)
        with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
            read = functools.partial(read_in_time, args=args, readable=is_readable(library), until=until)
            for cubin, facts in zip(cubins, pool.map(read, cubins)):
                if facts is None:
                    return False
                out.writelines(json.dumps(fact) + "\n" for fact in facts)
                out.flush()
                ends.write(identity(cubin, args) + "\n")
                ends.flush()
    if not args.keep:
        shutil.rmtree(args.work / f"{library.name}.{args.arch}", ignore_errors=True)
    return True


def identity(cubin, args):
    """Of a cubin, of what is looked for in it, and of how."""
    text = f"{cubin.name} {cubin.stat().st_size} {args.only.pattern} {args.reader}"
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def summary(library, args):
    text = (args.work / f"{library.name}.jsonl").read_text()
    if not is_readable(library):
        print(f"{library.name}: {closed.summary({json.loads(line)['kernel'] for line in text.splitlines()})}")
        return
    lines = list({(fact["kernel"], fact["bytes"]): fact for fact in map(json.loads, text.splitlines())}.values())  # the last reading of each
    lines = [k for k in lines if not table.is_stub(k)]
    followers, writers = ([k for k in lines if k.get(what)] for what in ("follows", "stores"))
    unread = sum("not_read" in k for k in lines)
    print(f"{library.name}: {len(lines)} kernels, {len(followers)} follow an address in memory, {len(writers)} store a word of their parameters"
          + (f", {unread} were not read" if unread else ""))  # fmt: skip


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", type=Path, nargs="+")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), help="kernels whose mangled name it matches")
    parser.add_argument("--tools", type=Path, default=find_tools())
    parser.add_argument("--keep", action="store_true", help="the cubins stay in FOLDER, for other runs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="cubins that are read at once")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="ends after the cubin in which they are over")
    return parser.parse_args()


def main():
    args = arguments()
    if args.tools is None:
        sys.exit("no cuobjdump and nvdisasm: give their folder by --tools")
    args.work.mkdir(parents=True, exist_ok=True)
    args.reader = hashlib.sha256(b"".join(Path(m.__file__).read_bytes() for m in (elf, flow, sass))).hexdigest()
    until = time.monotonic() + args.seconds
    for library in args.libraries:
        if not read_library(library, args, until):
            sys.exit(f"{library.name}: the time is over; the same command goes on")
        summary(library, args)


if __name__ == "__main__":
    main()
