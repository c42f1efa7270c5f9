"""The training jobs of a GPU session: each uncapped, then in the ways that are compared with that, a row each."""

import dataclasses
import os
import re
import statistics
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
UNCAPPED_CUT = {"gpu": 60, "simcuda": 240}  # seconds; on the stand-in others may take the processors
LADDER_CUT = 30  # seconds of a rung
NO_DISK_HOST = 1.25  # host memory without a disk, of the peak: it holds all, and freed blocks for a while
# What a failure is tried with, one thing changed in each.
LADDER = {
    "lru": {"policy": "lru"},
    "no disk": {"dirs": "none"},
    "strict": {"trust": "strict"},
    "blocking launches": {},
    "audit": {"audit": "on"},
}
ROW_KEYS = ("peak_bytes", "budget_bytes", "spilled_bytes", "fetched_bytes", "disk_written_bytes", "tokens_per_s")


@dataclasses.dataclass(frozen=True)
class Case:
    """A training script with its arguments."""

    name: str
    script: Path
    arguments: tuple
    environment: tuple = ()  # pairs
    feature: bool = False  # the stand-in runs it otherwise: hardware alone answers


@dataclasses.dataclass(frozen=True)
class Way:
    """How a job is run with Spillway."""

    share: float  # of the uncapped peak, in percent
    host: float = 0.75  # host memory, of the peak: with 50 % of it on the GPU, a disk is not needed
    mode: str = job.PRELOAD
    settings: tuple = ()  # pairs
    home: bool = False  # its trace and its report are brought home
    beside: str = ""  # whose share it is that is given

    def words(self):
        disk = self.share + 100 * self.host < 80
        tier = "disk" if self.host < 0.1 else "host memory and disk" if disk else "host memory"
        more = [f"{key} {value}" for key, value in self.settings] + (["configuration"] if self.mode == job.CONF else [])
        return ", ".join([f"{self.share:.0f} %", tier, *more]) + (f", as {self.beside}" if self.beside else "")


