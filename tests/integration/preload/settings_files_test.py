"""Files of settings in the preload: which of them counts, what ends a process, and that none is opened needlessly."""

import os
import pathlib
import sys
import tempfile
import unittest

from shim_case import FULL, STAGE, ShimCase

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import own_etc  # noqa: E402

PROBE = STAGE / "preload_probe"


class SettingsFilesTest(ShimCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="spillway_files_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "spillway.conf"

    def write(self, text, mode=0o644):
        self.file.write_text(text, encoding="utf-8")
        self.file.chmod(mode)

    def lines(self, names, etc=None, status=0, **variables):
        """What the engine is given, and standard error."""
        command = [PROBE, "conf", ""]
        if etc is not None:
            if not own_etc.POSSIBLE:
                self.skipTest("no mount namespaces here")
            folder = own_etc.make_etc(etc)
            self.addCleanup(folder.cleanup)
            command = own_etc.command_with(folder.name, command)
        variables = {"SPILLWAY_CONF": None, "XDG_CONFIG_HOME": self.folder, "FAKE_ENGINE_SETTINGS": names, **variables}
        done = self.run_command(command, status=status, **variables)
        heads = ("engine: setting ", "engine: limit ")
        found = [line.removeprefix("engine: ") for line in done.stdout.splitlines() if line.startswith(heads)]
        return found, done.stderr

    def test_the_users_file_counts_where_the_environment_says_nothing(self):
        self.write("host_memory=1GiB\nSPILLWAY_POLICY=lru\ntrust=strict\n")
        found, said = self.lines(
            "host_memory,policy,trust,dirs", SPILLWAY_POLICY="plan", PYTORCH_CUDA_ALLOC_CONF="backend:spillway,trust:normal"
        )
        self.assertEqual(said, "")
        self.assertEqual(
            found,
            [
                f"setting host_memory=1GiB from {self.file}:1: host_memory",
                "setting policy=plan from SPILLWAY_POLICY",
                "setting trust=normal from trust in PYTORCH_CUDA_ALLOC_CONF",
                "setting dirs=(none) from (none)",
            ],
        )

    def test_the_systems_file_comes_last_and_limits(self):
        self.write("host_memory=1GiB\n")
        found, said = self.lines("host_memory,policy", etc="host_memory=2GiB\npolicy=lru\n[limits]\nhost_memory=3GiB\n")
        self.assertEqual(said, "")
        self.assertEqual(
            found,
            [
                f"setting host_memory=1GiB from {self.file}:1: host_memory",
                "limit host_memory=3GiB from /etc/spillway.conf:4: host_memory",
                "setting policy=lru from /etc/spillway.conf:2: policy",
            ],
        )

    def test_spillway_conf_names_another_or_none_and_the_systems_stays(self):
        self.write("policy=lru\n")
        other = self.folder / "other"
        other.write_text("policy=plan\n", encoding="utf-8")
        found, _ = self.lines("policy", etc="[limits]\ngpu_memory=1GiB\n", SPILLWAY_CONF=other)
        self.assertEqual(found, [f"setting policy=plan from {other}:1: policy"])
        found, _ = self.lines("policy,gpu_memory", etc="[limits]\ngpu_memory=1GiB\n", SPILLWAY_CONF="none")
        self.assertEqual(found[0], "setting policy=(none) from (none)")
        self.assertEqual(found[2], "limit gpu_memory=1GiB from /etc/spillway.conf:2: gpu_memory")

    def test_home_counts_without_a_folder_of_configurations(self):
        home = self.folder / "home"
        (home / ".config").mkdir(parents=True)
        (home / ".config/spillway.conf").write_text("policy=lru\n", encoding="utf-8")
        found, _ = self.lines("policy", XDG_CONFIG_HOME=None, HOME=home)
        self.assertEqual(found, [f"setting policy=lru from {home}/.config/spillway.conf:1: policy"])

    def test_what_is_wrong_ends_the_process_when_it_uses_cuda(self):
        self.write("log=info\nhost_memroy=1GiB\n")
        _, said = self.lines("", status=2)
        problem = f"{self.file}:2: host_memroy is not a setting of Spillway; the nearest name is host_memory"
        self.assertEqual(said, f"spillway: {problem}\n")
        _, said = self.lines("", status=2, SPILLWAY_LOG="off")
        self.assertEqual(said, f"spillway: {problem}\n", "what ends the job is always said")
        _, said = self.lines("", SPILLWAY="off")
        self.assertEqual(said, "", "off is as if Spillway were not there")
        self.write("log=info\n", mode=0o666)
        _, said = self.lines("", status=2)
        self.assertIn("users other than its owner may write to it", said)
        _, said = self.lines("", status=2, SPILLWAY_CONF="/nowhere/spillway.conf")
        self.assertIn("/nowhere/spillway.conf: it cannot be read", said)

    def test_a_wrong_file_of_the_system_ends_the_process(self):
        _, said = self.lines("", etc="policy\n", status=2)
        self.assertEqual(said, "spillway: /etc/spillway.conf:1: expected NAME=VALUE, as in host_memory=20GiB\n")

    def test_off_in_a_file_and_on_in_the_environment(self):
        self.write("SPILLWAY=off\n")
        found, said = self.lines("policy")
        self.assertEqual((found, said), ([], ""), "the engine is not opened")
        found, _ = self.lines("policy", SPILLWAY="on")
        self.assertEqual(found, ["setting policy=(none) from (none)"])

    def test_the_driver_may_stand_in_a_file(self):
        self.write(f"cuda_driver={FULL}/libcuda.so.1\n")
        found, said = self.lines("cuda_driver", LD_LIBRARY_PATH=None)
        self.assertEqual((found, said), ([f"setting cuda_driver={FULL}/libcuda.so.1 from {self.file}:1: cuda_driver"], ""))

    def test_log_off_in_a_file_silences_the_preload(self):
        self.write("log=off\n")
        _, said = self.lines("", FAKE_ENGINE="refuse")
        self.assertEqual(said, "")
        os.unlink(self.file)
        _, said = self.lines("", FAKE_ENGINE="refuse")
        self.assertIn("the engine did not start", said)


if __name__ == "__main__":
    unittest.main()
