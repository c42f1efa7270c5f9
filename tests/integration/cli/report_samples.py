"""Data of runs as SPILLWAY_REPORT's file has it (docs/report-data.md), made up for tests of `spillway report`.

`python report_samples.py FOLDER` writes all of them into a folder, to be looked at.
"""

import base64
import json
import math
import os
import random
import sys

import simulate_helpers

GIB = 2**30
MIB = 2**20
DAY = 86400


def trace(layers, micros, activation, weight):
    """A forward and a backward pass as a recorded iteration, in base64."""
    tensors = [(weight, True, None)] * layers + [(activation, False, None)] * (layers + 1)
    kernels = [("embed", micros * 1000, [], [layers])]
    for i in range(layers):
        kernels.append((f"forward_{i}", micros * 1000, [i, layers + i], [layers + i + 1]))
    for i in reversed(range(layers)):
        kernels.append((f"backward_{i}", 2 * micros * 1000, [i, layers + i, layers + i + 1], [i]))
    return base64.b64encode(simulate_helpers.encode(tensors, kernels)).decode()


def job(seconds, **more):
    return {"command": ["python", "train.py", "--layers", "24"], "pid": 4711, "rank": 0, "local_size": 1, "host": "node07",
            "spillway": "0.1.0", "framework": "PyTorch 2.11", "driver": "13.2", "device_index": 0, "device": "NVIDIA A100-SXM4-40GB",
            "device_bytes": 40 * GIB, "started_unix": 1795420800.5, "seconds": seconds, "ended": True, **more}  # fmt: skip


def device(spilled, lost, iteration, disk_part, budget, peak):
    disk, host = int(spilled * disk_part), spilled - int(spilled * disk_part)
    return {"device": 0, "budget_bytes": budget, "peak_bytes": int(budget * 0.98), "peak_live_bytes": peak, "spilled_bytes": spilled,
            "host_spilled_bytes": host, "disk_spilled_bytes": disk, "fetched_bytes": int(spilled * 0.95),
            "host_fetched_bytes": int(host * 0.95), "disk_fetched_bytes": int(disk * 0.95), "in_time_bytes": int(spilled * 0.8),
            "lost_seconds": lost, "stall_seconds_total": sum(lost.values()) * 1.5,
            "bytes_per_second": {"host_in": 22e9, "host_out": 21e9, **({"disk_in": 5.1e9, "disk_out": 3.9e9} if disk else {})},
            "link": {"in": 25e9, "out": 24e9, "in_both": 15e9, "out_both": 22e9, "measurements": 1, "dropped": 0, "seconds": 0.04},
            "iteration": {"seconds": iteration, "ideal_seconds": iteration * 0.78, "plan_seconds": iteration * 0.9}}  # fmt: skip


def memory(seconds, budget, peak, disk_part, samples):
    gpu, host, disk, live = [], [], [], []
    for i in range(samples):
        part = i / samples
        wave = 0.55 + 0.45 * abs(math.sin(part * 40))
        now = int(peak * min(1, part * 8) * wave)
        beyond = max(0, now - budget)
        live.append(now)
        gpu.append(min(budget, int(now * 0.97) + 64 * MIB))
        disk.append(int(beyond * disk_part))
        host.append(beyond - disk[-1])
    return {"every_s": seconds / samples, "gpu_bytes": gpu, "resident_bytes": gpu, "host_bytes": host, "disk_bytes": disk,
            "live_bytes": live}  # fmt: skip


def transfers(seconds, spilled, directories, disk_part, samples):
    mean = spilled / samples
    wave = [1 + math.sin(i / samples * 80) for i in range(samples)]
    disks = [{"directory": name, "written_bytes": [int(mean * disk_part / len(directories) * w) for w in wave],
              "read_bytes": [int(0.9 * mean * disk_part / len(directories) * (2 - w)) for w in wave]} for name in directories]  # fmt: skip
    return {"every_s": seconds / samples, "to_host_bytes": [int(mean * w) for w in wave],
            "to_gpu_bytes": [int(0.95 * mean * (2 - w)) for w in wave], "disks": disks}  # fmt: skip


def directories_of(names, seconds, written, read):
    """Healthy drives, which share the bytes evenly."""
    return [{"path": name, "engine": "io_uring", "direct": True, "file_bytes": 800 * GIB, "written_bytes": written // len(names),
             "read_bytes": read // len(names), "written_tb_per_day": written / len(names) / 1e12 / seconds * DAY, "errors": 0,
             "retries": 0, "mismatches": 0, "quarantined_slots": 0, "closed": False, "why_closed": "", "closures": 0,
             "last_closure": ""} for name in names]  # fmt: skip


