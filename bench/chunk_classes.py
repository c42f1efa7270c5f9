"""Which chunk sizes pay on a machine, by the driver's calls alone: a model over simcuda's hardware profiles.

    python3 bench/chunk_classes.py [--machines a100,h200] [--block-mib 64]

Blocks go out and in at the speed of plain copies in both directions. Each handle is then mapped, given access and
unmapped once for its bytes. For each size: the part of the time that the memory lock is held; the longest call with one
set-access for the block and with one for each handle; the most that one thread can exchange; the part of a plain copy's
speed that pieces of that size reach.
"""

import argparse
import json
from pathlib import Path

PROFILES = Path(__file__).resolve().parents[1] / "integration" / "simcuda" / "hardware"
MIB, GIB = 1 << 20, 1 << 30
SIZES = (2, 4, 8, 16, 32, 64, 128)


def figure(owner, key, end):
    found = owner.get(key, {"value": 0})
    return found.get("value", found.get(end))


def call_us(profile, name, end, size):
    call = profile["calls"][name]
    once = figure(call, "call_us", end) + figure(call, "handle_us", end)
    return once + figure(call, "gib_us", end) * size / GIB


def exchange_rate(profile, end):
    """Bytes/us each way when as much goes out as comes in: what the slower direction has left, it does alone."""
    sides = [profile["copies"][side] for side in ("in", "out")]
    both = [figure(side, "both_gb_per_s", end) * 1e3 for side in sides]
    slow = both.index(min(both))
    together = 1 / max(both)
    return 1 / (together + (1 - min(both) * together) / (figure(sides[slow], "alone_gb_per_s", end) * 1e3))


def rows(profile, end, block):
    rate = exchange_rate(profile, end)
    setup = max(figure(profile["copies"][side], "setup_us", end) for side in ("in", "out"))
    for mib in SIZES:
        size = mib * MIB
        access = call_us(profile, "cuMemSetAccess", end, size)
        lock = call_us(profile, "cuMemMap", end, size) + access + call_us(profile, "cuMemUnmap", end, size)
        handles = max(1, block // size)
        longest = max(access, call_us(profile, "cuMemUnmap", end, size)) * handles
        yield mib, lock * rate / size, longest, access, size / lock / 1e3, size / rate / (setup + size / rate)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", default="a100,h100,h200,rtx4090")
    parser.add_argument("--block-mib", type=int, default=64)
    args = parser.parse_args()
    print("| machine | end | chunk, MiB | lock held | longest call, us: block | handle | most GB/s, one thread | copy |")
    print("|---|---|---|---|---|---|---|---|")
    for machine in args.machines.split(","):
        profile = json.loads((PROFILES / f"{machine}.json").read_text())
        for end in ("low", "high"):
            for mib, lock, block, handle, most, copy in rows(profile, end, args.block_mib * MIB):
                print(f"| {machine} | {end} | {mib} | {lock:.3f} | {block:.0f} | {handle:.0f} | {most:.0f} | {copy:.3f} |")


if __name__ == "__main__":
    main()
