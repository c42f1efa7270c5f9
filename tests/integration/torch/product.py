"""Runs Python code on the stand-in device, with the product or with stock PyTorch."""

import json
import os
import subprocess

BUILD = os.environ["SPILLWAY_BUILD"]
PYTHON = os.environ["SPILLWAY_TEST_PYTHON"]


def run(code, memory="1GiB", preload=True, **settings):
    """What the code's last line is, which has to be JSON; `settings` are environment variables."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPILLWAY", "PYTORCH_", "LD_PRELOAD"))}
    environment.update(OMP_NUM_THREADS="1", SPILLWAY_DIRS="none", **settings)
    if preload:
        environment["LD_PRELOAD"] = f"{BUILD}/lib/libspillway.so"
    command = [f"{BUILD}/bin/simcuda-run", "--memory", memory, "--", PYTHON, "-B", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250)
    if done.returncode != 0:
        raise AssertionError(f"exit {done.returncode}\n{done.stdout[-500:]}\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])
