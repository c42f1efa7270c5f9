"""Our keys in PyTorch's variables: taken out before PyTorch looks, kept for children, given to the engine."""

import pathlib
import sys
import unittest

from shim_case import BUILD, SHIM, STAGE, TORCH_PYTHON, ShimCase

NAMES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "SPILLWAY_ALLOC_CONF_ORIGINAL")
UNSET = "(unset)"


class ConfTest(ShimCase):
    def conf(self, library="", **variables):
        """The three variables before and after the first use of CUDA, and the engine's lines."""
        lines = self.probe("conf", library, **variables)
        rounds = []
        for number in range(2):
            found = [line[2:] for line in lines if line.startswith(f"{number} ")]
            rounds.append(tuple(line.partition("=")[2] for line in found))
            self.assertEqual([line.partition("=")[0] for line in found], list(NAMES))
        return *rounds, [line for line in lines if line.startswith("engine: setting")]

    def settings(self, names, **variables):
        return [line[len("engine: setting ") :] for line in self.conf(FAKE_ENGINE_SETTINGS=names, **variables)[2]]

    def test_untouched_until_cuda_is_used(self):
        text = "backend:spillway,gpu_memory:20GiB"
        before, after, _ = self.conf(PYTORCH_CUDA_ALLOC_CONF=text)
        self.assertEqual(before, (text, UNSET, UNSET))
        self.assertEqual(after, (UNSET, UNSET, text))

    def test_taken_when_torch_comes(self):
        text = "max_split_size_mb:64,dirs:/a:2TiB,backend:spillway"
        places = ("libtorch_global_deps.so", "libc10_cuda.so", "libtorch_cuda.so")
        for path in (*(f"/nowhere/torch/lib/{name}" for name in places), "/nowhere/torch/_C.cpython-311.so"):
            before, after, _ = self.conf(library=path, PYTORCH_CUDA_ALLOC_CONF=text)
            self.assertEqual(before, ("max_split_size_mb:64", UNSET, text))
            self.assertEqual(after, before)
        before, _, _ = self.conf(library="/nowhere/libtorchaudio.so", PYTORCH_CUDA_ALLOC_CONF=text)
        self.assertEqual(before, (text, UNSET, UNSET))

    def test_what_remains(self):
        ours = "gpu_memory:20GiB"
        cases = {
            "expandable_segments:True": None,
            "backend:native": None,
            "backend:cudaMallocAsync," + ours: "backend:cudaMallocAsync",
            "roundup_power2_divisions:[256:1,512:2,>:4]," + ours: "roundup_power2_divisions:[256:1,512:2,>:4]",
            "dirs:[/a,/b;/c],garbage_collection_threshold:0.8": "garbage_collection_threshold:0.8",
            " backend : spillway , max_split_size_mb : 64 , policy : lru ": " max_split_size_mb : 64 ",
            "backend:spillway,,policy:lru,": UNSET,
            "backend:someones," + ours: "backend:someones",
            "gpu_memory_fraction:1," + ours: "gpu_memory_fraction:1",
            # Malformed text: what is not ours stays as it was, for PyTorch to judge.
            ours + ",nonsense": "nonsense",
            ours + ",a:b:c,:": "a:b:c,:",
            "gpu_memory": UNSET,
            "dirs:[/a,/b": UNSET,
            "dirs:/a],max_split_size_mb:64": "max_split_size_mb:64",
            "roundup_power2_divisions:[256:1,backend:spillway," + ours: None,
            "": None,
        }
        for text, rest in cases.items():
            for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
                with self.subTest(text=text, variable=name):
                    _, after, _ = self.conf(**{name: text})
                    now = after[NAMES.index(name)]
                    self.assertEqual(now, text if rest is None else rest)
                    self.assertEqual(after[2], UNSET if rest is None else text)

    def test_both_variables(self):
        first, second = "gpu_memory:1GiB,policy:lru,max_split_size_mb:64", "gpu_memory:2GiB,backend:spillway"
        _, after, lines = self.conf(
            PYTORCH_CUDA_ALLOC_CONF=first, PYTORCH_ALLOC_CONF=second, FAKE_ENGINE_SETTINGS="gpu_memory,policy,backend"
        )
        self.assertEqual(after, ("max_split_size_mb:64", UNSET, f"{second},{first}"))
        self.assertEqual(
            lines,
            [
                "engine: setting gpu_memory=1GiB from gpu_memory in PYTORCH_CUDA_ALLOC_CONF",
                "engine: setting policy=lru from policy in PYTORCH_CUDA_ALLOC_CONF",
                "engine: setting backend=spillway from backend in PYTORCH_ALLOC_CONF",
            ],
        )

    def test_values_reach_the_engine_as_they_are(self):
        lines = self.settings(
            "dirs,gpu_memory,metrics,host_memory,trust",
            PYTORCH_CUDA_ALLOC_CONF="dirs:[/a:2TiB,/b;/c],gpu_memory: 60% ,metrics:/tmp/a:b.json,host_memory",
        )
        source = "in PYTORCH_CUDA_ALLOC_CONF"
        self.assertEqual(
            lines,
            [
                f"dirs=/a:2TiB,/b;/c from dirs {source}",
                f"gpu_memory=60% from gpu_memory {source}",
                f"metrics=/tmp/a:b.json from metrics {source}",
                f"host_memory= from host_memory {source}",
                "trust=(none) from (none)",
            ],
        )

    def test_variables_win(self):
        lines = self.settings(
            "gpu_memory,host_memory,spillway",
            PYTORCH_CUDA_ALLOC_CONF="gpu_memory:1GiB,host_memory:2GiB",
            SPILLWAY_GPU_MEMORY="3GiB",
            SPILLWAY="observe",
        )
        self.assertEqual(
            lines,
            [
                "gpu_memory=3GiB from SPILLWAY_GPU_MEMORY",
                "host_memory=2GiB from host_memory in PYTORCH_CUDA_ALLOC_CONF",
                "spillway=observe from SPILLWAY",
            ],
        )

    def test_an_empty_variable_is_as_if_it_were_not_set(self):
        lines = self.settings("gpu_memory,policy", PYTORCH_CUDA_ALLOC_CONF="gpu_memory:1GiB", SPILLWAY_GPU_MEMORY="",
                              SPILLWAY_POLICY="")  # fmt: skip
        self.assertEqual(lines, ["gpu_memory=1GiB from gpu_memory in PYTORCH_CUDA_ALLOC_CONF",
                                 "policy=(none) from (none)"])  # fmt: skip

    def test_child_takes_them_from_its_parent(self):
        names, original = "gpu_memory", "backend:spillway,gpu_memory:1GiB"
        lines = self.settings(names, SPILLWAY_ALLOC_CONF_ORIGINAL=original, PYTORCH_ALLOC_CONF="max_split_size_mb:64")
        self.assertEqual(lines, ["gpu_memory=1GiB from gpu_memory in SPILLWAY_ALLOC_CONF_ORIGINAL"])
        lines = self.settings(names, SPILLWAY_ALLOC_CONF_ORIGINAL=original, PYTORCH_ALLOC_CONF="gpu_memory:2GiB")
        self.assertEqual(lines, ["gpu_memory=2GiB from gpu_memory in PYTORCH_ALLOC_CONF"])

    def test_driver_may_be_named_there(self):
        done = self.run_command([STAGE / "preload_probe", "open", "libcuda.so.1"],
                                PYTORCH_CUDA_ALLOC_CONF="cuda_driver:/nowhere/x.so")
        self.assertIn("spillway: cuda_driver in PYTORCH_CUDA_ALLOC_CONF names /nowhere/x.so", done.stderr)

    def test_taken_even_when_switched_off(self):
        _, after, lines = self.conf(PYTORCH_ALLOC_CONF="backend:spillway", SPILLWAY="off")
        self.assertEqual(after, (UNSET, UNSET, "backend:spillway"))
        self.assertEqual(lines, [])

    def test_random_texts_against_a_model(self):
        model = pathlib.Path(__file__).with_name("conf_model.py")
        done = self.run_command([sys.executable, model, SHIM, "20000"], preload=())
        self.assertEqual((done.stdout, done.stderr), ("20000 texts as the model has them\n", ""))

    def without_start_up_hook(self, code):
        """The command that runs `code` where an installed start-up hook of ours does not run: it would take them out."""
        where = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
        packages = self.run_command([TORCH_PYTHON, "-c", where], preload=(), driver=None).stdout.strip()
        return [TORCH_PYTHON, "-S", "-c", f"import sys; sys.path.append({packages!r}); {code}"]

    @unittest.skipUnless(TORCH_PYTHON, "no PyTorch in build/venv")
    def test_torch_is_imported_with_text_that_its_load_time_parser_would_not_survive(self):
        code = (
            "import os, torch; print(torch.cuda.memory.get_allocator_backend(), flush=True);"
            "os.system('echo $PYTORCH_CUDA_ALLOC_CONF,$PYTORCH_ALLOC_CONF')"
        )
        text = "max_split_size_mb:64,dirs:/a:2TiB,backend:spillway"
        version_code = "import importlib.metadata; print(importlib.metadata.version('torch'))"
        version = self.run_command([TORCH_PYTHON, "-c", version_code], preload=(), driver=None).stdout
        if version.startswith("2.11."):  # that it is needed at all: 2.11 ends the process in a static initialiser
            self.run_command(self.without_start_up_hook(code), preload=(), driver=None, status=-6,
                             PYTORCH_CUDA_ALLOC_CONF=text)
        left_by_name = {NAMES[0]: "max_split_size_mb:64,", NAMES[1]: ",max_split_size_mb:64"}
        for name, left in left_by_name.items():
            done = self.run_command([TORCH_PYTHON, "-c", code], driver=None, **{name: text})
            self.assertEqual(done.stdout.splitlines(), ["native", left])

    @unittest.skipUnless(TORCH_PYTHON, "no PyTorch in build/venv")
    def test_loader_without_preload_takes_them_by_call(self):
        code = (
            f"import ctypes; ctypes.CDLL('{SHIM}', mode=ctypes.RTLD_GLOBAL).spillway_take_conf(); import os, torch;"
            "os.system('echo $PYTORCH_CUDA_ALLOC_CONF')"
        )
        done = self.run_command([TORCH_PYTHON, "-c", code], preload=(), driver=None,
                                PYTORCH_CUDA_ALLOC_CONF="dirs:/a:2TiB,backend:spillway,max_split_size_mb:64")
        self.assertEqual(done.stdout, "max_split_size_mb:64\n")

    @unittest.skipUnless(TORCH_PYTHON, "no PyTorch in build/venv")
    def test_strict_parser_never_sees_them(self):
        runtime = BUILD / "lib/simcuda/libcudart.so.13"
        if not runtime.exists():
            self.skipTest("lib/simcuda/libcudart.so.13 is not built")
        code = "import torch; torch.cuda.init(); print(torch.cuda.memory.get_allocator_backend())"
        command, options = [TORCH_PYTHON, "-c", code], {"driver": runtime.parent}
        for name in NAMES[:2]:
            text = {name: "backend:spillway,gpu_memory:1GiB,max_split_size_mb:64", "FAKE_ENGINE_SETTINGS": "gpu_memory"}
            alone = self.run_command(self.without_start_up_hook(code), preload=(runtime,), status=1, **options, **text)
            self.assertIn("Unknown allocator backend", alone.stderr)
            done = self.run_command(command, preload=(SHIM, runtime), **options, **text)
            self.assertEqual(done.stdout.splitlines()[-2:], [f"engine: setting gpu_memory=1GiB from gpu_memory in {name}", "native"])


if __name__ == "__main__":
    unittest.main()
