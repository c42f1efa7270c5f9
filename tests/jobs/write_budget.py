"""SPILLWAY_WRITE_BUDGET under a training job: spent in mid-run, writes wait, and the job ends with the same bits when the budget
comes free (here since its record is deleted); at the start of another job of the same user it is still spent, and that job is
refused in words, but not where host memory is enough; with 0 nothing is written.
"""

import contextlib
import tempfile
import threading
from pathlib import Path

import harness
import job
from harness import MIB

TRAIN = ("--width", "384", "--layers", "4", "--heads", "4", "--sequence", "64", "--batch", "8", "--steps", "6", "--optimizer-form",
         "plain")  # fmt: skip
MEMORY_MIB = 112
SPENT = "the write budget (SPILLWAY_WRITE_BUDGET) is spent"


class Judge:
    def __init__(self, args):
        self.problems = harness.Problems()
        self.here = harness.machine(args, "write_budget")
        self.whole = self.run("whole", job.UNCAPPED, None)
        if not self.problems.expect(self.whole.report is not None, f"uncapped: {self.whole.log[-3000:]}"):
            self.problems.exit()

    def run(self, name, mode, cap, **variables):
        return job.run_job(self.here, mode, TRAIN, cap, name=name, show=lambda _: False, timeout=500, extra_environment=variables)

    def capped(self, name, cache, budget, host="0"):
        with tempfile.TemporaryDirectory(dir=self.here.work) as directory:
            settings = {"disk_reserve": "1GiB", **({"write_budget": budget} if budget else {})}
            seen = self.run(name, job.PRELOAD, job.Cap(MEMORY_MIB * MIB, host, directory, settings), XDG_CACHE_HOME=str(cache))
        figures = seen.metrics or {}
        print(f"{name}: {budget}, {(seen.keys['disk_written_bytes'] or 0) / MIB:.0f} MiB to disk, left "
              f"{figures.get('write_budget_left_bytes')}, {seen.seconds:.1f} s", flush=True)  # fmt: skip
        return seen

    def same_bits(self, name, seen):
        if not self.problems.expect(seen.report is not None, f"{name}: status {seen.exit_status}\n{seen.log[-3000:]}"):
            return
        for key in ("losses_sha256", "state_sha256"):
            self.problems.expect(seen.keys[key] == self.whole.keys[key], f"{name}: {key} differs from the uncapped run")

    def says(self, name, seen, words):
        self.problems.expect(words in seen.log, f"{name}: no line says '{words}'\n{seen.log[-3000:]}")


@contextlib.contextmanager
def emptied_when_spent(record, budget):
    """Deletes the record each time that it says so; yields a list of what it said."""
    seen, ended = [], threading.Event()

    def watch():
        while not ended.wait(0.2):
            words = record.read_text().split() if record.exists() else []
            if len(words) == 5 and int(words[2]) >= budget:
                seen.append(int(words[2]))
                record.unlink()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def main():
    judge = Judge(harness.arguments(__doc__))
    expect = judge.problems.expect
    with tempfile.TemporaryDirectory(dir=judge.here.work) as folder:
        cache = Path(folder)
        free = judge.capped("free", cache, None)
        judge.same_bits("free", free)
        written = free.keys["disk_written_bytes"] or 0
        expect(written > 64 * MIB, f"free: only {written} bytes were written, so nothing is shown")
        expect(not (cache / "spillway").exists(), "a record was made without a budget")

        budget = written * 3 // 5 // MIB
        record = cache / "spillway" / "writes"
        with emptied_when_spent(record, budget * MIB) as emptied:
            seen = judge.capped("spent", cache, f"{budget}MiB/day")
        judge.same_bits("spent", seen)
        judge.says("spent", seen, SPENT)
        expect(emptied, "the record never said that the budget was spent")
        expect(record.stat().st_mode & 0o777 == 0o600, "the record is not the user's alone")
        over = (seen.keys["disk_written_bytes"] or 0) - budget * MIB * (len(emptied) + 1)
        expect(over < 32 * MIB, f"spent: {over} bytes were written beyond the budget, which was emptied {len(emptied)} times")

        # The same user's next job. What fits beside the disk runs.
        again = judge.capped("again", cache, "2MiB/day")
        expect(again.exit_status not in (0, None) and "OutOfMemoryError" in again.log, f"again: status {again.exit_status}\n{again.log[-3000:]}")
        judge.says("again", again, "the disk takes no more blocks than it has had")
        beside = judge.capped("beside", cache, "2MiB/day", host="1GiB")
        judge.same_bits("beside", beside)
        expect(beside.keys["disk_written_bytes"] == 0, "beside: a spent budget was written")

        none = judge.capped("none", cache, "0", host="1GiB")
        judge.same_bits("none", none)
        expect(none.keys["disk_written_bytes"] == 0, "none: bytes were written")
        judge.says("none", none, "SPILLWAY_WRITE_BUDGET is 0: nothing is written to SPILLWAY_DIRS")
    judge.problems.exit()


if __name__ == "__main__":
    main()
