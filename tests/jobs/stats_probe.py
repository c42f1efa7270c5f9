"""Runs the example job unchanged and notes Spillway's own figures at the start of every step and at the end, with the
time. STATS_PROBE_FILE names the file; Spillway must be loaded.
"""

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "integration" / "examples"))

import train_gpt  # noqa: E402  (the path comes first)


def note(notes):
    import spillway

    notes.append({"time": time.monotonic(), **spillway.stats()})


def main():
    notes = []
    unobserved = train_gpt.train_step

    def observed(*arguments):
        # The loss of the step before has been read, so everything it launched has run.
        note(notes)
        return unobserved(*arguments)

    train_gpt.train_step = observed
    unfinished = train_gpt.write_report

    def finished(*arguments):
        note(notes)  # the last step's end, before the final state is read
        unfinished(*arguments)

    train_gpt.write_report = finished
    status = train_gpt.main()
    Path(os.environ["STATS_PROBE_FILE"]).write_text(json.dumps(notes), encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
