"""Runs other people's models with half of the device memory that they take, and compares bit for bit.

For each job of jobs/: an uncapped run without Spillway, PyTorch alone at the cap, which must run out of memory, and the
capped run with Spillway, whose losses and final state must be the same bits. Started by run.sh; judges every row.
"""

import argparse
import dataclasses
import importlib.metadata
import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "jobs"))

import harness  # noqa: E402  (the path comes first)
import held  # noqa: E402
import job  # noqa: E402
from harness import MIB  # noqa: E402
from held import Waste  # noqa: E402

HOST_PERCENT = 20  # pinned host memory, of the uncapped peak; the rest goes to the SSD
LARGE_SHARE = 0.8  # of the peak that must lie in blocks of more than 1 MiB
COLUMNS = ("job", "peak", "cap", "PyTorch at the cap", "spilled", "fetched", "SSD written", "waste", "equal", "ratio")


@dataclasses.dataclass(frozen=True)
class Page:
    """One page of jobs/."""

    name: str
    steps: int
    waste: Waste | None  # on simcuda
    ci_steps: int | None = None  # None: nightly only
    same: tuple | None = None  # two pieces of state that must have the same bits in every run
    simcuda: tuple = ()  # more options of simcuda-run


# Each reason is the matrices that most of the job's memory is in, in MiB, and the chunks of 2 MiB that they take.
PAGES = (
    Page("llama", 6, Waste(0.350, "1.6 in 2, 4.2 in 6, 5.0 in 6"), 2),
    Page("gpt2", 6, Waste(0.265, "1.3 in 2, 3.8 in 4, 5.1 in 6, 2.3 in 4"), 2),
    Page("hf_trainer", 4, Waste(0.229, "as gpt2"), same=("uninterrupted", "resumed")),
    Page("resnet", 8, Waste(0.270, "2.3 in 4, 4.5 in 6, 9.0 in 10"), 3),
    Page("vit", 6, Waste(0.622, "1.7 in 2, 2.3 in 4; activations 1.2 in 2, 4.7 in 6")),
    Page("side_stream", 8, Waste(0.028, "4.0 in 4"), 3, simcuda=("--delay", "300")),  # microseconds, at random: streams drift apart
    Page("compiled", 6, Waste(0.380, "1.3 in 2, 5.1 in 6, 4.5 in 6; activations 1.1 in 2, 4.5 in 6")),
    Page("lora", 6, Waste(0.303, "2.0 in 2, 5.5 in 6; activations 1.5 in 2, 2.1 in 4, 4.1 in 6"), same=("trained", "loaded")),
    Page("resume", 6, Waste(0.368, "1.3 in 2, 5.1 in 6"), same=("uninterrupted", "resumed")),
)


def offline(work):
    """Nothing is fetched from anywhere, and nothing is cached outside the work folder."""
    return {"HF_HUB_OFFLINE": "1", "HF_HOME": str(work / "hf"), "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_DISABLE_TELEMETRY": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}  # fmt: skip


def run(here, page, mode, steps, cap=None, total_bytes=None):
    return job.run_job(here, mode, [page.name, "--steps", str(steps)], cap, total_bytes, script=HERE / "observe.py",
                       show=lambda line: False, timeout=900, extra_environment=offline(here.work))  # fmt: skip


def large_share(report):
    memory = report["memory"]
    return memory["max_allocated_large_bytes"] / memory["max_allocated_bytes"]


def equal(capped, uncapped):
    return all(capped.keys[key] == uncapped.keys[key] for key in ("losses_sha256", "state_sha256"))


def differences(capped, uncapped):
    """Names of what differs, for the one who looks for the cause."""
    found = [f"loss {i}" for i, pair in enumerate(zip(capped.report["losses"], uncapped.report["losses"])) if len(set(pair)) > 1]
    hashes = uncapped.report["state_hashes"]
    return found + [name for name, value in capped.report["state_hashes"].items() if hashes.get(name) != value]


