"""Floors for published traces, carried out as at run time: traces.py says how."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import traces

BUILD = Path(sys.argv.pop(1)).resolve()
REFEREE = traces.ROOT / "tests" / "policy" / "referee" / "referee.py"
# Percent of the kernels' own time once the job is steady. What was reached, less a point.
FLOORS = {("vit-1280", 0): 54, ("vit-1280", 8): 89}


class TracesTest(unittest.TestCase):
    def test_a_steady_job_comes_close_to_the_plan_that_was_made_offline(self):
        for trace in ("bert-256", "vit-1280", "resnet152-1280"):
            for host in (128, 8, 0):
                with self.subTest(trace=trace, host=host):
                    row = traces.judge(BUILD, trace, host)
                    for forecast, found in zip(row["forecasts"], (row["first"], row["steady"])):
                        self.assertAlmostEqual(forecast / found, 1, delta=0.02, msg=row)
                    self.assertGreaterEqual(row["steady"], FLOORS.get((trace, host), row["offline"] - 3), row)
                    self.assertGreaterEqual(row["steady"], row["first"] - 0.5, row)

    def test_what_moves_when_is_possible_as_the_referee_judges(self):
        for trace, host in (("vit-1280", 4), ("vit-1280", 0), ("resnet152-1280", 32), ("bert-256", 0)):
            with self.subTest(trace=trace, host=host), tempfile.TemporaryDirectory() as folder:
                schedule = Path(folder) / "schedule.csv"
                run = traces.run(BUILD / "tests" / "trace_replay", "--trace", traces.TRACES / trace, "--host-memory", host, "--steady",
                                 "--schedule", schedule)  # fmt: skip
                # Launches' scratch memory is not theirs to place: it comes on top.
                scratch = max(int(row.rsplit(",", 1)[1]) for row in (traces.TRACES / trace / "kernels.csv").read_text().splitlines()[1:])
                judged = subprocess.run([sys.executable, "-B", REFEREE, traces.TRACES / trace, schedule, "--gpu-memory", str((40 << 30) + scratch),
                                         "--host-memory", f"{host}GiB", "--piece", str(2 << 20)], stdout=subprocess.PIPE, timeout=600)  # fmt: skip
                result = json.loads(judged.stdout)
                self.assertEqual((judged.returncode, result["error_count"]), (0, 0), result["errors"])
                self.assertAlmostEqual(result["iteration_us"], run["iteration_us"], delta=0.01)


if __name__ == "__main__":
    unittest.main()
