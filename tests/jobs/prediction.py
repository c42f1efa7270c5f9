"""Prediction against least-recently-used: bytes that are there in time, tokens a second, copies beside kernels.

The device is set so that copying takes half as long as computing: a first run, without a limit on copies, measures how
long kernels ran and how many bytes moved; the copy bandwidth follows. Then pairs of runs, prediction and lru in turn.
"""

import json
import statistics
import sys

import configurations
import device_log
import harness
import job
import matrix

FIRST_STEP = 4  # from here on prediction must work
KERNEL_MICROSECONDS = 3000  # kernels sleep up to this, so that two cores show what overlaps
ROW = configurations.Configuration("prediction", 1, "foreach", "35", "host")


def run_once(args, cap, policy, steps, name, bandwidth=None, log=False):
    options = ["--mode", "strict", "--kernel-time", str(KERNEL_MICROSECONDS)]
    if bandwidth:
        options += ["--copy-bandwidth", str(int(bandwidth))]
    here = harness.machine(args, "prediction", *options)
    cap = job.Cap(cap.gpu_bytes, cap.host_memory, cap.dirs, {"policy": policy})
    log_path = here.work / f"{name}.log.tsv"
    environment = {"SIMCUDA_LOG": str(log_path)} if log else None
    finished = job.run_job(here, job.PRELOAD, matrix.train_arguments(ROW, steps), cap, name=name, show=lambda line: False,
                           extra_environment=environment)  # fmt: skip
    if finished.keys["status"] != "ok":
        raise SystemExit(f"{name}: {finished.keys['status']}\n{finished.log[-3000:]}")
    return finished, log_path


def calibrate(args, cap):
    """Bytes a second at which a step's transfers take half the time of its kernels."""
    _, path = run_once(args, cap, "lru", 6, "calibration", log=True)
    lines = device_log.from_step(device_log.read_log(path), FIRST_STEP)
    moved = sum(line.size for line in device_log.transfers(lines))
    kernel_seconds = device_log.total(device_log.busy(device_log.kernels(lines))) / 1e9
    if not moved:
        raise SystemExit("nothing moved from step 4 on, so there is nothing to predict")
    print(f"a run from step {FIRST_STEP} on: {moved / 1e6:.0f} MB moved, kernels {kernel_seconds:.2f} s", flush=True)
    return moved / (kernel_seconds / 2)


def tokens_per_s(finished):
    seconds = finished.report["step_seconds"][FIRST_STEP - 1 :]
    return len(seconds) / sum(seconds)  # in steps; both runs of a pair have the same tokens in a step


def in_time_share(short, whole):
    """Of the bytes fetched from step 4 on: those that had arrived before their launch reached the gate."""
    fetched, in_time = (whole.metrics[k] - short.metrics[k] for k in ("fetched_bytes", "prefetch_in_time_bytes"))
    return in_time / fetched if fetched > 0 else 0.0


def overlap_share(path):
    lines = device_log.from_step(device_log.read_log(path), FIRST_STEP)
    copying = device_log.busy(device_log.transfers(lines))
    computing = device_log.busy(device_log.kernels(lines))
    return device_log.overlap(copying, computing) / max(1, device_log.total(copying))


def measure(args, cap):
    bandwidth = calibrate(args, cap)
    short, _ = run_once(args, cap, "plan", FIRST_STEP - 1, "short", bandwidth)
    ratios, shares, overlaps = [], [], []
    for pair in range(args.pairs):
        plan, log = run_once(args, cap, "plan", args.steps, f"plan-{pair}", bandwidth, log=True)
        lru, _ = run_once(args, cap, "lru", args.steps, f"lru-{pair}", bandwidth)
        ratios.append(tokens_per_s(plan) / tokens_per_s(lru))
        shares.append(in_time_share(short, plan))
        overlaps.append(overlap_share(log))
        print(f"pair {pair + 1}: plan/lru {ratios[-1]:.3f}, in time {shares[-1]:.1%}, overlap {overlaps[-1]:.1%}", flush=True)
        if plan.keys["losses_sha256"] != lru.keys["losses_sha256"]:
            raise SystemExit("prediction and lru gave different losses")
    return {"copy_bandwidth": bandwidth, "plan_to_lru": ratios, "in_time": shares, "overlap": overlaps}


def main():
    args = harness.arguments(__doc__, ("--pairs", {"type": int, "default": 5}), ("--steps", {"type": int, "default": 9}),
                             ("--without-speed", {"action": "store_true", "help": "for a busy machine: no tokens a second, less in time"}))  # fmt: skip
    problems = harness.Problems()
    here = harness.machine(args, "prediction", "--kernel-time", str(KERNEL_MICROSECONDS))
    uncapped = job.run_job(here, job.UNCAPPED, matrix.train_arguments(ROW, 3), show=lambda line: False)
    if not problems.expect(uncapped.keys["status"] == "ok", f"uncapped: {uncapped.keys['status']}\n{uncapped.log[-2000:]}"):
        problems.exit()
    peak = uncapped.keys["peak_bytes"]
    figures = measure(args, matrix.cap_of(ROW, peak * 35 // 100, peak, here.work))
    medians = {key: statistics.median(value) for key, value in figures.items() if isinstance(value, list)}
    (here.work / "prediction.json").write_text(json.dumps({**figures, "median": medians, "python": sys.version}, indent=2))
    if not args.without_speed:  # of use only where nothing else runs
        problems.expect(medians["plan_to_lru"] >= 1, f"prediction has {medians['plan_to_lru']:.3f} of lru's tokens/s")
    # Beside other work the device's threads come late by no fault of the plan.
    least_in_time, least_overlap = (0.5, 0.3) if args.without_speed else (0.8, 0.5)
    problems.expect(medians["in_time"] >= least_in_time, f"only {medians['in_time']:.1%} of the fetched bytes were there in time")
    problems.expect(medians["overlap"] >= least_overlap, f"only {medians['overlap']:.1%} of the copy time lay beside kernels")
    problems.exit()


if __name__ == "__main__":
    main()
