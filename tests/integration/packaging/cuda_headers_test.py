"""Where CUDA's headers are found, and what configuring says where something that it needs is not there."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["SPILLWAY_SOURCE"])
UNIT = SOURCE / "integration" / "packaging" / "cuda_headers.cmake"


class CudaHeadersTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.folder / "venv"], check=True)
        self.python = self.folder / "venv" / "bin" / "python"
        self.site = next((self.folder / "venv").glob("lib/python3*/site-packages"))

    def header(self, folder, version, compiler=True):
        """A folder of headers of that version; `compiler`: with those of the compiler, as a toolkit has them and no wheel."""
        folder.mkdir(parents=True)
        if compiler:
            self.compiler_headers(folder)
        (folder / "cuda.h").write_text(f"#ifndef CUDA\n#define CUDA_VERSION {version}\n#endif\n")
        return folder

    def compiler_headers(self, folder):
        (folder / "crt").mkdir(parents=True)
        (folder / "crt" / "host_config.h").write_text("")
        return folder / "crt"

    def find(self, *, system="", cuda_home=None, status=0):
        script = self.folder / "probe.cmake"
        script.write_text(f'include("{UNIT}")\nmessage("found=${{SPILLWAY_CUDA_INCLUDE}}")\n')
        variables = {k: v for k, v in os.environ.items() if not k.startswith("CUDA")}
        if cuda_home:
            variables["CUDA_HOME"] = str(cuda_home)
        done = subprocess.run(
            ["cmake", f"-DSPILLWAY_PYTHON={self.python}", f"-DSPILLWAY_SYSTEM_CUDA_FOLDERS={system}", "-P", script],
            cwd=self.folder, env=variables, capture_output=True, text=True, check=False)  # fmt: skip
        self.assertEqual(done.returncode, status, done.stderr)
        return " ".join((done.stdout + done.stderr).split())

    def test_those_of_the_named_python_without_a_toolkit(self):
        wheel = self.header(self.site / "nvidia" / "cuda_runtime" / "include", 12060)
        self.assertIn(f"found={wheel}", self.find())

    def test_those_of_the_named_python_before_an_installed_toolkit(self):
        wheel = self.header(self.site / "nvidia" / "cu13" / "include", 13000)
        system = self.header(self.folder / "system", 13010)
        self.assertIn(f"found={wheel}", self.find(system=system))

    def test_those_that_cuda_home_names_before_all(self):
        self.header(self.site / "nvidia" / "cu13" / "include", 13000)
        home = self.header(self.folder / "toolkit" / "include", 12080)
        self.assertIn(f"found={home}", self.find(cuda_home=home.parent))

    def test_older_ones_are_passed_by(self):
        self.header(self.site / "nvidia" / "cuda_runtime" / "include", 12010)
        system = self.header(self.folder / "system", 12040)
        self.assertIn(f"found={system}", self.find(system=system))

    def test_those_of_the_compiler_come_from_triton_where_there_is_no_toolkit(self):
        self.header(self.site / "nvidia" / "cu13" / "include", 13000, compiler=False)
        triton = self.compiler_headers(self.site / "triton" / "backends" / "nvidia" / "include")
        self.assertIn(f"headers of the compiler: {triton}", self.find())
        self.assertEqual((self.folder / "cuda_compiler_headers" / "crt").resolve(), triton.resolve())

    def test_those_of_the_compiler_come_from_beside_the_runtimes_first(self):
        wheel = self.header(self.site / "nvidia" / "cu13" / "include", 13000)
        self.compiler_headers(self.site / "triton" / "backends" / "nvidia" / "include")
        self.assertIn(f"headers of the compiler: {wheel}/crt", self.find())

    def test_those_of_the_compiler_come_from_triton_before_an_old_toolkit(self):
        self.header(self.site / "nvidia" / "cu13" / "include", 13000, compiler=False)
        triton = self.compiler_headers(self.site / "triton" / "backends" / "nvidia" / "include")
        system = self.header(self.folder / "system", 11080)
        self.assertIn(f"headers of the compiler: {triton}", self.find(system=system))

    def test_those_of_the_compiler_come_from_a_toolkit_where_triton_is_missing(self):
        self.header(self.site / "nvidia" / "cu13" / "include", 13000, compiler=False)
        system = self.header(self.folder / "system", 13010)
        self.assertIn(f"headers of the compiler: {system}/crt", self.find(system=system))

    def test_without_those_of_the_compiler_it_says_what_to_do(self):
        self.header(self.site / "nvidia" / "cu13" / "include", 13000, compiler=False)
        said = self.find(status=1)
        self.assertIn("No crt/host_config.h of CUDA found", said)
        self.assertIn("Triton", said)

    def test_none_says_what_to_do(self):
        old = self.header(self.site / "nvidia" / "cuda_runtime" / "include", 12010)
        said = self.find(status=1)
        self.assertIn(f"{old} has CUDA 12010.", said)
        self.assertIn("-DSPILLWAY_PYTHON=/path/to/python", said)


class ConfigureTest(unittest.TestCase):
    def configure(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(["cmake", "-S", SOURCE, "-B", folder, "-G", "Ninja", *arguments],
                                  capture_output=True, text=True, check=False)  # fmt: skip
        self.assertEqual(done.returncode, 1, done.stdout)
        return " ".join(done.stderr.split())

    def test_python_without_pytorch_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
            said = self.configure(f"-DSPILLWAY_PYTHON={folder}/bin/python", "-DSPILLWAY_CUDA_INCLUDE=" + self.headers())
        self.assertIn("There is no PyTorch in", said)
        self.assertIn("integration/quickstart.sh", said)

    def headers(self):
        with open(Path(os.environ["SPILLWAY_BUILD"]) / "CMakeCache.txt", encoding="utf-8") as cache:
            return next(line.split("=", 1)[1].strip() for line in cache if line.startswith("SPILLWAY_CUDA_INCLUDE:"))

    def test_aarch64_is_refused_in_words(self):
        said = self.configure("-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64")
        self.assertIn("Spillway is for Linux on x86_64; this machine is aarch64", said)


if __name__ == "__main__":
    unittest.main()
