"""A driver that was in the process before the shim: calls through what had been looked up, and through what is looked up
later, go through the shim once it has taken the driver over."""

import unittest

from shim_case import FULL, OLD, SHIM, STAGE, ShimCase

OPENED = "engine: open abi=3 flags=0"


class RebindTest(ShimCase):
    def rebind(self, *more, **options):
        done = self.run_command([STAGE / "preload_probe", "rebind", SHIM, *more], preload=(), **options)
        return done.stdout.splitlines(), done.stderr

    def test_pointers_in_data_reach_the_wrappers_and_those_on_the_heap_do_not(self):
        lines, errors = self.rebind()
        self.assertEqual(errors, "")
        self.assertEqual(lines, ["rebind=some", "data=4000", OPENED, "init=0", "data=14000", "heap=7000",
                                 "by_name=21060", "later=14000", "unknown=0", "again=0"])  # fmt: skip

    def test_an_initialised_driver_is_left_alone(self):
        lines, errors = self.rebind("initialised")
        self.assertEqual(lines[:2], ["rebind=refused: the driver has been initialized", "data=4000"])
        self.assertIn("later=4000", lines)
        self.assertNotIn(OPENED, lines)
        self.assertEqual(errors, "")

    def test_a_function_that_no_table_has_is_named(self):
        lines, _ = self.rebind("unknown")
        self.assertEqual(lines[:2], ["rebind=refused: a library has looked up cuExportedOfTheFuture, which this version does not know",
                                     "data=4000"])  # fmt: skip
        self.assertIn("later=4000", lines)

    def test_what_the_loader_has_bound(self):
        done = self.run_command([STAGE / "preload_probe_linked", "rebind", SHIM], preload=())
        self.assertEqual(done.stdout.splitlines(), ["rebind=1", OPENED, "init=0", "launch=14000", "launch_ptsz=17000"])
        self.assertEqual(done.stderr, "")

    def test_an_older_driver(self):
        lines, _ = self.rebind(driver=OLD)
        self.assertEqual(lines[0], "rebind=some")
        self.assertIn("later=14000", lines)

    def test_without_a_driver_there_is_nothing_to_do(self):
        code = f"import ctypes; shim = ctypes.CDLL('{SHIM}', mode=ctypes.RTLD_GLOBAL); print(shim.spillway_rebind(None, 0))"
        for driver in (None, FULL):
            done = self.run_command(["/usr/bin/env", "python3", "-c", code], preload=(), driver=driver)
            self.assertEqual((done.stdout, done.stderr), ("0\n", ""))


if __name__ == "__main__":
    unittest.main()
