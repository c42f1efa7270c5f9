"""The parameters of NCCL's kernels, as the cubins in a libnccl.so tell the driver. Nothing is disassembled.

Spillway follows a launch of NCCL's by the bytes of its one parameter, ncclDevKernelArgs. This compares that with what
each kernel of a wheel's own library declares, for every architecture in it, and with the versions that the product takes
as known. Exit status 0: all agree; 77: there is no library in any of the folders. Where a wheel differs, its version must leave
integration/escape/nccl_kernels.cc.
"""

import argparse
import ctypes
import ctypes.util
import mmap
import re
import struct
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import elf

KERNEL = re.compile(r"(?:_Z\d+)?ncclDevKernel_")
ARGUMENT_BYTES = 4096
NOTHING_THERE = 77  # what ctest takes for a test that is skipped
FATBIN_MAGIC = 0xBA55ED50
ELF_ENTRY = 2
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
SOURCE = Path(__file__).resolve().parents[2] / "integration" / "escape" / "nccl_kernels.cc"


class Zstd:
    """libzstd, which every Debian system has."""

    def __init__(self):
        self.library = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")
        self.library.ZSTD_getFrameContentSize.restype = ctypes.c_ulonglong
        self.library.ZSTD_decompress.restype = ctypes.c_size_t

    def decompress(self, data, size):
        buffer = ctypes.create_string_buffer(size)
        got = self.library.ZSTD_decompress(buffer, ctypes.c_size_t(size), data, ctypes.c_size_t(len(data)))
        if got > size:
            raise ValueError("a cubin cannot be decompressed")
        return buffer.raw[:got]


def cubins(library, architectures):
    """(architecture, bytes) of each cubin in the library's linked device code."""
    zstd = Zstd()
    for name, at, size in elf.headers(library):
        if name != ".nv_fatbin":
            continue
        end = at + size
        while at + 16 <= end:
            magic, _, header, length = struct.unpack_from("<IHHQ", library, at)
            if magic != FATBIN_MAGIC:
                at += 8
                continue
            entry, last = at + header, at + header + length
            while entry < last:
                kind, _, head, payload = struct.unpack_from("<HHIQ", library, entry)
                architecture = struct.unpack_from("<I", library, entry + 28)[0]
                packed = struct.unpack_from("<I", library, entry + 16)[0]
                plain = struct.unpack_from("<Q", library, entry + 56)[0]
                if kind == ELF_ENTRY and (not architectures or architecture in architectures):
                    data = library[entry + head : entry + head + (packed or payload)]
                    yield architecture, zstd.decompress(data, plain) if data[:4] == ZSTD_MAGIC else data
                entry += head + payload
            at = last


def version_of(library):
    found = re.search(rb"NCCL version (\d+)\.(\d+)\.(\d+)", library)
    if not found:
        raise ValueError("no version of NCCL in it")
    return tuple(int(part) for part in found.groups())


def known_versions():
    """(major, minor) of the versions that the product follows."""
    numbers = re.search(r"kKnown\[\] = \{([^}]*)\}", SOURCE.read_text(encoding="utf-8")).group(1)
    return {divmod(int(number), 100) for number in numbers.split(",")}


def check(path, architectures):
    """Prints what the library's kernels take. The problems."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as library:
        version = version_of(library)
        shapes = Counter()
        seen = Counter()
        for architecture, cubin in cubins(library, architectures):
            for name, kernel in elf.kernels(cubin).items():
                if KERNEL.match(name):
                    shapes[tuple(kernel.parameters)] += 1
                    seen[architecture] += 1
    problems = []
    wanted = ((0, ARGUMENT_BYTES),)
    if not shapes:
        problems.append(f"{path}: no kernel of NCCL's found")
    for shape, count in shapes.items():
        if shape != wanted:
            problems.append(f"{path}: {count} kernels take {shape} instead of {wanted}")
    if version[:2] not in known_versions():
        problems.append(f"{path}: version {version} is not among those that the product follows")
    per_architecture = ", ".join(f"sm_{key}: {value}" for key, value in sorted(seen.items()))
    print(f"NCCL {'.'.join(map(str, version))}: {sum(shapes.values())} kernels ({per_architecture}), "
          f"parameters (offset, size): {dict(shapes)}")  # fmt: skip
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=Path, nargs="+", help="libnccl.so.2, or a folder in which to look for one")
    parser.add_argument("--architecture", type=int, action="append", default=[], help="90 for sm_90; all")
    args = parser.parse_args()
    problems, checked = [], 0
    for given in args.library:
        found = sorted(given.rglob("libnccl.so*")) if given.is_dir() else [given]
        if not found:
            print(f"{given}: no libnccl.so in it: nothing was checked")
        for path in found:
            problems += check(path, args.architecture)
            checked += 1
    for problem in problems:
        print(f"problem: {problem}", file=sys.stderr)
    return 1 if problems else 0 if checked else NOTHING_THERE


if __name__ == "__main__":
    sys.exit(main())
