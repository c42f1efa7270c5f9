"""Functions of the driver that no table names: looking one up changes nothing, and at its call the engine is asked.

The test driver's functions of the future return 99000 (another ABI of cuLaunchKernel) to 99004. The engine's answer is
that of FAKE_ENGINE_NEWER: 0 call, 1 call always, 2 refuse.
"""

import unittest

from shim_case import STAGE, ShimCase

OPENED = ["engine: open abi=3 flags=0", "init=0"]
NAME, OTHER = "cuFunctionOfTheFuture", "cuOtherOfTheFuture"
WRAPPED = "cuLaunchKernel.12000.0=14000"
STUBS = 512
OUT_OF_MEMORY = 2
PROBE = "preload_newer_probe"


class NewerTest(ShimCase):
    def newer(self, *command, **options):
        return self.probe(*command, program=PROBE, **options)

    def test_a_look_up_alone_asks_nobody(self):
        names = [NAME, "cuLaunchKernel", "cuGetTableOfTheFuture"]
        lines = self.newer("look-up", *names, FAKE_ENGINE_NEWER=1)
        self.assertEqual(lines, [*OPENED, *[f"{name}=1" for name in names], "engine: newer calls 0"])

    def test_the_first_call_asks_and_is_followed_by_no_question(self):
        lines = self.newer("call", NAME, OTHER, FAKE_ENGINE_NEWER=1)
        expected = [f"engine: newer {NAME}", *[f"{NAME}.99000.0=99001"] * 2]
        expected += [f"engine: newer {OTHER}", *[f"{OTHER}.99000.0=99002"] * 2]
        self.assertEqual(lines, [*OPENED, *expected, WRAPPED, "engine: newer calls 4"])

    def test_every_call_asks_while_the_answer_is_for_one_call(self):
        lines = self.newer("call", NAME, FAKE_ENGINE_NEWER=0)
        self.assertEqual(lines, [*OPENED, *[f"engine: newer {NAME}", f"{NAME}.99000.0=99001"] * 2, WRAPPED, "engine: newer calls 2"])

    def test_a_refused_call_is_not_made(self):
        lines = self.newer("call", NAME, FAKE_ENGINE_NEWER=2)
        self.assertEqual(lines, [*OPENED, *[f"engine: newer {NAME}", f"{NAME}.99000.0={OUT_OF_MEMORY}"] * 2, WRAPPED, "engine: newer calls 2"])

    def test_another_abi_of_a_wrapped_name_counts_as_unwrapped_from_its_first_call_on(self):
        lines = self.newer("call", "cuLaunchKernel", FAKE_ENGINE_NEWER=1)
        asked = ["engine: unwrapped cuLaunchKernel 99000", "engine: newer cuLaunchKernel"]
        self.assertEqual(lines, [*OPENED, *asked, *["cuLaunchKernel.99000.0=99000"] * 2, WRAPPED, "engine: newer calls 2"])

    def test_a_function_that_hands_out_functions_counts_as_well(self):
        lines = self.newer("call", "cuGetTableOfTheFuture", FAKE_ENGINE_NEWER=1)
        self.assertIn("engine: unwrapped cuGetTableOfTheFuture 99000", lines)

    def test_another_abi_of_a_name_that_is_passed_on_is_passed_on(self):
        lines = self.newer("call", "cuDeviceGetName", FAKE_ENGINE_NEWER=2)
        self.assertEqual(lines, [*OPENED, *["cuDeviceGetName.99000.0=99003"] * 2, WRAPPED, "engine: newer calls 0"])

    def test_before_the_engine_is_open_calls_go_on(self):
        lines = self.newer("call", "--before", NAME, FAKE_ENGINE_NEWER=1)
        self.assertEqual(lines[0], f"{NAME}.99000.0=99001")
        self.assertEqual(lines[-1], "engine: newer calls 3")
        self.assertEqual(lines.count(f"engine: newer {NAME}"), 1)

    def test_registers_and_stack_reach_the_function_untouched(self):
        for answer in (0, 1):
            lines = [line for line in self.newer("registers", FAKE_ENGINE_NEWER=answer) if not line.startswith("engine: newer")]
            wide = sum(4 * i + 1110 for i in range(9))
            self.assertIn(lines[3], (f"wide={wide}", "wide=-1"))
            self.assertIn(lines[4], ("widest=396", "widest=-1"))
            self.assertEqual(lines[2:5], lines[5:8])
            self.assertEqual(lines[2], "many=4242")

    def test_threads_get_the_same_function_and_no_call_goes_uncounted(self):
        lines = self.newer("threads", FAKE_ENGINE_NEWER=1)
        self.assertIn("right=8", lines)
        self.assertEqual(lines[-1], "engine: newer calls 80000")

    def test_without_stubs_functions_are_handed_out_as_they_are_with_one_line(self):
        done = self.run_command([STAGE / PROBE, "numbered", STUBS + 20], FAKE_ENGINE_NEWER=1)
        lines = done.stdout.splitlines()
        self.assertIn("wrong=0", lines)
        self.assertEqual(lines[-1], f"engine: newer calls {2 * STUBS}")
        self.assertEqual(
            done.stderr,
            f"spillway: cuNumbered{STUBS} and perhaps others are newer than this version of Spillway: calls to them are not seen\n",
        )
        self.assertIn("engine: unwrapped cuLaunchKernel 99000", lines, "there the look-up counts")

    def test_a_forked_child_is_not_asked(self):
        lines = self.newer("fork", FAKE_ENGINE_NEWER=2)
        self.assertIn(f"{NAME}.99000.0=99001", lines)
        self.assertNotIn(f"engine: newer {NAME}", lines)

    def test_switched_off_or_refused_nothing_stands_between(self):
        for variables in ({"SPILLWAY": "off"}, {"FAKE_ENGINE": "refuse"}):
            done = self.run_command([STAGE / PROBE, "call", NAME], **variables)
            self.assertEqual(done.stdout.splitlines()[-3:], [*[f"{NAME}.99000.0=99001"] * 2, "cuLaunchKernel.12000.0=4000"])


if __name__ == "__main__":
    unittest.main()
