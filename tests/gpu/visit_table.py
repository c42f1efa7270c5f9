"""The table of a GPU session as a page of Markdown: other people's code that saves GPU memory beside none, in the same memory."""

GIB = 1 << 30
HEAD = ("job", "how", "s an iteration", "times native", "times the peer", "GPU memory", "of native", "native's bits")
NOTE = """\
Seconds of an iteration: the median of the last half. GPU memory: what the job held of the driver at most, without the context;
`as torchao`: in the memory that torchao needed; `as published`: in the share that was published. Peers change the script by hand,
Spillway's job is the native script. Weights and data are random, all kernels deterministic. `quoted`: published, not run here."""


def page(head, rows):
    machine = head.get("machine", {})
    words = [row.get("words", "") for row in rows if row["row"] == "device"]
    words += [str(machine.get(key)).strip() for key in ("nvidia_smi", "platform") if machine.get(key)]
    words += [f"Python {machine.get('python')}, torch {machine.get('packages', {}).get('torch')}", *machine.get("wheels", [])]
    lines = ["| " + " | ".join(HEAD) + " |", "|---" * len(HEAD) + "|", *lines_of(rows)]
    words += ["the stand-in: its times say nothing"] if machine.get("device") == "simcuda" else []
    return "\n".join([*lines, "", NOTE, "", "; ".join(words), "",
                      "`tests/gpu/visit.sh " + " ".join(map(str, head.get("arguments", []))) + "`", ""])  # fmt: skip


def lines_of(rows):
    native, peers = {}, {}
    jobs = {row["row"].removesuffix(": uncapped") for row in rows if row["row"].endswith(": uncapped")}
    for row in rows:
        job, _, how = row["row"].partition(": ")
        if job not in jobs:
            continue
        if how == "uncapped" and "iteration_s" in row:
            native[job] = row
        if "iteration_s" in row and "way" not in row:
            peers[job, how] = row
        yield line(job, how, row, native.get(job), peers)


def line(job, how, row, native, peers):
    """Of one row."""
    quoted, way = row.get("quoted"), row.get("way")
    if quoted:
        cells = (how, quoted["seconds"], quoted["times"], "-", quoted["memory"], f"{quoted['share']:.2f}", f"quoted: {quoted['source']}")
    elif "iteration_s" not in row or native is None:
        cells = (how, *("-",) * 5, f"{row['status']}: {row.get('words', '')[:100]}".replace("|", "/"))
    else:
        peer = peers.get((job, way["beside"])) if way else None
        seconds, peak = row["iteration_s"], row.get("peak_bytes") or 0
        bits = "-" if row is native else "yes" if row.get("equal") else "NO" if row["status"] == "failed" else "no"
        cells = ("native, uncapped" if row is native else f"Spillway, no code, as {way['beside']}" if way else how, f"{seconds:.3f}",
                 f"{seconds / native['iteration_s']:.2f}", f"{seconds / peer['iteration_s']:.2f}" if peer else "-",
                 f"{peak / GIB:.2f} GiB", f"{peak / native['peak_bytes']:.2f}", bits)  # fmt: skip
    return "| " + " | ".join((job, *cells)) + " |"
