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


MACHINE = {"platform": "a machine"}
DRIVER = {
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
}


def stall(launch_us, remap_us, inside_us=200_000, calls=3):
    return {call: {"calls": calls, "inside_us": inside_us, "longest_us": longest}
            for call, longest in (("cuEventQuery", 1), ("cuLaunchKernel", launch_us), ("remap", remap_us))}  # fmt: skip


def visit_rows(load=None, beside_us=50, none=None):
    """Rows of the first stage of a session; load: the calls beside a module load. A row may have the stand-in's figures."""
    loaded = [{"device_busy": busy, "load_us": 100 + busy, "find_us": 1, "first_launch_us": 9} for busy in (False, True)]
    later = [{**row, "load_us": row["load_us"] - 60} for row in loaded]
    launches = [{"memory_bound_kernel": busy, "handle_bytes": mib * MIB, "p99_us": p99} for busy, mib, p99 in
                ((False, 0, 4), (False, 2, beside_us), (False, 64, 5), (True, 0, 4), (True, 2, 4))]  # fmt: skip
    stalls = {"none": none or stall(10, 90), "cuModuleLoadData": load or stall(199_000, 80)}
    return [{"row": "module loading LAZY", "figures": {"rows": loaded}}, {"row": "module loading EAGER", "figures": {"rows": later}},
            {"row": "launch latency beside remapping", "stand_in": {"rows": launches}},
            {"row": "calls beside one that waits", "figures": stalls}, {"row": "doctor", "status": "passed"}]  # fmt: skip


def of_visit(*rows):
    made = write_profile.make(DRIVER, MACHINE, "mine", "h200", rows)
    return made["calls"]["cuModuleLoadData"], made["measured"].get("form"), "\n".join(made["notes"])


def check_what_a_visit_adds():
    load, form, notes = of_visit(*visit_rows())
    assert (load["call_us"]["low"], load["call_us"]["high"]) == (50, 110), load
    assert load["call_us"]["source"].startswith("measured: a device"), load
    assert (load["holds"], form) == ("context", "wait"), (load, form)
    assert "cuModuleLoadData holds context (beside it a launch 199000 of 200000 us, a remap 80 of 200000 us)" in notes, notes
    assert "SIMCUDA_HARDWARE_FORM=wait" in notes, notes
    for seen, holds in ((stall(9, 190_000), "memory"), (stall(199_000, 190_000), "memory"), (stall(9, 80), "nothing")):
        assert of_visit(*visit_rows(seen))[0]["holds"] == holds, (seen, holds)
    assert [of_visit(*visit_rows(beside_us=us))[1] for us in (5, 8, 12, 20)] == ["pass", "pass", None, "wait"]


def check_what_tells_nothing_stays_assumed():
    base = write_profile.json.loads((write_profile.PROFILES / "h200.json").read_text())["calls"]["cuModuleLoadData"]["holds"]
    slow, short, none = stall(190_000, 80), stall(0, 0, 20), stall(0, 0, calls=0)
    for rows in (visit_rows(none=slow), visit_rows(short), visit_rows(none), visit_rows(stall(199_000, 190_000), beside_us=4),
                 visit_rows(stall(30_000, 80)), visit_rows(stall(9, 5_000))):  # held for a part of the load  # fmt: skip
        load, _, notes = of_visit(*rows)
        assert load["holds"] == base and "holds" not in notes.replace(base_notes(), ""), (load, notes)
    # Rows that are not there, have crashed, or have another form.
    for rows in ((), [{"row": row["row"], "figures": {"ended": -11}} for row in visit_rows()],
                 [{"row": row["row"], "figures": {"rows": [1], "none": 2}} for row in visit_rows()]):  # fmt: skip
        load, form, _ = of_visit(*rows)
        assert "assumed" in load["call_us"] and form is None and load["holds"] == base, (rows, load)


def check_a_rate_together_that_is_none():
    """Another process took the processors while both directions copied: a bench has given -3.6 GB/s."""
    link = {"in": DRIVER["link"]["in"], "out": {"alone_gb_per_s": 50, "both_gb_per_s": -3.6, "setup_us": 2}}
    for like in ("h200", "a100"):
        made = write_profile.make({**DRIVER, "link": link}, MACHINE, "mine", like)
        out = made["copies"]["out"]["both_gb_per_s"]
        assert 0 < out["low"] <= out["high"] <= 50 and like in out["assumed"], out
        assert made["copies"]["in"]["both_gb_per_s"]["value"] == 30


def base_notes():
    return "\n".join(write_profile.make(DRIVER, MACHINE, "mine", "h200")["notes"])


def main():
    check_what_a_visit_adds()
    check_what_tells_nothing_stays_assumed()
    check_a_rate_together_that_is_none()
    made = write_profile.make(DRIVER, MACHINE, "mine", "h200")
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
                         ("simcuda (host memory), 2048 MiB", "a100"), ("simcuda (host memory), 4096 MiB", "a100"), ("", "a100")):  # fmt: skip
        assert write_profile.nearest(device) == like, (device, write_profile.nearest(device))
    print("passed")


if __name__ == "__main__":
    main()
