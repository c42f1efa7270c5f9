"""The rows of a visit: one for each thing that was tried, written down as soon as it has ended.

A row's status is one of STATUSES. Nothing that the stand-in device cannot answer ever passes there: it says so.
"""

import contextlib
import io
import json
import os
import sys
import tarfile
import time
import traceback

PASSED, FAILED = "passed", "failed"
MEASURED = "measured"  # figures that decide nothing
NEEDS_HARDWARE = "needs hardware"  # it ran on the stand-in, which cannot answer
MISSING = "missing"  # a package or library is not there
LEFT_OUT = "left out"  # no time was left
STATUSES = (PASSED, FAILED, MEASURED, NEEDS_HARDWARE, MISSING, LEFT_OUT)
LARGEST_LOG = 256 << 10  # of a log, its end is kept in the archive
LARGEST_ARCHIVE = 15 << 20


class Rows:
    def __init__(self, stage, head, report, archive, minutes):
        self.stage, self.head, self.report, self.archive = stage, head, report, archive
        self.end = time.monotonic() + minutes * 60
        self.start = time.monotonic()
        self.rows = []
        for path in (report, archive):
            path.parent.mkdir(parents=True, exist_ok=True)
        self.write()

    def left(self):
        return self.end - time.monotonic()

    def add(self, name, status, words="", seconds=None, **figures):
        if status not in STATUSES:
            raise ValueError(f"{status} is no status of a row")
        row = {"row": name, "status": status}
        row.update({"words": words} if words else {}, **({"seconds": round(seconds, 1)} if seconds is not None else {}))
        self.rows.append({**row, **figures})
        print(f"{status:>14}  {name}{': ' + words if words else ''}", flush=True)
        self.write()
        return self.rows[-1]

    def judge(self, name, ended, status, words="", **figures):
        """The row of a command that ended so (visit_watch.Ended). One that the end of the visit cut off is not judged."""
        if ended.out_of_time:
            return self.add(name, LEFT_OUT, "no time", ended.seconds)
        return self.add(name, status, words, ended.seconds, **figures)

    @contextlib.contextmanager
    def guarded(self, name):
        """An error of the visit's own in here is a failed row with its traceback; the visit goes on behind it."""
        try:
            yield
        except Exception as error:  # whatever it is: the rows behind it cost as much to come by
            self.add(name, FAILED, f"the visit's own error: {type(error).__name__}: {error}"[:300],
                     traceback=traceback.format_exc().splitlines())  # fmt: skip

    def with_status(self, *statuses):
        return [row for row in self.rows if row["status"] in statuses]

    def text(self):
        whole = {"stage": self.stage, **self.head, "seconds": round(time.monotonic() - self.start, 1), "rows": self.rows}
        return json.dumps(whole, indent=1, default=str) + "\n"

    def write(self):
        """The whole report anew, as one replaced file: what ends the machine leaves the rows so far."""
        part = self.report.with_suffix(".part")
        try:
            part.write_text(self.text(), encoding="utf-8")
            os.replace(part, self.report)
        except OSError as error:  # a full disk, say: the rows are on standard output, and the next may be written again
            print(f"the report is not written: {error}", file=sys.stderr, flush=True)

    def pack(self, folder):
        """The report, the JSON files of `folder` and the ends of its logs in one archive; the newest, where not all fit."""
        space = LARGEST_ARCHIVE
        found = []
        for path in folder.rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # a process that was left behind may replace its files
                if path.is_file() and path != self.report and path.suffix in (".log", ".json", ".txt"):
                    found.append((path.suffix == ".json", path.stat().st_mtime, path))
        with tarfile.open(self.archive, "w:gz") as archive:
            add_file(archive, "report.json", self.text().encode(), time.time())
            for whole, modified, path in sorted(found, reverse=True):
                content = end_of(path, None if whole else LARGEST_LOG)  # half a JSON file is none
                if content is None or len(content) > space:
                    continue
                add_file(archive, str(path.relative_to(folder)), content, modified)
                space -= len(content)

    def finish(self):
        """The summary; the exit status."""
        counts = {status: len(self.with_status(status)) for status in STATUSES}
        print(f"stage {self.stage}: " + ", ".join(f"{count} {status}" for status, count in counts.items() if count)
              + f", {time.monotonic() - self.start:.0f} s", flush=True)  # fmt: skip
        for row in self.with_status(FAILED):
            print(f"PROBLEM  {row['row']}: {row.get('words', '')}")
        return 1 if counts[FAILED] else 3 if counts[LEFT_OUT] else 0


def end_of(path, most):
    """The last bytes of a file, or all; None where it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(0 if most is None else max(0, os.fstat(file.fileno()).st_size - most))
            return file.read(-1 if most is None else most)
    except OSError:
        return None


def add_file(archive, name, content, modified):
    info = tarfile.TarInfo(name)
    info.size, info.mtime = len(content), int(modified)
    archive.addfile(info, io.BytesIO(content))