def judge_uncapped(page, uncapped, problems):
    if not problems.expect(uncapped.keys["status"] == "ok", f"{page.name} uncapped: {uncapped.keys['status']}\n{uncapped.log[-3000:]}"):
        return False
    share = large_share(uncapped.report)
    problems.expect(share > LARGE_SHARE, f"{page.name}: only {share:.0%} of the peak is in large blocks")
    problems.expect(len(set(uncapped.report["losses"])) > 1, f"{page.name}: all losses are the same")
    return problems.expect(bool(uncapped.keys["peak_bytes"]), f"{page.name}: no peak was reported")


def judge_plain(page, plain, problems):
    problems.expect(plain.keys["status"] == "out_of_memory",
                    f"{page.name}, PyTorch alone at the cap: {plain.keys['status']}, not out of memory\n{plain.log[-2000:]}")  # fmt: skip


def judge_capped(page, capped, uncapped, problems):
    keys = capped.keys
    if not problems.expect(keys["status"] == "ok", f"{page.name} with Spillway: {keys['status']}\n{capped.log[-4000:]}"):
        return
    if not equal(capped, uncapped):
        problems.expect(False, f"{page.name}: not the same bits: {', '.join(differences(capped, uncapped))}")
    if page.same:
        for one in (uncapped, capped):
            first, second = (one.report["state_hashes"][name] for name in page.same)
            problems.expect(first == second, f"{page.name} {one.keys['mode']}: {page.same[0]} and {page.same[1]} differ")
    for key in ("spilled_bytes", "fetched_bytes"):
        problems.expect((keys[key] or 0) > 0, f"{page.name}: {key} is {keys[key]}")
    problems.expect(keys["peak_bytes"] <= keys["budget_bytes"], f"{page.name}: peak {keys['peak_bytes']} over {keys['budget_bytes']}")
    held.judge(page.name, page.waste, [capped.metrics], capped.log, problems)


def check_packages(names=None):
    """Skips with another PyTorch, whose packages these are not; stops when a package, or one of `names`, is missing."""
    torch_version = importlib.metadata.version("torch")
    if not torch_version.startswith("2.11."):
        print(f"skipped: PyTorch {torch_version}; the packages of requirements.txt belong to 2.11")
        sys.exit(harness.SKIPPED)
    for line in (HERE / "requirements.txt").read_text(encoding="utf-8").splitlines():
        name, _, wanted = line.partition("==")
        if wanted and (names is None or name in names) and version_of(name) != wanted:
            raise SystemExit(f"{name} {wanted} is not installed, but {version_of(name)}; tests/third_party/run.sh and tests/run.sh install it")


def version_of(name):
    try:
        return importlib.metadata.version(name).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


