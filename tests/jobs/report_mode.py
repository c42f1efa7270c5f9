"""The capped job on a device that counts touches of unmapped addresses instead of stopping: there must be none."""

import configurations
import harness
import job
import matrix


def main():
    args = harness.arguments(__doc__)
    problems = harness.Problems()
    here = harness.machine(args, "report-mode", "--mode", "report")
    row = configurations.Configuration("report", 1, "foreach", "35", "host")
    uncapped = job.run_job(here, job.UNCAPPED, matrix.train_arguments(row, 4))
    if problems.expect(uncapped.keys["status"] == "ok", f"uncapped: {uncapped.keys['status']}\n{uncapped.log[-2000:]}"):
        peak = uncapped.keys["peak_bytes"]
        cap = matrix.cap_of(row, peak * 35 // 100, peak, here.work)
        run = job.run_job(here, job.PRELOAD, matrix.train_arguments(row, 4), cap)
        problems.expect(run.keys["status"] == "ok", f"capped: {run.keys['status']}\n{run.log[-2000:]}")
        problems.expect(run.keys["missed_accesses"] == 0, f"{run.keys['missed_accesses']} missed accesses")
        problems.expect((run.keys["fetched_bytes"] or 0) > 0, "nothing was fetched, so nothing could be missed")
        problems.expect(run.keys["state_sha256"] == uncapped.keys["state_sha256"], "the final state differs")
    problems.exit()


if __name__ == "__main__":
    main()
