"""Names of abseil get a prefix where they are defined and where they are used, and another copy is not taken for them."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import fresh  # noqa: F401  (puts integration/packaging on the path)
import make_wheel
import own_names

PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char** argv) {
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  printf("%d\\n", library ? ((int (*)(void))dlsym(library, "Ask"))() : -1);
  return 0;
}
"""


def compile_code(code, *options):
    subprocess.run(["cc", "-w", "-xc", "-", "-xnone", *map(str, options)], input=code, text=True, check=True)


class OwnNamesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.patchelf = make_wheel.tools(Path(os.environ["SPILLWAY_BUILD"])) / "patchelf"

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.copy, self.user, self.other = (self.folder / name for name in ("libabsl_a.so", "user.so", "other.so"))
        shared = ("-shared", "-fPIC", "-o")
        compile_code("int _ZN4absl1fEv(void) { return 1; } int Kept(void) { return 2; }", *shared, self.copy, "-Wl,-soname,libabsl_a.so")
        compile_code("int Ask(void) { return _ZN4absl1fEv(); }", *shared, self.user, self.copy, "-Wl,-rpath,$ORIGIN")
        compile_code("int _ZN4absl1fEv(void) { return 9; }", *shared, self.other)
        compile_code(PROGRAM, "-o", self.folder / "program")

    def ask(self):
        done = subprocess.run([self.folder / "program", self.user], env={"LD_PRELOAD": str(self.other)},
                              capture_output=True, text=True, check=True)  # fmt: skip
        return done.stdout

    def test_another_copy_is_not_taken_for_ours(self):
        self.assertEqual(self.ask(), "9\n")  # as it was: the one that all see comes first
        own_names.rename([self.copy, self.user], self.patchelf, self.folder)
        self.assertEqual(self.ask(), "1\n")

    def test_only_names_of_abseil_change(self):
        self.assertEqual(own_names.common_symbols(self.user), {"_ZN4absl1fEv"})
        own_names.rename([self.copy, self.user], self.patchelf, self.folder)
        self.assertEqual(own_names.common_symbols(self.user) | own_names.common_symbols(self.copy), set())
        self.assertTrue({"Kept", "spillway__ZN4absl1fEv"} <= own_names.symbols(self.copy))
        self.assertIn("Ask", own_names.symbols(self.user))

    def test_libraries_are_copied(self):
        copies = own_names.copy_libraries([self.user], self.folder / "copies")
        self.assertEqual([Path(path).name for path in copies], ["libabsl_a.so"])


if __name__ == "__main__":
    unittest.main()
