"""`spillway describe`: what shells complete by it, what troff says of the man page, and that all options are in each."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

PROGRAM = os.environ["SPILLWAY_BUILD"] + "/bin/spillway"
FORMS = ("bash", "zsh", "fish", "man")


def described(form):
    return subprocess.run([PROGRAM, "describe", form], capture_output=True, text=True, timeout=100, check=True).stdout


def options_of(*subcommand):
    out = subprocess.run([PROGRAM, *subcommand, "--help"], capture_output=True, text=True, timeout=100, check=True).stdout
    return set(re.findall(r"^ +(?:-\w,)?--([\w-]+)", out, re.MULTILINE))


class DescribeTest(unittest.TestCase):
    def subcommands(self):
        out = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, timeout=100, check=True).stdout
        return re.findall(r"^  (\w+) ", out.split("Subcommands:")[1], re.MULTILINE)

    def complete(self, *words):
        """What bash offers for the last word."""
        with tempfile.NamedTemporaryFile("w", suffix=".bash") as script:
            script.write(described("bash"))
            script.flush()
            listed = " ".join(f"'{word}'" for word in ("spillway", *words))
            code = f'source {script.name}; COMP_WORDS=({listed}); COMP_CWORD={len(words)}; _spillway; printf "%s\\n" "${{COMPREPLY[@]}}"'
            return subprocess.run(["bash", "--norc", "-c", code], capture_output=True, text=True, timeout=100, check=True).stdout.split()

    def test_bash_offers_what_there_is(self):
        self.assertEqual(self.complete("doct"), ["doctor"])
        self.assertEqual(set(self.complete("")) - {"help", "--help", "--version", "-h"}, set(self.subcommands()))
        self.assertEqual(self.complete("run", "--gpu"), ["--gpu-memory"])
        self.assertEqual({word[2:] for word in self.complete("report", "--")}, options_of("report"))
        self.assertEqual(self.complete("report", "run"), [], "files are bash's own")
        self.assertEqual(self.complete("help", "rep"), ["report"])
        self.assertEqual(self.complete("run", "--", "--gpu"), [], "the command's own")

    def test_every_option_is_in_every_form(self):
        for form in FORMS:
            text = described(form).replace("\\-", "-")
            for subcommand in self.subcommands():
                self.assertIn(subcommand.upper() if form == "man" else subcommand, text, form)
                for option in options_of(subcommand):
                    self.assertRegex(text, rf"(--|-l ){option}\b", f"{form} {subcommand}")

    def test_the_shells_themselves_can_read_it(self):
        for form, check in (("bash", ["bash", "-n"]), ("zsh", ["zsh", "-n"]), ("fish", ["fish", "--no-execute"])):
            if not shutil.which(check[0]):
                continue
            with tempfile.NamedTemporaryFile("w") as script:
                script.write(described(form))
                script.flush()
                done = subprocess.run([*check, script.name], capture_output=True, text=True, timeout=100)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""), form)

    def test_troff_has_no_warning(self):
        if not shutil.which("groff"):
            self.skipTest("groff is not installed")
        done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-Kutf8"], input=described("man"), capture_output=True, text=True, timeout=100)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("train models larger than the GPU's memory", done.stdout)

    def test_what_is_installed_is_what_is_described(self):
        share = Path(PROGRAM).parents[1] / "share"
        for form, path in (("bash", "bash-completion/completions/spillway"), ("zsh", "zsh/site-functions/_spillway"),
                           ("fish", "fish/vendor_completions.d/spillway.fish"), ("man", "man/man1/spillway.1")):  # fmt: skip
            self.assertEqual((share / path).read_text(), described(form), form)

    def test_wrong_use(self):
        for wrong in (["csh"], []):
            done = subprocess.run([PROGRAM, "describe", *wrong], capture_output=True, text=True, timeout=100)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("expected: bash, zsh, fish, man or settings", subprocess.run([PROGRAM, "describe", "csh"], capture_output=True, text=True).stderr)


if __name__ == "__main__":
    unittest.main()
