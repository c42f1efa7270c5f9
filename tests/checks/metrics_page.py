"""Checks that docs/metrics.md and spillway/stats_types.py have the rows of counters.def and job_metrics.def. --update writes them.

A table of the page, or a list of a class, stands between marks that name it. Also: the rows of one metric stand together, a
metric of several rows has words of its own, and a counter's name, and no other's, ends in _total.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import common

COUNTERS = Path("allocator/residency/state/counters.def")
FIGURES = Path("integration/report/job_metrics.def")
PAGE = Path("docs/metrics.md")
TYPES = Path("integration/python/spillway/stats_types.py")
HEAD = ["| key | meaning | Prometheus |", "|---|---|---|"]
TEXT = r'"(?:[^"\\]|\\.)*"'
TEXTS = rf"{TEXT}(?:\s+{TEXT})*"
WORD, EXPRESSION = r"(\w+)", r"([\w.]+(?:\([\w., ]*\))?)"
# Kind of a row -> the form of what stands before its metric and help.
FORMS = {
    "GAUGE": WORD, "MACHINE_GAUGE": WORD, "COUNTER": rf"{WORD}, {WORD}", "SUM": rf"{WORD}, {WORD}",
    "SECONDS": rf"{WORD}, ({TEXT}), {WORD}", "DEVICE_METRIC": WORD, "PROCESS_METRIC": WORD, "DISK_METRIC": WORD,
    "BUDGET_METRIC": WORD, "ITERATION_METRIC": rf"{WORD}, {WORD}, {EXPRESSION}",
    "DIRECTORY_METRIC": rf"{WORD}, {WORD}, {EXPRESSION}", "PAUSE_METRIC": rf"{WORD}, {WORD}, {EXPRESSION}",
}  # fmt: skip
GROWS = {"COUNTER", "SUM", "SECONDS"}
# Table of the page -> the kinds of its rows. Classes of stats_types.py are named apart.
TABLES = {
    "residency": ("GAUGE", "MACHINE_GAUGE", "COUNTER", "SUM", "SECONDS"), "process": ("DISK_METRIC", "BUDGET_METRIC", "PROCESS_METRIC"),
    "device": ("DEVICE_METRIC",), "iteration": ("ITERATION_METRIC",), "directories": ("DIRECTORY_METRIC",), "pause": ("PAUSE_METRIC",),
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    kind: str
    key: str  # "outer.inner" of an inner object
    type: str
    share: str
    metric: str
    help: str

    def name(self):
        return self.metric.partition(" ")[0]

    def label(self):
        return self.metric.partition(" ")[2]


def joined(texts):
    return "".join(re.sub(r"\\(.)", r"\1", text[1:-1]) for text in re.findall(TEXT, texts))


def row_of(kind, fields, metric, text):
    key = {"SECONDS": lambda: joined(fields[1]), "DISK_METRIC": lambda: f"disk_{fields[0]}"}.get(kind, lambda: fields[0])()
    if kind.endswith("_METRIC"):
        share, kind_of_value = "", fields[1] if len(fields) == 3 else "int"
    else:
        share, kind_of_value = fields[-1] if kind in GROWS else "TOTAL", "float" if kind == "SECONDS" else "int"
    return Row(kind, key, kind_of_value, share, joined(metric), joined(text))


def rows_of(text):
    """The rows in their order, and how many calls of their macros there are."""
    rows, calls = [], 0
    body = re.sub(r"^(//|#).*$", "", text, flags=re.MULTILINE)
    for call in re.finditer(r"^([A-Z_]+)\(", body, re.MULTILINE):
        if call[1] not in FORMS:
            continue
        calls += 1
        found = re.compile(rf"{call[1]}\({FORMS[call[1]]},\s+({TEXT}),\s+({TEXTS})\)$", re.MULTILINE).match(
            re.sub(r",\n +", ", ", body[call.start() : body.find(")\n", call.start()) + 2])
        )
        if found:
            *fields, metric, words = found.groups()
            rows.append(row_of(call[1], fields, metric, words))
    return rows, calls


def words_of(text):
    return {joined(name): joined(words) for name, words in re.findall(rf"^METRIC\(({TEXT}),\s+({TEXTS})\)$", text, re.MULTILINE)}


def line(row):
    outer, _, inner = row.key.partition(".")
    key = f"`{outer}`" + (f", {inner}" if inner else "")
    label = f" `{row.label()}`" if row.label() else ""
    return f"| {key} | {row.help} | {f'`{row.name()}`{label}' if row.metric else '-'} |"


def table(rows, name):
    return ["", *HEAD, *(line(row) for row in rows if row.kind in TABLES[name]), ""]


def fields(rows):
    """Lines of a class: the keys, those of an inner object as a class of its name."""
    lines = []
    for row in rows:
        outer, _, inner = row.key.partition(".")
        kind = "".join(part.title() for part in outer.split("_")) if inner else row.type
        if (text := f"    {outer}: {kind}") not in lines:
            lines.append(text)
    return lines


def inner_fields(rows, outer):
    return [f"    {row.key.partition('.')[2]}: {row.type}" for row in rows if row.key.startswith(f"{outer}.")]


def blocks(rows):
    """Path -> name of a marked part -> its lines."""
    residency = [row for row in rows if row.kind in TABLES["residency"]]
    lists = {name: fields(row for row in rows if row.kind in kinds) for name, kinds in TABLES.items()}
    lists["share of an iteration"] = fields(row for row in residency if row.share == "PER_ITERATION")
    lists |= {outer: inner_fields(residency, outer) for outer in ("stall_seconds", "lost_seconds")}
    lists["write budget"] = fields(row for row in rows if row.kind == "BUDGET_METRIC")
    lists["process"] = fields(row for row in rows if row.kind in ("DISK_METRIC", "PROCESS_METRIC"))
    return {PAGE: {name: table(rows, name) for name in TABLES}, TYPES: lists}


def marks(path, name):
    return (f"<!-- {name}: begin -->", f"<!-- {name}: end -->") if path.suffix == ".md" else (f"    # {name}: begin", f"    # {name}: end")


def place(lines, path, name):
    """First and last index of the lines between the marks; None where they are not there."""
    begin, end = marks(path, name)
    return (lines.index(begin) + 1, lines.index(end)) if begin in lines and end in lines else None


def row_problems(rows, words):
    last_of = {}
    for index, row in enumerate(rows):
        if not row.metric:
            continue
        if row.name() in last_of and last_of[row.name()] != index - 1:
            yield f"{row.name()}: its rows do not stand together"
        last_of[row.name()] = index
        if bool(row.label()) != (row.name() in words):
            yield f"{row.name()}: a metric has words of its own (METRIC) where it has labels, and only there"
        if row.kind in GROWS and not row.name().endswith("_total"):
            yield f"{row.name()}: grows, so its name ends in _total"
        if "GAUGE" in row.kind and row.name().endswith("_total"):
            yield f"{row.name()}: does not grow, so its name does not end in _total"


def read_rows(root):
    rows, words, problems = [], {}, []
    for path in (COUNTERS, FIGURES):
        text = common.read(root, path)
        found, calls = rows_of(text)
        if len(found) != calls:
            problems.append(f"{path}: {calls - len(found)} row(s) have not the form that the head of the file says")
        rows, words = rows + found, words | words_of(text)
    return rows, problems + list(row_problems(rows, words))


def find_problems(root):
    rows, problems = read_rows(root)
    for path, parts in blocks(rows).items():
        lines = common.read(root, path).split("\n")
        for name, wanted in parts.items():
            at = place(lines, path, name)
            if at is None:
                problems.append(f"{path}: the marks of {name} are not there")
            elif lines[at[0] : at[1]] != wanted:
                problems.append(f"{path}: {name} differs from {COUNTERS.name} and {FIGURES.name}; --update writes it")
    return problems


def update(root):
    rows, _ = read_rows(root)
    for path, parts in blocks(rows).items():
        lines = common.read(root, path).split("\n")
        for name, wanted in parts.items():
            if at := place(lines, path, name):
                lines[at[0] : at[1]] = wanted
        (root / path).write_text("\n".join(lines), encoding="utf-8")


def main(args):
    if args.update:
        update(args.root)
    return find_problems(args.root)


if __name__ == "__main__":
    common.run_check(__doc__, main, [("--update", {"action": "store_true", "help": "write the tables"})])
