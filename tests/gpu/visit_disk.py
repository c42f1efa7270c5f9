"""The disk of the spill files: how fast it is, how large a job may be that spills there, and what time its bytes may take.

A disk of 200 MB/s needs ten times as long as one of 2 GB/s, and a job without a cap says nothing about it. So its rate is measured
before the jobs, what they move over it is chosen by that, and the cut of a run follows the bytes that it has moved by then: a run
that moves no more bytes is given no more time.
"""

import json
import re

import visit_rows as rows

MEASURING = 4  # seconds
ROW_SECONDS = 40  # what the bytes of a row may need
ASSUMED = 200e6  # bytes a second in each direction, where they cannot be measured


class Disk:
    def __init__(self, program):
        self.program = program
        self.write = self.read = ASSUMED

    def measure(self):
        """A row with the rates, by the doctor: the engine's own requests."""
        label = "disk of the spill files"
        ended, _ = self.program.run(label, "spillway", "doctor", "--json", "--disk-seconds", str(MEASURING),
                                    *self.program.spill_option(), limit=90)  # fmt: skip
        found = directory(ended.text)
        if found is None or not (found.get("write") and found.get("read")):
            why = (found or {}).get("problem") or (found or {}).get("rate_problem") or self.program.last_line(ended)
            self.program.table.judge(label, ended, rows.MEASURED, f"its rate is not known, {ASSUMED / 1e6:.0f} MB/s are assumed: {why}")
            return
        self.write, self.read = (max(1.0, found[side]["late_bytes_per_second"]) for side in ("write", "read"))
        self.program.table.judge(label, ended, rows.MEASURED, f"{found['path']}: writes {self.write / 1e6:.0f} MB/s, "
                                 f"reads {self.read / 1e6:.0f} MB/s", figures=found)  # fmt: skip

    def seconds(self, written, fetched):
        """What so many bytes need. The directions are taken one after the other: some disks are as fast in both together."""
        return written / self.write + fetched / self.read

    def bytes_there_and_back(self):
        """How many bytes a row may write and read again."""
        return ROW_SECONDS / (1 / self.write + 1 / self.read)

    def allowance(self, metrics, times):
        """Seconds, as visit_watch.run asks for them: so many times what the bytes need that a run has moved over the disk by its
        metrics file, but not more than those of a whole row."""
        def more():
            try:
                figures = json.loads(metrics.read_text(encoding="utf-8"))
                needed = self.seconds(figures["disk_spilled_bytes"], figures["disk_fetched_bytes"])
            except (OSError, ValueError, LookupError, TypeError):
                return 0.0
            return times * min(needed, ROW_SECONDS)

        return more


def directory(text):
    """The first spill directory of the doctor's facts, which stand in the log behind its lines of progress; None without."""
    found = re.search(r"^\{.*^\}", text, re.MULTILINE | re.DOTALL)
    try:
        return json.loads(found[0])["directories"][0] if found else None
    except (ValueError, LookupError, TypeError):
        return None
