"""Writes a hardware profile of simcuda from what the first stage of a GPU session measured (tests/gpu/visit.sh --stage first).

    python3 bench/gpu/write_profile.py FIRST.json --name NAME --like a100 --out NAME.json
    build/bin/simcuda-run --hardware ./NAME.json -- COMMAND

The profile named by --like gives what the session does not measure, as assumed from there. The session itself writes a profile
in this way, named "visit" and like the shipped one of the nearest name.
"""

import argparse
import difflib
import json
import re
import sys
from pathlib import Path

import profile_facts

PROFILES = Path(__file__).resolve().parents[2] / "integration" / "simcuda" / "hardware"
GIB = 1 << 30
CHUNK = 2 << 20  # calls whose cost is for each handle are measured on handles of this size
BLOCK = 64 << 20
MOST_KNOWN = "a100"  # taken where no profile's name is like the device's


def slope(small, large, key):
    """Microseconds of a call, and of each GiB, from two sizes."""
    for_gib = max(0.0, large[key] - small[key]) * GIB / (large["bytes"] - small["bytes"])
    return max(0.0, small[key] - for_gib * small["bytes"] / GIB), for_gib


def nearest(device):
    """The shipped profile whose name is most like the device's, by one or two words of it: "GeForce RTX 3090" is rtx4090."""
    words = re.findall("[a-z0-9]+", device.partition(",")[0].lower())  # behind the name stands how much memory it has
    words += [first + second for first, second in zip(words, words[1:])]
    likeness = {path.stem: max((difflib.SequenceMatcher(None, path.stem, word).ratio() for word in words), default=0)
                for path in sorted(PROFILES.glob("*.json"))}  # fmt: skip
    best = max(likeness, key=likeness.get)
    return best if likeness[best] > 0.5 else MOST_KNOWN


def assume(part, name):
    """The other profile's figures, marked as assumed from there."""
    if isinstance(part, list):
        return [assume(item, name) for item in part]
    if not isinstance(part, dict):
        return part
    if "value" in part or "low" in part:
        low, high = part.get("low", part.get("value")), part.get("high", part.get("value"))
        return {"low": low, "high": high, "assumed": f"the profile {name}: {part.get('source', part.get('assumed'))}"}
    return {key: assume(value, name) for key, value in part.items()}


def measured_calls(driver, figure):
    """By call, the figures that replace those of the other profile."""
    rows = [row for row in driver["blocks"] if row["busy"] and row["block_bytes"] == BLOCK]
    chunks = next(row for row in rows if row["chunk_bytes"] == CHUNK)
    whole = max(rows, key=lambda row: row["chunk_bytes"])
    handles, whole_handles = BLOCK // CHUNK, BLOCK // whole["chunk_bytes"]
    calls = {}
    for call, key in (("cuMemCreate", "create_us"), ("cuMemMap", "map_us"), ("cuMemSetAccess", "set_access_us"),
                      ("cuMemUnmap", "unmap_us"), ("cuMemRelease", "release_us")):  # fmt: skip
        # So much for each handle, and so much for the bytes whatever the handles.
        each = (chunks[key] - whole[key]) / (handles - whole_handles)
        rest = max(0.0, whole[key] - each * whole_handles)
        field = "handle_us" if call in ("cuMemSetAccess", "cuMemUnmap") else "call_us"
        calls[call] = {field: figure(max(0.0, each)), "gib_us": figure(rest * GIB / BLOCK)}
    for call, micros in driver["calls"]["us"].items():
        calls[call] = {"call_us": figure(micros)}
    calls["cuLaunchKernel"] = {"call_us": figure(driver["launch"]["launch_ns"] / 1e3)}
    small, large = driver["calls"]["registering"]
    for call, key in (("cuMemHostRegister", "register_us"), ("cuMemHostUnregister", "unregister_us")):
        once, for_gib = slope(small, large, key)
        calls[call] = {"call_us": figure(once), "gib_us": figure(for_gib)}
    return calls


def rate_together(alone, other, name):
    """Of a direction whose rate beside the other could not be told, since the machine did something else as well: the part of
    the measured rate alone that the other profile has."""
    def rate(key, end):
        return other[key].get(end, other[key].get("value"))

    parts = (min(1, rate("both_gb_per_s", end) / rate("alone_gb_per_s", end)) for end in ("low", "high"))
    low, high = sorted(round(part * alone, 4) for part in parts)
    return {"low": low, "high": high, "assumed": f"the profile {name}: the same part of the rate alone"}


def make(driver, machine, name, like, rows=()):
    """driver: the figures of gpu_driver_bench. machine: of the report. rows: of the first stage of a session on that machine."""
    words = "; ".join(["measured: " + driver["device"], *(str(machine[key]) for key in ("platform", "nvidia_smi") if machine.get(key))])
    figure = lambda value: {"value": round(value, 4), "source": words}  # noqa: E731
    base = json.loads((PROFILES / f"{like}.json").read_text())
    profile = assume(base, like)
    profile["name"], profile["machine"] = name, driver["device"]
    profile["notes"] = [f"Of the profile {like}:", *base.get("notes", [])]
    for call, figures in measured_calls(driver, figure).items():
        profile["calls"][call] = {"holds": base["calls"][call]["holds"], **figures}
    for side, figures in driver["link"].items():
        profile["copies"][side] = {key: figure(value) for key, value in figures.items()}
        if figures["both_gb_per_s"] <= 0:
            profile["copies"][side]["both_gb_per_s"] = rate_together(figures["alone_gb_per_s"], base["copies"][side], like)
    profile["measured"] = {"blocks": driver["blocks"], "copies": driver["copies"]}
    profile_facts.add(profile, rows, words)
    return profile


def write(profile, path):
    path.write_text(json.dumps(profile, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="the report of a session's first stage")
    parser.add_argument("--name", required=True)
    parser.add_argument("--like", help="the profile that what is not measured is taken from (default: of the nearest name)")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    report = json.loads(args.report.read_text())
    driver = profile_facts.figures_of(report["rows"]).get("driver calls")
    if driver is None:
        sys.exit(f"{args.report} has no figures of the row \"driver calls\"")
    write(make(driver, report["machine"], args.name, args.like or nearest(driver["device"]), report["rows"]), args.out)
    print(f"written to {args.out}")


if __name__ == "__main__":
    sys.exit(main())
