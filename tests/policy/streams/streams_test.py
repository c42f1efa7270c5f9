"""Recorded jobs whose iterations differ, in virtual time: how close plans come to one that knows the whole job.

usage: streams_test.py BUILD. The figures are those of one computation, the same on every machine: a floor that is missed
is a change of what plans bring.
"""

import subprocess
import sys
import unittest
from pathlib import Path

import streams

BUILD = Path(sys.argv.pop(1)).resolve()
# Percent of clairvoyant, at half of the peak; where that plan's fetches take half of the time, and 0.8 of it.
FLOORS = {"static": 99.5, "varlen": 98, "layerdrop": 87.5, "mixed": 90.5, "moe": 92.5, "gan": 79.5, "gan24": 98, "layerdrop48": 98,
          "fifth": 99, "accumulation": 93.5, "generation": 92.5, "lora": 90.5, "diffusion": 97, "teacher": 97}  # fmt: skip

FLOORS_NEARLY_FULL = {"static": 98.5, "fifth": 94, "accumulation": 88.5, "layerdrop": 77.5}


class StreamsTest(unittest.TestCase):
    def test_plans_reach_their_floors_and_beat_moving_on_demand(self):
        self.assertEqual(sorted(FLOORS), streams.KINDS)
        for kind, floor in FLOORS.items():
            with self.subTest(kind):
                row = streams.judge(BUILD, kind)
                print(f"{kind}: {row['percent']:.1f} percent of clairvoyant, floor {floor}; on demand {row['lru']:.3f}")
                self.assertFalse(row["stuck"])
                self.assertGreaterEqual(row["percent"], floor)
                self.assertGreater(row["plan"], row["lru"])
                self.assertLessEqual(row["clairvoyant"], row["bound"] + 1e-6)

    def test_plans_reach_their_floors_on_a_link_that_is_nearly_full(self):
        for kind, floor in FLOORS_NEARLY_FULL.items():
            with self.subTest(kind):
                row = streams.judge(BUILD, kind, transfers=0.8)
                print(f"{kind}: {row['percent']:.1f} percent of clairvoyant, floor {floor}")
                self.assertFalse(row["stuck"])
                self.assertGreaterEqual(row["percent"], floor)

    def test_what_is_no_stream_is_refused_with_its_line(self):
        for text, line in (("L 1 ab 0 0 0 0 0\n", "line 1: L 1 ab"), ("A 1 4096\nF 2 0\n", "line 2: F 2"), ("A 1 4096\nA 1 4096\n", "line 2: A 1"),
                           ("A 1 4096\nL 0 ab 0 0 0 0 0 7\n", "line 2: L 0"), ("A 1 0\n", "line 1: A 1"), ("L 0 ab 0 0 0 0 0\n", "four marks")):  # fmt: skip
            done = subprocess.run([BUILD / "tests" / "stream_replay"], input=text, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 1, text)
            self.assertIn(line, done.stderr)


if __name__ == "__main__":
    unittest.main()
