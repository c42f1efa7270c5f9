"""How busy a machine is, for tests that say how long something may take. Also for scripts of jobs: it changes nothing."""

import time


def slowdown():
    """How much longer a computation takes here and now than on a processor of its own."""
    start, used = time.monotonic(), time.process_time()
    while time.process_time() - used < 0.3:
        pass
    return max(1.0, (time.monotonic() - start) / (time.process_time() - used))


def in_time(seconds, limit):
    """Whether something took at most `limit` seconds of a processor of its own; asked right after it."""
    return seconds <= limit or seconds <= limit * slowdown()
