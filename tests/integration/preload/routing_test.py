"""Which function is reached, by every way in which programs and libraries reach the driver.

The test driver returns 4000 from cuLaunchKernel and 7000 from its per-thread form; the test engine's wrappers add
10000. So 14000 is the wrapped legacy launch, 17000 the wrapped per-thread one, and 4000 a launch that got away.
"""

import os
import shutil
import tempfile
import unittest

from shim_case import BUILD, FULL, NO_DEVICE, NOT_SUPPORTED, OLD, PLUGINS, SHIM, STAGE, ShimCase

OPENED = "engine: open abi=3 flags=0"
WRAPPED = [OPENED, "init=0", "launch=14000", "launch_ptsz=17000"]


class RoutingTest(ShimCase):
    def test_without_the_shim_the_real_functions_are_reached(self):
        self.assertEqual(self.probe("open", "libcuda.so.1", preload=()), ["init=0", "launch=4000", "launch_ptsz=7000"])

    def test_driver_linked_program(self):
        self.assertEqual(self.probe("linked", program="preload_probe_linked"), WRAPPED)

    def test_driver_linked_program_whose_own_runpath_is_the_only_way_to_the_driver(self):
        self.assertEqual(self.probe("linked", program="preload_probe_linked", driver=None), WRAPPED)

    def test_open_by_name(self):
        self.assertEqual(self.probe("open", "libcuda.so.1"), WRAPPED)

    def test_open_by_development_name(self):
        self.assertEqual(self.probe("open", "libcuda.so"), WRAPPED)

    def test_open_by_path(self):
        for name in ("libcuda.so.1", "libcuda.so"):
            self.assertEqual(self.probe("open", FULL / name), WRAPPED)
        self.assertEqual(self.probe("open", "./libcuda.so.1", cwd=FULL), WRAPPED)

    def skip_with_a_driver_in_the_system(self):
        if self.probe("failing-open", "libcuda.so.1", preload=(), driver=None)[0] == "opened=1":
            self.skipTest("this machine has a CUDA driver")

    def test_path_is_the_driver_when_no_other_is_found(self):
        self.skip_with_a_driver_in_the_system()
        lines = self.probe("open", FULL / "libcuda.so.1", driver=None, FAKE_ENGINE_PATHS=1)
        self.assertIn("launch=14000", lines)
        self.assertIn(f"engine: driver={FULL}/libcuda.so.1 library={SHIM.parent}", lines)

    def test_path_that_does_not_exist_fails_as_before(self):
        lines = self.probe("failing-open", "/nowhere/libcuda.so.1")
        self.assertEqual(lines, ["opened=0", "error_names_it=1"])

    def test_other_libraries_are_left_alone(self):
        for path in ("/nowhere/libcudart.so.13", "/nowhere/libcuda.so.12", "/nowhere/libcudadebugger.so.1"):
            self.assertEqual(self.probe("failing-open", path), ["opened=0", "error_names_it=1"])

    def test_both_forms_of_get_proc_address(self):
        for form, first in (("v1", ["second=0"]), ("v2", ["status=0", "status_may_be_null=0"])):
            lines = self.probe("getproc", form)
            self.assertEqual(lines[: len(first) + 1], [*first, "self=0"])
            self.assertEqual(
                lines[len(first) + 1 :],
                [
                    OPENED,
                    "init=0",
                    "cuLaunchKernel.12000.0=14000",
                    "cuLaunchKernel.12000.2=17000",
                    "cuMemcpyBatchAsync.12080.0=22080",
                    "cuMemcpyBatchAsync.13000.0=23000",
                    "cuMemAlloc.13000.0=3021",
                    "cuDeviceGetName.13000.0=2001",
                    "cuMemsetD8Async.13000.0=13200",
                    "cuMemsetD8Async.13000.2=13200",
                    "cuMemsetD16Async.13000.0=13300",
                    "cuMemsetD32.13000.0=13400",
                    "cuNoSuchName.13000.0=-500",
                    ".13000.0=-500",
                ],
            )

    def test_look_ups_without_a_driver_are_answered_as_by_a_driver(self):
        """What is not there is no error of the second form; the first one fails and leaves the pointer."""
        self.skip_with_a_driver_in_the_system()
        lines = self.probe("look-ups", driver=None, SPILLWAY_CUDA_DRIVER="")
        self.assertEqual(
            lines,
            [
                "0 there; 0 there 0",
                "500 untouched; 0 null 1",
                "500 untouched; 0 null 1",
                "500 untouched; 0 null 2",
                "1 untouched; 1 untouched -1",
                "1 untouched; 1 untouched -1",
            ],
        )

    def test_caller_that_binds_deeply(self):
        self.assertEqual(self.probe("plugin", PLUGINS / "libpreload_cuda.so", "deepbind"), [OPENED, "plugin=14000"])

    def test_second_interposer_of_dlopen(self):
        other = PLUGINS / "libpreload_interposer.so"
        for order in ((SHIM, other), (other, SHIM)):
            lines = self.probe("open", FULL / "libcuda.so.1", preload=order)
            self.assertIn("launch=14000", lines)
            self.assertTrue([line for line in lines if line.startswith("interposer: ") and "libcuda.so.1" in line], lines)

    def test_second_interposer_of_dlsym(self):
        """The shim's own look-ups go through it too, and bring back the driver's functions."""
        other = PLUGINS / "libpreload_dlsym.so"
        for order in ((SHIM, other), (other, SHIM)):
            for place in ("libcuda.so.1", FULL / "libcuda.so.1"):
                lines = [line for line in self.probe("open", place, preload=order) if not line.startswith("interposer")]
                self.assertEqual(lines, WRAPPED)

    def test_callers_linked_against_either_glibc(self):
        """dlopen and dlsym have two symbol versions; the hook must catch both, here where only it can: by path."""
        for version in ("2.2.5", "2.34"):
            plugin = PLUGINS / f"libpreload_glibc_{version}.so"
            lines = self.probe("plugin", plugin, "", PLUGIN_DRIVER=FULL / "libcuda.so.1")
            self.assertEqual(lines, [OPENED, "plugin=14000"])
            self.assertEqual(self.probe("plugin", plugin, "", preload=(), PLUGIN_DRIVER=FULL / "libcuda.so.1"), ["plugin=4000"])

    def test_names_looked_up_in_the_global_scope(self):
        lines = self.probe("scopes")
        self.assertEqual(lines, [OPENED, "init=0", "default=14000", "next=14000", "next_per_thread=17000", "unknown=0"])

    def test_runpath_of_the_caller_is_kept(self):
        plugin = PLUGINS / "libpreload_runpath.so"
        self.assertEqual(self.probe("plugin", plugin, "", preload=()), ["plugin=77"])
        self.assertEqual(self.probe("plugin", plugin, ""), ["plugin=77"])

    def test_arguments_pass_through_the_first_call_and_the_later_ones(self):
        self.assertEqual(self.probe("arguments"), ["lazy=4242", "bound=4242"])

    def test_functions_that_the_driver_lacks(self):
        lines = self.probe("call", "cuLaunchKernelEx", "cuGetProcAddress_v2", "cuLaunchKernel", driver=OLD)
        wanted = ["init=0", f"cuLaunchKernelEx={NOT_SUPPORTED}", f"cuGetProcAddress_v2={NOT_SUPPORTED}"]
        self.assertEqual([line for line in lines if not line.startswith("engine:")], [*wanted, "cuLaunchKernel=14000"])
        self.assertIn("engine: install cuLaunchKernelEx -1", lines)

    def test_no_driver_at_all(self):
        self.skip_with_a_driver_in_the_system()
        lines = self.probe("open", "libcuda.so.1", driver=None, SPILLWAY_CUDA_DRIVER="")
        self.assertEqual(lines, [f"init={NO_DEVICE}", f"launch={NO_DEVICE}", f"launch_ptsz={NO_DEVICE}"])

    def test_named_driver_wins(self):
        driver = OLD / "libcuda.so.1"
        lines = self.probe("open", "libcuda.so.1", SPILLWAY_CUDA_DRIVER=driver, FAKE_ENGINE_PATHS=1)
        self.assertIn(f"engine: driver={driver} library={SHIM.parent}", lines)

    def test_named_driver_that_is_none_is_said(self):
        done = self.run_command([STAGE / "preload_probe", "open", "libcuda.so.1"], SPILLWAY_CUDA_DRIVER="/nowhere/x.so")
        self.assertIn(f"init={NO_DEVICE}", done.stdout)
        words = "spillway: SPILLWAY_CUDA_DRIVER names /nowhere/x.so, which cannot be opened as a CUDA driver"
        self.assertEqual(done.stderr, words + "; CUDA finds no device (SPILLWAY_REQUIRE=1 ends the job instead)\n")
        done = self.run_command([STAGE / "preload_probe", "open", "libcuda.so.1"], SPILLWAY_CUDA_DRIVER="/nowhere/x.so",
                                SPILLWAY_REQUIRE="1", status=2)  # fmt: skip
        self.assertEqual((done.stdout, done.stderr), ("", words + "; the job ends, as SPILLWAY_REQUIRE asks\n"))

    def test_itself_and_copies_of_itself_are_not_taken_for_the_driver(self):
        with tempfile.TemporaryDirectory() as folder:
            for place in ("same", "copy"):
                os.mkdir(os.path.join(folder, place))
            os.symlink(SHIM, os.path.join(folder, "same", "libcuda.so.1"))
            shutil.copy(SHIM, os.path.join(folder, "copy", "libcuda.so.1"))
            path = f"{folder}/same:{folder}/copy:{FULL}"
            lines = self.probe("open", "libcuda.so.1", driver=path, FAKE_ENGINE_PATHS=1)
        self.assertIn(f"engine: driver={FULL}/libcuda.so.1 library={SHIM.parent}", lines)
        self.assertIn("launch=14000", lines)

    def test_driver_that_was_there_before(self):
        """Loaded by a loader that comes after the driver, as ctypes may."""
        code = (
            "import ctypes; ctypes.CDLL('{0}/libcuda.so.1'); shim = ctypes.CDLL('{1}', mode=ctypes.RTLD_GLOBAL);"
            "print('init', shim.cuInit(0))"
        ).format(FULL, SHIM)
        command = ["/usr/bin/env", "python3", "-c", code]
        done = self.run_command(command, preload=(), driver=None)
        self.assertIn("engine: open abi=3 flags=1", done.stdout)
        words = f"spillway: {FULL}/libcuda.so.1 was loaded before libspillway.so: its calls are not seen"
        self.assertEqual(done.stderr, words + ", eviction is off (SPILLWAY_REQUIRE=1 ends the job instead)\n")
        done = self.run_command(command, preload=(), driver=None, SPILLWAY_REQUIRE="1", status=2)
        self.assertEqual((done.stdout, done.stderr), ("", words + "; the job ends, as SPILLWAY_REQUIRE asks\n"))

    def test_loaded_early_without_preload_it_is_found_by_its_soname(self):
        """What the Python start-up hook does: a later dlopen("libcuda.so.1") is answered by the shim."""
        code = (
            "import ctypes; ctypes.CDLL('{0}', mode=ctypes.RTLD_GLOBAL); plugin = ctypes.CDLL('{1}/libpreload_cuda.so');"
            "print('plugin', plugin.PluginMain())"
        ).format(SHIM, PLUGINS)
        done = self.run_command(["/usr/bin/env", "python3", "-c", code], preload=())
        self.assertEqual(done.stdout.splitlines(), [OPENED, "plugin 14000"])
        self.assertEqual(done.stderr, "")

    def test_a_driver_in_a_namespace_of_its_own_is_reported(self):
        code = ("import ctypes; dlmopen = ctypes.CDLL(None).dlmopen; dlmopen.restype = ctypes.c_void_p;"
                "opened = [dlmopen(ctypes.c_long(-1), name.encode(), 2) is not None for name in ('libm.so.6', '{0}', '{0}')];"
                "print(opened)").format(FULL / "libcuda.so.1")  # fmt: skip
        for variables, lines in (({}, 1), ({"SPILLWAY": "off"}, 0)):
            done = self.run_command(["/usr/bin/env", "python3", "-c", code], **variables)
            self.assertEqual(done.stdout, "[True, True, True]\n")
            self.assertEqual(done.stderr.count(f"dlmopen opens {FULL}/libcuda.so.1 in a namespace of its own"), lines, done.stderr)

    def test_on_the_stand_in_driver(self):
        driver = BUILD / "lib/simcuda/libcuda.so.1"
        if not driver.exists():
            self.skipTest("lib/simcuda/libcuda.so.1 is not built")
        lines = self.probe("call", "cuCtxSynchronize", driver=driver.parent, FAKE_ENGINE_PATHS=1)
        self.assertIn("init=0", lines)
        self.assertIn(f"engine: driver={driver} library={SHIM.parent}", lines)


if __name__ == "__main__":
    unittest.main()
