"""What people do, each as a PyTorch job on a GPU that is too small for it, beside native on one that is large enough.

The same outcome, the same bits, real traffic, the same exit status, no file left. Without arguments: every scene once
(how it is loaded and its policy come from the table). --long: with both policies, loaded in both ways, with more seeds.
--only NAME...; --list.
"""

import itertools
import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import harness
import job
import scene_table
from harness import MIB
from scene_table import SCENES

TIMEOUT = 240  # a scene takes some seconds; on a busy machine more
ERROR_SECONDS = 2  # of a processor of its own, from an error on the GPU to its exception, and from there to the end of the process
SECONDS_OF_ERRORS = ("seconds", "ending_seconds")


def machine(args, name, scene):
    return harness.machine(args, name, uncapped_memory=scene.native * MIB if scene.native else 32 << 30)


def cap_of(scene, policy, folder):
    dirs = "none" if scene.disk == 0 else f"{folder}:{scene.disk}MiB" if scene.disk else str(folder)
    settings = {"gpu_memory": f"{scene.gpu}MiB", "disk_reserve": "0", "policy": policy}
    return job.Cap((scene.device or scene.gpu) * MIB, f"{scene.host}MiB" if scene.host else "0", dirs, settings)


def run(args, scene, mode, seed, policy, prefix, folder):
    """One run in a work folder of its own, which an ordinary user may have to write to."""
    name = f"{scene.name}-{mode}-{policy}-{seed}"
    here = machine(args, name, scene)
    here.work.mkdir(parents=True, exist_ok=True)
    for path in (here.work, folder):
        if scene.ordinary_user and os.geteuid() == 0:
            os.chown(path, scene_table.NOBODY, scene_table.NOBODY)
    environment = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HOME": str(here.work), **dict(scene.environment)}
    words = [*scene.words(), "--seed", str(seed), "--spill-folder", str(folder)]
    return job.run_job(here, mode, words, cap_of(scene, policy, folder), script=harness.HERE / scene.script, timeout=TIMEOUT,
                       show=lambda line: False, extra_environment=environment, prefix=prefix)  # fmt: skip


def run_native(args, scene, seed, policy, prefix):
    with tempfile.TemporaryDirectory(dir=args.spill, ignore_cleanup_errors=True) as folder:
        return run(args, scene, job.UNCAPPED, seed, policy, prefix, Path(folder))


# ---- judging ---------------------------------------------------------------------------------------------------


def differences(native, ours):
    """What a page saw differently, for the one who looks for the cause."""
    for page, entry in native["pages"].items():
        other = ours["pages"].get(page, {})
        if entry.get("left_by") != other.get("left_by"):
            yield f"{page}: left by {other.get('left_by')}, native by {entry.get('left_by')}"
        for place, pair in enumerate(itertools.zip_longest(entry.get("seen", ()), other.get("seen", ()))):
            if pair[0] != pair[1]:
                yield f"{page}: entry {place} is {pair[1]}, native's {pair[0]}"
        hashes, others = entry.get("hashes", {}), other.get("hashes", {})
        yield from (f"{page}: {key} has other bits" for key in hashes if hashes[key] != others.get(key))


def judge_native(name, native, problems):
    return problems.expect(native.exit_status == 0 and native.report is not None,
                           f"{name} native: exit status {native.exit_status}\n{native.log[-3000:]}")  # fmt: skip


def judge_traffic(name, scene, native, ours, problems):
    metrics = ours.metrics
    if not problems.expect(metrics is not None, f"{name}: no figures of Spillway; was it loaded?"):
        return
    if scene.spills and scene.script == scene_table.PAGES:  # of several children these are the figures of the last
        for key in ("spilled_bytes", "fetched_bytes"):
            problems.expect(metrics[key] > 0, f"{name}: {key} is {metrics[key]}, so nothing was shown")
    for key in scene.counted:
        problems.expect(metrics[key] > 0, f"{name}: {key} is 0")
    if not scene.spills:
        problems.expect(metrics["spilled_bytes"] == 0, f"{name}: {metrics['spilled_bytes']} bytes went nowhere")
    problems.expect(metrics["peak_bytes"] <= metrics["budget_bytes"], f"{name}: peak {metrics['peak_bytes']} over {metrics['budget_bytes']}")


