"""`cmake --install` into a fresh prefix: what lies there, that the command and the preload work from there, and that a C
program of someone else's finds the C ABI with find_package(Spillway)."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import fresh
import wheel_rules

BUILD = Path(os.environ["SPILLWAY_BUILD"])
HERE = Path(__file__).resolve().parent
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(uses_c_abi C)
find_package(Spillway {version} REQUIRED)
add_executable(uses_c_abi "{source}")
target_link_libraries(uses_c_abi PRIVATE Spillway::engine ${{CMAKE_DL_LIBS}})
file(WRITE "${{CMAKE_BINARY_DIR}}/preload.txt" "${{Spillway_PRELOAD}}")
"""


def run(*command, status=0, **variables):
    done = subprocess.run([str(word) for word in command], env=fresh.clean_variables(**variables), capture_output=True,
                          text=True, check=False, timeout=120)  # fmt: skip
    if status is not None and done.returncode != status:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


class InstallTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.prefix = cls.folder / "prefix"
        run("cmake", "--install", BUILD, "--prefix", cls.prefix)
        cls.version = run(cls.prefix / "bin" / "spillway", "--version").stdout.split()[1]

    def configure(self, version, status=0):
        source, build = self.folder / "source", self.folder / "build"
        source.mkdir(exist_ok=True)
        (source / "CMakeLists.txt").write_text(PROJECT.format(version=version, source=HERE / "uses_c_abi.c"))
        shutil.rmtree(build, ignore_errors=True)
        return build, run("cmake", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}", status=status)

    def test_what_is_installed(self):
        files = {path.relative_to(self.prefix).as_posix() for path in self.prefix.rglob("*") if path.is_file()}
        self.assertTrue({"bin/spillway", "lib/libspillway.so", "lib/libspillway_engine.so", "include/spillway/spillway.h",
                         "share/doc/spillway/LICENSE", "share/man/man1/spillway.1", "share/bash-completion/completions/spillway",
                         "share/zsh/site-functions/_spillway", "share/spillway/operators/grafana_dashboard.json",
                         "share/spillway/operators/prometheus_alerts.yml", "share/spillway/operators/spillway.conf",
                         "share/spillway/operators/slurm/prolog.sh", "share/fish/vendor_completions.d/spillway.fish"} <= files, files)  # fmt: skip
        self.assertTrue(any(name.startswith("lib/libspillway_torch_") for name in files))
        self.assertFalse([name for name in files if "simcuda" in name or name.endswith(".a")])

    def test_preload_is_as_it_was_built(self):
        path = self.prefix / "lib" / "libspillway.so"
        self.assertEqual(wheel_rules.dynamic(path, "SONAME"), ["libcuda.so.1"])
        self.assertEqual(wheel_rules.search_paths(path), [])
        self.assertEqual(wheel_rules.exports(path), wheel_rules.exports(BUILD / "lib" / "libspillway.so"))

    def test_command_finds_its_libraries(self):
        done = run(self.prefix / "bin" / "spillway", "run", "--", "sh", "-c", "echo $LD_PRELOAD")
        self.assertEqual(done.stdout.strip(), str(self.prefix / "lib" / "libspillway.so"))

    def test_c_program_calls_the_c_abi(self):
        build, _ = self.configure(self.version)
        run("cmake", "--build", build)
        program, preload = build / "uses_c_abi", (build / "preload.txt").read_text()
        self.assertEqual(Path(preload), self.prefix / "lib" / "libspillway.so")
        head = f"version={self.version} abi=2"
        self.assertEqual(run(program).stdout.splitlines(), [head, "allocate=3"])  # nothing has started the engine
        served = run(BUILD / "bin" / "simcuda-run", "--memory", "256MiB", "--", program, "cuda", LD_PRELOAD=preload,
                     SPILLWAY_DIRS=str(self.folder), SPILLWAY_DISK_RESERVE="1GiB", SPILLWAY_HOST_MEMORY="16MiB")  # fmt: skip
        self.assertEqual(served.stdout.splitlines(), [head, "allocate=0", "owns=1 find_range=0,1", "free=0"], served.stderr)

    def test_nothing_has_symbols_for_debuggers_and_all_exports(self):
        for path in (self.prefix / "bin" / "spillway", *(self.prefix / "lib").glob("*.so")):
            sections = run("readelf", "--sections", "--wide", path).stdout
            self.assertIn(".dynsym", sections, path)
            for name in (".debug_info", ".symtab"):
                self.assertNotIn(name, sections, path)
            if path.suffix == ".so":
                self.assertEqual(wheel_rules.exports(path), wheel_rules.exports(BUILD / "lib" / path.name), path)

    @unittest.skipUnless(shutil.which("pkg-config"), "pkg-config is not there")
    def test_pkg_config_finds_the_c_abi_wherever_the_folder_lies(self):
        moved = self.folder / "moved"
        shutil.copytree(self.prefix, moved)
        search = {"PKG_CONFIG_PATH": str(moved / "lib" / "pkgconfig")}
        self.assertEqual(run("pkg-config", "--modversion", "spillway", **search).stdout.strip(), self.version)
        preload = run("pkg-config", "--variable=preload", "spillway", **search).stdout.strip()
        self.assertTrue(os.path.samefile(preload, moved / "lib" / "libspillway.so"), preload)
        flags = run("pkg-config", "--cflags", "--libs", "spillway", **search).stdout.split()
        run("cc", HERE / "uses_c_abi.c", "-o", self.folder / "by_pkg_config", *flags, "-ldl")
        head = f"version={self.version} abi=2"
        self.assertEqual(run(self.folder / "by_pkg_config").stdout.splitlines(), [head, "allocate=3"])

    def test_another_minor_is_not_found(self):
        major, minor = self.version.split(".")[:2]
        _, done = self.configure(f"{major}.{int(minor) + 1}", status=None)
        self.assertNotEqual(done.returncode, 0)
        self.assertTrue(re.search(r"compatible\s+with\s+requested\s+version", done.stderr), done.stderr)


if __name__ == "__main__":
    unittest.main()
