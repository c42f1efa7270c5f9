"""Chromium without a window, by its DevTools protocol over two pipes: pages opened from a file, looked at and printed.

For tests of pages. It keeps everything that a page asked for and complained about.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "fakes"))

from wait_until import wait_until  # noqa: E402  (the path comes first)

PROGRAM = shutil.which("chromium")
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
         "--host-resolver-rules=MAP * ~NOTFOUND", "--remote-debugging-pipe", "--force-color-profile=srgb"]  # fmt: skip
PATIENCE_S = 60


class Chromium:
    """One browser with one page. A call that is not answered in time raises TimeoutError."""

    def __init__(self):
        # Its processes may write into it a little longer than it lives.
        self.home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.read_here, write = os.pipe()
        read, self.write_here = os.pipe()
        # Descriptors 3 and 4 are what the browser reads and writes; from 10 on they are not in each other's way.
        read_there, write_there = (fcntl.fcntl(one, fcntl.F_DUPFD, 10) for one in (read, write))
        command = [PROGRAM, *FLAGS, f"--user-data-dir={self.home.name}", "about:blank"]
        shell = f'exec 3<&{read_there} 4>&{write_there} {read_there}<&- {write_there}>&-; exec "$@"'
        self.process = subprocess.Popen(["bash", "-c", shell, "bash", *command], pass_fds=(read_there, write_there),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        for one in (read, write, read_there, write_there):
            os.close(one)
        self.buffer, self.number, self.session = b"", 0, None
        self.requests, self.problems = [], []
        target = next(one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def close(self):
        self.session = None
        self.call("Browser.close")
        self.process.wait(PATIENCE_S)
        os.close(self.read_here)
        os.close(self.write_here)
        self.home.cleanup()

    def _message(self, end):
        while b"\0" not in self.buffer:
            if not select.select([self.read_here], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("Chromium did not answer")
            more = os.read(self.read_here, 1 << 20)
            if not more:
                raise TimeoutError("Chromium has ended")
            self.buffer += more
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def _keep(self, message):
        what, values = message.get("method"), message.get("params", {})
        if what == "Network.requestWillBeSent" and not values["request"]["url"].startswith("data:"):
            self.requests.append(values["request"]["url"])
        elif what == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(values["exceptionDetails"]))
        elif what == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning", "assert"):
            self.problems.append(json.dumps(values["args"]))
        elif what == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.problems.append(values["entry"]["text"])

    def call(self, method, **values):
        self.number += 1
        message = {"id": self.number, "method": method, "params": values}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_here, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE_S
        while True:
            answer = self._message(end)
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._keep(answer)

    def evaluate(self, script):
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, path, width=1280, dark=False, done="true"):
        """Opens a file and waits until the script `done` says so. Returns the seconds that it took."""
        self.requests, self.problems = [], []
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        begin = time.monotonic()
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        if not wait_until(lambda: self.evaluate(f"document.readyState == 'complete' && ({done})"), PATIENCE_S):
            raise TimeoutError(f"{path}: {done}")
        return time.monotonic() - begin

    def screenshot(self, path, clip=None):
        """The whole page, or a rectangle of it."""
        height = self.evaluate("document.documentElement.scrollHeight")
        width = self.evaluate("innerWidth")
        area = clip or {"x": 0, "y": 0, "width": width, "height": height}
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip={**area, "scale": 1})
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))

    def print(self, path):
        shown = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(shown["data"]))
