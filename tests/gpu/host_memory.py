"""Host memory of a machine that gives it as it is used: taken once before anything is measured.

There MemTotal begins far below what the machine can have. The sizes that the jobs ask for do not follow it; a process of its
own touches as much before the first job, so that no job waits for memory that the machine is still being given.
"""

import contextlib
import mmap
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fakes"))

from wait_until import wait_until  # noqa: E402  (the path comes first)

GIB = 1 << 30
WANTED = 32 * GIB  # what the largest job asks for: all of its peak of some 21 GB without a disk, with something to spare
PIECE = 256 << 20
SPARE = 1 * GIB  # never touched: a machine that does not grow keeps it
PATIENCE = 2.0  # seconds without growth after which nothing more is expected
LIMIT = 60  # seconds for all of it


def figures(path="/proc/meminfo"):
    """(MemTotal, MemAvailable) in bytes; zeros where that cannot be read."""
    found = {}
    try:
        for line in Path(path).read_text(encoding="ascii").splitlines():
            words = line.split()
            found[words[0].rstrip(":")] = int(words[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return found.get("MemTotal", 0), found.get("MemAvailable", 0)


def touch(wanted, read=figures, take=lambda: mmap.mmap(-1, PIECE, flags=mmap.MAP_PRIVATE | mmap.MAP_POPULATE)):
    """Takes pieces until there are enough, or the machine has no more to give. Returns what it took."""
    pieces = []
    largest, available = read()

    def has_more():
        nonlocal largest, available
        total, available = read()
        grown, largest = total > largest, max(total, largest)
        return grown or available > SPARE + PIECE

    while len(pieces) * PIECE < wanted and wait_until(has_more, PATIENCE):
        if available > SPARE + PIECE:
            pieces.append(take())
    return len(pieces) * PIECE


def grow(wanted=WANTED, limit=LIMIT):
    """Before and after: MemTotal; None where the machine has as much already, or does not say."""
    before = figures()[0]
    if not before or before >= wanted:
        return None
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, "-B", __file__, str(wanted)], timeout=limit, check=False)
    return {"total_bytes_before": before, "total_bytes_after": figures()[0]}


if __name__ == "__main__":
    with contextlib.suppress(OSError):  # the first that the kernel ends, should it run out of memory
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    touch(int(sys.argv[1]))
