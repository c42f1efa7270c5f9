"""Collectives of NCCL's, end to end: launches whose works lie in their arguments run in a job of twice the budget, with
right bits and without a pinned byte; those with works in a queue reach everything, or are refused with words."""

import harness
import job
from harness import MIB

BUDGET = 128 * MIB
OUT_OF_MEMORY = 2
REACHES = "all blocks are brought to the GPU for each such launch"


def run_scene(args, scene, **variables):
    kernels = args.build / "lib" / "tests" / "libnccl_kernels.so"
    cap = job.Cap(BUDGET, "512MiB", "none")
    return harness.run_scene(args, f"nccl-{scene}" + "-".join(variables), cap, "nccl_script.py", kernels, scene, **variables)


def expect_result(problems, scene, status, output, result):
    return problems.expect(status == 0 and result is not None, f"{scene}: status {status}\n{output[-3000:]}")


def without_evictions(notes, end):
    """The numbers of the collectives before which, and of those after which, nothing was evicted. end: evictions at the end."""
    before = [0, *(note["evictions"][1] for note in notes)]
    after = [*(note["evictions"][0] for note in notes), end]
    still = [number for number, (begin, then) in enumerate(zip(before, after)) if then <= begin]
    return [number for number in still if number < len(notes)], [number - 1 for number in still if number > 0]


def in_arguments(args, problems):
    status, output, result = run_scene(args, "arguments")
    if not expect_result(problems, "arguments", status, output, result):
        return
    notes = result["notes"]
    problems.expect(all(note["status"] == 0 for note in notes), f"arguments: refused: {notes}")
    problems.expect(result["wrong"] == 0, f"arguments: {result['wrong']} tensors are wrong")
    before, after = without_evictions(notes, result["evictions"])
    problems.expect(notes and not before, f"arguments: nothing was evicted before the collectives {before}")
    problems.expect(not after, f"arguments: nothing was evicted after the collectives {after}")
    moved = [note["evictions"][1] - note["evictions"][0] for note in notes]
    problems.expect(sum(moved) > 0, "arguments: no eviction for a collective")
    problems.expect(not any(any(note["pinned_bytes"]) for note in notes), "arguments: a collective pinned blocks")
    problems.expect(REACHES not in output, f"arguments: taken for more than it names\n{output[-2000:]}")
    print(f"arguments: {len(notes)} collectives, evictions {notes[0]['evictions'][0]} before the first and {result['evictions']} "
          f"in the end, {sum(moved)} of them beside collectives")  # fmt: skip


def in_queue(args, problems):
    status, output, result = run_scene(args, "queue")
    if not expect_result(problems, "queue", status, output, result):
        return
    note = result["notes"][0]
    problems.expect(result["out_before"] > 0, "queue: nothing was evicted before the collective: this shows nothing")
    problems.expect(note["status"] == 0 and result["wrong"] == 0, f"queue: {result}")
    problems.expect(result["evictions_behind"] > 0 and result["wrong_others"] == 0, f"queue: evictions do not go on: {result}")
    problems.expect(not any(note["pinned_bytes"]), "queue: the collective pinned blocks")
    problems.expect(output.count(REACHES) == 1, f"queue: not said once\n{output[-2000:]}")


def in_queue_too_much(args, problems):
    status, output, result = run_scene(args, "queue-too-much", SPILLWAY_REACH="off")
    if not expect_result(problems, "queue-too-much", status, output, result):
        return
    answers = [note["status"] for note in result["notes"]]
    problems.expect(answers == [OUT_OF_MEMORY, 0], f"queue-too-much: answers {answers}")
    problems.expect(result["wrong"] == 0, f"queue-too-much: {result['wrong']} tensors are wrong")
    problems.expect("may reach any block" in output, f"queue-too-much: no words\n{output[-2000:]}")


def unknown_version(args, problems):
    """A second NCCL in the process, of a version that is not known: whose kernels are they?"""
    other = args.build / "lib" / "tests" / "libfake_nccl_99900.so"
    both = f"{args.build / 'lib' / 'libspillway.so'}:{other}"
    status, output, result = run_scene(args, "arguments", LD_PRELOAD=both, SPILLWAY_REACH="off")
    if expect_result(problems, "unknown version", status, output, result):
        answers = {note["status"] for note in result["notes"]}
        problems.expect(answers == {OUT_OF_MEMORY}, f"unknown version: answers {answers}")
        problems.expect("is of an unknown version of NCCL" in output, f"unknown version: no words\n{output[-2000:]}")


def main():
    args = harness.arguments(__doc__)
    problems = harness.Problems()
    for scene in (in_arguments, in_queue, in_queue_too_much, unknown_version):
        scene(args, problems)
    problems.exit()


if __name__ == "__main__":
    main()
