"""Compares what `spillway estimate` says with what is measured: the jobs of jobs/ whose model has a Hugging Face config file,
and the same models with other batches, lengths, types and optimizers, uncapped and with less memory than they take.

    build/venv/bin/python tests/third_party/estimates.py --build build [--ci] [--peaks] [--json FILE] [CASE...]

The peak must lie within 10 % of torch.cuda.max_memory_allocated(); of the cases with a time, nine in ten must lie in the
estimate's range. The rates are measured on the same device (bench/machine_profile.py), before and after each case with a
time: a processor that others use, too, is not equally fast all the time.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "jobs"))
sys.path.insert(0, str(HERE))

import harness  # noqa: E402  (the path comes first)
import job  # noqa: E402
import run as third_party  # noqa: E402
from harness import MIB  # noqa: E402

PEAK_TOLERANCE = 0.10
TIMES_WITHIN = 0.9
# For the peak alone, without measuring: rates of no machine.
NOMINAL = {"name": "nominal", "source": "no machine", "gpu_memory_bytes": 8 << 30, "workspace_bytes": 0, "launch_us": [20, 10],
           "matmul_fp32_per_s": [1e10, 5e10], "matmul_bf16_per_s": [1e10, 5e10], "memory_bytes_per_s": [1e9, 1e10],
           "pcie_in_bytes_per_s": 3e9, "pcie_out_bytes_per_s": 3e9, "ssd_read_bytes_per_s": 1e9, "ssd_write_bytes_per_s": 1e9}  # fmt: skip
HOST_PERCENT = 20  # of the peak, in capped cases; the rest goes to the disk


@dataclasses.dataclass(frozen=True)
class Page:
    """A page of jobs/, and what `estimate` is told about its loop. Its config file is written out by the run."""

    name: str
    options: str
    steps: int = 4
    ci: bool = False


PAGES = (
    Page("llama", "--batch 4 --sequence 64 --checkpointing --clip --zero-grad before-backward", 3, ci=True),
    Page("gpt2", "--batch 2 --sequence 64 --accumulate 2 --dtype fp32 --optimizer adamw-fused"),
    Page("hf_trainer", "--batch 2 --sequence 96 --accumulate 2 --checkpointing --clip --optimizer adamw-fused"),
    Page("compiled", "--batch 8 --sequence 64 --dtype fp32 --zero-grad before-backward"),
    Page("lora", "--batch 4 --sequence 96 --dtype bf16 --lora 16 --lora-dropout"),
    Page("resume", "--batch 8 --sequence 48 --target 32 --dtype fp32 --zero-grad before-backward"),
)


@dataclasses.dataclass(frozen=True)
class Shaped:
    """shaped.py with the config of a page, in which `changes` are made. percent: budget of the peak; None: uncapped."""

    page: str
    options: str
    percent: int | None = None
    ci: bool = False
    changes: tuple = ()  # of (key, value)

    @property
    def name(self):
        changes = "".join(f", {key}={value}" for key, value in self.changes)
        return f"{self.page} {self.options}{changes}" + (f" at {self.percent} %" if self.percent else "")


SHAPED = (
    Shaped("llama", "--batch 4 --sequence 64 --dtype autocast --optimizer adamw --checkpointing"),
    Shaped("llama", "--batch 8 --sequence 128 --dtype fp32 --optimizer adamw-fused"),
    Shaped("llama", "--batch 4 --sequence 256 --dtype autocast --optimizer adamw"),
    Shaped("llama", "--batch 8 --sequence 128 --dtype fp32 --optimizer sgd-momentum"),
    Shaped("gpt2", "--batch 8 --sequence 128 --dtype fp32 --optimizer adamw"),
    Shaped("gpt2", "--batch 4 --sequence 128 --accumulate 2 --dtype fp32 --optimizer adamw-fused --clip"),
    Shaped("compiled", "--batch 16 --sequence 128 --dtype fp32 --optimizer sgd"),
    Shaped("compiled", "--batch 8 --sequence 64 --dtype fp32 --optimizer adamw-loop"),
    Shaped("resume", "--batch 16 --sequence 96 --target 64 --dtype fp32 --optimizer adamw"),
    Shaped("lora", "--batch 4 --sequence 96 --dtype bf16 --optimizer sgd"),
    Shaped("gpt2", "--batch 8 --sequence 128 --dtype autocast --optimizer adamw"),
    Shaped("gpt2", "--batch 8 --sequence 128 --dtype autocast --optimizer adamw", changes=(("activation_function", "relu"),)),
    Shaped("resume", "--batch 16 --sequence 96 --target 64 --dtype autocast --optimizer adamw"),
    Shaped("resume", "--batch 16 --sequence 96 --target 128 --dtype bf16 --optimizer adamw",
           changes=(("feed_forward_proj", "gated-gelu"), ("tie_word_embeddings", False))),
    Shaped("lora", "--batch 4 --sequence 256 --dtype fp32 --optimizer sgd", changes=(("sliding_window", 128),)),
    Shaped("lora", "--batch 8 --sequence 256 --dtype autocast --optimizer sgd --checkpointing", changes=(("sliding_window", 256),)),
    Shaped("llama", "--batch 4 --sequence 256 --dtype autocast --optimizer adamw", percent=60),
    Shaped("gpt2", "--batch 8 --sequence 128 --dtype fp32 --optimizer adamw", percent=60),
    Shaped("compiled", "--batch 16 --sequence 128 --dtype fp32 --optimizer adamw-fused", percent=70),
    Shaped("resume", "--batch 16 --sequence 96 --target 64 --dtype fp32 --optimizer adamw", percent=60),
)


class Bench:
    """Runs on simcuda, and the program beside them."""

    def __init__(self, args):
        self.args = args
        self.machine = args.work / "machine.json"
        self.configs = {page.name: args.work / f"{page.name}.config.json" for page in PAGES}

    def device(self, name):
        return job.Machine(device=self.args.device, work=self.args.work / name, build=self.args.build)

    def profile(self):
        """The rates of the device, as the jobs have it: one thread."""
        path = self.args.work / "profile.json"
        command = [sys.executable, "-B", str(ROOT / "bench" / "machine_profile.py"), "--json", str(path), "--dir", str(self.args.work),
                   "--clock", self.args.clock]  # fmt: skip
        if self.args.device == "simcuda":
            command = [str(self.args.build / "bin" / "simcuda-run"), "--memory", "8GiB", "--", *command]
        subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True, stdout=subprocess.DEVNULL, timeout=300)
        return json.loads(path.read_text(encoding="utf-8"))

    def assume(self, *profiles):
        """Estimates from now on are for what these profiles have between them."""
        self.machine.write_text(json.dumps(joined(profiles)), encoding="utf-8")

    def config_of(self, case, number):
        """The config file of the case's page, or one of its own with the case's changes."""
        path = self.configs[case.page]
        if not case.changes:
            return path
        own = self.args.work / f"shaped-{number}.config.json"
        changed = {**json.loads(path.read_text(encoding="utf-8")), **dict(case.changes)}
        if "feed_forward_proj" in changed:  # T5Config makes these of the other keys, unless they are there
            for key in ("dense_act_fn", "is_gated_act", "scale_decoder_outputs"):
                changed.pop(key, None)
        own.write_text(json.dumps(changed), encoding="utf-8")
        return own

    def run(self, name, mode, script, arguments, cap=None):
        return job.run_job(self.device(name), mode, arguments, cap, script=HERE / script, show=lambda line: False,
                           timeout=600, extra_environment=third_party.offline(self.args.work))  # fmt: skip

    def page(self, page):
        """Runs a page as it is; its config file stays for the cases that take the same model."""
        ran = self.run(page.name, job.UNCAPPED, "observe.py",
                       [page.name, "--steps", str(page.steps), "--config", str(self.configs[page.name])])  # fmt: skip
        return ran, ran.report and ran.report["memory"]

    def shaped(self, case, number, estimate):
        arguments = [str(self.config_of(case, number)), *case.options.split(), "--steps", "4"]
        if case.percent is None:
            return self.run(f"shaped-{number}", job.UNCAPPED, "shaped.py", arguments)
        budget = estimate["fit"]["budget_bytes"]
        with tempfile.TemporaryDirectory(dir=self.args.work) as folder:
            cap = job.Cap(budget, self.host_memory(estimate), folder, {"gpu_memory": job.size_text(budget)})
            return self.run(f"shaped-{number}", job.PRELOAD, "shaped.py", arguments, cap)

    @staticmethod
    def host_memory(estimate):
        return job.size_text(estimate["peak"]["allocated_bytes"] * HOST_PERCENT // 100)

    def estimate(self, config, options, *more):
        command = [str(self.args.build / "bin" / "spillway"), "estimate", str(config), "--json", "--attention", "math",
                   "--machine", str(self.machine), *options.split(), *more]  # fmt: skip
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if ran.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: {ran.returncode}\n{ran.stdout[-500:]}{ran.stderr}")
        return json.loads(ran.stdout)


def joined(profiles):
    """Pairs from the slowest to the fastest of all, other rates by their mean."""
    one = dict(profiles[0])
    for key, value in one.items():
        values = [profile[key] for profile in profiles]
        if isinstance(value, list):
            ends = [end for pair in values for end in pair]
            one[key] = sorted((min(ends), max(ends)), reverse=key == "launch_us")
        elif key.endswith("_per_s") and isinstance(value, float):
            one[key] = sum(values) / len(values)
    return one


def peak_row(name, estimate, memory, problems):
    said, measured = estimate["peak"]["allocated_bytes"], memory["max_allocated_bytes"]
    problems.expect(abs(said / measured - 1) <= PEAK_TOLERANCE,
                    f"{name}: a peak of {said / MIB:.1f} MiB was estimated, {measured / MIB:.1f} measured")  # fmt: skip
    return {"case": name, "peak_bytes": measured, "estimated_peak_bytes": said, "reserved_bytes": memory["max_reserved_bytes"],
            "estimated_reserved_bytes": estimate["peak"]["reserved_bytes"]}  # fmt: skip


def time_row(estimate, seconds, capped):
    times = [time["iteration_s" if capped else "uncapped_s"] for time in estimate["times"]]
    return {"seconds": seconds, "low_s": min(times), "high_s": max(times), "within": min(times) <= seconds <= max(times)}


def run_pages(bench, pages, problems):
    rows = []
    for page in pages:
        ran, memory = bench.page(page)
        if not problems.expect(ran.keys["status"] == "ok", f"{page.name}: {ran.keys['status']}\n{ran.log[-2000:]}"):
            continue
        rows.append(peak_row(f"jobs/{page.name}", bench.estimate(bench.configs[page.name], page.options), memory, problems))
        show(rows[-1])
    return rows


def estimate_case(bench, case, number):
    config = bench.config_of(case, number)
    estimate = bench.estimate(config, case.options)
    if not case.percent:
        return estimate
    budget = estimate["peak"]["chunk_bytes"] * case.percent // 100 // (2 * MIB) * (2 * MIB)
    return bench.estimate(config, case.options, "--gpu-memory", str(budget), "--host-memory",
                          bench.host_memory(estimate))  # fmt: skip


def run_shaped(bench, cases, problems):
    rows = []
    profile = (lambda: NOMINAL) if bench.args.peaks else bench.profile
    before = profile() if cases else None
    for number, case in enumerate(cases):
        if not problems.expect(bench.configs[case.page].exists(), f"{case.name}: its page wrote no config file"):
            continue
        bench.assume(before)
        ran = bench.shaped(case, number, estimate_case(bench, case, number))
        if not problems.expect(ran.keys["status"] == "ok", f"{case.name}: {ran.keys['status']}\n{ran.log[-2000:]}"):
            continue
        after = profile()
        bench.assume(before, after)
        before = after
        estimate = estimate_case(bench, case, number)
        rows.append(peak_row(case.name, estimate, ran.report, problems) if case.percent is None else {"case": case.name})
        if not bench.args.peaks:
            rows[-1].update(time_row(estimate, ran.report[f"{bench.args.clock}_s"], case.percent is not None))
        show(rows[-1])
    return rows


def show(row):
    text = f"{row['case']:<100}"
    if "peak_bytes" in row:
        text += (f" peak {row['estimated_peak_bytes'] / MIB:7.1f} / {row['peak_bytes'] / MIB:7.1f} MiB"
                 f" {row['estimated_peak_bytes'] / row['peak_bytes'] - 1:+6.1%}, reserved"
                 f" {row['estimated_reserved_bytes'] / row['reserved_bytes'] - 1:+6.1%}")  # fmt: skip
    if "seconds" in row:
        text += f"  time {row['low_s']:.3f} to {row['high_s']:.3f} s / {row['seconds']:.3f}{'' if row['within'] else '  OUTSIDE'}"
    print(text, flush=True)


def parse_arguments():
    args = harness.arguments(
        __doc__, ("cases", {"nargs": "*", "metavar": "CASE", "help": "parts of the names of cases (default: all)"}),
        ("--device", {"choices": ["gpu", "simcuda"], "default": "gpu" if job.has_gpu() else "simcuda"}),
        ("--clock", {"choices": ["wall", "cpu"], "default": "wall",
                     "help": "cpu: processor time, for uncapped cases alone, on a machine that others use"}),
        ("--ci", {"action": "store_true", "help": "the peak of one page"}),
        ("--peaks", {"action": "store_true", "help": "peaks alone: no rates are measured, no capped cases"}),
        ("--json", {"type": Path, "metavar": "FILE", "help": "write the rows here"}))  # fmt: skip
    args.work = args.work / "estimates"
    args.work.mkdir(parents=True, exist_ok=True)
    return args


def chosen(args, cases):
    cases = [case for case in cases if case.ci or not args.ci]
    if args.clock == "cpu" or args.peaks:
        cases = [case for case in cases if getattr(case, "percent", None) is None]
    return [case for case in cases if not args.cases or any(part in f"{type(case).__name__}/{case.name}" for part in args.cases)]


def pages_for(args, cases):
    """The chosen pages, and those whose config files the cases take: nothing is left of an earlier run."""
    needed = {case.page for case in cases}
    wanted = chosen(args, PAGES)
    return [page for page in PAGES if page in wanted or page.name in needed]


def main():
    args = parse_arguments()
    third_party.check_packages(("transformers", "accelerate", "peft"))
    problems = harness.Problems()
    bench = Bench(args)
    bench.assume(NOMINAL)
    cases = chosen(args, SHAPED)
    rows = run_pages(bench, pages_for(args, cases), problems)
    timed = run_shaped(bench, cases, problems)
    within = sum(row.get("within", False) for row in timed)
    if timed and not args.peaks:
        print(f"\ntimes in the estimate's range: {within} of {len(timed)}")
        problems.expect(within >= TIMES_WITHIN * len(timed), f"only {within} of {len(timed)} times are in the range")
    if args.json:
        args.json.write_text(json.dumps(rows + timed, indent=2) + "\n", encoding="utf-8")
    problems.exit()


if __name__ == "__main__":
    main()
