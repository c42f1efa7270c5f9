"""What Spillway held of a job's memory: more than was asked for, since blocks are whole chunks, and on the GPU for denied kernels.

The figures are those of SPILLWAY_METRICS, one file for each rank.
"""

import dataclasses
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "jobs"))

import harness  # noqa: E402  (the path comes first)

MARGIN = 0.01  # of the bytes asked for: what else is live at the peak depends a little on when frees are seen
DENIED = ("blocks stay on the GPU (denied)", "is in the deny list")  # in the lines at a denied kernel's first launch


@dataclasses.dataclass(frozen=True)
class Waste:
    """What a job wasted when it was measured, and why so much."""

    measured: float  # of the bytes asked for
    reason: str

    def most(self):
        return self.measured + MARGIN


def judge(name, waste, metrics, log, problems):
    """The job holds no more than it was seen to, and no kernel of it is on the shipped deny list. waste: None where it was not
    measured: other kernels want other memory."""
    seen = harness.largest_waste(metrics)
    if problems.expect(seen is not None, f"{name}: no figures of the memory that was asked for") and waste is not None:
        problems.expect(seen <= waste.most(), f"{name}: holds {seen:.1%} more than was asked for, not {waste.measured:.1%} ({waste.reason})")
    for one in filter(None, metrics):
        denied = one["pinned_bytes_by_reason"]["denied"]
        problems.expect(denied == 0, f"{name}: {denied} bytes are kept on the GPU for denied kernels")
    problems.expect(not any(words in log for words in DENIED), f"{name}: launches a kernel of the deny list")
