"""What operators get as files: the dashboard, the alerts, the scripts for Slurm, the example of /etc/spillway.conf.

Each metric and label that they name is one that the engine writes; the dashboard has the shape that Grafana publishes
(kinds/dashboard, schema version 36); where promtool is installed, alerts fire and stay quiet as alerts_tests.yml says.
"""

import copy
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import own_etc  # noqa: E402

SOURCE = pathlib.Path(os.environ["SPILLWAY_SOURCE"])
BUILD = os.environ["SPILLWAY_BUILD"]
HERE = pathlib.Path(__file__).resolve().parent
FILES = SOURCE / "integration" / "operators"
DASHBOARD = json.loads((FILES / "grafana_dashboard.json").read_text(encoding="utf-8"))
ALERTS = (FILES / "prometheus_alerts.yml").read_text(encoding="utf-8")
WRITERS = ("integration/report/prometheus.cc", "integration/report/job_metrics.def", "allocator/residency/state/counters.def")
WRITER = "".join((SOURCE / path).read_text(encoding="utf-8") for path in WRITERS)
METRICS = set(re.findall(r'"(spillway_[a-z_]+)[" ]', WRITER))
FEWEST_METRICS = 40
# Those of PrometheusText, and the one that Prometheus adds to all that it scrapes.
LABELS = {"rank", "pid", "job_id", "user", "device", "tier", "cause", "directory", "version", "instance"}
UNITS = {"none", "bytes", "Bps", "percentunit", "s"}
VARIABLE_TYPES = {"query", "adhoc", "constant", "datasource", "interval", "textbox", "custom", "system"}


def metrics_in(text):
    return set(re.findall(r"\bspillway_[a-z_]+", text))


def labels_in(expression):
    grouped = re.findall(r"\bby \(([^)]*)\)", expression)
    selected = re.findall(r"\{([^{}]*)\}", expression)
    names = {name.strip() for group in grouped for name in group.split(",")}
    return names | {match for text in selected for match in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", text)}


def shape_problems(dashboard):
    """What of the dashboard is not as Grafana's schema has it, or would not be drawn."""
    problems = []

    def need(place, value, key, kind):
        if not isinstance(value.get(key), kind) or (kind is int and isinstance(value[key], bool)):
            problems.append(f"{place}: {key} is not {kind}")
        return value.get(key)

    for key, kind in (("editable", bool), ("graphTooltip", int), ("schemaVersion", int), ("style", str), ("title", str),
                      ("uid", str), ("panels", list), ("tags", list), ("refresh", str)):  # fmt: skip
        need("dashboard", dashboard, key, kind)
    if dashboard.get("style") not in ("dark", "light") or dashboard.get("graphTooltip") not in (0, 1, 2):
        problems.append("dashboard: style or graphTooltip")
    if "id" in dashboard:
        problems.append("dashboard: an id belongs to one Grafana")
    variables = {"__rate_interval"}
    for variable in dashboard.get("templating", {}).get("list", ()):
        place = f"variable {variable.get('name')}"
        need(place, variable, "name", str)
        if need(place, variable, "type", str) not in VARIABLE_TYPES or variable.get("hide") not in (0, 1, 2):
            problems.append(f"{place}: type or hide")
        variables.add(variable.get("name"))
    ids, taken = set(), set()
    for panel in dashboard.get("panels", ()):
        place = f"panel {panel.get('title')}"
        for key, kind in (("type", str), ("title", str), ("id", int), ("gridPos", dict)):
            need(place, panel, key, kind)
        if panel.get("id") in ids:
            problems.append(f"{place}: its id is another's")
        ids.add(panel.get("id"))
        grid = panel.get("gridPos") or {}
        if not all(isinstance(grid.get(key), int) and grid[key] >= least for key, least in (("h", 1), ("w", 1), ("x", 0), ("y", 0))):
            problems.append(f"{place}: gridPos")
            continue
        if grid["x"] + grid["w"] > 24:
            problems.append(f"{place}: wider than the page")
        cells = {(x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])}
        if cells & taken:
            problems.append(f"{place}: lies over another")
        taken |= cells
        if panel.get("type") == "row":
            continue
        if panel.get("fieldConfig", {}).get("defaults", {}).get("unit") not in UNITS:
            problems.append(f"{place}: unit")
        if not panel.get("description"):
            problems.append(f"{place}: says not what it shows")
        references = [target.get("refId") for target in panel.get("targets", ())]
        if not references or len(set(references)) != len(references) or None in references:
            problems.append(f"{place}: refId of its targets")
        for target in panel.get("targets", ()):
            if not target.get("expr"):
                problems.append(f"{place}: a target without a query")
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard)))
    problems += [f"${name} is no variable" for name in sorted(used - variables)]
    return problems


