"""visit_times.py: what others take of the processors is taken off, and what is too long is found."""

import os
import unittest

import visit_times

TICK = os.sysconf("SC_CLK_TCK")


class TimesTest(unittest.TestCase):
    def test_waiting_is_no_work_and_stolen_time_is(self):
        words = [str(seconds * TICK) for seconds in (1, 2, 4, 1000, 500, 8, 16, 32, 7, 7)]
        self.assertEqual(visit_times.busy_seconds(f"cpu  {' '.join(words)}\ncpu0 1 2 3\n"), 63)

    def test_the_machine_says_what_it_did(self):
        with open("/proc/stat", encoding="ascii") as file:
            self.assertGreater(visit_times.busy_seconds(file.read()), 0)

    def test_what_others_took_is_taken_off(self):
        self.assertEqual(visit_times.alone_seconds(600, busy=300, own=300, processors=2), 600)
        self.assertEqual(visit_times.alone_seconds(600, busy=1200, own=300, processors=2), 150)
        self.assertEqual(visit_times.alone_seconds(600, busy=290, own=300, processors=2), 600, "no more than it took")
        self.assertEqual(visit_times.alone_seconds(10, busy=300, own=0, processors=2), 0)

    def test_a_long_stage_and_a_long_visit_are_found(self):
        self.assertEqual(visit_times.too_long({1: 0.3, 2: 8.9, 3: 8.9, 4: 1}), [])
        self.assertEqual(len(visit_times.too_long({1: 0.3, 2: 9.0, 3: 1, 4: 1})), 1)
        self.assertIn("all stages", visit_times.too_long({1: 2, 2: 8, 3: 8, 4: 2})[0])

    def test_what_is_long_beside_others_is_a_warning_and_what_is_long_alone_a_problem(self):
        short = {1: 1, 2: 5}
        self.assertEqual(visit_times.judged(short, short), ([], []))
        self.assertEqual(visit_times.judged({1: 1, 2: 15}, short), ([], ["stage 2 took 15.0 minutes, not less than 9, beside others: not judged"]))
        self.assertEqual(visit_times.judged({1: 1, 2: 15}, {1: 1, 2: 10}), (["stage 2 took 10.0 minutes, not less than 9"], []))

    def test_a_stage_that_failed_or_left_rows_out_is_found(self):
        report = {"rows": [{"row": "a", "status": "passed"}, {"row": "b", "status": "left out"}]}
        self.assertEqual(visit_times.stage_problem(0, report), "")
        self.assertIn("ended with 3, left out: ['b']", visit_times.stage_problem(3, report))
        self.assertEqual(visit_times.stage_problem(1, {"rows": []}), "ended with 1")


if __name__ == "__main__":
    unittest.main()
