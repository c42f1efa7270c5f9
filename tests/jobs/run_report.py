"""SPILLWAY_REPORT and SPILLWAY_PROMETHEUS of a real job: their sums are those of SPILLWAY_METRICS. --kill: also after SIGKILL."""

import base64
import json
import re
import resource
import signal
import statistics

import configurations
import harness
import job
import matrix
from harness import MIB
from wait_until import wait_until

STEPS = 8
ROW = configurations.Configuration("run-report", 1, "foreach", "50", "both")
KERNEL_MICROSECONDS = 200
FIRST_WRITTEN = 1  # after so many seconds
SAMPLE = re.compile(r'^(\w+)\{([^}]*)\} (\S+)$', re.MULTILINE)


def sums(columns, names, by, value="bytes"):
    """The sum of a column for each name of another."""
    totals = dict.fromkeys(names, 0)
    for index, amount in zip(columns[by], columns[value]):
        totals[names[index]] += amount
    return totals


def near(a, b, rows):
    """Equal but for the rounding of each row to a microsecond."""
    return abs(a - b) <= 1e-6 * (rows + 1)


def check_moves(problems, data, figures):
    moved = sums(data["moves"], data["move_kinds"], "kind")
    print("moved:", {kind: f"{size / MIB:.0f} MiB" for kind, size in moved.items()})
    problems.expect(data["dropped"] == {"moves": 0, "stalls": 0}, f"dropped: {data['dropped']}")
    for kind, key in (("gpu_to_host", "host_spilled"), ("gpu_to_disk", "disk_spilled"),
                      ("host_to_gpu", "host_fetched"), ("disk_to_gpu", "disk_fetched")):  # fmt: skip
        problems.expect(moved[kind] == figures[f"{key}_bytes"] > 0, f"{kind}: {moved[kind]}, {key}_bytes: {figures[f'{key}_bytes']}")
    starts, lengths = data["moves"]["start_s"], data["moves"]["seconds"]
    end = data["job"]["seconds"]
    problems.expect(all(0 <= start and start + length <= end + 1 and length >= 0 for start, length in zip(starts, lengths)), "a move outside the run")


def check_transfers(problems, data, figures):
    transfers = data["transfers"]
    for column, key in (("to_host_bytes", "spilled_bytes"), ("to_gpu_bytes", "fetched_bytes")):
        problems.expect(sum(transfers[column]) == figures[key], f"{column}: {sum(transfers[column])}, {key}: {figures[key]}")
    for column, key in (("written_bytes", "disk_written_bytes"), ("read_bytes", "disk_read_bytes")):
        found = sum(sum(disk[column]) for disk in transfers["disks"])
        problems.expect(found == figures[key], f"{column}: {found}, {key}: {figures[key]}")


def check_stalls(problems, data, figures):
    stalls = data["stalls"]
    rows = len(stalls["cause"])
    waited, lost = (sums(stalls, data["stall_causes"], "cause", column) for column in ("seconds", "lost_s"))
    print("stalls:", {cause: f"{seconds:.3f} s" for cause, seconds in waited.items()})
    stalled, lost_seconds = figures["stall_seconds"], figures["lost_seconds"]
    problems.expect(near(waited["chunks"], stalled["chunks"], rows), f"chunks: {waited}, {stalled}")
    problems.expect(near(waited["arrival"], stalled["arrival"], rows), f"arrival: {waited}, {stalled}")
    problems.expect(near(lost["chunks"], lost_seconds["chunks"], rows), f"chunks: {lost}, {lost_seconds}")
    problems.expect(near(lost["arrival"] + lost["gpu_arrival"], lost_seconds["arrival"], rows), f"arrival: {lost}, {lost_seconds}")
    problems.expect(near(lost["run_ahead"], lost_seconds["run_ahead"], rows), f"run_ahead: {lost}, {lost_seconds}")