class NamesTest(unittest.TestCase):
    def test_metrics_are_those_that_the_engine_writes(self):
        self.assertGreaterEqual(len(METRICS), FEWEST_METRICS)
        for text, fewest in ((json.dumps(DASHBOARD), 20), (ALERTS, 9)):
            named = metrics_in(text)
            self.assertEqual(named - METRICS, set())
            self.assertGreaterEqual(len(named), fewest)
        self.assertEqual(metrics_in("rate(spillway_nothing_total[5m])") - METRICS, {"spillway_nothing_total"})

    def test_labels_are_those_that_samples_have(self):
        expressions = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
        expressions += re.findall(r"expr: (?:>-\n\s*)?(.*)", ALERTS)
        self.assertGreater(len(expressions), 25)
        named = set().union(*map(labels_in, expressions))
        shown = set(re.findall(r"\{\{ *(?:\$labels\.)?(\w+) *\}\}", json.dumps(DASHBOARD) + ALERTS))
        self.assertEqual((named | shown) - LABELS, set())
        self.assertLessEqual({"instance", "job_id", "user", "tier", "cause", "directory"}, named | shown)
        for label in LABELS - {"instance"}:
            self.assertRegex(WRITER, rf"\b{label}=", "the engine writes it")

    def test_each_alert_has_a_severity_and_words(self):
        alerts = re.findall(r"- alert: (\w+)\n(.*?)(?=\n\s*- alert:|\Z)", ALERTS, re.DOTALL)
        self.assertEqual(len(alerts), ALERTS.count("alert:"))
        for name, text in alerts:
            self.assertRegex(text, r"severity: (critical|warning)\n", name)
            self.assertRegex(text, r"summary: .*instance", name)
            self.assertIn("description: ", text, name)
            self.assertRegex((HERE / "alerts_tests.yml").read_text(encoding="utf-8"), rf"alertname: {name}\b")


class DashboardTest(unittest.TestCase):
    def test_it_has_the_published_shape(self):
        self.assertEqual(shape_problems(DASHBOARD), [])
        self.assertGreater(len(DASHBOARD["panels"]), 10)

    def test_what_is_wrong_with_one_is_found(self):
        plants = {
            "title is not": lambda d: d.pop("title"),
            "schemaVersion is not": lambda d: d.update(schemaVersion="36"),
            "its id is another's": lambda d: d["panels"][1].update(id=d["panels"][0]["id"]),
            "wider than the page": lambda d: d["panels"][0]["gridPos"].update(w=25),
            "lies over another": lambda d: d["panels"][1]["gridPos"].update(d["panels"][0]["gridPos"]),
            "unit": lambda d: d["panels"][0]["fieldConfig"]["defaults"].update(unit="furlongs"),
            "refId of its targets": lambda d: d["panels"][0]["targets"][0].pop("refId"),
            "$node is no variable": lambda d: d["panels"][0]["targets"][0].update(expr="up{instance=~'$node'}"),
            "an id belongs to one": lambda d: d.update(id=3),
        }
        for words, plant in plants.items():
            planted = copy.deepcopy(DASHBOARD)
            plant(planted)
            self.assertTrue([p for p in shape_problems(planted) if words in p], words)


