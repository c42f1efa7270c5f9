"""The repaired wheel in one fresh environment: what it holds, that it works without Debian's abseil and beside it, and
that nothing is left of it. PyTorch is that of SPILLWAY_TEST_PYTHON, on the stand-in device."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

import fresh
import job
import make_wheel
import wheel_rules
from fresh import LIBRARIES

BUILD = Path(os.environ["SPILLWAY_BUILD"])
TORCH_PYTHON = os.environ["SPILLWAY_TEST_PYTHON"]
TRAIN = ["--steps", "2", "--width", "384", "--layers", "4", "--sequence", "128", "--batch", "8"]
# Another abseil that the process has for all to see.
OTHERS = [LIBRARIES / name for name in ("libabsl_strings.so.20220623", "libabsl_status.so.20220623", "libabsl_cord.so.20220623",
                                        "libabsl_str_format_internal.so.20220623")]  # fmt: skip


class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(dir=BUILD))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.wheel = make_wheel.make(BUILD, cls.folder / "wheels")
        cls.environment = fresh.Environment(cls.folder / "venv", sys.executable)
        cls.files_before = cls.environment.files()
        cls.environment.pip("install", "--no-index", "--no-deps", cls.wheel)
        cls.can_hide = fresh.can_hide()

    def spillway(self, *arguments, **more):
        return self.environment.run("python", "-m", "spillway", *arguments, **more)

    def need_hiding(self):
        if not self.can_hide:
            self.skipTest("hiding files in a mount namespace needs root")

    def test_repair_changes_nothing_of_the_preload(self):
        packed = self.environment.site / "spillway" / "lib" / "libspillway.so"
        built = BUILD / "lib" / "libspillway.so"
        for read in (wheel_rules.exports, wheel_rules.search_paths, lambda path: wheel_rules.dynamic(path, "SONAME")):
            self.assertEqual(read(packed), read(built))
        self.assertEqual(wheel_rules.dynamic(packed, "SONAME"), ["libcuda.so.1"])

    def test_names_nothing_outside_the_policy_but_pytorchs(self):
        shown = subprocess.run([make_wheel.tools(BUILD) / "auditwheel", "show", "--json", self.wheel],
                               capture_output=True, text=True, check=True).stdout  # fmt: skip
        found = json.loads(shown)
        self.assertEqual(found["sym_tag"], "manylinux_2_34_x86_64")
        self.assertEqual(sorted(found["external_libs"]), ["libc10.so", "libc10_cuda.so"])

    def test_one_input_gives_one_wheel(self):
        again = make_wheel.make(BUILD, self.folder / "again")
        contents = []
        for path in (self.wheel, again):
            with zipfile.ZipFile(path) as wheel:  # the list of parts that auditwheel writes has a new number each time
                names = [name for name in wheel.namelist() if "/sboms/" not in name and not name.endswith("/RECORD")]
                contents.append({name: hashlib.sha256(wheel.read(name)).hexdigest() for name in names})
        self.assertEqual(*contents)

    def test_works_where_abseil_is_hidden(self):
        self.need_hiding()
        answer = self.spillway("--installation", hidden=True)
        self.assertRegex(answer.stdout, r"ok  engine +can be opened")
        # This environment has no PyTorch before the test that trains.
        self.assertRegex(answer.stdout, r"This machine is (usable|not usable: PyTorch)\n")
        version = self.environment.run("spillway", "--version", hidden=True)
        self.assertEqual((version.returncode, version.stdout), (0, f"spillway {make_wheel.wheel_backend.version()}\n"), version)

    def test_says_when_the_engine_cannot_be_opened(self):
        """What was built, without the repair, on the same machine without abseil: the job would run without Spillway."""
        self.need_hiding()
        answer = self.spillway(hidden=True, SPILLWAY_LIBRARY_DIR=str(BUILD / "lib"))
        self.assertEqual(answer.returncode, 1, answer)
        self.assertRegex(answer.stderr, r"spillway: engine cannot be opened, jobs would run without Spillway: \S+\.so")

    def test_command_runs_another_under_spillway(self):
        code = "import os; print(os.environ['LD_PRELOAD'], os.environ['SPILLWAY_HOST_MEMORY'])"
        line = ("spillway", "run", "--host-memory", "64MiB", "--", str(self.environment.python), "-c", code)
        answer = self.environment.run(*line)
        preload = self.environment.site / "spillway" / "lib" / "libspillway.so"
        self.assertEqual((answer.returncode, answer.stdout.split()), (0, [str(preload), "64MiB"]), answer)
        self.assertEqual(self.environment.run("spillway", "run", "--host-memory", "much", "--", "true").returncode, 2)

    def test_nothing_is_left_after_uninstalling(self):
        with fresh.Environment(self.folder / "other", sys.executable) as other:
            before = other.files()
            other.pip("install", "--no-index", "--no-deps", self.wheel)
            self.assertIn("bin/spillway", other.files() - before)
            other.run("python", "-m", "spillway", "--installation")
            other.pip("uninstall", "-y", "spillway")
            self.assertEqual(other.files(), before)
            self.assertEqual([path for path in other.site.glob("*") if "spillway" in path.name], [])

    def train(self, mode, cap=None, prefix=(), **extra):
        machine = job.Machine("simcuda", self.folder / "runs", BUILD, str(self.environment.python))
        run = job.run_job(machine, mode, TRAIN, cap, prefix=prefix, extra_environment=extra, show=lambda line: False)
        self.assertEqual(run.keys["status"], "ok", f"{mode}\n{run.log[-3000:]}")
        return run.keys

    def test_trains_capped_with_the_same_bits(self):
        self.need_hiding()
        self.environment.take_packages_of(TORCH_PYTHON)
        uncapped = self.train(job.UNCAPPED)
        cap = job.Cap(uncapped["peak_bytes"] // 2 // (2 * job.MIB) * (2 * job.MIB), "16MiB", str(self.folder))
        preload = self.environment.output("-m", "spillway", "--library").strip()
        hidden = self.train(job.CONF, cap, fresh.hiding_prefix())
        beside = self.train(job.PRELOAD, cap, LD_PRELOAD=":".join(map(str, [preload, *OTHERS])))
        for run in (hidden, beside):
            for key in ("losses_sha256", "state_sha256"):
                self.assertEqual(run[key], uncapped[key])
            self.assertGreater(run["spilled_bytes"], 0)


if __name__ == "__main__":
    fresh.main()
