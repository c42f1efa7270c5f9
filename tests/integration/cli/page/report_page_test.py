"""The page of `spillway report` in Chromium, without a network: it asks for nothing, complains about nothing, draws every
chart, shows what --json says, fits narrow and wide windows, and its print loses nothing.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import chromium  # noqa: E402
import report_samples  # noqa: E402
from report_helpers import LIBRARY, figures, report  # noqa: E402
from simulate_helpers import simulate  # noqa: E402

DRAWN = "document.documentElement.dataset.drawn == 'yes'"
# Marks of each chart that have a size, and what lies outside of the chart's own picture.
MARKS = """
Object.fromEntries([...document.querySelectorAll('figure[data-chart]')].map(figure => {
  const svg = figure.querySelector('svg'), frame = svg.getBoundingClientRect();
  const marks = [...svg.querySelectorAll('.role-mark:not(.mark-text) path, .role-mark line')]
    .filter(mark => { const box = mark.getBoundingClientRect(); return box.width > 0 || box.height > 0; });
  const outside = [...svg.querySelectorAll('text')].filter(text => text.textContent && text.getBoundingClientRect().width > 0)
    .filter(text => { const box = text.getBoundingClientRect();
                      return box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1; })
    .map(text => text.textContent);
  return [figure.dataset.chart, {marks: marks.length, outside, width: frame.width, height: frame.height}];
}))
"""
# Labels of one axis that lie on each other.
COLLISIONS = """
[...document.querySelectorAll('svg .role-axis-label')].flatMap(axis => {
  const boxes = [...axis.querySelectorAll('text')].filter(one => one.getAttribute('opacity') != '0' && one.textContent)
    .map(one => [one.textContent, one.getBoundingClientRect()]);
  return boxes.slice(1).filter(([, box], i) => { const before = boxes[i][1];
    return box.left < before.right - 1 && before.left < box.right - 1 && box.top < before.bottom - 3 && before.top < box.bottom - 3;
  }).map(([text], i) => text);
})
"""
SHOWN = "Object.fromEntries([...document.querySelectorAll('[data-figure]')].map(one => [one.dataset.figure, one.innerText]))"
WIDTHS = "[document.documentElement.scrollWidth, innerWidth]"
LUMINANCE = """
(() => { const read = one => getComputedStyle(document.body)[one].match(/[0-9]+/g).slice(0, 3).map(Number).reduce((a, b) => a + b);
         return [read('backgroundColor'), read('color')]; })()
