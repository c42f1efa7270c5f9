"""The library for the installed PyTorch minor is found at run time; for any other, one warning, and PyTorch is left alone."""

import unittest

from routing_case import MINOR, OVERSUBSCRIBE, RoutingCase

BACKEND = "\nprint(torch.cuda.memory.get_allocator_backend(), right())"


class VersionsTest(RoutingCase):
    def test_minor_that_is_served(self):
        done = self.run_job(OVERSUBSCRIBE + BACKEND)
        self.assertEqual(done.stdout.split(), ["spillway", "True"])

    def test_minor_that_is_not(self):
        """As if this PyTorch were newer than all that Spillway was compiled for."""
        known = "1_99"
        done = self.run_job(OVERSUBSCRIBE + BACKEND, library=self.product(known), memory="1GiB")
        self.assertEqual(done.stdout.split(), ["native", "True"])
        ours = MINOR.replace("_", ".")
        self.assertEqual(self.words(done), [
            f"spillway: PyTorch is left as it is: this Spillway supports PyTorch {known.replace('_', '.')}, and {ours} is "
            "installed; build Spillway with this Python (SPILLWAY_PYTHON) to support it (SPILLWAY_REQUIRE=1 ends the job instead)"])  # fmt: skip

    def test_minor_that_is_not_runs_out_of_memory_as_always(self):
        done = self.run_job(OVERSUBSCRIBE, library=self.product("1_99"), status=1)
        self.assertIn("torch.OutOfMemoryError: CUDA out of memory.", done.stderr)
        self.assertEqual(len(self.words(done)), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
