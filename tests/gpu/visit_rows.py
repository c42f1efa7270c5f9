"""The rows of a visit: one for each thing that was tried, written down as soon as it has ended.

A row's status is one of STATUSES. Nothing that the stand-in device cannot answer ever passes there: it says so.
"""

import io
import json
import os
import tarfile
import time

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

    def with_status(self, *statuses):
        return [row for row in self.rows if row["status"] in statuses]

    def write(self):
        """The whole report anew, as one replaced file: what ends the machine leaves the rows so far."""
        whole = {"stage": self.stage, **self.head, "seconds": round(time.monotonic() - self.start, 1), "rows": self.rows}
        part = self.report.with_suffix(".part")
        part.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
        os.replace(part, self.report)

    def pack(self, folder):
        """The report, the JSON files of `folder` and the ends of its logs in one archive; the newest, where not all fit."""
        space = LARGEST_ARCHIVE
        found = [path for path in folder.rglob("*") if path.is_file() and path.suffix in (".log", ".json", ".txt")]
        found.sort(key=lambda path: (path.suffix == ".json", path.stat().st_mtime), reverse=True)
        with tarfile.open(self.archive, "w:gz") as archive:
            archive.add(self.report, arcname="report.json")
            for path in found:
                content = path.read_bytes()
                if path.suffix != ".json":  # half a JSON file is none
                    content = content[-LARGEST_LOG:]
                if len(content) > space:
                    continue
                info = tarfile.TarInfo(str(path.relative_to(folder)))
                info.size, info.mtime = len(content), int(path.stat().st_mtime)
                archive.addfile(info, io.BytesIO(content))
                space -= len(content)

    def finish(self):
        """The summary; the exit status."""
        counts = {status: len(self.with_status(status)) for status in STATUSES}
        print(f"stage {self.stage}: " + ", ".join(f"{count} {status}" for status, count in counts.items() if count)
              + f", {time.monotonic() - self.start:.0f} s", flush=True)  # fmt: skip
        for row in self.with_status(FAILED):
            print(f"PROBLEM  {row['row']}: {row.get('words', '')}")
        return 1 if counts[FAILED] else 3 if counts[LEFT_OUT] else 0
