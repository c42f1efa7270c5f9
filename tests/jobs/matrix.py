"""Trains the job uncapped and capped in both ways, in configurations that cover all pairs of what may matter.

For each: equal losses and final state, PyTorch alone out of memory, the peak within the budget, real traffic in every
step from the third on, and bytes in each tier named.  matrix.py --ci | --all | --only NAME
"""

import json
import tempfile

import configurations
import harness
import job
from harness import MIB

STEPS = 5
# Others' share of the budget, and what Spillway leaves free of a device whose budget nobody named.
OTHERS_SHARE, RESERVE = 16 * MIB, 32 * MIB
MOST_WASTE = 0.05  # held at the peak beyond what was asked for: 0.041 where most of the memory is in blocks of 1 to 8 MiB


def train_arguments(row, steps=STEPS):
    return [*harness.MODEL, "--steps", str(steps), "--seed", str(row.seed), "--optimizer-form", row.form]


def cap_of(row, gpu_bytes, peak, folder):
    # With host memory alone: what is live at the peak, and headroom to exchange it (the largest launch and the largest block).
    host = {"host": peak + peak // 8, "both": peak // 10, "ssd": 0}[row.tiers]
    dirs = "none" if row.tiers == "host" else str(folder)
    return job.Cap(gpu_bytes, job.size_text(host) if host else "0", dirs)


def smallest_budget(here, row, peak, folder, problems):
    """What fits the largest launch: its set (at least twice the largest block), what is not ours, the reserve."""
    cap = cap_of(row, harness.whole_chunks(peak * 35 // 100), peak, folder)
    run = job.run_job(here, job.PRELOAD, train_arguments(row, 2), cap, name="measure")
    if not problems.expect(run.metrics is not None, f"{row.name}: the run that measures the largest launch {run.keys['status']}"):
        return None
    largest = run.metrics["largest_set_bytes"]
    others = max(run.metrics["external_bytes"], OTHERS_SHARE)
    return harness.whole_chunks(int((largest + others) * 1.03) + RESERVE)


def traffic_problems(row, mode, notes, least, problems):
    """Every step from the third on moves at least `least` bytes out and in."""
    for step in range(3, len(notes)):  # notes[i] was taken before step i + 1; the last step has no end
        begin, end = notes[step - 1], notes[step]
        for direction, words in (("dtoh_bytes", "spilled"), ("htod_bytes", "fetched")):
            moved = end[direction] - begin[direction]
            problems.expect(moved >= least, f"{row.name} {mode}: step {step} {words} {moved} bytes, less than {least}")


def tier_problems(row, mode, keys, problems):
    host, ssd = keys["host_spilled_bytes"], keys["disk_written_bytes"]
    named = {"host": (True, False), "both": (True, True), "ssd": (False, True)}[row.tiers]
    problems.expect(((host or 0) > 0, (ssd or 0) > 0) == named, f"{row.name} {mode}: host {host}, SSD {ssd} bytes in tiers {row.tiers}")


def capped_problems(row, run, uncapped, notes, problems):
    keys, mode = run.keys, run.keys["mode"]
    if not problems.expect(keys["status"] == "ok", f"{row.name} {mode}: {keys['status']}\n{run.log[-2000:]}"):
        return
    for key in ("losses_sha256", "state_sha256"):
        problems.expect(keys[key] == uncapped.keys[key], f"{row.name} {mode}: {key} differs from the uncapped run")
    problems.expect(keys["peak_bytes"] <= keys["budget_bytes"], f"{row.name} {mode}: peak {keys['peak_bytes']} over {keys['budget_bytes']}")
    problems.expect(len(notes) == STEPS, f"{row.name} {mode}: {len(notes)} steps seen by the probe")
    waste = harness.largest_waste([run.metrics])
    problems.expect(waste is not None and waste <= MOST_WASTE, f"{row.name} {mode}: holds {waste} of what was asked for beyond it")
    traffic_problems(row, mode, notes, (uncapped.keys["peak_bytes"] - keys["budget_bytes"]) // 4, problems)
    tier_problems(row, mode, keys, problems)


def run_configuration(args, row, problems):
    print(f"\n== {row.name}", flush=True)
    here = harness.machine(args, row.name)
    uncapped = job.run_job(here, job.UNCAPPED, train_arguments(row))
    if not problems.expect(uncapped.keys["status"] == "ok", f"{row.name} uncapped: {uncapped.keys['status']}\n{uncapped.log[-2000:]}"):
        return None
    peak, report = uncapped.keys["peak_bytes"], uncapped.report
    problems.expect(len(set(report["losses"])) == STEPS, f"{row.name}: losses do not differ between steps")
    large = report["memory"]["max_allocated_large_bytes"] / report["memory"]["max_allocated_bytes"]
    problems.expect(large > 0.8, f"{row.name}: only {large:.0%} of the peak is in large blocks")
    with tempfile.TemporaryDirectory(dir=here.work) as folder:
        if row.budget == "smallest":
            gpu_bytes = smallest_budget(here, row, peak, folder, problems)
        else:
            gpu_bytes = peak * int(row.budget) // 100 // (2 * MIB) * (2 * MIB)
        if gpu_bytes is not None:
            run_capped(here, row, cap_of(row, gpu_bytes, peak, folder), uncapped, problems)
    return uncapped.keys


def run_capped(here, row, cap, uncapped, problems):
    peak = uncapped.keys["peak_bytes"]
    print(f"-- {cap.gpu_bytes / MIB:.0f} of {peak / MIB:.0f} MiB", flush=True)
    plain = job.run_job(here, job.PLAIN, train_arguments(row), cap)
    problems.expect(plain.keys["status"] == "out_of_memory", f"{row.name} capped-plain: {plain.keys['status']}, not out of memory")
    for mode in job.SPILLWAY_MODES:
        probe = here.work / f"{mode}.steps.json"
        probe.unlink(missing_ok=True)
        run = job.run_job(here, mode, train_arguments(row), cap, script=harness.PROBE,
                          extra_environment={"STEP_PROBE_FILE": str(probe)})  # fmt: skip
        notes = json.loads(probe.read_text()) if probe.is_file() else []
        capped_problems(row, run, uncapped, notes, problems)


def main():
    rows = configurations.all_configurations()
    args = harness.arguments(__doc__, ("--ci", {"action": "store_true"}), ("--all", {"action": "store_true"}),
                             ("--only", {"choices": [row.name for row in rows]}))  # fmt: skip
    if args.only:
        rows = [row for row in rows if row.name == args.only]
    elif not args.all:
        rows = configurations.ci_configurations()
    problems = harness.Problems()
    finished = [(row, run_configuration(args, row, problems)) for row in rows]
    by_seed = {}
    for row, keys in finished:
        if keys:
            by_seed.setdefault(row.seed, set()).add(keys["losses_sha256"])
    all_hashes = [value for values in by_seed.values() for value in values]
    problems.expect(len(all_hashes) == len(set(all_hashes)), "two seeds gave the same losses")
    problems.exit()


if __name__ == "__main__":
    main()
