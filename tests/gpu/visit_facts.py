"""Facts of a GPU session: the programs gpu_self_test, gpu_facts and gpu_driver_bench, and gpu_plain_job on a full GPU."""

import contextlib
import dataclasses
import json
import os
import re
import select
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "gpu"))

import visit_rows as rows
import visit_watch as watch
import write_profile

MIB = 1 << 20
LEFT_FREE = 2048 * MIB  # of a GPU that another process has filled
FILLING = 60  # seconds: what that process may take to begin, and to end
# What of the caller's environment a program does not get. The disk's reserve, and the self-test's folder, are the machine's.
OTHERS_CHOICE = "PYTORCH|SPILLWAY(?!_DISK_RESERVE$|_GPU_TEST_DIR$)|SIMCUDA|LD_PRELOAD"


class Program:
    """A program of the build, on the session's device."""

    def __init__(self, args, table):
        self.args, self.table = args, table
        self.simcuda = args.device == "simcuda"
        self.last = None  # runs the last command again

    def command(self, name, *arguments, memory="2GiB", options=(), spillway=None, **variables):
        """Command and environment. options: of simcuda-run. spillway: its settings, or None to run without it."""
        env = {key: value for key, value in os.environ.items() if not re.match(OTHERS_CHOICE, key)}
        if self.args.spill:
            env["SPILLWAY_GPU_TEST_DIR"] = str(self.args.spill)
        command = [self.args.build / "tests" / name, *arguments]
        if not command[0].exists():
            command[0] = self.args.build / "bin" / name
        if self.simcuda:
            command = [self.args.build / "bin" / "simcuda-run", "--memory", memory, *options, "--", *command]
            env["SIMCUDA_POISON"] = "recycle"
        if spillway is not None:
            env["LD_PRELOAD"] = str(self.args.build / "lib" / "libspillway.so")
            if self.args.spill:
                env["SPILLWAY_DIRS"] = str(self.args.spill)
            env.update({f"SPILLWAY_{key.upper()}": value for key, value in spillway.items()})
        return [str(part) for part in command], {**env, **variables}

    def spill_option(self):
        """For the doctor: the folder of the spill files, where the session has one."""
        return ("--dirs", str(self.args.spill)) if self.args.spill else ()

    def run(self, label, name, *arguments, limit=120, allowance=None, **more):
        """How it ended, and the figures that it printed; None where it printed none. allowance: of a file of metrics, which Spillway
        writes: the seconds beyond the limit (visit_watch.run)."""
        self.last = lambda: self.run(f"{label} again", name, *arguments, limit=limit, allowance=allowance, **more)
        command, env = self.command(name, *arguments, **more)
        log = self.args.work / (re.sub("[^a-z0-9]+", "-", label.lower()) + ".log")
        follow = {}
        if allowance is not None:
            metrics = log.with_suffix(".metrics.json")
            metrics.unlink(missing_ok=True)
            env["SPILLWAY_METRICS"] = str(metrics)
            follow = {"more": allowance(metrics)}
        ended = watch.run(command, log, limit, env, left=self.table.left(), **follow)
        found = re.findall(r"^RESULT (.*)$", ended.text, re.MULTILINE)
        with contextlib.suppress(ValueError):  # a line that was cut off
            return ended, json.loads(found[-1]) if found else None
        return ended, None

    def last_line(self, ended):
        if ended.cut:
            return "cut off: it does not end; the log has what its threads do"
        lines = [line for line in ended.text.splitlines() if line.strip()]
        return f"exit status {ended.status}: {lines[-1][:200] if lines else 'no output'}"

    def failed(self, label, ended, problem="", **figures):
        """A failed row, whose last command is run again at the end."""
        def again(last=self.last):
            found, _ = last()
            return "" if found.status == 0 else self.last_line(found), found

        return self.table.judge(label, ended, rows.FAILED, problem or self.last_line(ended), again, **figures)

    def judged(self, label, ended, words=""):
        """A row that the program itself has judged."""
        if ended.status == 0:
            self.table.judge(label, ended, rows.PASSED, words)
        else:
            self.failed(label, ended)

    def fact(self, label, *arguments, words, **more):
        """A row of figures that only hardware can give."""
        small = ("--small",) if self.args.size == "small" else ()
        ended, figures = self.run(label, "gpu_facts", *arguments, *small, **more)
        if ended.status != 0 or figures is None:
            self.failed(label, ended)
            return
        self.figures(label, figures, ended.seconds, said_of(words, figures))

    def figures(self, label, figures, seconds, words=""):
        if self.simcuda:
            self.table.add(label, rows.NEEDS_HARDWARE, "the stand-in's figures say nothing", seconds, stand_in=figures)
        else:
            self.table.add(label, rows.MEASURED, words, seconds, figures=figures)


