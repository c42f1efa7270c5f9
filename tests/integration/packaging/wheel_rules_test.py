"""Each rule for the repaired wheel finds what is planted, in small libraries that are made for it."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import fresh  # noqa: F401  (puts integration/packaging on the path)
import wheel_rules

CLEAN = {"sym_tag": wheel_rules.TAG, "unsupported_isa": False,
         "policy_upgrades": {wheel_rules.TAG: {"libs_to_eliminate": ["libc10.so", "libc10_cuda.so"]}}}  # fmt: skip


class WheelRulesTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.before, self.after = self.folder / "before", self.folder / "after"
        for side in (self.before, self.after):
            self.library(side / "spillway/lib/libspillway.so", "libcuda.so.1")
            self.library(side / "spillway/lib/libspillway_engine.so", "libspillway_engine.so")
            self.library(side / "spillway/lib/libspillway_torch_2_99.so", "libspillway_torch_2_99.so", "-lstdc++")
        self.library(self.after / "spillway.libs/libabsl_base-01234567.so.1", "libabsl_base-01234567.so.1")
        info = self.after / "spillway-1.dist-info"
        (info / "licenses").mkdir(parents=True)
        (info / "licenses" / "LICENSE").write_text("text")
        (info / "entry_points.txt").write_text("[console_scripts]\nspillway = spillway.command:main\n")
        (self.after / "spillway/lib/vega.js").write_text("drawing")
        self.wheel = self.folder / f"spillway-1-py3-none-{wheel_rules.TAG}.whl"
        self.wheel.write_bytes(b"small")

    def library(self, path, soname, *options, plain=True, code="int f(void) { return 1; }"):
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-shared", "-fPIC", "-xc", "-", "-o", path, f"-Wl,-soname,{soname}", "-Wl,--no-as-needed",
                        "-w", *(["-s"] if plain else []), "-xnone", *options], input=code, text=True, check=True)  # fmt: skip

    def problems(self, shown=None):
        return wheel_rules.find_problems(self.wheel, self.before, self.after, shown or CLEAN, ["LICENSE"])

    def assert_one(self, words, shown=None):
        found = self.problems(shown)
        self.assertEqual([problem for problem in found if words in problem][:1], found, words)
        self.assertEqual(len(found), 1, words)

    def test_clean(self):
        self.assertEqual(self.problems(), [])

    def test_size_and_tag(self):
        self.wheel.write_bytes(b"x" * wheel_rules.MOST_BYTES)
        self.assert_one("6000000 bytes are not under")
        self.wheel = self.wheel.rename(self.folder / "spillway-1-py3-none-linux_x86_64.whl")
        self.wheel.write_bytes(b"")
        self.assert_one("is not tagged")

    def test_policy(self):
        self.assert_one("manylinux_2_39_x86_64", {**CLEAN, "sym_tag": "manylinux_2_39_x86_64"})
        self.assert_one("beyond x86_64", {**CLEAN, "unsupported_isa": True})
        outside = {wheel_rules.TAG: {"libs_to_eliminate": ["libc10.so", "libfoo.so.1"]}}
        self.assert_one("needs libfoo.so.1", {**CLEAN, "policy_upgrades": outside})
        forbidden = {wheel_rules.TAG: {"blacklisted_symbols": {"libz.so.1": ["crc"]}}}
        self.assert_one("forbids", {**CLEAN, "policy_upgrades": forbidden})

    def test_preload_stays_as_it_was(self):
        path = self.after / "spillway/lib/libspillway.so"
        self.library(path, "libcuda.so.1", "-lm")
        self.assert_one("changed its NEEDED")
        self.library(path, "libcuda.so.1", "-Wl,-rpath,$ORIGIN")
        self.assertEqual(len(self.problems()), 2)  # changed, and there at all
        self.library(path, "libspillway.so")
        self.assertEqual(len(self.problems()), 2)  # changed, and another than the driver's
        self.library(path, "libcuda.so.1", code="int f(void) { return 1; } int g(void) { return 2; }")
        self.assertEqual(len([p for p in self.problems() if "changed its exports" in p]), 1)

    def test_libraries(self):
        engine = self.after / "spillway/lib/libspillway_engine.so"
        self.library(engine, "libspillway_engine.so", "-lstdc++")
        self.assert_one("its C++ runtime is not linked in")
        self.library(engine, "libspillway_engine.so", plain=False)
        self.assert_one("not stripped")
        self.library(engine, "libspillway_engine.so", code="int g(void) { return 1; }")
        self.assert_one("changed what it exports")
        self.library(engine, "libspillway_engine.so", code="int f(void) { return _ZN4absl4FakeEv(); }")
        self.assert_one("names _ZN4absl4FakeEv as any other copy")
        self.library(self.folder / "libClp.so.1", "libClp.so.1")
        self.library(engine, "libspillway_engine.so", str(self.folder / "libClp.so.1"))
        self.assert_one("needs CLP")

    def test_library_against_pytorch_keeps_the_systems_runtime(self):
        self.library(self.after / "spillway/lib/libspillway_torch_2_99.so", "libspillway_torch_2_99.so")
        self.assert_one("exceptions and strings could not cross")

    def test_grafts_have_names_of_their_own(self):
        self.library(self.after / "spillway.libs/libabsl_time-01234567.so.1", "libabsl_time.so.1")
        self.assert_one("its SONAME is another")
        shutil.rmtree(self.after / "spillway.libs")
        self.assert_one("abseil is missing")

    def test_renamed_copies_only(self):
        self.library(self.after / "spillway.libs/libother-01234567.so.12", "libother-01234567.so.12")
        self.assert_one("not a renamed copy")

    def test_licences_and_the_command(self):
        (self.after / "spillway-1.dist-info/licenses/LICENSE").unlink()
        self.assert_one("licenses/LICENSE is missing")
        (self.after / "spillway-1.dist-info/licenses/LICENSE").write_text("text")
        (self.after / "spillway-1.dist-info/entry_points.txt").write_text("")
        self.assert_one("no entry point")

    def test_the_drawing_library(self):
        (self.after / "spillway/lib/vega.js").unlink()
        self.assert_one("spillway/lib/vega.js is missing")


if __name__ == "__main__":
    unittest.main()