KINDS = ["gpu_to_host", "host_to_gpu", "gpu_to_disk", "disk_to_gpu", "host_to_disk"]
RATES = [21e9, 22e9, 3.9e9, 5.1e9, 3.7e9]


def moves(count, seconds, disk, seed=1):
    random.seed(seed)
    rows = {"start_s": [], "seconds": [], "bytes": [], "block": [], "kind": []}
    for i in range(count):
        kind = random.choice([0, 1, 2, 3] if disk else [0, 1])
        size = 2 * MIB * 2 ** random.randrange(8)
        rows["start_s"].append(round(seconds * (0.05 + 0.94 * i / count), 6))
        rows["seconds"].append(round(size / RATES[kind] * random.uniform(1, 1.6) + 2e-5, 6))
        rows["bytes"].append(size)
        rows["block"].append(i % 300)
        rows["kind"].append(kind)
    return rows


CAUSES = ["chunks", "arrival", "gpu_arrival", "run_ahead"]
KERNELS = ["void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_nn_align8>(Params)",
           "flash_fwd_kernel", "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", "multi_tensor_apply_kernel", "layer_norm_backward"]  # fmt: skip


def stalls(count, seconds, lost, seed=2):
    random.seed(seed)
    rows = {"start_s": [], "seconds": [], "lost_s": [], "cause": [], "kernel": [], "block": []}
    for i in range(count):
        waited = lost / count * random.uniform(0.2, 1.8)
        rows["start_s"].append(round(seconds * (0.05 + 0.94 * i / count), 6))
        rows["seconds"].append(round(waited * 1.4, 6))
        rows["lost_s"].append(round(waited, 6))
        rows["cause"].append(random.choice([0, 0, 1, 1, 1, 2, 3]))
        rows["kernel"].append(random.choice([-1, *range(len(KERNELS))]))
        rows["block"].append(-1)
    return rows


def run(seconds=600.0, budget=20 * GIB, peak=38 * GIB, iteration=2.4, move_count=3000, directories=("/nvme0/spill", "/nvme1/spill"), samples=900):
    """A job that spills to host memory and, with `directories`, to a disk."""
    disk_part = 0.6 if directories else 0.0
    spilled, lost = int(seconds / iteration * 14 * GIB), {"chunks": seconds * 0.031, "arrival": seconds * 0.082, "run_ahead": seconds * 0.004}
    count = int(seconds / iteration)
    one = device(spilled, lost, iteration, disk_part, budget, peak)
    written = one["disk_spilled_bytes"]
    starts = [i * iteration for i in range(max(0, count - 1024), count)]
    return {
        "format": "spillway-report", "version": 1, "job": job(seconds),
        "settings": {"gpu_memory": {"value": "20GiB", "from": "SPILLWAY_GPU_MEMORY"}, "host_memory": {"value": "12GiB", "from": "PYTORCH_CUDA_ALLOC_CONF"}},
        "capacity": {"gpu_bytes": budget, "host_bytes": 12 * GIB, "disks": [{"directory": name, "bytes": 800 * GIB, "drive": name.split("/")[1] + "n1"} for name in directories]},
        "figures": {**one, "seconds": seconds, "devices": [one], "disk_written_bytes": written, "disk_read_bytes": int(written * 0.95), "evictions_ended": "",
                    "directories": directories_of(directories, seconds, written, int(written * 0.95))},
        "advice": f"lost time: the GPU had to wait {sum(lost.values()):.1f} s of {seconds:.1f} s (11.7 %), most of it for bytes to come back from the disk "
                  f"({lost['arrival']:.1f} s); what would help most: a larger SPILLWAY_HOST_MEMORY (now 12.00 GiB)",
        "memory": memory(seconds, budget, peak, disk_part, samples),
        "transfers": transfers(seconds, spilled, directories, disk_part, samples),
        "iterations": {"start_s": starts, "seconds": [iteration * (1.8 if i < 3 else 1 + 0.03 * math.sin(i)) for i in range(len(starts))],
                       "kind": [0] * len(starts)},
        "iteration_kinds": ["marked", "repeated"],
        "phases": [{"name": "forward", "from": 0.0, "to": 0.31}, {"name": "backward", "from": 0.31, "to": 0.92}, {"name": "optimizer", "from": 0.92, "to": 1.0}],
        "moves": moves(move_count, seconds, bool(directories)), "move_kinds": KINDS,
        "stalls": stalls(400, seconds, sum(lost.values())), "stall_causes": CAUSES, "kernels": KERNELS,
        "largest_blocks": [{"block": i, "bytes": (512 - 20 * i) * MIB, "moved_bytes": (512 - 20 * i) * MIB * 90, "stalled_s": 3.1 / (i + 1),
                            "last_kernel": KERNELS[i % 5]} for i in range(20)],
        "costliest_kernels": [{"kernel": name, "launches": 24 * (i + 1), "seconds": 0.8 / (i + 1), "stalled_s": 9.3 / (i + 2)} for i, name in enumerate(KERNELS)],
        "active": {"share": 0.0231}, "iteration": trace(40, 12000, 700 * MIB, 240 * MIB),
        "power": {"gpu_joules": 310.0 * seconds, "cpu_joules": 95.0 * seconds, "source": "nvml"},
        "dropped": {"moves": 0, "stalls": 0},
    }  # fmt: skip


