"""Slips in PyTorch's variables end the process with a sentence of ours, before PyTorch's parser meets them."""

import pathlib
import re
import unittest

from shim_case import STAGE, TORCH_PYTHON, ShimCase

VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"
NOBODYS = f"in {VARIABLE} is a setting of neither Spillway nor PyTorch; the nearest name is"
# Text of the variable -> what is said of it; None: nothing.
SLIPS = {
    "backend:spillway,host_memroy:20GiB": f"host_memroy {NOBODYS} host_memory",
    "backend:spillway,gpu_mem:20GiB": f"gpu_mem {NOBODYS} gpu_memory",
    "backend:spillway,GPU_MEMORY:20GiB": f"GPU_MEMORY {NOBODYS} gpu_memory",
    "backend:spillway,max_split_size:64": f"max_split_size {NOBODYS} max_split_size_mb",
    "expandable_segment:True,backend:spillway": f"expandable_segment {NOBODYS} expandable_segments",
    "backend:spillway,nonsense": f"nonsense {NOBODYS}",
    "gpu_memory:1GiB,nonsense": None,  # PyTorch's own to judge: our backend is not named
    "dirs:/a,/b": f"dirs in {VARIABLE}: a list needs brackets, as in dirs:[/a,/b]",
    "backend:spillway,dirs:/a:2TiB,/b;/c,/d,policy:lru": f"a list needs brackets, as in dirs:[/a:2TiB,/b;/c,/d]",
    "io_model:read:1e9,write:1e9": "a list needs brackets, as in io_model:[read:1e9,write:1e9]",
    "dirs:[/a,/b],max_split_size_mb:64": None,
    "backend:spillway,dirs:/a,max_split_size_mb:64": None,
    "backend:spilway,gpu_memory:1GiB": f"backend in {VARIABLE}=spilway is invalid; expected: spillway, native or",
    "backend:Spillway": f"backend in {VARIABLE}=Spillway is invalid",
    "backend:native,host_memroy:1GiB": None,
    "backend:cudaMallocAsync": None,
    "": None,
}


class ConfCheckTest(ShimCase):
    def said(self, text, **variables):
        done = self.run_command([STAGE / "preload_probe", "conf", ""], status=None, **{VARIABLE: text}, **variables)
        return done.returncode, done.stderr

    def test_slips(self):
        for text, words in SLIPS.items():
            with self.subTest(text=text):
                status, said = self.said(text)
                self.assertEqual(status, 0 if words is None else 2)
                if words is None:
                    self.assertEqual(said, "")
                else:
                    self.assertRegex(said, r"^spillway: [^\n]*\n$")
                    self.assertIn(words, said)

    def test_the_other_variable_may_name_the_backend(self):
        status, said = self.said("host_memroy:1GiB", PYTORCH_ALLOC_CONF="backend:spillway")
        self.assertEqual((status, "host_memroy " + NOBODYS in said), (2, True))

    def test_off_leaves_them_to_pytorch(self):
        self.assertEqual(self.said("backend:spillway,host_memroy:1GiB", SPILLWAY="off"), (0, ""))

    def test_it_is_said_even_where_nothing_else_is(self):
        self.assertEqual(self.said("backend:spillway,log:off,nonsense", SPILLWAY_LOG="off")[0], 2)
        self.assertIn("nonsense", self.said("backend:spillway,log:off,nonsense")[1])

    def test_a_child_is_not_asked_again(self):
        self.assertEqual(self.said("", SPILLWAY_ALLOC_CONF_ORIGINAL="backend:spillway,nonsense")[0], 0)

    @unittest.skipUnless(TORCH_PYTHON, "no PyTorch in build/venv")
    def test_every_key_of_the_installed_pytorch_is_known(self):
        where = self.run_command([TORCH_PYTHON, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
                                 preload=(), driver=None).stdout.strip()  # fmt: skip
        headers = [pathlib.Path(where) / "torch/include/c10" / name
                   for name in ("cuda/CUDAAllocatorConfig.h", "core/AllocatorConfig.h")]  # fmt: skip
        lists = [re.search(r"getKeys\(\) \{(.*?)\};|keys\{(.*?)\};", h.read_text(), re.S) for h in headers if h.is_file()]
        keys = {key for found in lists if found
                for key in re.findall(r'"([a-z_0-9]+)"', re.sub(r'"\s*\n\s*"', "", found.group(0)))}  # fmt: skip
        self.assertIn("backend", keys)
        for key in sorted(keys):
            with self.subTest(key=key):
                self.assertEqual(self.said(f"backend:spillway,{key}:1"), (0, ""))


if __name__ == "__main__":
    unittest.main()
