"""bench/gpu/write_profile.py: the figures that it takes out of a report, and what it makes of those that are not there."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "gpu"))

import write_profile

MIB = 1 << 20


def block_row(chunk_mib, busy=True, more=0):
    """64 MiB at 10 us a handle and 64 us for the bytes; creating takes 5 us a handle."""
    handles = 64 // chunk_mib
    costs = {key: 10 * handles + 64 + more for key in ("map_us", "set_access_us", "unmap_us", "release_us")}
    return {"busy": busy, "block_bytes": 64 * MIB, "chunk_bytes": chunk_mib * MIB, "create_us": 5 * handles, **costs}


REPORT = {
    "machine": ["a machine"],
    "driver": {
        "device": "a device",
        "launch": {"launch_ns": 2500},
        "blocks": [block_row(2, False, 7), block_row(2), block_row(16), block_row(64)],
        "copies": {},
        "calls": {
            "us": {"cuEventRecord": 0.75},
            "registering": [
                {"bytes": 2 * MIB, "register_us": 30, "unregister_us": 20},
                {"bytes": 258 * MIB, "register_us": 286, "unregister_us": 20},
            ],
        },
        "link": {
            "in": {"alone_gb_per_s": 50, "both_gb_per_s": 30, "setup_us": 1},
            "out": {"alone_gb_per_s": 51, "both_gb_per_s": 49, "setup_us": 2},
        },
    },
}


def main():
    made = write_profile.make(REPORT, "mine", "h200")
    calls = made["calls"]
    assert calls["cuMemSetAccess"]["handle_us"]["value"] == 10, calls["cuMemSetAccess"]
    assert calls["cuMemSetAccess"]["gib_us"]["value"] == 1024, calls["cuMemSetAccess"]
    assert "measured: a device; a machine" in calls["cuMemSetAccess"]["gib_us"]["source"]
    assert calls["cuMemCreate"]["call_us"]["value"] == 5 and calls["cuMemCreate"]["gib_us"]["value"] == 0
    assert calls["cuMemMap"]["holds"] == "memory" and calls["cuLaunchKernel"]["holds"] == "context"
    assert calls["cuLaunchKernel"]["call_us"]["value"] == 2.5
    assert calls["cuEventRecord"]["call_us"]["value"] == 0.75
    assert calls["cuMemHostRegister"]["gib_us"]["value"] == 1024, calls["cuMemHostRegister"]
    assert calls["cuMemHostRegister"]["call_us"]["value"] == 28
    assert calls["cuMemHostUnregister"]["gib_us"]["value"] == 0
    assert made["copies"]["in"]["both_gb_per_s"]["value"] == 30 and made["copies"]["out"]["setup_us"]["value"] == 2
    assert made["notes"][0] == "Of the profile h200:", made["notes"]
    taken = calls["cuModuleLoadData"]["call_us"]
    assert taken["assumed"].startswith("the profile h200: ") and taken["low"] < taken["high"], taken
    assert set(calls) == set(write_profile.json.loads((write_profile.PROFILES / "h200.json").read_text())["calls"])
    for device, like in (("NVIDIA H200, 143771 MiB, driver for CUDA 13.0", "h200"), ("NVIDIA A100-SXM4-80GB, 81920 MiB", "a100"),
                         ("NVIDIA GeForce RTX 4090, 24564 MiB", "rtx4090"), ("NVIDIA GeForce RTX 3090", "rtx4090"),
                         ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA GH200 480GB", "h200"), ("NVIDIA B200", "h200"),
                         ("simcuda (host memory), 2048 MiB", "a100"), ("", "a100")):  # fmt: skip
        assert write_profile.nearest(device) == like, (device, write_profile.nearest(device))
    print("passed")


if __name__ == "__main__":
    main()
