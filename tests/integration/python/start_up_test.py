"""The start-up hook: what it recognises, what it leaves for PyTorch, and that it never breaks Python."""

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "integration" / "python"
sys.path.insert(0, str(PACKAGE))

import spillway  # noqa: E402  (the path comes first)
from spillway import start_up  # noqa: E402


class InterfaceTest(unittest.TestCase):
    """What editors, help() and type checkers see."""

    def ask(self, code):
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
        return subprocess.run([sys.executable, "-B", "-c", code], env=environment, capture_output=True, text=True, check=True).stdout

    def test_names(self):
        stub = ast.parse((PACKAGE / "spillway" / "__init__.pyi").read_text())
        typed = {node.name for node in stub.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        words = self.ask("import spillway; print(*spillway.__all__); print(*dir(spillway))").splitlines()
        self.assertEqual(set(words[0].split()), typed)
        self.assertEqual(set(words[1].split()), typed | {"__version__"})
        self.assertTrue((PACKAGE / "spillway" / "py.typed").is_file())
        self.assertEqual(self.ask("from spillway import *; print(enable.__name__, stats.__name__)"), "enable stats\n")
        with self.assertRaises(AttributeError):
            spillway.no_such_name

    def test_settings_are_in_the_signature(self):
        stub = ast.parse((PACKAGE / "spillway" / "__init__.pyi").read_text())
        enable = next(node for node in stub.body if isinstance(node, ast.FunctionDef) and node.name == "enable")
        self.assertEqual([argument.arg for argument in enable.args.kwonlyargs], start_up.our_keys())
        self.assertEqual(list(inspect.signature(spillway.enable).parameters), start_up.our_keys())


class ConfigurationTest(unittest.TestCase):
    def test_names_our_backend(self):
        for text in ("backend:spillway", "a:1,backend:spillway", " backend : spillway ,x:[1,2]", "x:[1,2],backend:spillway"):
            self.assertTrue(start_up.names_our_backend(text), text)
        for text in ("", "backend:native", "backend:spillways", "x:[backend:spillway]", "mybackend:spillway"):
            self.assertFalse(start_up.names_our_backend(text), text)

    def test_leaves_what_is_pytorchs(self):
        text = "roundup_power2_divisions:[256:1,512:2,>:4],backend:spillway,dirs:[/a,/b;/c],host_memory:2GiB,max_split_size_mb:64"
        self.assertEqual(start_up.without_our_entries(text), "roundup_power2_divisions:[256:1,512:2,>:4],max_split_size_mb:64")

    def test_leaves_other_backends_alone(self):
        self.assertEqual(start_up.without_our_entries("backend:cudaMallocAsync,log:1"), "backend:cudaMallocAsync,log:1")

    def test_keys_are_the_settings(self):
        table = (ROOT / "integration" / "settings" / "settings.def").read_text()
        keys = start_up.our_keys()
        self.assertEqual(keys, re.findall(r"^SETTING\((\w+),", table, re.MULTILINE))
        self.assertTrue({"gpu_memory", "io_model"} <= set(keys))
        self.assertFalse({"spillway", "name"} & set(keys))

    def test_without_the_list_of_keys_nothing_of_ours_is_left_to_pytorch(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(PACKAGE / "spillway" / "start_up.py", folder)
            code = "import start_up; start_up.run()"
            text = "backend:spillway,dirs:[/a],max_split_size_mb:64"
            code += "; import os; print(os.environ.get('PYTORCH_CUDA_ALLOC_CONF'))"
            for more in ({}, {"SPILLWAY": "off"}):
                environment = {**os.environ, **more, "PYTORCH_CUDA_ALLOC_CONF": text, "PYTHONPATH": folder}
                answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
                self.assertEqual(answer.stdout, "None\n", more)

    def test_unfinished_bracket_is_not_an_error(self):
        self.assertEqual(start_up.without_our_entries("backend:spillway,dirs:[/a,/b"), "")


class WrongWordsTest(unittest.TestCase):
    def words(self, **variables):
        with mock.patch.dict(os.environ, variables, clear=True):
            return list(start_up.wrong_words())

    def test_a_backend_of_nearly_our_name(self):
        for value in ("spilway", "Spillway", "SPILLWAY", "spill_way"):
            self.assertEqual(self.words(PYTORCH_CUDA_ALLOC_CONF=f"backend:{value},host_memory:1GiB"), [
                f"PYTORCH_CUDA_ALLOC_CONF says backend:{value}, which PyTorch does not know. Spillway's is backend:spillway"])  # fmt: skip
        for value in ("native", "cudaMallocAsync", "mine", ""):
            self.assertEqual(self.words(PYTORCH_ALLOC_CONF=f"backend:{value}"), [])

    def test_the_hook_is_asked_for_each_of_them(self):
        line = (PACKAGE / "spillway_start_up.pth").read_text()
        for value, asked in (("spilway", True), ("Spillway", True), ("native", False)):
            code = f"import sys; exec({line!r}); print('spillway' in sys.modules)"
            environment = {**os.environ, "PYTORCH_ALLOC_CONF": f"backend:{value}", "PYTHONPATH": str(PACKAGE)}
            answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
            self.assertEqual(answer.stdout, f"{asked}\n", value)
            self.assertEqual("which PyTorch does not know" in answer.stderr, asked, answer.stderr)

    def test_two_variables_that_name_two(self):
        self.assertEqual(self.words(PYTORCH_ALLOC_CONF="backend:native", PYTORCH_CUDA_ALLOC_CONF="backend:spillway"), [
            "PYTORCH_ALLOC_CONF says backend:native beside backend:spillway, and Spillway is used. Remove one of them"])  # fmt: skip

    def test_keys_that_are_nearly_ours(self):
        self.assertEqual(self.words(PYTORCH_ALLOC_CONF="backend:spillway,host_memory=1GiB,gpu_memroy:2GiB"), [
            "PYTORCH_ALLOC_CONF says host_memory=1GiB. Key and value are separated by a colon: host_memory:1GiB",
            "PYTORCH_ALLOC_CONF says gpu_memroy:2GiB, which Spillway does not know. Did you mean gpu_memory?"])  # fmt: skip
        self.assertEqual(self.words(PYTORCH_ALLOC_CONF="host_memory=1GiB"), [], "it is not for us")

    def test_pytorchs_own_keys_are_not_taken_for_ours(self):
        keys = ("max_split_size_mb", "garbage_collection_threshold", "expandable_segments", "roundup_power2_divisions",
                "pinned_use_cuda_host_register", "pinned_num_register_threads", "pinned_use_background_threads",
                "release_lock_on_cudamalloc", "per_process_memory_fraction", "graph_capture_record_stream_reuse",
                "large_segment_size_mb", "max_non_split_rounding_mb", "throw_on_cudamalloc_oom", "pinned_reserve_segment_size_mb")  # fmt: skip
        text = ",".join(f"{key}:1" for key in keys)
        self.assertEqual(self.words(PYTORCH_ALLOC_CONF=f"backend:spillway,{text},dirs:[/a,/b=c]"), [])


class RequiredTest(unittest.TestCase):
    """As the library reads it: conf.c's order of variables, and what an empty one counts."""

    def required(self, **variables):
        with mock.patch.dict(os.environ, variables, clear=True):
            return start_up.required()

    def test_the_older_variable_of_pytorch_counts(self):
        for newer, older, wanted in (("1", "0", False), ("0", "1", True), ("off", "[on]", True), ("on", "[off]", False)):
            self.assertEqual(self.required(PYTORCH_ALLOC_CONF=f"backend:spillway,require:{newer}",
                                           PYTORCH_CUDA_ALLOC_CONF=f"require:{older}"), wanted, (newer, older))  # fmt: skip

    def test_what_was_kept_counts_only_where_nothing_of_ours_is_left(self):
        kept = {"SPILLWAY_ALLOC_CONF_ORIGINAL": "backend:spillway,require:1"}
        self.assertTrue(self.required(**kept))
        self.assertTrue(self.required(PYTORCH_ALLOC_CONF="max_split_size_mb:64", **kept))
        self.assertFalse(self.required(PYTORCH_ALLOC_CONF="host_memory:1GiB", **kept))
        self.assertFalse(self.required(PYTORCH_CUDA_ALLOC_CONF="backend:spillway", **kept))

    def test_our_variable_comes_first_unless_it_is_empty(self):
        conf = {"PYTORCH_ALLOC_CONF": "backend:spillway,require:1"}
        self.assertFalse(self.required(SPILLWAY_REQUIRE="off", **conf))
        self.assertTrue(self.required(SPILLWAY_REQUIRE="", **conf))
        self.assertFalse(self.required(SPILLWAY="off", **conf))


class InstalledHookTest(unittest.TestCase):
    """Installs the package into an environment of its own, with libraries that only say that they were loaded."""

    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        libraries = cls.folder / "libraries"
        libraries.mkdir()
        for name in ("libspillway.so", "libspillway_engine.so", "libspillway_torch_2_99.so"):
            code = f'#include <unistd.h>\n__attribute__((constructor)) static void f(void) {{ write(1, "{name} ", {len(name) + 1}); }}\n'
            code += 'void spillway_take_conf(void) { write(1, "taken ", 6); }\n'
            subprocess.run(["cc", "-shared", "-fPIC", "-xc", "-", "-w", "-Wl,-soname,libcuda.so.1", "-o", libraries / name],
                           input=code, text=True, check=True)  # fmt: skip
        program = cls.folder / "wheel" / "bin" / "spillway"
        program.parent.mkdir(parents=True)
        program.write_text('#!/bin/sh\necho program "$@"\nexit 9\n')
        program.chmod(0o755)
        subprocess.run([sys.executable, "-m", "venv", cls.folder / "venv"], check=True)
        cls.python = cls.folder / "venv" / "bin" / "python"
        environment = {**os.environ, "SPILLWAY_BUILD_LIB": str(libraries)}
        subprocess.run([cls.python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index", PACKAGE],
                       check=True, env=environment)  # fmt: skip

    def run_python(self, *arguments, status=0, **variables):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SPILLWAY", "PYTORCH", "LD_PRELOAD", "PYTHONPATH"))}
        arguments = arguments or ("-c", "import sys; print(len([m for m in sys.modules if m.startswith(('spillway', 'ctypes'))]))")
        done = subprocess.run([self.python, *arguments], env={**clean, **variables}, capture_output=True, text=True)
        if status is not None:
            self.assertEqual(done.returncode, status, done.stderr)
        return done

    def test_does_nothing_unless_named(self):
        for value in ("", "backend:native", "expandable_segments:True"):
            answer = self.run_python(PYTORCH_ALLOC_CONF=value)
            self.assertEqual((answer.stdout, answer.stderr), ("0\n", ""))

    def test_loads_the_library_for_each_variable(self):
        for name in start_up.CONF_VARIABLES:
            answer = self.run_python(**{name: "backend:spillway,host_memory:1GiB"})
            self.assertTrue(answer.stdout.startswith("libspillway.so taken "), answer)
            self.assertEqual(answer.stderr, "")

    def test_symbols_are_global(self):
        code = "import ctypes, os; ctypes.CDLL('libcuda.so.1'); print([l.split()[-1] for l in open('/proc/self/maps') if 'libcuda' in l])"
        answer = self.run_python("-c", code, PYTORCH_ALLOC_CONF="backend:spillway")
        self.assertEqual(answer.stdout, "libspillway.so taken []\n")  # found by SONAME, no other driver was opened

    def test_preloaded_library_is_not_loaded_twice(self):
        library = self.folder / "libraries" / "libspillway.so"
        answer = self.run_python(PYTORCH_ALLOC_CONF="backend:spillway", LD_PRELOAD=str(library))
        self.assertEqual(answer.stdout.count("libspillway.so"), 1)

    def test_switched_off_leaves_a_configuration_that_pytorch_accepts(self):
        code = "import os; os.system('echo $PYTORCH_ALLOC_CONF')"
        answer = self.run_python("-c", code, PYTORCH_ALLOC_CONF="backend:spillway,log:info,max_split_size_mb:64", SPILLWAY="off")
        self.assertEqual(answer.stdout, "max_split_size_mb:64\n")

    def test_missing_library_is_one_line_and_python_goes_on(self):
        answer = self.run_python(PYTORCH_ALLOC_CONF="backend:spillway", SPILLWAY_LIBRARY_DIR="/nowhere")
        self.assertTrue(answer.stdout.strip().isdigit())
        self.assertEqual(answer.stderr.count("\n"), 1)
        self.assertIn("/nowhere/libspillway.so", answer.stderr)

    def test_missing_library_ends_a_job_that_requires_us(self):
        for value, conf in (("1", ""), (None, ",require:1"), ("on", ",require:0"), ("", ",require:1")):
            variables = {"PYTORCH_ALLOC_CONF": "backend:spillway" + conf, "SPILLWAY_LIBRARY_DIR": "/nowhere"}
            if value is not None:
                variables["SPILLWAY_REQUIRE"] = value
            answer = self.run_python("-c", "print('runs')", status=2, **variables)
            self.assertEqual(answer.stdout, "")
            words = "spillway: not loaded: /nowhere/libspillway.so does not exist .*; the job ends, as SPILLWAY_REQUIRE asks\n"
            self.assertRegex(answer.stderr, f"^{words}$")
        for value in ("0", "off"):
            answer = self.run_python(PYTORCH_ALLOC_CONF="backend:spillway,require:1", SPILLWAY_LIBRARY_DIR="/nowhere", SPILLWAY_REQUIRE=value)
            self.assertIn("SPILLWAY_REQUIRE=1 ends the job instead", answer.stderr)

    def test_module_becomes_the_doctor_for_this_python(self):
        """The engine, which says its name when it is opened, is tried before."""
        answer = self.run_python("-m", "spillway", "--json", status=None)
        self.assertEqual((answer.returncode, answer.stdout), (9, f"libspillway_engine.so program doctor --python {self.python} --json\n"), answer)
        answer = self.run_python("-m", "spillway", "--python=/other", status=None)
        self.assertEqual(answer.stdout, "libspillway_engine.so program doctor --python=/other\n")

    def test_module_is_the_command(self):
        for given, arguments in ((["run", "--", "job"], "run -- job"), (["help"], "help"),
                                 (["doctor", "--quick"], f"doctor --python {self.python} --quick")):  # fmt: skip
            answer = self.run_python("-m", "spillway", *given, status=None)
            self.assertEqual(answer.stdout, f"libspillway_engine.so program {arguments}\n")

    def test_module_says_why_the_doctor_cannot_run(self):
        answer = self.run_python("-m", "spillway", status=None, SPILLWAY_LIBRARY_DIR="/nowhere")
        words = "spillway: /nowhere/libspillway.so is missing: reinstall the package\n"
        self.assertEqual((answer.returncode, answer.stdout, answer.stderr), (1, "", words))
        damaged = self.folder / "damaged"
        shutil.copytree(self.folder / "libraries", damaged / "lib")
        shutil.copytree(self.folder / "wheel" / "bin", damaged / "bin")
        (damaged / "lib" / "libspillway_engine.so").write_text("nothing")
        answer = self.run_python("-m", "spillway", status=None, SPILLWAY_LIBRARY_DIR=str(damaged / "lib"))
        self.assertEqual((answer.returncode, answer.stdout), (1, ""))
        self.assertIn("spillway: engine cannot be opened, jobs would run without Spillway: ", answer.stderr)

    def test_module_prints_the_library(self):
        path = self.run_python("-m", "spillway", "--library").stdout.strip()
        self.assertTrue(Path(path).is_file())

    def test_command_becomes_the_program_of_the_wheel(self):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SPILLWAY", "PYTORCH", "LD_PRELOAD", "PYTHONPATH"))}
        command = [self.python.parent / "spillway", "run", "--a b", ""]
        answer = subprocess.run(command, env=clean, capture_output=True, text=True, check=False)
        self.assertEqual((answer.returncode, answer.stdout), (9, "program run --a b \n"), answer)
        answer = subprocess.run([command[0], "doctor", "--quick"], env=clean, capture_output=True, text=True, check=False)
        self.assertEqual(answer.stdout, f"program doctor --python {self.python} --quick\n")

    def test_other_machines_are_refused_in_words(self):
        code = "void *memset(void*, int, unsigned long); char *strcpy(char*, const char*); struct u { char t[6][65]; };\n"
        code += "int uname(struct u *u) { memset(u, 0, sizeof(*u)); strcpy(u->t[0], \"Linux\"); strcpy(u->t[2], RELEASE);\n"
        code += "  strcpy(u->t[4], MACHINE); return 0; }\n"
        rows = [("5.15-microsoft-standard-WSL2", "x86_64", "WSL is not supported"), ("6.1", "aarch64", "this is aarch64")]
        for release, machine, words in rows:
            library = self.folder / f"uname_{machine}.so"
            define = [f'-DRELEASE="{release}"', f'-DMACHINE="{machine}"']
            subprocess.run(["cc", "-shared", "-fPIC", "-w", *define, "-xc", "-", "-o", library], input=code, text=True, check=True)
            answer = self.run_python(LD_PRELOAD=str(library), PYTORCH_ALLOC_CONF="backend:spillway")
            self.assertRegex(answer.stderr, rf"\Aspillway: not loaded: [^\n]*{words}[^\n]*\n\Z")
            self.assertTrue(answer.stdout.strip().isdigit(), answer)
            answer = self.run_python("-m", "spillway", status=None, LD_PRELOAD=str(library))
            self.assertEqual((answer.returncode, answer.stdout), (1, ""))
            self.assertRegex(answer.stderr, rf"\Aspillway: machine: [^\n]*{words}[^\n]*\n\Z")

    def test_unnamed_hook_costs_microseconds(self):
        line = (PACKAGE / "spillway_start_up.pth").read_text()
        code = f"import timeit; c = compile({line!r}, 'x', 'exec'); print(min(timeit.repeat(lambda: exec(c), number=1000)) * 1000)"
        microseconds = float(self.run_python("-c", code).stdout)
        self.assertLess(microseconds, 100)


class MissingBuildTest(unittest.TestCase):
    def pack(self, libraries="/nowhere", before=""):
        environment = {**os.environ, "SPILLWAY_BUILD_LIB": str(libraries)}
        code = f"import wheel_backend\n{before}\nwheel_backend.build_wheel('/tmp')"
        answer = subprocess.run([sys.executable, "-B", "-c", code], cwd=PACKAGE, env=environment, capture_output=True, text=True)
        self.assertEqual(answer.returncode, 1)
        return answer.stderr

    def test_says_to_build_first(self):
        self.assertIn("Build first", self.pack())

    def test_packs_nothing_without_a_library_for_any_pytorch(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("libspillway.so", "libspillway_engine.so"):
                (Path(folder) / name).touch()
            self.assertIn("has no library for any PyTorch", self.pack(folder))

    def test_says_that_aarch64_is_not_served(self):
        said = self.pack(before="import platform; platform.machine = lambda: 'aarch64'")
        self.assertIn("only Linux on x86_64 is supported; this is Linux on aarch64", said)


if __name__ == "__main__":
    unittest.main()