def said_of(words, figures):
    """What `words` says of figures; of those that have another form, that it says nothing: they are kept."""
    try:
        return words(figures)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        return f"the figures have another form ({type(error).__name__}: {error})"


def doctor(program):
    ended, _ = program.run("doctor", "spillway", "doctor", "--disk-seconds", "2", *program.spill_option(), limit=30)
    good = ended.status in (0, 1) and not ended.cut
    lines = re.findall(r"^.*\b(?:driver|limits?|wrong)\b.*$", ended.text, re.MULTILINE)
    if not good:
        program.failed("doctor", ended)
        return
    program.table.judge("doctor", ended, rows.PASSED, f"exit status {ended.status}: " + " | ".join(line.strip() for line in lines)[:300])


@dataclasses.dataclass(frozen=True)
class SelfTest:
    """A row of gpu_self_test: those of its tests that the filter names, alone or with Spillway before the driver."""

    name: str
    tests: str
    words: str
    spillway: dict | None = None

    def run(self, visit):
        if visit.jobs.wanted(self.name):
            ended, _ = visit.program.run(self.name, "gpu_self_test", "--gtest_brief=1", f"--gtest_filter={self.tests}",
                                         spillway=self.spillway, limit=40)  # fmt: skip
            visit.program.judged(self.name, ended, self.words)


@dataclasses.dataclass(frozen=True)
class Fact:
    """A row of figures of gpu_facts, asked in one process."""

    name: str
    arguments: tuple
    words: object  # makes them of the figures
    limit: int = 40
    environment: tuple = ()  # pairs

    def run(self, visit):
        if visit.jobs.wanted(self.name):
            visit.program.fact(self.name, *self.arguments, words=self.words, limit=self.limit, **dict(self.environment))


@dataclasses.dataclass(frozen=True)
class Cases:
    """A row of gpu_facts, each question in a process of its own, since a driver may crash at it: that is an answer, too."""

    name: str
    fact: str
    cases: tuple | None = None  # "" is the whole fact; None: those that the program lists
    words: object = None

    def run(self, visit):
        if visit.jobs.wanted(self.name):
            self.ask(visit.program)

    def ask(self, program):
        cases, ended = self.cases, None
        if cases is None:
            ended, _ = program.run(f"{self.fact} list", "gpu_facts", self.fact, "--list")
            cases = [line for line in ended.text.splitlines() if line and not line.startswith("simcuda")]
        answers, seconds = {}, 0.0
        small = ("--small",) if program.args.size == "small" else ()
        for case in cases:
            asked = ("--case", case) if case else ()
            ended, figures = program.run(f"{self.fact} {case}", "gpu_facts", self.fact, *asked, *small, limit=30)
            if ended.out_of_time:
                program.table.add(self.name, rows.LEFT_OUT, f"no time after {len(answers)} of {len(cases)}", seconds, figures=answers)
                return
            answers[case or self.fact] = figures if figures is not None else {"ended": ended.status, "cut": ended.cut}
            seconds += ended.seconds
        crashed = [case for case, answer in answers.items() if "ended" in answer]
        if not cases or (program.simcuda and len(crashed) == len(cases)):
            program.failed(self.name, ended)
            return
        said = f"{len(crashed)} of {len(cases)} end the process: {crashed[:4]}" if crashed or not self.words else said_of(self.words, answers)
        program.figures(self.name, answers, seconds, said)