def small():
    """A short job on simcuda: megabytes and milliseconds."""
    data = run(seconds=11.3, budget=284 * MIB, peak=880 * MIB, iteration=0.47, move_count=600, directories=("/var/tmp",), samples=226)
    data["job"].update(device="simcuda (host memory)", device_bytes=512 * MIB, command=["python", "train_gpt.py"])
    data["capacity"]["host_bytes"] = 90 * MIB
    data["iteration"] = trace(20, 4500, 36 * MIB, 6 * MIB)
    del data["power"]
    return data


def large():
    """Ten to the five moves, hours of iterations."""
    data = run(seconds=9 * 3600.0, move_count=100_000, samples=4096)
    data["stalls"] = stalls(10_000, 9 * 3600.0, 3790.8)
    data["dropped"] = {"moves": 3_412_885, "stalls": 120_311}
    return data


def without_iteration():
    """Nothing repeats: no iteration, no phases, no trace, no power."""
    data = run()
    for key in ("iterations", "phases", "iteration", "active", "power", "advice"):
        del data[key]
    del data["figures"]["devices"][0]["iteration"]
    for row in data["costliest_kernels"]:
        del row["launches"], row["seconds"]
    return data


def killed():
    """Written while it ran, before the end: no largest blocks yet."""
    data = run(seconds=73.0, move_count=200, samples=500)
    data["job"]["ended"] = False
    data["largest_blocks"] = []
    for key in ("iteration", "phases", "active"):  # nothing has repeated itself yet
        del data[key]
    return data


def without_disk():
    return run(directories=())


def fits():
    """Nothing had to leave the GPU."""
    data = {key: value for key, value in run().items() if key in ("format", "version", "job", "memory")}
    data["memory"] = memory(600.0, 20 * GIB, 11 * GIB, 0, 900)
    data["capacity"] = {"gpu_bytes": 20 * GIB, "host_bytes": 12 * GIB, "disks": []}
    data["figures"] = {"seconds": 600.0, "devices": [{"device": 0, "budget_bytes": 20 * GIB, "peak_live_bytes": 11 * GIB, "spilled_bytes": 0, "fetched_bytes": 0}]}
    return data


def troubled():
    """One drive failed and works again, one is silent, one had nothing."""
    data = run(directories=("/nvme0/spill", "/nvme1/spill", "/nvme2/spill"))
    failed, silent, _ = data["figures"]["directories"]
    failed.update(engine="threads", direct=False, errors=3, retries=41, mismatches=1, quarantined_slots=2, closures=1,
                  last_closure="failed (write at 0 of 4096 bytes: errno 5)")  # fmt: skip
    silent.update(closed=True, closures=2, why_closed="does not answer", last_closure="does not answer")
    return data


def paused():
    """By itself, twice, and once from outside, until the end."""
    data = run(seconds=120.0)
    pause = {"clean_bytes": 0, "host_bytes": 0, "disk_bytes": 0, "dropped_bytes": 0}
    data["pauses"] = [{**pause, "start_s": 10.0, "leaving_s": 0.5, "seconds": 20.0, "by": "job", "region": "weights", "host_bytes": 8 * GIB},
                      {**pause, "start_s": 12.0, "leaving_s": 0.01, "seconds": 18.0, "by": "job", "region": "cache", "dropped_bytes": 4 * GIB},
                      {**pause, "start_s": 100.0, "leaving_s": 2.0, "by": "outside", "clean_bytes": 6 * GIB, "disk_bytes": GIB}]  # fmt: skip
    return data


