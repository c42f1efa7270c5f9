"""A job with a kernel that follows an address in device memory, stored there by another kernel; run by audit.py.

--streams: several streams and threads work beside it.
"""

import argparse
import ctypes
import threading

import torch
from step_probe import stand_in_driver

MIB = 1 << 20
STORE, FOLLOW = b"_Z12store_targetPmS_", b"_Z13follow_targetPm"


def busy(rounds):
    """Work of another thread on a stream of its own."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        mine = torch.zeros(2 * MIB // 4, device="cuda")
        other = torch.ones(2 * MIB // 4, device="cuda")
        for _ in range(rounds):
            mine.add_(other)
    stream.synchronize()
    if float(mine.min()) != rounds or float(mine.max()) != rounds:
        raise SystemExit("wrong results on a side stream")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernels", required=True)
    parser.add_argument("--streams", type=int, default=0)
    parser.add_argument("--json")
    args = parser.parse_args()
    kernels = ctypes.CDLL(args.kernels)
    kernels.audit_launch.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p]
    target = torch.zeros(4 * MIB // 4, device="cuda")
    table = torch.zeros(2 * MIB // 8, dtype=torch.int64, device="cuda")
    if kernels.audit_register(stand_in_driver().simcuda_register_kernel) != 0:
        raise SystemExit("the kernels were not registered")
    threads = [threading.Thread(target=busy, args=(50,)) for _ in range(args.streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stream = torch.cuda.current_stream().cuda_stream
    stored = kernels.audit_launch(STORE, table.data_ptr(), target.data_ptr(), stream)
    print(f"stored: {stored}", flush=True)
    followed = kernels.audit_launch(FOLLOW, table.data_ptr(), 0, stream)
    print(f"followed: {followed}", flush=True)
    print(f"the target holds {float(target[0])}", flush=True)


if __name__ == "__main__":
    main()
