"""The deny list's rows for batched torch.linalg, end to end. Tables that arange writes: a job of twice its budget has right
bits and spills beside each. MAGMA's tables in pinned memory: everything live comes back, or the launch is refused with words.
"""

import harness
import job
from harness import MIB

DEVICE, BUDGET = 128 * MIB, "64MiB"
OUT_OF_MEMORY = 2


def run_scene(args, problems, scene, **variables):
    kernels = args.build / "lib" / "tests" / "linalg" / "libtorch_cuda_linalg.so"
    cap = job.Cap(DEVICE, "512MiB", "none", {"gpu_memory": BUDGET})
    status, output, result = harness.run_scene(args, f"linalg-{scene}" + "-".join(variables), cap, "linalg_script.py", kernels,
                                               scene, **variables)  # fmt: skip
    problems.expect(status == 0 and result is not None, f"{scene}: status {status}\n{output[-3000:]}")
    return output, result


def arange(args, problems):
    _, result = run_scene(args, problems, "arange")
    if result is None:
        return
    around = result["around"]
    still = [at // 2 for at in range(0, len(around), 2) if around[at + 1] <= around[at]]
    problems.expect(around and not still, f"arange: nothing was evicted beside the tables {still}")
    problems.expect(result["answers"] == [0] and result["wrong"] == 0, f"arange: {result}")
    problems.expect(result["held"] == 0, f"arange: {result['held']} bytes are pinned when all tables are gone")
    print(f"arange: {len(around) // 2} tables, {around[-1]} evictions", flush=True)


def magma(args, problems):
    _, result = run_scene(args, problems, "magma")
    if result is not None:
        problems.expect(result["answers"] == [0, 0] and result["wrong"] == 0, f"magma: {result}")
        problems.expect(result["before"] > 0 and result["behind"] > 0, f"magma: no evictions before, or none behind: {result}")
        problems.expect(result["held"] == 0, f"magma: {result['held']} bytes are pinned")


def magma_too_much(args, problems):
    _, result = run_scene(args, problems, "magma-too-much")
    if result is not None:
        problems.expect(result["answers"] == [0, 0] and result["wrong"] == 0, f"magma-too-much, a part in host memory: {result}")
    output, result = run_scene(args, problems, "magma-too-much", SPILLWAY_REACH="off")
    if result is not None:
        problems.expect(result["answers"] == [OUT_OF_MEMORY] * 2 and result["wrong"] == 0, f"magma-too-much: {result}")
        problems.expect(result["behind"] > 0, "magma-too-much: evictions do not go on")
        problems.expect("may reach any block" in output, f"magma-too-much: no words\n{output[-2000:]}")


def main():
    args = harness.arguments(__doc__)
    problems = harness.Problems()
    for scene in (arange, magma, magma_too_much):
        scene(args, problems)
    problems.exit()


if __name__ == "__main__":
    main()
