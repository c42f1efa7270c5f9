"""Reads simcuda's log (SIMCUDA_LOG): what ran on the device, when, and how copies and kernels overlapped.

One line each, tab-separated: kind, stream id, device, start ns, end ns, bytes, direction, name.
"""

import dataclasses

STEP_MARK = "nll_loss_forward"  # the operator that each forward pass of the example job launches once
LEAST_BYTES = 1 << 20  # smaller copies are the job's own


@dataclasses.dataclass(frozen=True)
class Line:
    kind: str
    start: int
    end: int
    size: int
    direction: str
    name: str


def read_log(path):
    lines = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for text in file:
            fields = text.rstrip("\n").split("\t")
            if len(fields) >= 8 and fields[3].isdigit():
                lines.append(Line(fields[0], int(fields[3]), int(fields[4]), int(fields[5]), fields[6], fields[7]))
    return lines


def kernels(lines):
    return [line for line in lines if line.kind == "kernel"]


def transfers(lines):
    """Copies between host and device that are large enough to be Spillway's."""
    return [line for line in lines if line.kind == "copy" and line.direction in ("htod", "dtoh") and line.size >= LEAST_BYTES]


def from_step(lines, step):
    """What started after the forward pass of the `step`-th step had reached its end (steps count from 1)."""
    marks = sorted(line.start for line in kernels(lines) if STEP_MARK in line.name)
    if len(marks) < step:
        raise ValueError(f"the log shows {len(marks)} steps, not {step}")
    return [line for line in lines if line.start >= marks[step - 1]]


def busy(lines):
    """Disjoint sorted intervals in which at least one of the lines ran."""
    merged = []
    for start, end in sorted((line.start, line.end) for line in lines):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


def total(intervals):
    return sum(end - start for start, end in intervals)


def overlap(first, second):
    """Time that lies in both lists of disjoint sorted intervals."""
    common, i, j = 0, 0, 0
    while i < len(first) and j < len(second):
        common += max(0, min(first[i][1], second[j][1]) - max(first[i][0], second[j][0]))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return common