def run_page(args, page, device, problems):
    """The row of one job; None when the uncapped run gave nothing to compare with."""
    steps = page.ci_steps if args.ci else page.steps
    print(f"\n== {page.name}, {steps} steps", flush=True)
    here = job.Machine(device=device, work=args.work / page.name, build=args.build,
                       simcuda_options=("--mode", "strict", *page.simcuda))  # fmt: skip
    uncapped = run(here, page, job.UNCAPPED, steps)
    if not judge_uncapped(page, uncapped, problems):
        return None
    peak = uncapped.keys["peak_bytes"]
    gpu_bytes = int(peak * args.budget / 100) // (2 * MIB) * (2 * MIB)
    with tempfile.TemporaryDirectory(dir=here.work) as folder:
        cap = job.Cap(gpu_bytes, job.size_text(peak * HOST_PERCENT // 100), folder, {"gpu_memory": job.size_text(gpu_bytes)})
        plain = run(here, page, job.PLAIN, steps, cap, uncapped.report["memory"]["device_total_bytes"])
        capped = run(here, page, job.PRELOAD, steps, cap)
    judge_plain(page, plain, problems)
    judge_capped(page if device == "simcuda" else dataclasses.replace(page, waste=None), capped, uncapped, problems)
    return row_of(page, steps, uncapped, plain, capped)


# ---- jobs of several ranks or devices, and without Python, which bring their own driver -----------------------------

RANKS = ("libtorch", "pipeline", "data_parallel", "fully_sharded")


def run_ranks(args, names, problems):
    sys.path.insert(0, str(HERE / "ranks"))
    import rows as ranks  # needs PyTorch in this process

    options = argparse.Namespace(build=args.build, work=args.work / "ranks", steps=4, without_plain=False)
    finished = []
    for row in ranks.ROWS:
        if row.name in names:
            print(f"\n== {row.name}, {options.steps} steps", flush=True)
            figures = ranks.run_row(options, row)
            for words in figures["problems"]:
                problems.expect(False, f"{row.name}: {words}")
            if "equal" in figures:
                finished.append(figures)
    return finished


# ---- the table -------------------------------------------------------------------------------------------------


def row_of(page, steps, uncapped, plain, capped):
    ok = capped.keys["status"] == "ok"
    speeds = [one.keys["tokens_per_s"] for one in (capped, uncapped)]
    row = {"job": page.name, "steps": steps, "peak_bytes": uncapped.keys["peak_bytes"],
           "large_share": large_share(uncapped.report), "cap_bytes": capped.keys["budget_bytes"],
           "plain": plain.keys["status"], "status": capped.keys["status"],
           "waste": harness.largest_waste([capped.metrics]),
           "equal": ok and equal(capped, uncapped), "speed_ratio": speeds[0] / speeds[1] if all(speeds) else None,
           "seconds": {one.keys["mode"]: one.seconds for one in (uncapped, plain, capped)}}  # fmt: skip
    for key in ("spilled_bytes", "host_spilled_bytes", "fetched_bytes", "disk_written_bytes"):
        row[key] = capped.keys[key]
    return row


def text(value, scale=MIB, form="{:.0f}"):
    return "-" if value is None else form.format(value / scale)


def table(rows):
    lines = [list(COLUMNS)]
    for row in rows:
        lines.append([row["job"], text(row["peak_bytes"]), text(row["cap_bytes"]), row["plain"].replace("_", " "),
                      *(text(row[key]) for key in ("spilled_bytes", "fetched_bytes", "disk_written_bytes")),
                      text(row["waste"], 0.01, "{:.1f} %"), {True: "yes", False: "NO"}[row["equal"]], text(row["speed_ratio"], 1, "{:.2f}")])  # fmt: skip
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    left = (0, 3)
    return ["  ".join(cell.ljust(w) if i in left else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths))).rstrip()
            for line in lines]  # fmt: skip


def parse_arguments():
    names = [page.name for page in PAGES] + list(RANKS)
    args = harness.arguments(
        __doc__, ("jobs", {"nargs": "*", "metavar": "JOB", "help": f"of {', '.join(names)} (default: all)"}),
        ("--device", {"choices": ["auto", "gpu", "simcuda"], "default": "auto"}),
        ("--gpu", {"dest": "device", "action": "store_const", "const": "gpu", "help": "the same as --device gpu"}),
        ("--budget", {"type": float, "default": 50, "metavar": "PERCENT", "help": "device memory of the capped runs, of the peak"}),
        ("--ci", {"action": "store_true", "help": "the shorter runs of tests/run.sh"}),
        ("--json", {"type": Path, "metavar": "FILE", "help": "write the rows here (default: WORK/third_party.json)"}))  # fmt: skip
    unknown = sorted(set(args.jobs) - set(names))
    if unknown:
        raise SystemExit(f"no such job: {', '.join(unknown)}; there are {', '.join(names)}")
    args.device = args.device if args.device != "auto" else "gpu" if job.has_gpu() else "simcuda"
    args.work = args.work / "third_party"
    args.work.mkdir(parents=True, exist_ok=True)
    return args


def main():
    args = parse_arguments()
    check_packages()
    problems = harness.Problems()
    pages = [page for page in PAGES if page.name in args.jobs or (not args.jobs and (page.ci_steps or not args.ci))]
    rows = [row for row in (run_page(args, page, args.device, problems) for page in pages) if row]
    ranks = [name for name in RANKS if name in args.jobs or (not args.jobs and not args.ci and args.device == "simcuda")]
    if ranks:
        rows += run_ranks(args, ranks, problems)
    print(f"\non {args.device}; MiB; waste: held at the peak beyond what was asked for; equal: losses and final state, bit for bit; ratio: speed with half to speed with all the memory\n")
    print("\n".join(table(rows)))
    path = args.json or args.work / "third_party.json"
    path.write_text(json.dumps({"device": args.device, "rows": rows, "problems": problems.found}, indent=2) + "\n", encoding="utf-8")
    problems.exit()


if __name__ == "__main__":
    main()
