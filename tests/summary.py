"""One line for a run of ctest: what passed, failed and was skipped, how long it took, and where the logs are.

    summary.py JUNIT --name NAME --seconds N --logs TEXT [--times N]

JUNIT is the file that `ctest --output-junit` wrote. Skipped tests are named with their reason, failed ones with the
first lines of each failure, which a long log hides.
--times prints the N slowest tests before. The exit status is 0 where tests ran and none failed.
"""

import argparse
import re
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

LONGEST_REASON = 120  # characters of a skipped test's words
FAILURE_LINES = 12  # of one failure
MAX_FAILURES = 5  # of one test
# How GoogleTest, unittest and our jobs begin the words of a failure.
FAILURE = re.compile(r": Failure$|^(FAIL|ERROR): |^PROBLEM  ")
# How they begin what comes after them.
AFTER_FAILURE = re.compile(r"^\[ *[A-Z-]+ *\] |^=+$|^Ran \d+ tests? in ")


def outcomes(junit):
    """{"passed" | "failed" | "skipped": [(test, seconds, words)]}; a test that could not be started counts as failed.

    The words of a failed test are lines."""
    found = {"passed": [], "failed": [], "skipped": []}
    for case in xml.parse(junit).getroot().iter("testcase"):
        status = {"run": "passed", "notrun": "skipped", "disabled": "skipped"}.get(case.get("status"), "failed")
        skipped = case.find("skipped")
        if skipped is not None and skipped.get("message", "").startswith("Unable to find executable"):
            status = "failed"
        output = (case.findtext("system-out") or "").strip().splitlines()
        if status == "failed":
            found[status].append((case.get("name"), float(case.get("time") or 0), failures(output)))
            continue
        said = [line for line in output if line.startswith("skipped: ")]  # the reason, where a program gives it
        said += [line for line in output if "skip" in line.lower() or "not installed" in line] or output[-1:]
        words = said[0] if said else ""
        found[status].append((case.get("name"), float(case.get("time") or 0), words.strip()[:LONGEST_REASON]))
    return found


def failures(output):
    """The lines of a failed test that say what failed; its last ones where it says so in no known form."""
    begins = [number for number, line in enumerate(output) if FAILURE.search(line)]
    shown = []
    for begin, following in zip(begins[:MAX_FAILURES], begins[1:] + [len(output)], strict=False):
        words = output[begin : min(following, begin + FAILURE_LINES)]
        ends = [number for number, line in enumerate(words) if number and AFTER_FAILURE.search(line)]
        shown += words[: ends[0]] if ends else words
    if len(begins) > MAX_FAILURES:
        shown.append(f"({len(begins) - MAX_FAILURES} more failures)")
    return shown or output[-FAILURE_LINES:]


def minutes(seconds):
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.1f} min"


def lines(found, name, seconds, logs, times=0):
    every = sorted((test for tests in found.values() for test in tests), key=lambda test: -test[1])
    for test, taken, _ in every[:times]:
        yield f"{taken:8.1f} s  {test}"
    for test, _, words in found["skipped"]:
        yield f"skipped: {test}: {words}"
    for test, _, words in found["failed"]:
        yield f"FAILED: {test}"
        yield from (f"    {line}" for line in words)
    counts = ", ".join(f"{len(found[kind])} {kind}" for kind in ("passed", "failed", "skipped"))
    yield f"{name}: {counts}; {minutes(seconds)}; logs: {logs}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("junit", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--logs", required=True)
    parser.add_argument("--times", type=int, default=0)
    args = parser.parse_args()
    found = outcomes(args.junit) if args.junit.is_file() else {"passed": [], "failed": [], "skipped": []}
    for line in lines(found, args.name, args.seconds, args.logs, args.times):
        print(line)
    sys.exit(0 if found["passed"] and not found["failed"] else 1)


if __name__ == "__main__":
    main()
