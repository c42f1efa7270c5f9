"""What the first stage of a session measured besides the costs of calls, as a hardware profile of simcuda takes it: what loading
code takes and which lock it holds, and whether launches wait for the memory lock. Read from the rows of its report.
What is not there, or does not tell, stays as the other profile has it.
"""

import contextlib

LOADING, LATENCY, STALLS = "module loading ", "launch latency beside remapping", "calls beside one that waits"
LOAD = "cuModuleLoadData"
# A call that waits is told from one that is slow: the other is inside for so many times what this one takes at most.
TELLS = 10
WAITS = 0.5  # of the time that the other is inside
SLOWED, SAME = 5, 2  # p99 of launches beside a thread that holds the memory lock nearly always, to p99 alone


def figures_of(rows):
    """By name of the row, the figures of facts that were measured; on the stand-in those that it gave."""
    return {row["row"]: figures for row in rows for figures in [row.get("figures") or row.get("stand_in")] if isinstance(figures, dict)}


def loading_us(figures):
    """Least and most of loading a module, finding a function and launching it once, the device idle, over the modes; or None."""
    found = []
    for name, loaded in figures.items():
        if not name.startswith(LOADING):
            continue
        with contextlib.suppress(LookupError, TypeError):
            found += [row["load_us"] + row["find_us"] + row["first_launch_us"] for row in loaded["rows"] if not row["device_busy"]]
    return (min(found), max(found)) if found else None


def waited(stalls, call):
    """Whether the call waited while another thread was inside a module load; None where that cannot be told. A load compiles its
    text first, and may hold its lock for the rest alone: a call that is slower than usual may have waited for that."""
    beside, usual = stalls[LOAD][call], stalls["none"][call]["longest_us"]
    if not beside["calls"] or beside["inside_us"] < TELLS * usual:
        return None
    if beside["longest_us"] >= WAITS * beside["inside_us"]:
        return True
    return None if beside["longest_us"] >= TELLS * usual else False


def lock_of_loading(figures):
    """The lock that a module load holds, and words of what was seen; None where it cannot be told."""
    with contextlib.suppress(LookupError, TypeError):
        stalls = figures[STALLS]
        launches, remaps = waited(stalls, "cuLaunchKernel"), waited(stalls, "remap")
        if launches is None or remaps is None or (launches and remaps and launches_wait(figures) is False):
            return None
        words = ", ".join(f"a {name} {stalls[LOAD][call]['longest_us']:.0f} of {stalls[LOAD][call]['inside_us']:.0f} us"
                          for name, call in (("launch", "cuLaunchKernel"), ("remap", "remap")))  # fmt: skip
        return "memory" if remaps else "context" if launches else "nothing", words
    return None


def launches_wait(figures):
    """Whether a launch waits while another thread maps and unmaps; None where that cannot be told."""
    with contextlib.suppress(LookupError, TypeError):
        idle = [row for row in figures[LATENCY]["rows"] if not row["memory_bound_kernel"]]
        alone = next(row["p99_us"] for row in idle if row["handle_bytes"] == 0)
        # With the smallest handles the calls take longest.
        beside = min((row for row in idle if row["handle_bytes"]), key=lambda row: row["handle_bytes"])["p99_us"]
        if alone > 0:
            return True if beside >= SLOWED * alone else False if beside <= SAME * alone else None
    return None


def add(profile, rows, words):
    """Puts what was measured into the profile; `words` say where it was measured. Locks have no source: a note says it."""
    figures = figures_of(rows)
    load = profile["calls"][LOAD]
    took = loading_us(figures)
    if took is not None:
        low, high = (round(value, 4) for value in took)
        load["call_us"] = {"low": low, "high": high, "source": f"{words}; a small module, its first launch included, LAZY and EAGER"}
    lock = lock_of_loading(figures)
    if lock is not None:
        load["holds"] = lock[0]
        profile["notes"].append(f"Measured: {LOAD} holds {lock[0]} (beside it {lock[1]}).")
    wait = launches_wait(figures)
    if wait is not None:
        form = profile["measured"]["form"] = "wait" if wait else "pass"
        profile["notes"].append(f"Measured: launches {form}: run with SIMCUDA_HARDWARE_FORM={form}.")
