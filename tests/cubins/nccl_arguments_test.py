"""nccl_arguments.py on libraries made here: it must see a kernel that takes something else, and another version."""

import contextlib
import io
import struct
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent))
import elf
import nccl_arguments

BY_VALUE = 3  # the format of an attribute whose value is in its header


def elf_file(parts):
    """A 64-bit ELF file with these (name, bytes) sections and nothing else."""
    names, body, headers = b"\0", b"", []
    for name, content in [*parts, (".shstrtab", None)]:
        at = len(names)
        names += name.encode() + b"\0"
        content = names if content is None else content
        headers.append(struct.pack("<IIQQQQIIQQ", at, 1, 0, 0, 64 + len(body), len(content), 0, 0, 1, 0))
        body += content
    start = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64,
                        len(headers), len(headers) - 1)  # fmt: skip
    return start + body + b"".join(headers)


def info(*shape, wide=False):
    out = struct.pack("<BBH", BY_VALUE, 0x1B, 0xFF)
    for ordinal, (offset, size) in enumerate(shape):
        number, size = (elf.WIDE_KPARAM_INFO, size) if wide else (elf.KPARAM_INFO, size << 18)
        out += struct.pack("<BBHIHHI", elf.SIZED_VALUE, number, 12, 0, ordinal, offset, size)
    return out


def cubin_of(kernels, functions=(), **more):
    names = [*kernels, *functions]
    parts = [(f".text.{name}", b"code") for name in names]
    parts += [(f".nv.info.{name}", info(*shape, **more)) for name, shape in kernels.items()]
    text, symbols = b"\0", b""
    for name in names:
        symbols += elf.SYMBOL.pack(len(text), 0x12, elf.ENTRY if name in kernels else 0, 1, 0, 4)
        text += name.encode() + b"\0"
    return elf_file([*parts, (".strtab", text), (".symtab", symbols)])


def library(kernels, version):
    cubin = cubin_of(kernels)
    entry = bytearray(64)
    struct.pack_into("<HHIQ", entry, 0, nccl_arguments.ELF_ENTRY, 0x101, 64, len(cubin))
    struct.pack_into("<I", entry, 28, 90)
    fatbin = struct.pack("<IHHQ", nccl_arguments.FATBIN_MAGIC, 1, 16, 64 + len(cubin)) + bytes(entry) + cubin
    return elf_file([(".nv_fatbin", fatbin), (".rodata", b"NCCL version " + version)])


NAME = "_Z31ncclDevKernel_Broadcast_RING_LL24ncclDevKernelArgsStorageILm4096EE"


class NcclArgumentsTest(unittest.TestCase):
    def problems(self, kernels, version=b"2.28.9"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "libnccl.so.2"
            path.write_bytes(library(kernels, version))
            return nccl_arguments.check(path, [])

    def test_the_known_shape_is_accepted(self):
        self.assertEqual(self.problems({NAME: [(0, 4096)], "other_kernel": [(0, 8), (8, 4)]}), [])

    def test_another_shape_is_seen(self):
        for shape in ([(0, 2048)], [(0, 8), (8, 8), (16, 8)], [], [(16, 4096)]):
            self.assertIn("instead of", " ".join(self.problems({NAME: shape})), shape)

    def test_a_version_that_is_not_followed_is_seen(self):
        self.assertIn("is not among", " ".join(self.problems({NAME: [(0, 4096)]}, b"2.99.1")))

    def test_a_library_without_its_kernels_is_seen(self):
        self.assertIn("no kernel", " ".join(self.problems({"other_kernel": [(0, 8)]})))

    def test_parameters_beyond_4_kib_are_read(self):
        shape = [(0, 8), (8, 30_000)]
        kernel = elf.kernels(cubin_of({"large": shape}, wide=True))["large"]
        self.assertEqual(kernel.parameters, shape)
        self.assertTrue(kernel.is_word(20_000))

    def test_functions_that_kernels_call_are_none(self):
        cubin = cubin_of({"kernel": [(0, 8)]}, functions=["ncclDevFunc_called"])
        self.assertEqual(list(elf.kernels(cubin)), ["kernel"])

    def test_nothing_that_was_checked_is_no_success(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(sys, "argv", ["nccl_arguments.py", folder]), \
                contextlib.redirect_stdout(io.StringIO()):  # fmt: skip
            self.assertEqual(nccl_arguments.main(), nccl_arguments.NOTHING_THERE)
            (Path(folder) / "libnccl.so.2").write_bytes(library({NAME: [(0, 4096)]}, b"2.28.9"))
            self.assertEqual(nccl_arguments.main(), 0)

    def test_the_product_names_versions(self):
        self.assertIn((2, 28), nccl_arguments.known_versions())
        self.assertIn((2, 30), nccl_arguments.known_versions())


if __name__ == "__main__":
    unittest.main()
