"""The rows of a GPU session: one for each thing that was tried, written down as soon as it has ended.

A row's status is one of STATUSES. Nothing that the stand-in device cannot answer ever passes there: it says so.
"""

import contextlib
import io
import itertools
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
QUOTED = "quoted"  # a published figure: nothing was run
LEFT_OUT = "left out"  # no time was left
STATUSES = (PASSED, FAILED, MEASURED, NEEDS_HARDWARE, MISSING, QUOTED, LEFT_OUT)
LARGEST_LOG = 256 << 10  # of a log, its end is kept in the archive
LARGEST_ARCHIVE = 15 << 20
PACK_EVERY = 30  # seconds: what ends the session leaves an archive that is not older


class Rows:
    def __init__(self, stage, head, folders, logs, minutes, page=None):
        """folders: each gets the report, STAGE.json, and the archive, STAGE.tar.gz, of the files in the folder `logs`.
        page: makes a text of head and rows, which is STAGE.md beside the report and the end of the output."""
        self.stage, self.head, self.folders, self.logs, self.page = stage, head, dict.fromkeys(folders), logs, page
        self.start = self.packed = time.monotonic()
        self.end = self.start + minutes * 60
        self.rows = []
        self.failures = []  # names, and what runs them again
        for folder in self.folders:
            folder.mkdir(parents=True, exist_ok=True)
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
        if time.monotonic() - self.packed > PACK_EVERY:
            self.pack()
        return self.rows[-1]

    def judge(self, name, ended, status, words="", again=None, **figures):
        """The row of a command that ended so (visit_watch.Ended). One that the end of the session cut off is not judged. A failure
        that can be run `again` is, at the end: a hang costs too much to meet it twice before the rows behind it."""
        if ended.out_of_time:
            return self.add(name, LEFT_OUT, "no time", ended.seconds)
        if status == FAILED and again is not None:
            self.failures.append((name, again))
        return self.add(name, status, words, ended.seconds, **figures)

    def repeat(self):
        """Runs each failure again. These rows judge nothing. again(): what is wrong, empty for nothing, and how it ended."""
        for name, again in self.failures:
            with self.guarded(f"again: {name}"):
                problem, ended = again()
                self.judge(f"again: {name}", ended, MEASURED, problem or "it passes now")

    @contextlib.contextmanager
    def guarded(self, name):
        """An error of the session's own in here is a failed row with its traceback; the session goes on behind it."""
        try:
            yield
        except Exception as error:  # whatever it is: the rows behind it cost as much to come by
            self.add(name, FAILED, f"the session's own error: {type(error).__name__}: {error}"[:300],
                     traceback=traceback.format_exc().splitlines())  # fmt: skip

    def with_status(self, *statuses):
        return [row for row in self.rows if row["status"] in statuses]

    def text(self):
        whole = {"stage": self.stage, **self.head, "seconds": round(time.monotonic() - self.start, 1), "rows": self.rows}
        return json.dumps(whole, indent=1, default=str) + "\n"

    def write(self):
        """The whole report anew, as one replaced file: what ends the machine leaves the rows so far."""
        texts = {"json": self.text(), **({"md": self.page_text()} if self.page else {})}
        for folder, kind in itertools.product(self.folders, texts):
            part = folder / f"{self.stage}.part"
            try:
                part.write_text(texts[kind], encoding="utf-8")
                os.replace(part, folder / f"{self.stage}.{kind}")
            except OSError as error:  # a full disk, say: the rows are on standard output, and the next may be written again
                print(f"the report is not written: {error}", file=sys.stderr, flush=True)

    def page_text(self):
        """The page; where it cannot be made, why: the rows are worth more."""
        try:
            return self.page(self.head, self.rows)
        except Exception as error:
            return f"there is no page: {type(error).__name__}: {error}\n"

    def pack(self):
        """The report, the JSON files of the logs' folder and the ends of its logs in one archive; the newest, where not all fit."""
        self.packed = time.monotonic()
        for folder in self.folders:
            part = folder / f"{self.stage}.tar.part"
            try:
                self.pack_into(part)
                os.replace(part, folder / f"{self.stage}.tar.gz")
            except OSError as error:
                print(f"there is no archive: {error}", file=sys.stderr, flush=True)

    def pack_into(self, path):
        space = LARGEST_ARCHIVE
        found = []
        for each in self.logs.rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # a process that was left behind may replace its files
                if each.is_file() and each.suffix in (".log", ".json", ".txt", ".trace"):
                    found.append((each.suffix in (".json", ".trace"), each.stat().st_mtime, each))
        with tarfile.open(path, "w:gz") as archive:
            add_file(archive, "report.json", self.text().encode(), time.time())
            for whole, modified, each in sorted(found, reverse=True):
                content = end_of(each, None if whole else LARGEST_LOG)  # half a JSON file is none
                if content is None or len(content) > space:
                    continue
                add_file(archive, str(each.relative_to(self.logs)), content, modified)
                space -= len(content)

    def finish(self):
        """The summary and the archive; the exit status."""
        counts = {status: len(self.with_status(status)) for status in STATUSES}
        print(f"stage {self.stage}: " + ", ".join(f"{count} {status}" for status, count in counts.items() if count)
              + f", {time.monotonic() - self.start:.0f} s", flush=True)  # fmt: skip
        if self.page:
            print(self.page_text())
        for row in self.with_status(FAILED):
            print(f"PROBLEM  {row['row']}: {row.get('words', '')}")
        self.pack()
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