def check_memory(problems, data, figures):
    memory = data["memory"]
    columns = [memory[key] for key in ("gpu_bytes", "resident_bytes", "host_bytes", "disk_bytes", "live_bytes")]
    problems.expect(len({len(column) for column in columns}) == 1 and len(columns[0]) > 10, "memory's columns differ in length")
    problems.expect(abs(len(columns[0]) * memory["every_s"] - data["job"]["seconds"]) <= 2, "memory does not cover the run")
    problems.expect(0 < max(memory["gpu_bytes"]) <= figures["peak_bytes"], f"gpu_bytes up to {max(memory['gpu_bytes'])}, peak {figures['peak_bytes']}")
    problems.expect(0.5 * figures["peak_live_bytes"] < max(memory["live_bytes"]) <= figures["peak_live_bytes"], f"live_bytes up to {max(memory['live_bytes'])}")
    problems.expect(max(memory["host_bytes"]) > 0 and max(memory["disk_bytes"]) > 0, "nothing in a tier")


def check_iteration(problems, data, run):
    marked = [s for s, kind in zip(data["iterations"]["seconds"], data["iterations"]["kind"]) if data["iteration_kinds"][kind] == "marked"]
    problems.expect(len(marked) == STEPS - 1, f"{len(marked)} iterations between {STEPS} ends of steps")
    steps = run.report["step_seconds"][1:]
    problems.expect(all(abs(a - b) < 0.1 * max(a, b) + 0.05 for a, b in zip(marked, steps)), f"iterations {marked}, steps {steps}")
    problems.expect(0 < data.get("active", {}).get("share", 0) < 1, f"active: {data.get('active')}")
    problems.expect(len(base64.b64decode(data["iteration"])) > 100, "no iteration")
    phases = data.get("phases", [])
    names = [phase["name"] for phase in phases]
    problems.expect(names == ["forward", "backward", "optimizer"], f"phases: {phases}")
    problems.expect(all(a["to"] == b["from"] < b["to"] for a, b in zip(phases, phases[1:])), f"phases: {phases}")
    problems.expect(any(kernel.get("seconds") for kernel in data["costliest_kernels"]), "no kernel has a time")
    problems.expect(len(data["largest_blocks"]) == 20 and any("last_kernel" in b for b in data["largest_blocks"]), "largest blocks")


def check_prometheus(problems, path, figures):
    found = {}
    for name, labels, value in SAMPLE.findall(path.read_text()):
        problems.expect('rank="0"' in labels, f"no rank: {name}{{{labels}}}")
        found[name] = found.get(name, 0) + float(value)
    for name, key in (("spilled_bytes", "spilled_bytes"), ("fetched_bytes", "fetched_bytes"), ("launches", "launches"),
                      ("disk_written_bytes", "disk_written_bytes")):  # fmt: skip
        problems.expect(found.get(f"spillway_{name}_total") == figures[key], f"{name}: {found.get(f'spillway_{name}_total')}, {figures[key]}")
    problems.expect(near(found["spillway_lost_seconds_total"], sum(figures["lost_seconds"].values()), 10), "lost seconds")


def check_killed(args, problems, here, cap):
    """A file is there after the first second, whole, whenever the process is killed."""
    path = here.work / "killed.json"
    path.unlink(missing_ok=True)
    child = harness.start(here, job.PRELOAD, cap, job.TRAIN, *matrix.train_arguments(ROW, 10_000), SPILLWAY_REPORT=str(path))
    wait_until(lambda: path.exists() or child.poll() is not None)
    child.send_signal(signal.SIGKILL)
    output = child.communicate(timeout=30)[0]
    if not problems.expect(path.exists(), f"no file of the killed job:\n{output[-2000:]}"):
        return
    data = json.loads(path.read_text())
    problems.expect(data["job"]["ended"] is False and FIRST_WRITTEN / 2 <= data["job"]["seconds"] < 5, f"job: {data['job']}")
    problems.expect(sum(data["transfers"]["to_host_bytes"]) == data["figures"]["spilled_bytes"], "transfers of the killed job")
    print("killed after", data["job"]["seconds"], "s; known of it:", sorted(data.keys() & {"active", "iteration", "phases"}))