class Jobs:
    def __init__(self, args, table, disk):
        self.args, self.rows, self.disk = args, table, disk
        self.any_wanted = False  # whether --only names a row
        self.references = {}  # by the case's name: its uncapped run; None: there is nothing to compare with
        self.same_bits = {}  # by the case's name: whether two uncapped runs have them; None: that is not known

    def simcuda(self):
        return self.args.device == "simcuda"

    def wanted(self, name):
        wanted = not self.args.only or any(words in name for words in self.args.only)
        self.any_wanted |= wanted
        return wanted

    def cap(self, way, peak, log):
        budget = int(peak * way.share / 100) // (2 * job.MIB) * (2 * job.MIB)
        settings = {"dirs": str(self.args.spill)} if self.args.spill else {}
        if way.home:
            settings.update(trace=str(self.args.work / f"{log}.trace"), report=str(self.args.work / f"{log}.report.json"))
        return job.Cap(budget, job.size_text(int(peak * way.host)), settings={**settings, **dict(way.settings)})

    def train(self, label, case, way=None, peak=None, limit=None, extra=None, prefix=()):
        """One run to its end or its cut, uncapped without a way; a job.Run, and how it ended."""
        mode = job.UNCAPPED if way is None else way.mode
        log = re.sub("[^a-z0-9]+", "-", f"{case.name} {label}".lower())
        cap = None if way is None else self.cap(way, peak, log)
        audited = cap is not None and cap.settings.get("audit") == "on"
        here = job.Machine(device=self.args.device, work=self.args.work, build=self.args.build,
                           simcuda_options=("--mode", "fault", "--poison", "recycle") if audited else ())  # fmt: skip
        more = {**dict(case.environment), **(extra or {})}
        if mode == job.CONF:
            here = dataclasses.replace(here, python=python_with_start_up(self.args.build, self.args.work))
            more["SPILLWAY_LIBRARY_DIR"] = str(self.args.build / "lib")
        ends = []

        def watched(command, env, path):
            allowance = self.disk.allowance(path.with_suffix(".metrics.json"), HANG)
            ends.append(watch.run(command, path, limit or UNCAPPED_CUT[self.args.device], env, left=self.rows.left(), more=allowance))
            return ends[0].status

        run = job.run_job(here, mode, case.arguments, cap, None, case.script, log, extra_environment=more, prefix=prefix, runner=watched)
        return run, ends[0]

    # ---- uncapped

    def reference(self, case, again=False):
        """The run that the others are judged by; None when there is nothing to judge by. again: a second one must have its bits."""
        if case.name not in self.references:
            self.references[case.name] = None
            with self.rows.guarded(f"{case.name}: uncapped"):
                self.references[case.name] = self.uncapped(case)
        found = self.references[case.name]
        if again and found is not None and case.name not in self.same_bits:
            self.repeats(case, found, must=True)
        return found

    def uncapped(self, case):
        label = f"{case.name}: uncapped"
        run, ended = self.train("uncapped", case)
        if run.keys["status"] == "ok" and run.keys["peak_bytes"]:
            words = [f"{run.keys['tokens_per_s'] or 0:.0f} samples/s", *iteration_words(run), f"peak {run.keys['peak_bytes'] / 1e9:.2f} GB"]
            self.rows.judge(label, ended, rows.MEASURED, ", ".join(words), keys=run.keys, **figures(run))
            return run
        if not self.missing(label, run):
            self.rows.judge(label, ended, rows.FAILED, f"{self.ending(run, ended)}, without Spillway")
        return None

    def missing(self, label, run):
        """Whether a run ended for want of a package; a row says so."""
        found = re.search(r"No module named '([\w.]+)'", run.log) if run.keys["status"] != "ok" else None
        if found:
            self.rows.add(label, rows.MISSING, f"no Python package {found[1]}")
        return found is not None

    def repeats(self, case, reference, must=False):
        """Runs it uncapped again: whether it has the same bits. Else they say nothing on this device, which is a failure of a case
        that `must` have them."""
        self.same_bits[case.name] = None
        label = f"{case.name}: uncapped again"
        with self.rows.guarded(label):
            run, ended = self.train("uncapped again", case, limit=self.limit(reference))
            if run.keys["status"] != "ok" or ended.cut:
                self.rows.judge(label, ended, rows.FAILED, f"{self.ending(run, ended)}, without Spillway")
                return
            other = self.other_bits(run, reference)
            self.same_bits[case.name] = not other
            status = rows.PASSED if not other else rows.FAILED if must else rows.MEASURED
            self.rows.judge(label, ended, status, f"two uncapped runs differ, their bits cannot be compared: {other}" if other else "")

    # ---- with Spillway

    def compare(self, case, way):
        """The row of one way. A failure is run again at the end."""
        label, reference = f"{case.name}: {way.words()}", self.reference(case)
        if reference is None:
            return
        with self.rows.guarded(label):
            if not self.has_time(label, reference):
                return
            run, ended = self.capped(case, way, way.words(), reference)
            status, words = self.verdict(case, run, ended, reference, way)
            self.rows.judge(label, ended, status, "; ".join(filter(None, (words, explained(run, reference)))),
                            lambda: self.once_more(case, way, reference), case=case.name, way=dataclasses.asdict(way),
                            equal=not self.other_bits(run, reference), **figures(run))  # fmt: skip

    def has_time(self, label, reference):
        if self.rows.left() >= 1.3 * reference.seconds + 5:
            return True
        self.rows.add(label, rows.LEFT_OUT, "no time")
        return False

    @staticmethod
    def limit(reference):
        return max(HANG * reference.seconds, SHORTEST_CUT)

    def capped(self, case, way, label, reference, **more):
        return self.train(label, case, way, reference.keys["peak_bytes"], **{"limit": self.limit(reference), **more})

    def once_more(self, case, way, reference, label="again", **more):
        """What is wrong with another run of it; empty: nothing. And how that ended."""
        run, ended = self.capped(case, way, label, reference, **more)
        return self.problem(run, ended, way) or self.other_bits(run, reference), ended

    def climb(self, case, way, reference):
        """A failure with one thing changed in each run. They are told, and judge nothing."""
        for name, changed in LADDER.items():
            label = f"{case.name}: {way.words()}, with {name}"
            with self.rows.guarded(label):
                if not self.has_time(label, reference):
                    continue
                # An audit unmaps what a launch does not name: it has memory enough for all, and nothing need be spilled.
                rung = dataclasses.replace(way, share=150 if name == "audit" else way.share, mode=job.PRELOAD,
                                           host=NO_DISK_HOST if "dirs" in changed else way.host,
                                           settings=(*way.settings, *changed.items()))  # fmt: skip
                extra = {"CUDA_LAUNCH_BLOCKING": "1"} if name == "blocking launches" else None
                problem, ended = self.once_more(case, rung, reference, f"with {name}", limit=LADDER_CUT, extra=extra)
                self.rows.judge(label, ended, rows.MEASURED, problem or "it passes so")

    def peer(self, case, beside):
        """The row of another way to save memory, without Spillway: its speed beside the uncapped run of a case. Its peak in bytes; None
        where it has not come to its end. The wheels of the bundle are there for it."""
        reference = self.references.get(beside.name)
        if reference is None:
            return None
        with self.rows.guarded(case.name):
            if not self.has_time(case.name, reference):
                return None
            wheels = filter(None, [*sorted(map(str, (self.args.build / "wheels").glob("*.whl"))), os.environ.get("PYTHONPATH")])
            run, ended = self.train("", case, limit=self.limit(reference), extra={"PYTHONPATH": os.pathsep.join(wheels)})
            if self.missing(case.name, run):
                return None
            status = rows.FAILED if run.keys["status"] != "ok" else rows.NEEDS_HARDWARE if self.simcuda() else rows.MEASURED
            words = self.ending(run, ended) if status == rows.FAILED else f"peak {(run.keys['peak_bytes'] or 0) / 1e9:.2f} GB"
            self.rows.judge(case.name, ended, status, "; ".join(filter(None, (words, explained(run, reference)))),
                            equal=run.keys["losses_sha256"] == reference.keys["losses_sha256"], **figures(run))  # fmt: skip
            return run.keys["peak_bytes"] if status != rows.FAILED else None
        return None

    # ---- judgement

    def verdict(self, case, run, ended, reference, way):
        """Status and words of a row. Bits that differ are a failure only where two uncapped runs have the same."""
        problem = self.problem(run, ended, way)
        other = "" if problem else self.other_bits(run, reference)
        if other and case.name not in self.same_bits:
            self.repeats(case, reference)
        if other and self.same_bits[case.name] is False:
            return rows.MEASURED, f"not comparable: {other}, as a second uncapped run has"
        if problem or other:
            return rows.FAILED, problem or other
        if case.feature and self.simcuda():
            return rows.NEEDS_HARDWARE, "it ran; only hardware can answer"
        return rows.PASSED, ""

    @staticmethod
    def ending(run, ended):
        if ended.cut:
            return "cut off: it hangs, or takes four times what it may; the log has its threads"
        if run.keys["status"] == "ok":
            return "ok"
        lines = [line for line in run.log.splitlines() if line.strip()]
        return f"{run.keys['status']}, exit status {ended.status}: {lines[-1][:160] if lines else 'no output'}"

    def problem(self, run, ended, way):
        """What is wrong with a run, whatever its bits; empty: nothing."""
        if ended.cut or run.keys["status"] != "ok":
            return self.ending(run, ended)
        if way.share < 90 and not run.keys["spilled_bytes"]:
            return "nothing was spilled"
        if (run.keys["peak_bytes"] or 0) > run.keys["budget_bytes"]:
            return f"its peak of {run.keys['peak_bytes']} bytes is over its budget of {run.keys['budget_bytes']}"
        return ""

    @staticmethod
    def other_bits(run, reference):
        """In what a run differs from the uncapped one; empty: in nothing."""
        different = [key for key in ("losses_sha256", "state_sha256") if run.keys[key] != reference.keys[key]]
        return "other bits than uncapped: " + ", ".join(key.removesuffix("_sha256") for key in different) if different else ""


