"""The jobs of a visit: each run in the ways that are compared, judged as one row, and, for the first that fails, the reruns
that show where to look."""

import dataclasses
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "integration" / "quickstart"))
sys.path.insert(0, str(ROOT / "tests" / "gpu"))

import job
import visit_rows as rows
import visit_watch as watch
from conf_python import python_with_start_up

HANG = 4  # times the uncapped run
SHORTEST_CUT = 40  # seconds: a start alone may take ten
UNCAPPED_CUT = 240  # seconds
LADDER = {
    "lru": {"policy": "lru"},
    "no disk": {"dirs": "none"},
    "strict": {"trust": "strict"},
    "blocking launches": {},
    "audit": {"audit": "on"},
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A training script with its arguments."""

    name: str
    script: Path
    arguments: tuple
    environment: tuple = ()  # pairs
    feature: bool = False  # the stand-in runs it otherwise: hardware alone answers
    comparable: bool = True  # two runs give the same bits


@dataclasses.dataclass(frozen=True)
class Way:
    """How a job is run with Spillway."""

    share: int  # of the uncapped peak, in percent
    host: float = 0.5  # host memory, of the peak
    mode: str = job.PRELOAD

    def words(self):
        tier = "disk" if self.host < 0.1 else "host memory"
        return f"{self.share} %, {tier}" + (", configuration" if self.mode == job.CONF else "")


class Jobs:
    def __init__(self, args, table):
        self.args, self.rows = args, table
        self.total_bytes = None
        self.climbed = False

    def simcuda(self):
        return self.args.device == "simcuda"

    def wanted(self, name):
        return not self.args.only or any(words in name for words in self.args.only)

    def cap(self, way, peak, settings=None):
        budget = int(peak * way.share / 100) // (2 * job.MIB) * (2 * job.MIB)
        spill = {"dirs": str(self.args.spill)} if self.args.spill else {}
        return job.Cap(budget, job.size_text(int(peak * way.host)), settings={**spill, **(settings or {})})

    def train(self, label, case, mode, cap=None, limit=None, extra=None):
        """One run to its end or its cut; a job.Run, and how it ended."""
        options = () if mode == job.UNCAPPED or not self.audited(cap) else ("--mode", "fault", "--poison", "recycle")
        here = job.Machine(device=self.args.device, work=self.args.work, build=self.args.build, simcuda_options=options)
        more = dict(case.environment)
        if mode == job.CONF:
            here = dataclasses.replace(here, python=python_with_start_up(self.args.build, self.args.work))
            more["SPILLWAY_LIBRARY_DIR"] = str(self.args.build / "lib")
        ends = []

        def watched(command, env, log):
            ends.append(watch.run(command, log, limit or UNCAPPED_CUT, env, left=self.rows.left()))
            return ends[0].status

        run = job.run_job(here, mode, case.arguments, cap, self.total_bytes, case.script,
                          re.sub("[^a-z0-9]+", "-", f"{case.name} {label}".lower()),
                          extra_environment={**more, **(extra or {})}, runner=watched)  # fmt: skip
        return run, ends[0]

    @staticmethod
    def audited(cap):
        return cap is not None and cap.settings.get("audit") == "on"

    def uncapped(self, case):
        """The run that the others are judged by; None when there is nothing to judge by."""
        run, ended = self.train("uncapped", case, job.UNCAPPED)
        if run.keys["status"] == "ok" and run.keys["peak_bytes"]:
            memory = (run.report or {}).get("memory") or {}
            self.total_bytes = memory.get("device_total_bytes", self.total_bytes)
            return run
        missing = re.search(r"No module named '([\w.]+)'", run.log)
        if missing:
            self.rows.add(f"{case.name}: uncapped", rows.MISSING, f"no Python package {missing[1]}")
        else:
            self.rows.judge(f"{case.name}: uncapped", ended, rows.FAILED, f"{self.ending(run, ended)}, without Spillway")
        return None

    def compare(self, case, ways, reference=None, settings=None):
        """Runs the case uncapped and in each way; a row for each."""
        reference = reference or (self.uncapped(case) if self.wanted(case.name) else None)
        if reference is None:
            return None
        for way in ways:
            label = way.words() + ("" if not settings else ", " + ", ".join(f"{k} {v}" for k, v in settings.items()))
            if self.rows.left() < 1.3 * reference.seconds + 5:
                self.rows.add(f"{case.name}: {label}", rows.LEFT_OUT, "no time")
                continue
            cap = self.cap(way, reference.keys["peak_bytes"], settings)
            run, ended = self.train(label, case, way.mode, cap, max(HANG * reference.seconds, SHORTEST_CUT))
            problem = self.problem(run, ended, reference, way, case)
            status = rows.FAILED if problem else rows.NEEDS_HARDWARE if case.feature and self.simcuda() else rows.PASSED
            words = problem or ("it ran; only hardware can answer" if status == rows.NEEDS_HARDWARE else "")
            row = self.rows.judge(f"{case.name}: {label}", ended, status, words, **self.figures(run, reference))
            if row["status"] == rows.FAILED and not self.climbed:
                self.climbed = True
                self.climb(case, way, reference)
        return reference

    def climb(self, case, way, reference):
        """Reruns of the first failure, each with one thing changed. They are told, and judge nothing."""
        for name, settings in LADDER.items():
            if self.rows.left() < 1.3 * reference.seconds + 5:
                self.rows.add(f"rerun of {case.name}: {name}", rows.LEFT_OUT, "no time")
                continue
            host = 2.0 if name == "no disk" else way.host
            # An audit unmaps what a launch does not name: it has memory enough for all.
            share = 150 if name == "audit" else way.share
            again = dataclasses.replace(way, mode=job.PRELOAD, host=host, share=share)
            cap = self.cap(again, reference.keys["peak_bytes"], settings)
            extra = {"CUDA_LAUNCH_BLOCKING": "1"} if name == "blocking launches" else None
            run, ended = self.train(f"rerun {name}", case, job.PRELOAD, cap, max(HANG * reference.seconds, SHORTEST_CUT), extra)
            problem = self.problem(run, ended, reference, dataclasses.replace(again, share=100), case)
            self.rows.judge(f"rerun of {case.name}: {name}", ended, rows.MEASURED, problem or "it passes so",
                            **self.figures(run, reference))  # fmt: skip

    @staticmethod
    def ending(run, ended):
        if ended.cut:
            return "cut off: it hangs, or takes four times as long; the log has its threads"
        if run.keys["status"] == "ok":
            return "ok"
        lines = [line for line in run.log.splitlines() if line.strip()]
        return f"{run.keys['status']}, exit status {ended.status}: {lines[-1][:160] if lines else 'no output'}"

    def problem(self, run, ended, reference, way, case):
        """What is wrong with a run; empty: nothing."""
        if ended.cut or run.keys["status"] != "ok":
            return self.ending(run, ended)
        different = [key for key in ("losses_sha256", "state_sha256") if run.keys[key] != reference.keys[key]]
        if different and case.comparable:
            return "other bits than uncapped: " + ", ".join(key.removesuffix("_sha256") for key in different)
        if way.share < 90 and not run.keys["spilled_bytes"]:
            return "nothing was spilled"
        if (run.keys["peak_bytes"] or 0) > run.keys["budget_bytes"]:
            return f"its peak of {run.keys['peak_bytes']} bytes is over its budget of {run.keys['budget_bytes']}"
        return ""

    @staticmethod
    def figures(run, reference):
        keys = ("peak_bytes", "budget_bytes", "spilled_bytes", "fetched_bytes", "ssd_written_bytes", "tokens_per_s")
        found = {key: run.keys[key] for key in keys if run.keys[key] is not None}
        if run.keys["tokens_per_s"] and reference.keys["tokens_per_s"]:
            found["ratio"] = round(run.keys["tokens_per_s"] / reference.keys["tokens_per_s"], 3)
        return found

    def repeats(self, case, reference):
        """Whether a second uncapped run has the bits of the first: else nothing can be compared on this device."""
        run, ended = self.train("uncapped again", case, job.UNCAPPED, limit=max(HANG * reference.seconds, SHORTEST_CUT))
        same = run.keys["status"] == "ok" and run.keys["losses_sha256"] == reference.keys["losses_sha256"]
        self.rows.judge(f"{case.name}: uncapped again", ended, rows.PASSED if same else rows.FAILED,
                        "" if same else f"{self.ending(run, ended)}: two uncapped runs differ, nothing can be compared")  # fmt: skip
        return same


def spill_folder(parent):
    """A folder for spill files of this visit, gone with it."""
    return tempfile.TemporaryDirectory(prefix="visit-", dir=parent)
