"""SPILLWAY_TRACE: the iteration that a real job writes at its end is the one that it made, and `spillway simulate` plans it.

Two runs of the example job: observed where everything fits, then with half of its memory on a device whose kernels
take a known time at least.
"""

import csv
import json
import re
import subprocess

import configurations
import harness
import job
import matrix

STEPS = 10
KERNEL_MICROSECONDS = 1000
ROW = configurations.Configuration("iteration-trace", 1, "foreach", "50", "host")
LINE = re.compile(r"trace: GPU 0: (\S+) has an iteration of (\d+) launches \((\d+) of them of measured kinds, by (\d+) samples\)")


def run(args, name, cap, steps, *simcuda_options, **settings):
    here = harness.machine(args, "iteration-trace", "--mode", "strict", *simcuda_options)
    return job.run_job(here, job.PRELOAD, matrix.train_arguments(ROW, steps), cap, name=name, show=lambda line: False,
                       extra_environment=settings)  # fmt: skip


def simulate(args, *arguments):
    command = [str(args.build / "bin" / "spillway"), "simulate", "--piece", "0", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def iteration_of(problems, finished, path):
    """What the line at the end says of the file: launches, those of measured kinds, samples."""
    found = LINE.search(finished.log)
    if not problems.expect(finished.keys["status"] == "ok" and found is not None, f"no trace:\n{finished.log[-2000:]}"):
        problems.exit()
    problems.expect(found[1] == str(path), f"the line names {found[1]}, not {path}")
    problems.expect(path.exists(), f"{path} is not there")
    return tuple(int(number) for number in found.groups()[1:])


def check_times(problems, kernels, finished, measured, samples):
    """No load makes a kernel shorter than its padding, or the launches of an iteration together much longer than an iteration."""
    problems.expect(samples > 0 and measured >= 0.8 * len(kernels), f"only {measured} of {len(kernels)} launches are known, by {samples} samples")
    padded = [float(row["duration_us"]) for row in kernels if not row["name"].startswith("cu")]
    named = sum(1 for row in kernels if row["name"])
    problems.expect(named == len(kernels), f"{len(kernels) - named} launches have no name")
    problems.expect(len(padded) > len(kernels) // 2, f"only {len(padded)} kernels among {len(kernels)} launches")
    problems.expect(min(padded) >= 0.9 * KERNEL_MICROSECONDS, f"a kernel of {min(padded)} us, padded to {KERNEL_MICROSECONDS}")
    together = sum(float(row["duration_us"]) for row in kernels) / 1e6
    longest = max(finished.report["step_seconds"])  # the samples may be those of a busy moment
    print(f"launches together {together:.3f} s, an iteration at most {longest:.3f} s, padded kernels at least {len(padded) * KERNEL_MICROSECONDS / 1e6:.3f} s")
    problems.expect(together <= 2 * longest, f"the launches take {together:.3f} s together, an iteration at most {longest:.3f} s")


def check_file(args, problems, path, half):
    """Planned, converted, and refused with the place when it is damaged."""
    folder = path.with_suffix(".csv")
    planned = simulate(args, "--trace", path, "--gpu-memory", half, "--convert", f"{folder}/", "--json")
    if not problems.expect(planned.returncode == 0, f"simulate: {planned.stderr}"):
        problems.exit()
    with open(folder / "kernels.csv", newline="") as file:
        kernels = list(csv.DictReader(file))
    ideal = sum(float(row["duration_us"]) for row in kernels)
    report = json.loads(planned.stdout)
    problems.expect(abs(report["ideal_us"] - ideal) <= 1e-3 * ideal, f"ideal {report['ideal_us']} us, kernels {ideal} us")
    problems.expect(report["percent_of_ideal"] > 0 and report["peak_gpu_bytes"] <= half, f"peak {report['peak_gpu_bytes']} of {half}")
    problems.expect(half < report["peak_live_bytes"] <= 3 * half, f"the iteration has {report['peak_live_bytes']} bytes at once, twice {half} were used")
    again = simulate(args, "--trace", folder, "--gpu-memory", half, "--json")
    problems.expect(again.returncode == 0 and json.loads(again.stdout)["ideal_us"] == report["ideal_us"], f"from CSV: {again.stderr}")
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[len(damaged) // 2] ^= 0x10
    for name, content in (("cut", whole[: len(whole) // 2]), ("flipped", bytes(damaged)), ("other", b"PK\3\4" + whole[4:])):
        wrong = path.with_suffix(f".{name}")
        wrong.write_bytes(content)
        refused = simulate(args, "--trace", wrong)
        problems.expect(refused.returncode == 2 and re.search(r"at offset \d+: ", refused.stderr), f"{name}: {refused.returncode} {refused.stderr}")
    return kernels


def main():
    args = harness.arguments(__doc__)
    problems = harness.Problems()
    folder = harness.machine(args, "iteration-trace").work
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.trace"):
        old.unlink()
    paths = {"capped": folder / "capped.trace"}

    uncapped = job.Cap(harness.machine(args, "iteration-trace").uncapped_memory, "0", "none", {})
    observed = run(args, "observed", uncapped, STEPS, SPILLWAY="observe", SPILLWAY_TRACE=str(folder / "%r-%p.trace"))
    found = sorted(folder.glob("0-*.trace"))
    if not problems.expect(len(found) == 1, f"%r and %p gave {found}:\n{observed.log[-2000:]}"):
        problems.exit()
    paths["observed"] = found[0]
    launches, _, _ = iteration_of(problems, observed, paths["observed"])
    problems.expect(STEPS * launches >= observed.metrics["launches"] // 2, f"{launches} launches in an iteration, {observed.metrics['launches']} in all")

    peak = observed.keys["peak_bytes"]
    half = peak // 2
    capped = run(args, "capped", matrix.cap_of(ROW, half, peak, folder), STEPS, "--kernel-time", str(KERNEL_MICROSECONDS),
                 SPILLWAY_TRACE=str(paths["capped"]))  # fmt: skip
    capped_launches, measured, samples = iteration_of(problems, capped, paths["capped"])
    problems.expect(capped.keys["losses_sha256"] == observed.keys["losses_sha256"], "the losses differ")
    problems.expect((capped.metrics["fetched_bytes"] or 0) > 0, "nothing was moved")
    problems.expect(capped_launches == launches, f"an iteration of {capped_launches} launches, {launches} where all fits")
    kernels = check_file(args, problems, paths["capped"], half)
    problems.expect(len(kernels) == capped_launches, f"{len(kernels)} kernels in the file, an iteration has {capped_launches} launches")
    check_times(problems, kernels, capped, measured, samples)

    refused = run(args, "refused", uncapped, 1, SPILLWAY_TRACE=str(folder / "no-such-folder" / "step.trace"))
    problems.expect(refused.keys["status"] != "ok" and "SPILLWAY_TRACE=" in refused.log, f"a path that cannot be:\n{refused.log[-1000:]}")
    problems.exit()


if __name__ == "__main__":
    main()