def figures(run):
    """Of a row: what it needed, and the seconds of an iteration: the median of the last half, when the first have set everything up."""
    report = run.report or {}
    seconds, allocated = report.get("step_seconds"), (report.get("memory") or {}).get("max_allocated_bytes")
    found = {"iteration_s": statistics.median(seconds[len(seconds) // 2 :])} if seconds else {}
    return {**found, **({"allocated_bytes": allocated} if allocated else {}), **{key: run.keys[key] for key in ROW_KEYS if run.keys[key] is not None}}


def iteration_words(run):
    seconds = figures(run).get("iteration_s")
    return [f"{seconds:.3f} s an iteration"] if seconds else []


def explained(run, reference):
    """The figures that say why a run took as long as it did, in one line."""
    metrics, words = run.metrics or {}, iteration_words(run)
    if run.keys["tokens_per_s"] and reference.keys["tokens_per_s"]:
        words.append(f"ratio {run.keys['tokens_per_s'] / reference.keys['tokens_per_s']:.3f}")
    if not metrics:
        return ", ".join(words)
    words.append(f"out {metrics['spilled_bytes'] / 1e9:.2f} GB, in {metrics['fetched_bytes'] / 1e9:.2f}")
    lost = {key: value for key, value in metrics["lost_seconds"].items() if value >= 0.005}
    words.append("lost s: " + (" ".join(f"{key} {value:.2f}" for key, value in lost.items()) or "0"))
    words.append(f"{metrics['launches']} launches, {metrics['slow_launches']} slow, {metrics['unknown_kernel_launches']} unknown")
    words += [f"{metrics['unmatched_addresses']} numbers like addresses"] if metrics["unmatched_addresses"] else []
    words += [f"held by {key} {value / 1e6:.0f} MB" for key, value in metrics["pinned_bytes_by_reason"].items() if value]
    followed = sum(device.get("followed_launches", 0) for device in metrics["devices"])
    words.append(f"{followed} by a plan")
    words += [f"evictions ended: {metrics['evictions_ended']}"] if metrics["evictions_ended"] else []
    return ", ".join(words)


def spill_folder(parent):
    """A folder for spill files of this session, gone with it."""
    parent.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="visit-", dir=parent)