class PromtoolTest(unittest.TestCase):
    def setUp(self):
        if not shutil.which("promtool"):
            self.skipTest("promtool is not installed")

    def promtool(self, *words):
        done = subprocess.run(["promtool", *words], capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_rules_are_rules(self):
        self.promtool("check", "rules", str(FILES / "prometheus_alerts.yml"))

    def test_alerts_fire_when_they_should(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            file.write((HERE / "alerts_tests.yml").read_text(encoding="utf-8").replace("ALERTS", str(FILES / "prometheus_alerts.yml")))
            file.flush()
            self.promtool("test", "rules", file.name)

    def test_queries_of_the_dashboard_are_read(self):
        """As recording rules, with Grafana's variables filled in."""
        rules = []
        for panel in DASHBOARD["panels"]:
            for target in panel.get("targets", ()):
                query = re.sub(r"\$__rate_interval", "1m", target["expr"])
                rules.append({"record": f"panel:{len(rules)}", "expr": re.sub(r"\$\w+", "x", query)})
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)  # JSON is YAML
            file.flush()
            self.promtool("check", "rules", file.name)


class SlurmTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="spillway_slurm_")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name, "root")
        self.uid = os.geteuid()

    def run_script(self, name, **variables):
        environment = {"PATH": os.environ["PATH"], "SPILLWAY_SLURM_ROOT": str(self.root), "SLURM_JOB_ID": "4711",
                       "SLURM_JOB_UID": str(self.uid), **variables}  # fmt: skip
        done = subprocess.run([str(FILES / "slurm" / name)], env=environment, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), name)
        return done.stdout

    def test_a_job_from_prolog_to_epilog(self):
        for _ in range(2):  # a node that is asked again must not be drained
            self.run_script("prolog.sh")
        folder = self.root / "jobs" / "4711"
        info = folder.stat()
        self.assertEqual((stat.S_IMODE(info.st_mode), info.st_uid), (0o700, self.uid))
        self.assertEqual(stat.S_IMODE((self.root / "figures").stat().st_mode), 0o1777)
        lines = self.run_script("task_prolog.sh").splitlines()
        self.assertEqual(
            lines,
            [f"export SPILLWAY_DIRS={folder}", f"export SPILLWAY_PROMETHEUS={self.root}/figures/spillway-4711-%p.prom"],
        )
        self.assertEqual(self.run_script("task_prolog.sh", SPILLWAY_DIRS="none", SPILLWAY_PROMETHEUS="none"), "")
        (folder / "rest").write_text("x")
        for name in ("spillway-4711-12.prom", "spillway-47110-12.prom", "other.prom"):
            (self.root / "figures" / name).write_text("x")
        self.run_script("epilog.sh")
        self.assertFalse(folder.exists())
        self.assertEqual(sorted(p.name for p in (self.root / "figures").iterdir()), ["other.prom", "spillway-47110-12.prom"])
        self.run_script("epilog.sh")

    def refused(self, name):
        environment = {"PATH": os.environ["PATH"], "SPILLWAY_SLURM_ROOT": str(self.root), "SLURM_JOB_ID": "4711",
                       "SLURM_JOB_UID": str(self.uid)}  # fmt: skip
        return subprocess.run([str(FILES / "slurm" / name)], env=environment, capture_output=True, timeout=60, check=False).returncode

    def test_root_gives_nothing_away_through_a_link(self):
        self.run_script("prolog.sh")
        victim = self.root.parent / "victim"
        victim.mkdir()
        before = victim.stat()
        (self.root / "jobs" / "4711").rmdir()
        (self.root / "jobs" / "4711").symlink_to(victim)
        self.assertEqual(self.refused("prolog.sh"), 1)
        self.assertEqual((victim.stat().st_mode, victim.stat().st_uid), (before.st_mode, before.st_uid))
        (self.root / "jobs" / "4711").unlink()
        (self.root / "jobs").chmod(0o777)
        self.assertEqual(self.refused("prolog.sh"), 1)
        self.assertFalse((self.root / "jobs" / "4711").exists())

    def test_users_cannot_make_the_epilog_fail(self):
        self.run_script("prolog.sh")
        (self.root / "figures" / "spillway-4711-1.prom").mkdir()
        self.run_script("epilog.sh")
        self.assertFalse((self.root / "jobs" / "4711").exists())

    def test_what_is_no_job_changes_nothing(self):
        (self.root / "jobs").mkdir(parents=True)
        (self.root / "keep").write_text("x")
        for wrong in ("../..", "..", "", "4711;x"):
            self.run_script("prolog.sh", SLURM_JOB_ID=wrong)
            self.run_script("epilog.sh", SLURM_JOB_ID=wrong)
            self.assertEqual(self.run_script("task_prolog.sh", SLURM_JOB_ID=wrong), "")
        self.assertEqual(sorted(p.name for p in self.root.iterdir()), ["jobs", "keep"])
        self.assertEqual(list((self.root / "jobs").iterdir()), [])


class ConfTest(unittest.TestCase):
    def test_every_line_of_the_example_is_accepted(self):
        if not own_etc.POSSIBLE:
            self.skipTest("no mount namespaces here")
        text = (FILES / "spillway.conf").read_text(encoding="utf-8")
        given = re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE)
        names = re.findall(r"^(\w+) = ", given, re.MULTILINE)
        self.assertGreater(len(names), 5)
        for conf, expected in ((text, []), (given, sorted(set(names)))):
            with own_etc.make_etc(conf) as folder:
                environment = {"PATH": os.environ["PATH"], "SPILLWAY_CONF": "none"}
                command = own_etc.command_with(folder, [f"{BUILD}/bin/spillway", "describe", "settings"])
                done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                found = sorted(re.findall(r"^(\w+)(?:=| at most).* by /etc/spillway.conf", done.stdout, re.MULTILINE))
                self.assertEqual(found, expected)


if __name__ == "__main__":
    unittest.main()