ESSENTIALS = "device,placement,layouts,tensor-map,pointers,hash,pinning"  # in one process: its device is set up once


def essential_words(figures):
    places = ", ".join(f"{row['hint']:#x}: " + (f"{row['start']:#x}" if row["result"] == 0 else f"error {row['result']}")
                       for row in figures["placement"]["rows"])  # fmt: skip
    hash_rate, pinned = figures["hash"].get("gb_per_s", 0), figures["pinning"].get("pin_gb_per_s", 0)
    return (f"{figures['device']['description']}, free {figures['device']['free_bytes'] >> 20} MiB; addresses by hint {places}; "
            f"{tensor_map_words(figures['tensor-map'])}; {attribute_words(figures)}; "
            f"kernel's parameters {figures['layouts'].get('kernel', {}).get('parameters')}; hash {hash_rate:.0f} GB/s; "
            f"pinning {pinned:.1f} GB/s")  # fmt: skip


def host_handle_words(figures):
    def told(kind):
        answer = figures[kind]
        if "gb_per_s" not in answer:
            return f"{kind}: create {answer.get('cuMemCreate')}, map {answer.get('cuMemMap')}, access {answer.get('cuMemSetAccess')}"
        rates = ", ".join(f"{name} {rate:.1f}" for name, rate in answer["gb_per_s"].items())
        return f"{kind}: swap {answer['swap_us']:.0f} us, GB/s: {rates}; direct read: errno {answer.get('direct_read_errno')}"

    return f"{figures['bytes'] >> 20} MiB; " + "; ".join(told(kind) for kind in ("host_numa", "host"))


def attribute_words(answers):
    said = answers["pointers"]["answers"]
    widths = {kind: sorted({answer["bytes"] for name, answer in asked.items() if name.isupper() and answer["result"] == 0})
              for kind, asked in said.items()}  # fmt: skip
    return f"bytes of a boolean: {widths}; the range of the second handle of a block: {said['mapped']['range']}"


def mapping_words(answers):
    return "; ".join(f"{case}: {json.dumps(answer)}" for case, answer in answers.items())


def reservation_words(answers):
    return ", ".join(f"{row['bytes'] >> 40} TiB: {row['result']} in {row['us']:.0f} us" for row in answers["reserve"]["rows"])


def retained_words(answers):
    return ", ".join(f"{kind}: {answer['result']}" for kind, answer in answers["retain"].items())


def stall_words(answers):
    def longest(answer):
        return "/".join(f"{answer[call]['longest_us']:.0f}" for call in ("cuEventQuery", "cuLaunchKernel", "remap"))

    return "longest query/launch/remap, us: " + ", ".join(f"{case} {longest(answer)}" for case, answer in answers.items())


def tensor_map_words(figures):
    return f"word 0 {figures.get('word_0', 0):#x} for address {figures.get('address', 0):#x}"


def latency_words(figures):
    def of(busy, handle):
        found = [row for row in figures["rows"] if row["memory_bound_kernel"] is busy and row["handle_bytes"] == handle]
        return f"{found[0]['p50_us']:.1f}/{found[0]['p99_us']:.1f}" if found else "?"

    fewest = min(row["launches"] for row in figures["rows"])
    return (f"p50/p99 us: alone {of(False, 0)}, kernel {of(True, 0)}, kernel and remapping in 2 MiB {of(True, 2 * MIB)}, "
            f"in 64 MiB {of(True, 64 * MIB)}; of {fewest} launches and more")  # fmt: skip


def copy_words(figures):
    row = figures["rows"][-1]
    return (f"{row['bytes'] // MIB} MiB, GB/s: out {row['out_gb_per_s']:.1f}, in {row['in_gb_per_s']:.1f}, together out "
            f"{row['out_beside_in_gb_per_s']:.1f}, in {row['in_beside_out_gb_per_s']:.1f}")  # fmt: skip


def loading_words(figures):
    idle, busy = figures["rows"]
    return f"load and first launch, us: idle {idle['load_us'] + idle['first_launch_us']:.0f}, busy {busy['load_us'] + busy['first_launch_us']:.0f}"


