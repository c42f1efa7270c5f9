"""libspillway.so as a file: its name for the loader, what it needs, what it exports, what it costs at load."""

import subprocess
import unittest

from shim_case import SHIM, ShimCase


def output(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


class ExportsTest(ShimCase):
    def test_soname_is_the_drivers_and_libc_is_all_it_needs(self):
        lines = output("readelf", "-dW", SHIM).splitlines()
        self.assertEqual([line.split("[")[1].rstrip("]") for line in lines if "(SONAME)" in line], ["libcuda.so.1"])
        self.assertEqual([line.split("[")[1].rstrip("]") for line in lines if "(NEEDED)" in line], ["libc.so.6"])
        self.assertFalse([line for line in lines if "RPATH" in line or "RUNPATH" in line or "TEXTREL" in line])

    def test_exports_are_the_table_and_seven_names(self):
        exported = sorted(line.split()[-1] for line in output("nm", "-D", "--defined-only", SHIM).splitlines())
        functions = self.functions()
        self.assertGreater(len(functions), 600)
        self.assertEqual(exported, sorted([*functions, "dlmopen", "dlopen", "spillway_rebind", "spillway_setting", "spillway_setting_source",
                                            "spillway_take_conf", "spillway_version"]))

    def test_no_code_of_ours_runs_at_load(self):
        """The only constructor is the compiler's own frame_dummy: one entry of 8 bytes."""
        sizes = [line.split()[2] for line in output("readelf", "-dW", SHIM).splitlines() if "(INIT_ARRAYSZ)" in line]
        self.assertEqual(sizes, ["8"])
        symbols = output("readelf", "-sW", SHIM)
        self.assertIn("__frame_dummy_init_array_entry", symbols)

    def test_stack_is_not_executable(self):
        line = next(line for line in output("readelf", "-lW", SHIM).splitlines() if "GNU_STACK" in line)
        self.assertIn("RW ", line)
        self.assertNotIn("RWE", line)


if __name__ == "__main__":
    unittest.main()
