"""Runs a script with PyTorch's own limit of device memory: limited.py PART SCRIPT ARGUMENTS...

The part of the device's memory is set by a call, which every PyTorch has. The key of PyTorch's variable for it,
per_process_memory_fraction, came with 2.9, and older ones end a job that names it.
"""

import os
import runpy
import sys

import torch


def main():
    part, script = float(sys.argv[1]), sys.argv[2]
    torch.cuda.set_per_process_memory_fraction(part)
    sys.argv[:] = sys.argv[2:]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