def judge_errors(name, native, ours, problems):
    """The phases must have been under pressure, and no slower than native by more than some seconds: of a processor that
    the job has for itself.
    """
    for phase, entry in ours.report["pages"].items():
        figures, natives = entry["figures"], native.report["pages"][phase]["figures"]
        for key in SECONDS_OF_ERRORS:
            more = figures[key] - natives[key] if figures.get(key) is not None else TIMEOUT
            limit = ERROR_SECONDS * figures.get("slowdown", 1)  # as it was right after the phase
            problems.expect(more <= limit, f"{name} {phase}: {key} is {figures.get(key)}, native's {natives[key]}, the limit {limit:.1f} more")
        evictions = (figures.get("figures") or {}).get("evictions", 0)
        problems.expect((evictions > 0) != ("chunks_free" in phase), f"{name} {phase}: {evictions} evictions before the error")


def judge(name, scene, native, ours, folder, problems):
    before = len(problems.found)
    problems.expect(ours.exit_status == 0 and ours.report is not None, f"{name}: exit status {ours.exit_status}\n{ours.log[-3000:]}")
    if ours.report is not None:
        for words in differences(native.report, ours.report):
            problems.expect(False, f"{name}: {words}")
        if scene.script == scene_table.ERRORS:
            judge_errors(name, native, ours, problems)
    judge_traffic(name, scene, native, ours, problems)
    left = os.listdir(folder) if folder.is_dir() else []
    problems.expect(left == [], f"{name}: left in the spill directory: {left}")
    return len(problems.found) == before


# ---- running ---------------------------------------------------------------------------------------------------


def forms(args, scene):
    """(mode, policy, seed) of each run beside native."""
    if not args.long:
        return [(job.CONF if scene.policy == "lru" else job.PRELOAD, scene.policy, args.seed)]
    seeds = range(args.seed, args.seed + args.seeds)
    return [(mode, policy, seed) for seed in seeds for mode in job.SPILLWAY_MODES for policy in ("plan", "lru")]


def line(name, good, ours):
    metrics = ours.metrics or {}
    sizes = "  ".join(f"{words} {metrics.get(key, 0) / MIB:6.0f} MiB" for words, key in (("out", "spilled_bytes"), ("in", "fetched_bytes")))
    return f"{'ok ' if good else 'BAD'}  {name:34}  {sizes}  {ours.seconds:5.1f} s"


def run_scene(args, scene, pool, problems):
    reason = scene_table.why_not(scene, [args.build / "bin" / "simcuda-run", args.work, Path(sys.executable)])
    if reason:
        print(f"skipped: {scene.name}: {reason}", flush=True)
        return []
    prefix = scene_table.prefix_of(scene)
    natives, rows = {}, []
    for mode, policy, seed in forms(args, scene):
        name = f"{scene.name} {mode.removeprefix('capped-')} {policy} {seed}"
        if seed not in natives:
            natives[seed] = pool.submit(run_native, args, scene, seed, policy, prefix)
            if scene.script == scene_table.ERRORS:
                natives[seed].result()  # seconds are judged there
        with tempfile.TemporaryDirectory(dir=args.spill, ignore_cleanup_errors=True) as folder:
            ours = run(args, scene, mode, seed, policy, prefix, Path(folder))
            native = natives[seed].result()
            good = judge_native(name, native, problems) and judge(name, scene, native, ours, Path(folder), problems)
        rows.append({"name": name, "good": good, "seconds": ours.seconds, "native_seconds": native.seconds,
                     "pages": (ours.report or {}).get("pages")})  # fmt: skip
        print(line(name, good, ours), flush=True)
    return rows


def parse():
    args = harness.arguments(
        __doc__, ("--long", {"action": "store_true"}), ("--seed", {"type": int, "default": 1}), ("--seeds", {"type": int, "default": 2}),
        ("--only", {"nargs": "+", "choices": [scene.name for scene in SCENES]}), ("--list", {"action": "store_true"}))  # fmt: skip
    args.work = args.work / "scenes"
    args.spill = args.work / "spill"
    args.spill.mkdir(parents=True, exist_ok=True)
    return args


def main():
    args = parse()
    scenes = [scene for scene in SCENES if (scene.name in args.only if args.only else args.long or not scene.nightly)]
    if args.list:
        print("\n".join(scene.name for scene in scenes))
        return
    problems, rows = harness.Problems(), []
    with ThreadPoolExecutor(1) as pool:
        for scene in scenes:
            rows += run_scene(args, scene, pool, problems)
    (args.work / "scenes.json").write_text(json.dumps({"rows": rows, "problems": problems.found}, indent=2) + "\n", encoding="utf-8")
    problems.exit()


if __name__ == "__main__":
    main()