"""


# Text that is smaller than 9 px as it is seen: a chart's picture may be shown smaller than it was drawn.
SMALL_TEXT = """
(() => {
  const small = [], nodes = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (nodes.nextNode()) {
    const text = nodes.currentNode.textContent.trim(), element = nodes.currentNode.parentElement;
    if (!text || element.closest('script, style, noscript') || element.getBoundingClientRect().width == 0) continue;
    const svg = element.closest('svg');
    const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
    const size = parseFloat(getComputedStyle(element).fontSize) * scale;
    if (size < 9) small.push([text, size]);
  }
  return small;
})()
"""
LEAST_HEIGHT = 7.8  # points of a line of 9 px on paper, in the pages' font


def squeezed(text):
    return re.sub(r"\s+", "", text)


class ReportPageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.browser = chromium.Chromium()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.scratch.cleanup()

    def made(self, name):
        """Paths of a sample and of its page; of several files that of their folder."""
        if name in report_samples.SEVERAL:
            return self.made_of_several(name)
        data = os.path.join(self.scratch.name, name + ".json")
        page = os.path.join(self.scratch.name, name + ".html")
        if not os.path.exists(page):
            report_samples.write(self.scratch.name, name)
            run = report(data, "--price-per-kwh", "0.3")
            self.assertEqual(run.returncode, 0, run.stderr)
        return data, page

    def made_of_several(self, name):
        folder, page = os.path.join(self.scratch.name, name), os.path.join(self.scratch.name, name + ".html")
        if not os.path.exists(page):
            os.mkdir(folder)
            report_samples.write_all(folder, report_samples.SEVERAL[name]())
            run = report(folder, "--output", page, "--price-per-kwh", "0.3")
            self.assertEqual(run.returncode, 0, run.stderr)
        return folder, page

    def open(self, name, **how):
        data, page = self.made(name)
        seconds = self.browser.open(page, done=DRAWN, **how)
        self.assertEqual(self.browser.requests, ["file://" + page])
        self.assertEqual(self.browser.problems, [])
        return data, page, seconds

    def test_every_page_asks_for_nothing_and_draws_every_chart(self):
        for name in report_samples.SAMPLES:
            data, _, seconds = self.open(name)
            self.assertLess(seconds, 20, name)
            sections = figures(data, "--price-per-kwh", "0.3")["sections"].values()
            charts = self.browser.evaluate(MARKS)
            self.assertEqual(sorted(charts), sorted(key for section in sections for key in section["charts"]), name)
            for key, chart in charts.items():
                self.assertGreaterEqual(chart["marks"], 2, (name, key, chart))
                self.assertEqual(chart["outside"], [], (name, key))
                self.assertGreater(chart["width"], 250, (name, key))
            expected = {key: one["shown"] for section in sections for key, one in section["figures"].items() if "value" in one}
            self.assertEqual(self.browser.evaluate(SHOWN), expected, name)

    def test_the_page_of_a_sweep_draws_its_charts_also_with_gaps(self):
        page = os.path.join(self.scratch.name, "sweep.html")
        run = simulate("llama3-8b:layers=1", "--sweep", "gpu-memory=1GiB:41GiB:8GiB", "--sweep", "ssd=1e9:3e9:1e9", "--html", page)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("cannot run", run.stdout)
        self.browser.open(page, done=DRAWN)
        self.assertEqual((self.browser.requests, self.browser.problems), (["file://" + page], []))
        charts = self.browser.evaluate(MARKS)
        self.assertEqual(sorted(charts), ["sweep_0_moved", "sweep_0_speed", "sweep_1_moved", "sweep_1_speed"])
        for key, chart in charts.items():
            self.assertGreaterEqual(chart["marks"], 4, (key, chart))
            self.assertEqual(chart["outside"], [], key)

    def test_narrow_and_wide_light_and_dark(self):
        for width, dark in ((360, False), (900, True), (1600, False)):
            self.open("small", width=width, dark=dark)
            scroll, window = self.browser.evaluate(WIDTHS)
            self.assertLessEqual(scroll, window, width)
            self.assertEqual(self.browser.evaluate(COLLISIONS), [], width)
            self.assertEqual([key for key, chart in self.browser.evaluate(MARKS).items() if chart["outside"]], [], width)
            page, ink = self.browser.evaluate(LUMINANCE)
            self.assertEqual(page < ink, dark)

    def test_pages_of_several_files_fit_and_can_be_read(self):
        for name in ("run", *report_samples.SEVERAL):
            for width, dark in ((1280, False), (1280, True), (400, False), (400, True)):
                data, _, _ = self.open(name, width=width, dark=dark)
                scroll, window = self.browser.evaluate(WIDTHS)
                self.assertLessEqual(scroll, window, (name, width))
                self.assertEqual(self.browser.evaluate(SMALL_TEXT), [], (name, width))
                self.assertEqual(self.browser.evaluate(COLLISIONS), [], (name, width))
                charts = self.browser.evaluate(MARKS)
                self.assertEqual({key: one["outside"] for key, one in charts.items() if one["outside"]}, {}, (name, width))
                page, ink = self.browser.evaluate(LUMINANCE)
                self.assertEqual(page < ink, dark)
            sections = figures(data)["sections"].values()
            self.assertEqual(sorted(charts), sorted(key for section in sections for key in section["charts"]), name)

    def test_the_print_is_the_same_whatever_the_window_was(self):
        """Drawn for the paper: from a wide window letters would come out too small, from a narrow one charts half as wide."""
        for name in ("run", *report_samples.SEVERAL):
            boxes = []
            for width in (400, 1280):
                _, page, _ = self.open(name, width=width)
                self.browser.print(page + ".pdf")
                read = subprocess.run(["pdftotext", "-bbox", page + ".pdf", "-"], capture_output=True, text=True, check=True).stdout
                words = re.findall(r'<word xMin="([\d.]+)" yMin="([\d.]+)" xMax="([\d.]+)" yMax="([\d.]+)">([^<]{2,})<', read)
                boxes.append(sorted((word, round(float(bottom) - float(top), 1)) for _, top, _, bottom, word in words))
                upright = [(word, height) for word, height in boxes[-1] if not re.fullmatch(r"[A-Za-z/]+", word)]
                self.assertGreater(min(height for _, height in upright), LEAST_HEIGHT, name)
                self.assertEqual(self.browser.evaluate(WIDTHS)[0], width, "it is drawn for the window again")
                self.assertEqual(self.browser.evaluate(SMALL_TEXT), [], (name, width))
            self.assertEqual(*boxes)

    def test_the_browser_sees_what_a_page_asks_for_and_complains_about(self):
        page = os.path.join(self.scratch.name, "bad.html")
        with open(page, "w", encoding="utf-8") as file:
            file.write("<img src='http://127.0.0.1:9/x.png'><script>console.error('first'); throw new Error('second')</script>")
        self.browser.open(page)
        self.assertIn("http://127.0.0.1:9/x.png", self.browser.requests)
        for words in ("first", "second"):
            self.assertTrue(any(words in problem for problem in self.browser.problems), self.browser.problems)

    def test_names_run_no_script(self):
        self.open("hostile")
        self.assertIn("</script>", self.browser.evaluate("document.title"))
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('img, figure svg script').length"), 0)

    def test_the_print_cuts_nothing(self):
        for name in ("run", "hostile", *report_samples.SEVERAL):
            data, page, _ = self.open(name)
            pdf = page.replace(".html", ".pdf")
            self.browser.print(pdf)
            text = squeezed(subprocess.run(["pdftotext", "-layout", pdf, "-"], capture_output=True, text=True, check=True).stdout)
            raw = squeezed(subprocess.run(["pdftotext", "-raw", pdf, "-"], capture_output=True, text=True, check=True).stdout)
            model = figures(data, "--price-per-kwh", "0.3")
            wanted = [*model["verdict"]]
            for section in model["sections"].values():
                wanted += [section["heading"], *section["words"], *section["missing"]]
                wanted += [one["shown"] for one in section["figures"].values() if "value" in one]
                wanted += [cell["shown"] for table in section["tables"].values() for row in table["rows"] for cell in row]
            wanted = [re.sub("[\x00-\x1f]", "�", words) for words in wanted]
            lost = [words for words in wanted if squeezed(words) not in text and squeezed(words) not in raw]
            self.assertEqual([words for words in lost if len(words) < 60], [], name)  # longer ones are broken over columns
            box = subprocess.run(["pdftotext", "-bbox", pdf, "-"], capture_output=True, text=True, check=True).stdout
            pages = re.findall(r'<page width="([\d.]+)" height="([\d.]+)">', box)
            self.assertGreaterEqual(len(pages), 2 if name == "pair" else 3)
            self.assertLessEqual(len(pages), 14)
            right, bottom = (max(float(value) for value in re.findall(rf'{side}="([\d.]+)"', box)) for side in ("xMax", "yMax"))
            self.assertLessEqual(right, float(pages[0][0]) - 20, name)
            self.assertLessEqual(bottom, float(pages[0][1]) - 20, name)


if __name__ == "__main__":
    for needed, there in (("Chromium", chromium.PROGRAM), ("pdftotext", shutil.which("pdftotext")), (LIBRARY, os.path.isfile(LIBRARY))):
        if not there:
            print(f"skipped: {needed} is not there", file=sys.stderr)
            sys.exit(77)
    unittest.main()
