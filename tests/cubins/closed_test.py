"""What read.py does with a library whose licence forbids disassembly, and what the names of its kernels tell."""

import argparse
import json
import re
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent))

import closed
import elf
import read as reader

CLOSED = ("cublas.so.13", "cublasLt.so.13", "cudnn.so.9", "cudnn_adv.so.9", "cudnn_engines_precompiled.so.9", "cufft.so.12",
          "cusparse.so.12", "cusparseLt.so.0", "cusolver.so.12", "cusolverMg.so.12", "curand.so.10", "nvrtc.so.13",
          "nvJitLink.so.13", "cupti.so.13", "nvshmem_host.so.3", "cublas.1.sm_90.cubin")  # fmt: skip


class RefusalTest(unittest.TestCase):
    def read(self, name):
        """The one kernel of a library of that name as read.py writes it down, and how often it asked for instructions."""
        with tempfile.TemporaryDirectory() as folder, \
                mock.patch.object(reader, "run_nvdisasm", return_value="") as nvdisasm, \
                mock.patch.object(elf, "code_of", return_value=b"") as code, \
                mock.patch.object(elf, "kernels", lambda data: {"_Z1kPPf": elf.Kernel("_Z1kPPf", 900, [(0, 8)])}), \
                mock.patch.object(reader, "extract", lambda library, args: [args.work / "a.cubin"]), \
                mock.patch("builtins.print") as out:  # fmt: skip
            args = argparse.Namespace(work=Path(folder), arch="sm_90", only=re.compile(""), keep=True, reader="", jobs=1,
                                      tools=Path(folder))  # fmt: skip
            (args.work / "a.cubin").write_text("elf")
            with mock.patch.object(reader.concurrent.futures, "ProcessPoolExecutor", reader.concurrent.futures.ThreadPoolExecutor):
                self.assertTrue(reader.read_library(Path(name), args, float("inf")))
            reader.summary(Path(name), args)
            self.words = " ".join(str(call.args[0]) for call in out.call_args_list)
            return json.loads((args.work / f"{name}.jsonl").read_text()), nvdisasm.call_count + code.call_count

    def test_no_instruction_of_a_closed_library_is_asked_for(self):
        for name in CLOSED:
            self.assertFalse(reader.is_readable(Path(f"/site/nvidia/lib/lib{name}")), name)
            kernel, asked = self.read(f"lib{name}")
            self.assertEqual(asked, 0, name)
            self.assertEqual(kernel, {"kernel": "_Z1kPPf", "bytes": 900, "parameters": [8]})
            self.assertIn("1 kernels by name, 1 with the types of their parameters; 1 take a table", self.words)

    def test_those_of_an_open_one_are(self):
        for name in ("libtorch_cuda.so", "libtorch_cuda_linalg.so", "libnccl.so.2"):
            self.assertTrue(reader.is_readable(Path(f"/site/torch/lib/{name}")), name)
            self.assertEqual(self.read(name)[1], 2, name)

    def test_a_library_without_code_for_the_device_has_no_kernels_and_other_failures_are_not_taken_for_that(self):
        with tempfile.TemporaryDirectory() as folder:
            tool = Path(folder) / "cuobjdump"
            tool.write_text("#!/bin/sh\necho \"cuobjdump info    : File '$3' ${WORDS}\"\nexit 255\n")
            tool.chmod(0o755)
            args = argparse.Namespace(work=Path(folder), arch="sm_90", tools=Path(folder))
            with mock.patch.dict("os.environ", WORDS="does not contain device code"):
                self.assertEqual(reader.extract(Path("liba.so"), args), [])
            with mock.patch.dict("os.environ", WORDS="is not readable"), self.assertRaises(reader.subprocess.CalledProcessError):
                reader.extract(Path("libb.so"), args)


class TypesTest(unittest.TestCase):
    def test_a_kernel_with_a_table_to_write_and_an_address_for_it_is_a_suspect(self):
        for name in ("lib::fill(void**, void*, unsigned long)", "void set<float>(int, float const**, float const*, ulonglong3)",
                     "setup(int, double*, double**)", "void up<long>(a::B<c>*, long, a::B<c>**)", "f(char**, void*)"):  # fmt: skip
            self.assertTrue(closed.names_table(name), name)
            self.assertTrue(closed.is_suspect(name), name)

    def test_one_that_only_reads_tables_or_has_no_address_for_them_is_none(self):
        for name in ("void gemm<float>(float* const*, float const* const*, float*)", "solve(int, double**, unsigned long)",
                     "offset(double**, double const**, int)", "mixed(float**, int*, long)"):  # fmt: skip
            self.assertTrue(closed.names_table(name), name)
            self.assertFalse(closed.is_suspect(name), name)

    def test_names_without_tables(self):
        for name in ("sm90_xmma_gemm_f16f16_execute_split_k_kernel", "void k<float**>(float*, int)", "k(s<float**>*)", "k()"):
            self.assertFalse(closed.names_table(name), name)
            self.assertFalse(closed.is_suspect(name), name)


if __name__ == "__main__":
    unittest.main()
