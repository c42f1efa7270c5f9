"""When the engine is opened, how often, by whom, and what is left of it in a forked child."""

import os
import shutil
import tempfile
import unittest

from shim_case import FULL, PLUGINS, SHIM, STAGE, ShimCase

HOW = " (SPILLWAY_REQUIRE=1 ends the job instead)"
OPENED = "engine: open abi=3 flags=0"


class StartTest(ShimCase):
    def test_not_before_cuinit(self):
        lines = self.probe("late")
        self.assertEqual(lines[:3], ["before=4000", "before_by_name=4000", OPENED])

    def test_not_when_cuinit_fails(self):
        lines = self.probe("call", "cuLaunchKernel", FAKE_DRIVER_INIT=100)
        self.assertEqual(lines, ["init=100", "cuLaunchKernel=4000"])

    def test_wrappers_are_reached_through_pointers_handed_out_before(self):
        lines = self.probe("late", FAKE_ENGINE="late")
        self.assertEqual(
            lines,
            [
                "before=4000",
                "before_by_name=4000",
                OPENED,
                "init=0",
                "engine: unwrapped cuLaunchKernel 0",
                "between=4000",
                "engine: cu_init",
                "init=0",
                "after=14000",
                "after_by_name=14000",
            ],
        )

    def test_threads_that_race_open_it_once_and_wait_for_it(self):
        for _ in range(20):
            lines = self.probe("race", FAKE_DRIVER_INIT_MS=2)
            self.assertEqual(lines.count(OPENED), 1)
            self.assertEqual(lines.count("engine: cu_init"), 7)
            self.assertEqual(lines.count("thread=14000"), 8)

    def test_cuinit_in_a_constructor_races_with_another(self):
        """The first holds the loader's lock and wants ours, the second must not hold ours and want the loader's."""
        for _ in range(40):
            lines = self.probe("constructor-race", PLUGINS / "libpreload_constructor.so")
            self.assertEqual([line for line in lines if line != "engine: cu_init"], [OPENED, "constructor=14000", "call=14000"])

    def test_engine_that_refuses(self):
        done = self.run_command([STAGE / "preload_probe", "open", "libcuda.so.1"], FAKE_ENGINE="refuse")
        self.assertEqual(done.stdout.splitlines(), [OPENED, "init=0", "launch=4000", "launch_ptsz=7000"])
        self.assertEqual(done.stderr, "spillway: the engine did not start; CUDA is used as without Spillway" + HOW + "\n")

    def test_engine_that_is_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copy(SHIM, folder)
            done = self.run_command([STAGE / "preload_probe", "open", "libcuda.so.1"], preload=(copy,))
        self.assertEqual(done.stdout.splitlines(), ["init=0", "launch=4000", "launch_ptsz=7000"])
        self.assertIn("spillway: cannot open the engine: ", done.stderr)
        self.assertTrue(done.stderr.endswith(HOW + "\n"), done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1)

    def end_of_a_job_that_requires_us(self, **options):
        """What it says on standard error, after what was printed before its first CUDA call could return."""
        done = self.run_command([STAGE / "preload_probe", "open", "libcuda.so.1"], status=2, **options)
        self.assertNotIn("init=", done.stdout)
        return done.stderr

    def test_required_and_the_engine_refuses(self):
        words = self.end_of_a_job_that_requires_us(FAKE_ENGINE="refuse", SPILLWAY_REQUIRE="1")
        self.assertEqual(words, "spillway: the engine did not start; the job ends, as SPILLWAY_REQUIRE asks\n")

    def test_required_and_the_engine_is_missing_or_none(self):
        for name in ("SPILLWAY_REQUIRE", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
            value = "on" if name == "SPILLWAY_REQUIRE" else "backend:spillway,require:1"
            asks = "SPILLWAY_REQUIRE" if name == "SPILLWAY_REQUIRE" else f"require in {name}"
            with tempfile.TemporaryDirectory() as folder:
                copy = shutil.copy(SHIM, folder)
                words = self.end_of_a_job_that_requires_us(preload=(copy,), **{name: value})
                self.assertRegex(words, f"^spillway: cannot open the engine: .*; the job ends, as {asks} asks\n$")
                shutil.copy(FULL / "libcuda.so.1", os.path.join(folder, "libspillway_engine.so"))
                words = self.end_of_a_job_that_requires_us(preload=(copy,), **{name: value})
                self.assertRegex(words, f"lacks spillway_engine_open; the job ends, as {asks} asks\n$")

    def test_a_value_that_nobody_judges_counts_as_required(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copy(SHIM, folder)
            self.end_of_a_job_that_requires_us(preload=(copy,), SPILLWAY_REQUIRE="yes")

    def test_not_required(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copy(SHIM, folder)
            for more in ({"SPILLWAY_REQUIRE": "0"}, {"SPILLWAY_REQUIRE": "OFF"}, {"SPILLWAY_REQUIRE": ""},
                         {"SPILLWAY_REQUIRE": "1", "SPILLWAY": "off"}):  # fmt: skip
                done = self.run_command([STAGE / "preload_probe", "open", "libcuda.so.1"], preload=(copy,), **more)
                self.assertEqual(done.stdout.splitlines(), ["init=0", "launch=4000", "launch_ptsz=7000"])

    def test_required_and_served(self):
        self.assertIn("launch=14000", self.probe("open", "libcuda.so.1", SPILLWAY_REQUIRE="1"))

    def test_engine_beside_the_file_that_a_link_points_to(self):
        with tempfile.TemporaryDirectory() as folder:
            link = os.path.join(folder, "libspillway.so")
            os.symlink(SHIM, link)
            self.assertIn("launch=14000", self.probe("open", "libcuda.so.1", preload=(link,)))

    def test_wsl_is_refused_in_words(self):
        preload = (SHIM, PLUGINS / "libpreload_wsl.so")
        done = self.run_command([STAGE / "preload_probe", "open", "libcuda.so.1"], preload=preload)
        self.assertEqual(done.stdout.splitlines(), ["init=0", "launch=4000", "launch_ptsz=7000"])
        self.assertRegex(done.stderr, r"\Aspillway: WSL is not supported, [^\n]*\n\Z")

    def test_preloaded_by_a_relative_path_and_then_elsewhere(self):
        relative = os.path.join(".", SHIM.name)
        lines = self.probe("chdir", preload=(relative,), cwd=SHIM.parent)
        self.assertEqual(lines, [OPENED, "init=0", "launch=14000", "launch_ptsz=17000"])

    def test_engine_may_call_cuinit_and_fork_while_it_opens(self):
        for mode in ("init", "fork"):
            lines = self.probe("open", "libcuda.so.1", FAKE_ENGINE=mode)
            self.assertEqual([line for line in lines if "fork_child" not in line][:1], [OPENED])
            self.assertEqual(lines[-2:], ["launch=14000", "launch_ptsz=17000"])
            self.assertFalse([line for line in lines if "failed" in line], lines)

    def test_install_refuses_what_it_cannot_wrap(self):
        lines = self.probe("open", "libcuda.so.1", FAKE_ENGINE="install")
        for name in ("cuInit", "cuGetProcAddress_v2", "cuNoSuchFunction", "cuMemcpy3D"):
            self.assertIn(f"engine: install {name} -1", lines)
        self.assertEqual(lines[-3:], ["init=0", "launch=14000", "launch_ptsz=17000"])

    def test_switched_off(self):
        for word in ("off", "OFF", "0"):
            lines = self.probe("open", FULL / "libcuda.so.1", SPILLWAY=word)
            self.assertEqual(lines, ["init=0", "launch=4000", "launch_ptsz=7000"])

    def test_unknown_abi_of_a_must_hook_is_reported_once_at_its_first_call(self):
        done = self.run_command([STAGE / "preload_probe", "future"])
        self.assertEqual(done.stderr, "")
        self.assertEqual(
            done.stdout.splitlines(),
            [
                OPENED,
                "init=0",
                "cuFunctionOfTheFuture.99000.0=99001",
                "engine: unwrapped cuLaunchKernel 99000",
                "cuLaunchKernel.99000.0=99000",
                "cuLaunchKernel.99000.0=99000",
            ],
        )

    def test_must_hook_without_wrapper_is_reported_at_its_first_call(self):
        lines = self.probe("call", "cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2", "cuMemAlloc_v2")
        self.assertEqual(
            lines,
            [
                OPENED,
                "init=0",
                "engine: unwrapped cuMemcpyHtoD_v2 0",
                "cuMemcpyHtoD_v2=3020",
                "cuMemcpyHtoD_v2=3020",
                "cuMemAlloc_v2=3021",
            ],
        )

    def test_child_forked_after_the_start_has_the_real_functions(self):
        lines = self.probe("fork", "after")
        self.assertEqual(
            lines,
            [
                OPENED,
                "init=0",
                "launch=14000",
                "engine: fork_child",
                "child_init=0",
                "child_launch=4000",
                "child_ptsz=7000",
                "child_status=0",
                "engine: cu_init",
                "parent_init=0",
                "parent_launch=14000",
            ],
        )

    def test_child_forked_before_the_start_has_its_own(self):
        for when in ("before", "between"):
            lines = self.probe("fork", when)
            own = [OPENED, "child_init=0", "child_launch=14000", "child_ptsz=17000", "child_status=0"]
            self.assertEqual(lines, [*own, OPENED, "parent_init=0", "parent_launch=14000"])

    def test_opened_inside_a_library_it_stays_out_of_the_global_scope(self):
        code = (
            "import ctypes; plugin = ctypes.CDLL('{0}/libpreload_cuda.so'); print(plugin.PluginMain());"
            "print(hasattr(ctypes.CDLL(None), 'spillway_engine_open'))"
        ).format(PLUGINS)
        done = self.run_command(["/usr/bin/env", "python3", "-c", code])
        self.assertEqual(done.stdout.splitlines(), [OPENED, "14000", "False"])


if __name__ == "__main__":
    unittest.main()