def driver_calls(program):
    report = program.args.work / "driver-calls.json"
    report.unlink(missing_ok=True)
    small = ("--rounds", "3", "--copy-mib", "16") if program.args.size == "small" else ()
    ended, _ = program.run("driver calls", "gpu_driver_bench", *small, "--json", str(report), memory="4GiB", limit=60)
    if ended.status != 0 or not report.exists():
        program.failed("driver calls", ended)
        return
    figures = json.loads(report.read_text(encoding="utf-8"))
    program.figures("driver calls", figures, ended.seconds, said_of(driver_words, figures))
    with program.table.guarded("hardware profile"):
        hardware_profile(program, figures)


def driver_words(figures):
    blocks = sorted((row for row in figures["blocks"] if row["block_bytes"] == row["chunk_bytes"] == 64 * MIB), key=lambda row: row["busy"])

    def of(call):
        return f"{call} " + "/".join(f"{row[call + '_us']:.0f}" for row in blocks)

    calls = ", ".join(map(of, ("create", "map", "set_access", "unmap", "release")))
    rates = ", ".join(f"{name.split('_gb')[0].replace('_', ' ')} {rate:.1f}" for name, rate in figures["copies"].items())
    return f"64 MiB, us idle/beside a kernel: {calls}; launch {figures['launch']['launch_ns']:.0f} ns; copies, GB/s: {rates}"


def hardware_profile(program, driver):
    """The machine's costs as simcuda takes them, from the calls just measured."""
    label, path = "hardware profile", program.args.work / "hardware-profile.json"
    like = write_profile.nearest(driver["device"])
    write_profile.write(write_profile.make(driver, program.table.head["machine"], "visit", like, program.table.rows), path)
    if not program.simcuda:
        program.table.add(label, rows.MEASURED, f"{path.name}, the rest as {like}'s")
        return
    ended, _ = program.run(label, "gpu_driver_bench", "--launch-only", "--rounds", "1", SIMCUDA_HARDWARE=str(path))
    if ended.status != 0:
        program.failed(label, ended, f"simcuda does not take it: {program.last_line(ended)}")
    else:
        program.table.judge(label, ended, rows.NEEDS_HARDWARE, "written of the stand-in, and understood by it")


def full_device(program):
    """Another process takes all memory but a little; the default budget must make do with the rest."""
    label = "a full GPU, default budget"
    if program.simcuda:  # its processes share no memory: a small device stands for one that is full
        ended, figures = program.run(label, "gpu_plain_job", "--spillway", "--blocks", "24", "--mib", "16", "--products", "0",
                                     memory="256MiB", spillway={"host_memory": "512MiB"})  # fmt: skip
    else:
        with filled(program) as taken:
            if not taken:
                late = program.table.left() <= 0
                program.table.add(label, *(rows.LEFT_OUT, "no time") if late else (rows.FAILED, "the memory could not be taken"))
                return
            # More than is free, whatever the job's own context takes of it.
            ended, figures = program.run(label, "gpu_plain_job", "--spillway", "--blocks", "48", "--mib", "64", "--products", "0",
                                         spillway={"host_memory": "4GiB"})  # fmt: skip
    if ended.status != 0 or not (figures or {}).get("spilled_bytes"):
        program.failed(label, ended)
    elif program.simcuda:
        program.table.judge(label, ended, rows.NEEDS_HARDWARE, "a small device stood for it, and was enough", stand_in=figures)
    else:
        program.table.judge(label, ended, rows.PASSED, f"budget {figures['budget_bytes'] // MIB} MiB, every word right",
                            figures=figures)  # fmt: skip


@contextlib.contextmanager
def filled(program):
    """Whether another process has taken all memory but LEFT_FREE. It is gone at the end."""
    command, env = program.command("gpu_facts", "full", "--leave", str(LEFT_FREE))
    other = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        ready = select.select([other.stdout], [], [], max(0.0, min(FILLING, program.table.left())))[0]
        yield bool(ready) and other.stdout.readline().startswith("taken")
    finally:
        other.stdin.close()
        watch.end(other, max(watch.GRACE, min(FILLING, program.table.left())))
        other.stdout.close()
