"""simcuda-run: what the command finds in its environment, bad use, and the statistics file.

Usage: driver_run_test.py SIMCUDA_RUN PROGRAM
"""
import json
import os
import re
import subprocess
import sys
import tempfile

RUN, PROGRAM = sys.argv[1:]
SKIPPED = 77  # of a program of tests whose machine lacks something


def run(*arguments, **environment):
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("SIMCUDA_", "LD_"))}
    return subprocess.run([RUN, *arguments], capture_output=True, text=True, env={**clean, **environment}, timeout=100)


def check(condition, message):
    if not condition:
        sys.exit(f"failed: {message}")


def check_runtime(folder, script):
    """The runtime is that of the environment of a Python among the words, else of CUDA 13, else the one that is named."""
    def names(major, *words):
        done = run(*words, "-c", script)
        return f"libcudart.so.{major}" in json.loads(done.stdout)[0].get("LD_PRELOAD", "") + done.stderr

    python = os.path.join(folder, "bin", "python")
    runtime = os.path.join(folder, "lib", "python3.11", "site-packages", "nvidia", "cuda_runtime", "lib")
    os.makedirs(os.path.dirname(python))
    os.symlink(sys.executable, python)
    check(names(13, "--", python), "the runtime of CUDA 13 where nothing says otherwise")
    os.makedirs(runtime)
    open(os.path.join(runtime, "libcudart.so.12"), "w").close()
    check(names(12, "--", python), "the runtime of an environment's CUDA 12")
    check(names(12, "--", "env", "A=b", python), "of an environment that is not the first word")
    check(names(13, "--cuda", "13", "--", python) and names(12, "--cuda", "12", "--", sys.executable), "the runtime that is named")
    check(run("--cuda", "11", "--", "true").returncode == 2, "no runtime of CUDA 11")


def check_keys():
    """Without memory protection keys `on` ends cuInit with a line, and `try` goes on."""
    with open("/proc/cpuinfo") as file:
        has = re.search(r"\bospke\b", file.read()) is not None
    for value in ("on", "try"):
        done = run("--memory", "256MiB", "--devices", "2", "--protection-keys", value, "--", PROGRAM,
                   "--gtest_filter=*KernelsCopiesAndFillsReachIt")
        refused = value == "on" and not has
        check((done.returncode not in (0, SKIPPED)) == refused, f"{value}: {done.stdout}{done.stderr}")
        check(("there is no memory protection key" in done.stderr) == refused, f"{value}: {done.stderr}")
    bad = run("--protection-keys", "often", "--", "true")
    check(bad.returncode == 2 and "SIMCUDA_PROTECTION_KEYS=often" in bad.stderr, bad.stderr)


def main():
    script = "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv[1:]]))"
    done = run("--memory", "2GiB", "--devices", "3", "--", sys.executable, "-c", script, "--flag", "word",
               LD_LIBRARY_PATH="/some/where", LD_PRELOAD="")
    environment, arguments = json.loads(done.stdout)
    check(arguments == ["--flag", "word"], f"arguments: {arguments}")
    check(environment["SIMCUDA_MEMORY"] == "2GiB" and environment["SIMCUDA_DEVICES"] == "3", "settings")
    check("SIMCUDA_MODE" not in environment, "what was not asked for is not set")
    first, rest = environment["LD_LIBRARY_PATH"].split(":", 1)
    check(first.endswith("/lib/simcuda") and rest == "/some/where", environment["LD_LIBRARY_PATH"])

    libc = next(line.split()[2] for line in subprocess.run(["ldd", sys.executable], capture_output=True,
                                                           text=True).stdout.splitlines() if "libc.so" in line)
    preload = json.loads(run("--", sys.executable, "-c", script, LD_PRELOAD=libc).stdout)[0]["LD_PRELOAD"]
    check(preload.startswith(libc), f"an LD_PRELOAD that is set stays in front: {preload}")

    with tempfile.TemporaryDirectory() as folder:
        check_runtime(folder, script)

    bad = run("--memory", "lots", "--", "true")
    check(bad.returncode == 2 and "SIMCUDA_MEMORY=lots" in bad.stderr, bad.stderr)
    check(run().returncode == 2, "no command")
    check(run("--", "/no/such/program").returncode == 127, "no such program")
    check(run("--", "sh", "-c", "exit 5").returncode == 5, "the command's own exit code")

    with tempfile.TemporaryDirectory() as folder:
        stats = f"{folder}/stats.json"
        done = run("--memory", "256MiB", "--devices", "2", "--poison", "recycle", "--stats", stats, "--log",
                   f"{folder}/log", "--", PROGRAM, "--gtest_filter=*CopiesGoEveryWay")
        check(done.returncode == 0, done.stdout + done.stderr)
        with open(stats) as file:
            counts = json.load(file)
        check(counts["htod_bytes"] == 1 << 20 and counts["dtoh_bytes"] == 1 << 20, counts)
        check(counts["peak_physical_bytes"] == [2 << 20, 0] and counts["physical_bytes"] == [0, 0], counts)
        check(counts["missed_accesses"] == 0, counts)
        with open(f"{folder}/log") as file:
            kinds = [line.split("\t")[0] for line in file]
        check(kinds.count("copy") == 3 and kinds.count("memset") == 2, kinds)

        costly = ("--memory", "256MiB", "--devices", "2", "--poison", "recycle", "--stats", stats)
        done = run(*costly, "--hardware", "a100", "--hardware-end", "low", "--hardware-form", "pass", "--time-scale",
                   "2", "--", PROGRAM, "--gtest_filter=*CopiesGoEveryWay")
        check(done.returncode == 0, done.stdout + done.stderr)
        with open(stats) as file:
            costs = json.load(file)["hardware"]
        check(costs["profile"] == "a100" and costs["time_scale"] == 2, costs)
        copies = costs["calls"]["cuMemcpyAsync"]
        check(copies["count"] == 3 and copies["ns"] == 3 * 2 * 2000, copies)
        done = run(*costly, "--hardware", "nothing", "--", PROGRAM, "--gtest_filter=*CopiesGoEveryWay")
        check(done.returncode != 0 and "the hardware profile" in done.stderr, done.stderr)
        bad = run("--time-scale", "21", "--", "true")
        check(bad.returncode == 2 and "SIMCUDA_TIME_SCALE=21" in bad.stderr, bad.stderr)
    check_keys()
    print("passed")


if __name__ == "__main__":
    main()
