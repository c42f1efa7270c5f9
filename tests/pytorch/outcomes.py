"""What became of each of PyTorch's tests, in each way of running it: read from its output, kept, compared.

Nothing here starts anything. An outcome is passed, skipped, failed, crashed (a signal, or an end without unittest's last
line) or timed out. Outcomes of one PyTorch and one way are lines of JSON in a file of their own.
"""

import contextlib
import dataclasses
import fnmatch
import json
import re
import signal

PASSED, SKIPPED, FAILED, CRASHED, TIMED_OUT = "passed", "skipped", "failed", "crashed", "timed out"
NATIVE = "native"


def last_error(text):
    """The line of an exception that a reader would quote, or the last line that says anything."""
    lines = [line.strip() for line in text.splitlines()]
    raised = [line for line in lines if re.match(r"[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt)\b", line)]
    said = [line for line in lines if line and not set(line) <= set("-=")]
    return (raised or said or ["no output"])[-1][:300]


def judge(status, timed_out, text):
    """(outcome, reason) of a test that ended with a status and printed text."""
    if timed_out:
        return TIMED_OUT, last_error(text)
    if status < 0:
        return CRASHED, f"{signal.Signals(-status).name}: {last_error(text)}"
    ends = re.findall(r"^(OK|FAILED|NO TESTS RAN)\b(.*)$", text, re.MULTILINE)
    word, rest = ends[-1] if ends else ("", "")
    if status == 0 and word == "OK":
        skipped = re.search(r"\.\.\. skipped ['\"](.*)['\"]$", text, re.MULTILINE)
        return (SKIPPED, skipped[1] if skipped else "") if "skipped=" in rest else (PASSED, "")
    if word == "FAILED":
        return FAILED, last_error(text[: text.rindex("FAILED")])
    return CRASHED, f"exit status {status}: {last_error(text)}"


def read(path):
    """Test -> its last record in the file."""
    if not path.is_file():
        return {}
    records = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(ValueError):  # half a line of a run that was killed
            record = json.loads(line)
            records[record["test"]] = record
    return records


def covers(row, *words):
    return all(fnmatch.fnmatchcase(word, pattern) for word, pattern in zip(words, row))


@dataclasses.dataclass
class Exceptions:
    """The rows of expected.txt: way, PyTorch, test, cause. Stars stand for anything in the first three."""

    rows: list
    used: set = dataclasses.field(default_factory=set)

    def cause(self, way, release, test):
        for row in self.rows:
            if covers(row, way, release, test):
                self.used.add(row)
                return row[3]
        return None

    def unneeded(self, release, ways):
        """Rows whose tests have run and that gave no cause: what they tell of does not happen any more."""
        ran = [(way, test) for way, records in ways.items() for test in records]
        return [row for row in self.rows if row not in self.used and any(covers(row, way, release, test) for way, test in ran)]


def read_exceptions(path):
    """ValueError for a row that is not of four parts."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.split(None, 3)
        if len(parts) != 4:
            raise ValueError(f"{path.name}: way, PyTorch, test and cause are wanted: {line}")
        rows.append(tuple(parts))
    return Exceptions(rows)


def differs(native, record):
    """Whether a test that passes or is skipped natively does something else in another way."""
    if native["outcome"] == PASSED:
        return record["outcome"] != PASSED
    return native["outcome"] == SKIPPED and record["outcome"] not in (SKIPPED, PASSED)


def compare(release, ways, exceptions):
    """ways: way -> test -> record, native first. Returns (test, way, outcome, reason, cause) of what needs a cause: what does
    not pass natively, and what passes natively and not with Spillway. Cause None: nobody has explained it."""
    found = []
    for way, records in ways.items():
        for test, record in sorted(records.items()):
            native = ways[NATIVE].get(test)
            if way == NATIVE:
                needs = record["outcome"] not in (PASSED, SKIPPED)
            else:
                needs = native is not None and differs(native, record)
            if needs:
                found.append((test, way, record["outcome"], record["reason"], exceptions.cause(way, release, test)))
    return found


LETTERS = {PASSED: "p", SKIPPED: "s", FAILED: "F", CRASHED: "C", TIMED_OUT: "T"}


def page(ways):
    """Lines with a letter for each way and the test, for docs/results; classes are headings."""
    lines, heading = [], ""
    for test in sorted(set().union(*ways.values())):
        group, _, method = test.rpartition(".")
        if group != heading:
            lines += ["", group]
            heading = group
        letters = [LETTERS[ways[way][test]["outcome"]] if test in ways[way] else "-" for way in ways]
        lines.append(" ".join([*letters, method]))
    return lines[1:]


def count(records):
    counts = {}
    for record in records.values():
        counts[record["outcome"]] = counts.get(record["outcome"], 0) + 1
    return counts