def cpu_seconds():
    """Of all processes that this one has started and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def print_cost(args, cap, pairs):
    """Prints what recording costs: runs with and without, in turn, so that both see the same machine."""
    here = harness.machine(args, "run-report", "--mode", "strict", "--kernel-time", str(KERNEL_MICROSECONDS))
    found = {}
    for pair in range(pairs):
        for name, variables in (("without", {}), ("with", {"SPILLWAY_REPORT": str(here.work / "cost.json")})):
            before = cpu_seconds()
            run = job.run_job(here, job.PRELOAD, matrix.train_arguments(ROW, 2 * STEPS), cap, name=f"cost-{name}", show=lambda line: False,
                              extra_environment=variables)  # fmt: skip
            iteration = statistics.median(run.report["step_seconds"][STEPS:])
            found.setdefault(name, []).append((iteration, cpu_seconds() - before))
            print(f"pair {pair + 1}, {name}: an iteration {iteration:.4f} s, CPU time of the job {found[name][-1][1]:.2f} s", flush=True)
    for index, what in enumerate(("iteration", "CPU time")):
        ratios = sorted(a[index] / b[index] for a, b in zip(found["with"], found["without"]))
        print(f"{what}, with / without: median {statistics.median(ratios):.3f}, from {ratios[0]:.3f} to {ratios[-1]:.3f}")


def main():
    args = harness.arguments(__doc__, ("--kill", {"action": "store_true", "help": "kill a job after 2 s, too"}),
                             ("--cost", {"type": int, "metavar": "PAIRS", "default": 0, "help": "print what recording costs, judge nothing"}))  # fmt: skip
    problems = harness.Problems()
    here = harness.machine(args, "run-report")
    here.work.mkdir(parents=True, exist_ok=True)
    for old in (*here.work.glob("*-report.json"), *here.work.glob("*.prom")):
        old.unlink()
    uncapped = job.run_job(here, job.UNCAPPED, matrix.train_arguments(ROW, 2), show=lambda line: False)
    if not problems.expect(uncapped.keys["status"] == "ok", f"uncapped:\n{uncapped.log[-2000:]}"):
        problems.exit()
    peak = uncapped.keys["peak_bytes"]
    cap = matrix.cap_of(ROW, peak // 2, peak, here.work)
    run = job.run_job(here, job.PRELOAD, matrix.train_arguments(ROW, STEPS), cap, show=lambda line: False,
                      extra_environment={"SPILLWAY_REPORT": str(here.work / "%r-%p-report.json"),
                                         "SPILLWAY_PROMETHEUS": str(here.work / "%r.prom")})  # fmt: skip
    found = list(here.work.glob("0-*-report.json"))
    if not problems.expect(run.keys["status"] == "ok" and len(found) == 1, f"{found}:\n{run.log[-2000:]}"):
        problems.exit()
    data, figures = json.loads(found[0].read_text()), run.metrics
    print(f"{found[0].name}: {found[0].stat().st_size} bytes")
    problems.expect(data["figures"] == figures, "figures are not those of the metrics file")
    told = data["job"]
    problems.expect(told["ended"] is True and told["framework"].startswith("PyTorch 2.") and "train_gpt.py" in str(told["command"]), f"job: {told}")
    problems.expect(f"spillway: {data.get('advice')}" in run.log, f"the advice {data.get('advice')!r} is not the last line of the job's log")
    problems.expect(all(disk.get("drive") for disk in data["capacity"]["disks"]), f"disks: {data['capacity']}")
    problems.expect(data["settings"]["host_memory"]["from"] == "SPILLWAY_HOST_MEMORY", f"settings: {data['settings']}")
    for check in (check_moves, check_transfers, check_stalls, check_memory):
        check(problems, data, figures)
    check_iteration(problems, data, run)
    check_prometheus(problems, here.work / "0.prom", figures)
    if args.cost:
        print_cost(args, cap, args.cost)
    if args.kill:
        check_killed(args, problems, here, cap)
    problems.exit()


if __name__ == "__main__":
    main()
