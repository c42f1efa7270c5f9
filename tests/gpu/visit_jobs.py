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
UNCAPPED_CUT = {"gpu": 120, "simcuda": 240}  # seconds: a part of a stage; on the stand-in others may take the processors
FEWEST_LAYERS = 4  # of a smaller GPT: with fewer, one launch of the optimizer names much of the model
LEAST_PEAK = 1 << 30  # of it: what a launch names has to fit the budget
NO_DISK, NO_DISK_HOST = "no disk", 1.25  # host memory without one, of the peak: it holds all, and freed blocks for a while
LADDER = {
    "lru": {"policy": "lru"},
    NO_DISK: {"dirs": "none"},
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


@dataclasses.dataclass(frozen=True)
class Way:
    """How a job is run with Spillway."""

    share: int  # of the uncapped peak, in percent
    host: float = 0.75  # host memory, of the peak: with 50 % of it on the GPU, a disk is not needed
    mode: str = job.PRELOAD

    def disk(self):
        """Whether much of it has to go to the disk."""
        return self.share + 100 * self.host < 80

    def words(self):
        tier = "disk" if self.host < 0.1 else "host memory and disk" if self.disk() else "host memory"
        return f"{self.share} %, {tier}" + (", configuration" if self.mode == job.CONF else "")


class Reruns:
    """Which failures of a visit are run again: the first, and, if it needed the disk and passes without one, the first that does
    not need it."""

    def __init__(self):
        self.climbed = self.disk_tried = False

    def after(self, disk, rerun):
        """Runs a failure again. rerun(name, settings): whether it passes so. What needs a disk is tried without one first: if it
        passes, that is where to look, and nothing waits for the disk again; if not, the others need none either."""
        if self.climbed or (disk and self.disk_tried):
            return
        if not disk:
            self.climbed = True
            for name, settings in LADDER.items():
                rerun(name, settings)
            return
        self.disk_tried = True
        if rerun(NO_DISK, LADDER[NO_DISK]):
            return
        self.climbed = True
        for name, settings in LADDER.items():
            if name != NO_DISK:
                rerun(name, {**LADDER[NO_DISK], **settings})


class Jobs:
    def __init__(self, args, table, disk):
        self.args, self.rows, self.disk = args, table, disk
        self.total_bytes = None
        self.reruns = Reruns()
        self.left = {}  # by case: bytes that its runs have moved out, for each byte that they had too little
        self.same_bits = {}  # by case: whether two uncapped runs have them; None: that is not known

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
            more = self.disk.allowance(log.with_suffix(".metrics.json"), HANG)
            ends.append(watch.run(command, log, limit or UNCAPPED_CUT[self.args.device], env, left=self.rows.left(), more=more))
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
        if reference is None and self.wanted(case.name):
            with self.rows.guarded(f"{case.name}: uncapped"):
                reference = self.uncapped(case)
        if reference is None:
            return None
        for way in ways:
            label = way.words() + ("" if not settings else ", " + ", ".join(f"{k} {v}" for k, v in settings.items()))
            with self.rows.guarded(f"{case.name}: {label}"):
                self.capped(case, way, label, reference, settings)
        return reference

    def first(self, case):
        """The uncapped run of a case that must repeat its bits on any device; None: there is nothing to compare with."""
        reference = None
        with self.rows.guarded(f"{case.name}: uncapped"):
            reference = self.uncapped(case)
            if reference is not None:
                self.repeats(case, reference, must=True)
        return reference

    def compare_on_disk(self, case, way, reference, steps):
        """A way that spills to disk, of the case as the disk's rate allows it: `steps` of a smaller model, where it is slow.
        It is taken to move what ways without a disk have moved, by how much of the peak they had too little."""
        with self.rows.guarded(f"{case.name}: {way.words()}"):
            short = reference.keys["peak_bytes"] * (1 - way.share / 100)
            moved = short * self.left.get(case, value_of(case, "--steps"))
            fitted = fitted_to_disk(self.disk, case, reference.keys["peak_bytes"], moved, steps)
            self.compare(fitted, (way,), reference if fitted is case else None)

    def capped(self, case, way, label, reference, settings):
        """The row of one way, and the reruns if it is a failure that is run again."""
        if self.rows.left() < 1.3 * reference.seconds + 5:
            self.rows.add(f"{case.name}: {label}", rows.LEFT_OUT, "no time")
            return
        cap = self.cap(way, reference.keys["peak_bytes"], settings)
        run, ended = self.train(label, case, way.mode, cap, max(HANG * reference.seconds, SHORTEST_CUT))
        short = reference.keys["peak_bytes"] * (1 - way.share / 100)
        if short > 0 and run.keys["spilled_bytes"]:
            self.left[case] = max(self.left.get(case, 0), run.keys["spilled_bytes"] / short)
        status, words = self.verdict(case, run, ended, reference, way)
        row = self.rows.judge(f"{case.name}: {label}", ended, status, words, **self.figures(run, reference))
        if row["status"] == rows.FAILED:
            self.reruns.after(way.disk(), lambda name, changed: self.rerun(case, way, reference, name, changed))

    def verdict(self, case, run, ended, reference, way):
        """Status and words of a row. Bits that differ are a failure only where two uncapped runs have the same."""
        problem, other = self.problem(run, ended, reference, way), ""
        if not problem:
            other = self.other_bits(run, reference)
        if other and case not in self.same_bits:
            self.repeats(case, reference)
        if other and self.same_bits[case] is False:
            return rows.MEASURED, f"not comparable: {other}, as a second uncapped run has"
        if problem or other:
            return rows.FAILED, problem or other
        if case.feature and self.simcuda():
            return rows.NEEDS_HARDWARE, "it ran; only hardware can answer"
        return rows.PASSED, ""

    def rerun(self, case, way, reference, name, settings):
        """One rerun with one thing changed. It is told, and judges nothing. Whether it passes so; None: there was no time."""
        label = f"rerun of {case.name}: {name}"
        if self.rows.left() < 1.3 * reference.seconds + 5:
            self.rows.add(label, rows.LEFT_OUT, "no time")
            return None
        host = NO_DISK_HOST if "dirs" in settings else way.host
        # An audit unmaps what a launch does not name: it has memory enough for all.
        share = 150 if name == "audit" else way.share
        cap = self.cap(dataclasses.replace(way, host=host, share=share), reference.keys["peak_bytes"], settings)
        extra = {"CUDA_LAUNCH_BLOCKING": "1"} if name == "blocking launches" else None
        run, ended = self.train(f"rerun {name}", case, job.PRELOAD, cap, max(HANG * reference.seconds, SHORTEST_CUT), extra)
        problem = self.problem(run, ended, reference, dataclasses.replace(way, share=100)) or self.other_bits(run, reference)
        self.rows.judge(label, ended, rows.MEASURED, problem or "it passes so", **self.figures(run, reference))
        return not problem

    @staticmethod
    def ending(run, ended):
        if ended.cut:
            return "cut off: it hangs, or takes four times what it may; the log has its threads"
        if run.keys["status"] == "ok":
            return "ok"
        lines = [line for line in run.log.splitlines() if line.strip()]
        return f"{run.keys['status']}, exit status {ended.status}: {lines[-1][:160] if lines else 'no output'}"

    def problem(self, run, ended, reference, way):
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

    @staticmethod
    def figures(run, reference):
        keys = ("peak_bytes", "budget_bytes", "spilled_bytes", "fetched_bytes", "ssd_written_bytes", "tokens_per_s")
        found = {key: run.keys[key] for key in keys if run.keys[key] is not None}
        if run.keys["tokens_per_s"] and reference.keys["tokens_per_s"]:
            found["ratio"] = round(run.keys["tokens_per_s"] / reference.keys["tokens_per_s"], 3)
        return found

    def repeats(self, case, reference, must=False):
        """Runs it uncapped again: whether it has the same bits. Else they say nothing on this device, which is a failure of a case
        that `must` have them."""
        self.same_bits[case] = None
        label = f"{case.name}: uncapped again"
        with self.rows.guarded(label):
            run, ended = self.train("uncapped again", case, job.UNCAPPED, limit=max(HANG * reference.seconds, SHORTEST_CUT))
            if run.keys["status"] != "ok" or ended.cut:
                self.rows.judge(label, ended, rows.FAILED, f"{self.ending(run, ended)}, without Spillway")
                return
            other = self.other_bits(run, reference)
            self.same_bits[case] = not other
            status = rows.PASSED if not other else rows.FAILED if must else rows.MEASURED
            self.rows.judge(label, ended, status, f"two uncapped runs differ, their bits cannot be compared: {other}" if other else "")


def value_of(case, option):
    """The last one counts."""
    return int(case.arguments[len(case.arguments) - case.arguments[::-1].index(option)])


def gpt_size(sizes):
    """What a GPT's peak grows with: weights with their gradients and moments, and what forward keeps, with the scores of attention."""
    width, sequence = sizes["--width"], sizes["--sequence"]
    kept = sizes["--batch"] * sequence * (80 * width + 16 * sizes["--heads"] * sequence)
    return sizes["--layers"] * (192 * width * width + kept)


def fitted_to_disk(disk, case, peak, moved, steps):
    """The case of a GPT that has such a peak and moves so many bytes each way; or the largest that makes `steps` and whose bytes go
    there and back in the time of a row. The smallest, where none is as small."""
    allowed = disk.bytes_there_and_back()
    whole = {name: value_of(case, name) for name in ("--width", "--layers", "--heads", "--sequence", "--batch")}
    if moved <= allowed:
        return case
    smaller = [{**whole, "--width": whole["--width"] // part, "--heads": whole["--heads"] // part, "--layers": layers, "--batch": batch}
               for part in (1, 2) for batch in {max(1, whole["--batch"] // less) for less in (1, 2, 4)}
               for layers in range(whole["--layers"], min(whole["--layers"], FEWEST_LAYERS) - 1, -1)]  # fmt: skip
    parts = [(gpt_size(sizes) / gpt_size(whole), number) for number, sizes in enumerate(smaller)]
    parts = sorted((part, number) for part, number in parts if part * peak >= LEAST_PEAK)
    if not parts:
        return case
    moved *= steps / value_of(case, "--steps")
    sizes = smaller[max((part for part in parts if part[0] * moved <= allowed), default=parts[0])[1]]
    words = (str(word) for size in (*sizes.items(), ("--steps", steps)) for word in size)
    return dataclasses.replace(case, name=f"{case.name}, width {sizes['--width']}, {sizes['--layers']} layers, batch {sizes['--batch']}",
                               arguments=(*case.arguments, *words))  # fmt: skip


def spill_folder(parent):
    """A folder for spill files of this visit, gone with it."""
    parent.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="visit-", dir=parent)
