"""What the tests of `spillway report` share: the program, pages read back, figures formatted a second time."""

import html.parser
import json
import os
import subprocess

BUILD = os.environ["SPILLWAY_BUILD"]
PROGRAM = os.path.join(BUILD, "bin", "spillway")
LIBRARY = os.path.join(BUILD, "lib", "vega.js")
UNITS = {
    "bytes": ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")),
    "bytes/s": ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1, "B/s")),
    "seconds": ((1, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "joules": ((3.6e6, "kWh"), (1e3, "kJ"), (1, "J")),
    "percent": ((1, "%"),), "days": ((1, "days"),), "money": ((1, ""),), "count": ((1, ""),),
}  # fmt: skip


def report(*arguments, program=PROGRAM):
    return subprocess.run([program, "report", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=100)


def figures(path, *options):
    """What --json prints, of a run that must succeed."""
    run = report(path, "--json", *options)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def is_shown(text, value, unit):
    """Whether `text` is `value` to within a rounding of its last place, by a reading of our own."""
    words = text.replace(",", "").split()
    if unit == "seconds" and len(words) == 4:
        lengths = {"d": 86400, "h": 3600, "min": 60, "s": 1}
        read = sum(int(number) * lengths[name] for number, name in zip(words[::2], words[1::2]))
        return abs(read - value) <= lengths[words[3]]
    name = words[1] if len(words) > 1 else ""
    factor = next(factor for factor, known in UNITS[unit] if known == name)
    number = words[0]
    places = len(number.split(".")[1]) if "." in number and "e" not in number else 0
    tolerance = max(0.51 * 10.0**-places, 0.06 * abs(float(number)) if abs(value) < 0.011 else 0)
    return abs(float(number) - value / factor) <= tolerance


class ReportPage(html.parser.HTMLParser):
    """A page's elements, figures, tables, charts and data."""

    EMPTY = ("meta", "link", "br", "hr")

    def __init__(self, path):
        super().__init__()
        self.elements, self.open, self.text = [], [], ""
        self.figures, self.absent, self.tables, self.charts, self.specs = {}, [], {}, [], {}
        self.data, self.table, self.figure = None, None, None
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag, attributes):
        known = dict(attributes)
        self.elements.append((tag, known))
        if tag not in self.EMPTY:
            self.open.append(tag)
        if "data-figure" in known:
            self.figure = known["data-figure"]
            self.figures[self.figure] = ""
        if "data-absent" in known:
            self.absent.append(known["data-absent"])
        if "data-chart" in known:
            self.charts.append(known["data-chart"])
        if "data-table" in known:
            self.table = self.tables.setdefault(known["data-table"], [])
        if tag == "tr":
            self.table.append([])
        if tag in ("td", "th"):
            self.table[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, (tag, self.open)
        self.figure = None

    def handle_data(self, data):
        inside = self.open[-1] if self.open else ""
        if self.figure:
            self.figures[self.figure] += data
        elif inside in ("td", "th"):
            self.table[-1][-1] += data
        elif inside == "script" and "figure" in self.open:
            self.specs[self.charts[-1]] = json.loads(data)
        elif inside == "script" and self.elements[-1][1].get("id") == "data":
            self.data = json.loads(data)
        if inside not in ("script", "style"):
            self.text += data