def hostile():
    """Names that would end an element, an attribute or a string."""
    data = small()
    data["job"]["command"] = ["</script><script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "a'b`${1}", "\x00\x1b[31m", "<!--"]
    data["job"]["host"] = "</title></style><b>"
    for name in ("capacity", "transfers"):
        data[name]["disks"][0]["directory"] = "/</figure></script><svg onload=alert(3)>"
    data["figures"]["directories"][0].update(path="/</table><script>alert(4)</script>", closed=True, why_closed="<img src=x onerror=alert(5)>")
    data["kernels"] = ["</script><script>document.title='x'</script>", "<img src='http://127.0.0.1:9/x'>", "]]>", "\\u003c", "k" * 4000]
    data["largest_blocks"][0]["last_kernel"] = data["kernels"][0]
    data["costliest_kernels"][0]["kernel"] = data["kernels"][4]
    data["reaching_kernels"] = [{"kernel": data["kernels"][0], "launches": 1, "bytes": GIB, "most_bytes": GIB}]
    data["phases"][0]["name"] = "</script>"
    data["move_kinds"][0] = "datum['x']</script>"
    data["stall_causes"][0] = "</script>"
    data["settings"]["dirs"] = {"value": "</td></table>", "from": "<script>"}
    data["pauses"] = [{"start_s": 1.0, "leaving_s": 0.5, "by": "<b>", "region": "</td><script>alert(6)</script>"}]
    return data


def rank(number, host="node07", iteration=2.4, lost=1.0, **more):
    """One of four ranks of a job on two nodes; `lost`: how many times as much as run() loses."""
    data = run(iteration=iteration, move_count=300, samples=120)
    data["job"].update(rank=number, local_size=2, host=host, pid=4000 + number, started_unix=1795420800.5 + number, **more)
    device = data["figures"]["devices"][0]
    device["lost_seconds"] = {cause: seconds * lost for cause, seconds in device["lost_seconds"].items()}
    return data


def ranks():
    """Four ranks by name of file. The second of node08 has less memory and waits, the others wait for it."""
    held_up = rank(1, "node08", iteration=2.41, lost=2.0)
    held_up["settings"]["gpu_memory"]["value"] = "16GiB"
    held_up["capacity"]["gpu_bytes"] = 16 * GIB
    return {"a.json": rank(0), "a.rank1.json": rank(1), "b.json": rank(0, "node08"), "b.rank1.json": held_up}


def step(iteration, lost, host, disk):
    """What the process counted in one iteration."""
    return {"seconds": iteration, "ideal_seconds": 1.87, "bound_seconds": iteration * 0.97, "lost_seconds": lost,
            "host_spilled_bytes": host, "host_fetched_bytes": host, "disk_spilled_bytes": disk, "disk_fetched_bytes": disk}  # fmt: skip


def pair():
    """The same job before and after: with more host memory less goes to the disk, and is waited for."""
    before, after = run(move_count=300, samples=120), run(iteration=2.1, move_count=300, samples=120)
    after["job"].update(started_unix=1795430800.5, pid=5222)
    after["settings"]["host_memory"]["value"] = "24GiB"
    after["capacity"]["host_bytes"] = 24 * GIB
    before["figures"]["devices"][0]["iteration"] = step(2.4, {"chunks": 0.1, "arrival": 0.4, "run_ahead": 0.0}, 5 * GIB, 9 * GIB)
    after["figures"]["devices"][0]["iteration"] = step(2.1, {"chunks": 0.1, "arrival": 0.1, "run_ahead": 0.0}, 12 * GIB, 2 * GIB)
    after["figures"]["devices"][0].update(lost_seconds={"chunks": 28.0, "arrival": 29.0, "run_ahead": 0.0})
    return {"before.json": before, "after.json": after}


def write_all(folder, named):
    """Writes data by name of file; the paths in their order."""
    paths = [os.path.join(folder, name) for name in named]
    for path, data in zip(paths, named.values()):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(data, file)
    return paths


SAMPLES = {make.__name__: make for make in (run, small, large, without_iteration, killed, without_disk, fits, troubled, paused, hostile)}


SEVERAL = {make.__name__: make for make in (ranks, pair)}  # of files: ranks of a job, two runs


def write(folder, name):
    path = os.path.join(folder, name + ".json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(SAMPLES[name](), file)
    return path


if __name__ == "__main__":
    for sample in SAMPLES:
        print(write(sys.argv[1], sample))
