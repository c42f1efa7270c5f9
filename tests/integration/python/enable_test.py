"""spillway.enable(): before and after `import torch`, too late, twice, with wrong arguments, and in spawned children."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BUILD = os.environ.get("SPILLWAY_BUILD", str(ROOT / "build"))

# Blocks of twice the memory, used by PyTorch's own kernels and by cuBLAS's; sums that say whether each is whole.
WORK = """
def work():
    blocks = [torch.full((4 << 20,), float(i), device="cuda") for i in range(12)]
    left, right = torch.ones(1024, 1024, device="cuda"), torch.ones(1024, 1024, device="cuda")
    for _ in range(2):
        sums = [float(block.sum()) / (4 << 20) for block in blocks]
        product = float((left @ right).sum())
    return sums == [float(i) for i in range(12)] and product == 1024.0**3
"""

BEFORE = """
import spillway
print("enabled", spillway.enable(gpu_memory="96MiB", host_memory="2GiB", dirs="none"))
import torch
""" + WORK + """
def ask(queue):
    torch.zeros(1 << 20, device="cuda")
    queue.put(spillway.stats()["budget_bytes"] >> 20)

class Data(torch.utils.data.Dataset):
    def __len__(self): return 1
    def __getitem__(self, index): return torch.zeros(1 << 20, device="cuda")[:1].cpu() + spillway.stats()["budget_bytes"] / 2**20

if __name__ == "__main__":
    print("right", work())
    print("spilled", spillway.stats()["spilled_bytes"] > 0, spillway.stats()["budget_bytes"] >> 20)
    print("again", spillway.enable(gpu_memory="96 mib"))
    for other in ({"gpu_memory": "80MiB"}, {"log": "info"}):
        try:
            spillway.enable(**other)
        except RuntimeError as error:
            print(error)
    import multiprocessing
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=ask, args=(queue,))
    child.start()
    print("spawned", queue.get(timeout=120))
    child.join()
    loader = torch.utils.data.DataLoader(Data(), num_workers=1, multiprocessing_context="spawn")
    print("worker", [int(batch) for batch in loader])
"""

AFTER = """
import torch, spillway
spillway.enable(gpu_memory="96MiB", host_memory="2GiB", dirs="none")
""" + WORK + """
print("right", work())
print("spilled", spillway.stats()["spilled_bytes"] > 0, torch.cuda.get_allocator_backend())
"""

TOO_LATE = """
import sys, torch, spillway
if sys.argv[1] == "available":
    torch.cuda.is_available()
else:
    torch.ones(4, device="cuda")
try:
    spillway.enable(gpu_memory="96MiB")
except RuntimeError as error:
    print(error)
print(torch.cuda.get_allocator_backend(), float(torch.ones(4, device="cuda").sum()))
"""

WRONG = """
import os, pathlib, spillway
for settings in ({"gpu_memroy": "1GiB"}, {"gpu_memory": "a lot"}, {"gpu_memory": object()}, {"dirs": "relative"}, {"gds": "1"},
                 {"host_memory": "900TiB"}):
    try:
        spillway.enable(**settings)
    except ValueError as error:
        print(error)
os.environ["SPILLWAY_LOG"] = "info"
try:
    spillway.enable(log="off")
except RuntimeError as error:
    print(error)
print("loaded", any("libspillway.so" in line for line in open("/proc/self/maps")))
print("left", sorted(name for name in os.environ if name.startswith("SPILLWAY_")))
print(spillway.enable(checksum=True, dirs=[pathlib.Path("/tmp"), "/var/tmp"], host_memory=1 << 28, disk_reserve=1 << 30, log="info"))
print({name: os.environ["SPILLWAY_" + name] for name in ("CHECKSUM", "DIRS", "HOST_MEMORY")})
"""

PRELOADED = """
import spillway, torch
print(spillway.enable(gpu_memory="96MiB"), spillway.enable(log="warn"))
try:
    spillway.enable(gpu_memory="90MiB")
except RuntimeError as error:
    print(error)
torch.ones(1 << 20, device="cuda")
print(spillway.stats()["budget_bytes"] >> 20)
"""


PATHS = """
import os, sys, spillway
os.environ.update(SPILLWAY_METRICS="/var/tmp/A.json", SPILLWAY_DIRS="/tmp, /var/tmp", SPILLWAY_LOG="WARN")
for settings in ({"metrics": "/var/tmp/a.json"}, {"dirs": "/TMP,/var/tmp"}):
    try:
        print(spillway.enable(**settings))
    except RuntimeError as error:
        print(error)
print(spillway.enable(metrics="/var/tmp/A.json", dirs=["/tmp", "/var/tmp"], log="warn", disk_reserve=1 << 30))
try:
    print(spillway.enable(metrics="/var/tmp/a.json"))
except RuntimeError as error:
    print(error)
"""


class EnableTest(unittest.TestCase):
    def run_code(self, code, *arguments, device=True, status=0, **variables):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPILLWAY", "PYTORCH_", "LD_PRELOAD"))}
        environment.update(PYTHONPATH=str(ROOT / "integration" / "python"), OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1",
                           SPILLWAY_LIBRARY_DIR=f"{BUILD}/lib")  # fmt: skip
        environment.update(variables)
        script = Path(self.enterContext(tempfile.TemporaryDirectory())) / "script.py"  # spawned children import it
        script.write_text(code, encoding="utf-8")
        device = [f"{BUILD}/bin/simcuda-run", "--memory", "256MiB", "--mode", "strict", "--"] if device else []
        done = subprocess.run([*device, sys.executable, script, *arguments], env=environment, capture_output=True,
                              text=True, timeout=250)  # fmt: skip
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout.splitlines()

    def test_before_import_torch(self):
        lines = self.run_code(BEFORE)
        self.assertEqual(lines[:4], ["enabled True", "right True", "spilled True 96", "again True"])
        self.assertEqual(lines[4], "spillway.enable(gpu_memory='80MiB') contradicts SPILLWAY_GPU_MEMORY, which says '96MiB': "
                                   "remove one of them")  # fmt: skip
        self.assertIn("enable(log='info') comes too late", lines[5])
        self.assertEqual(lines[6:], ["enabled True", "spawned 96", "enabled True", "worker [96]"])

    def test_after_import_torch(self):
        self.assertEqual(self.run_code(AFTER), ["right True", "spilled True spillway"])

    def test_after_the_first_use_of_cuda_it_raises(self):
        for use in ("available", "tensor"):
            lines = self.run_code(TOO_LATE, use)
            self.assertIn("spillway.enable() comes too late: this process has used CUDA already (torch.cuda.is_available()", lines[0])
            self.assertEqual(lines[1:], ["native 4.0"])

    def test_wrong_arguments_change_nothing(self):
        lines = self.run_code(WRONG, device=False)
        for line, words in zip(lines, ("spillway.enable() has no setting gpu_memroy: did you mean gpu_memory?", "gpu_memory", "not <object", "dirs", "has no setting gds",
                                       "900", "contradicts SPILLWAY_LOG")):  # fmt: skip
            self.assertIn(words, line)
        self.assertEqual(lines[7:], ["loaded False", "left ['SPILLWAY_LIBRARY_DIR', 'SPILLWAY_LOG']", "True",
                                     "{'CHECKSUM': 'on', 'DIRS': '/tmp,/var/tmp', 'HOST_MEMORY': '268435456'}"])  # fmt: skip

    def test_paths_that_differ_in_case_are_two(self):
        lines = self.run_code(PATHS, device=False)
        self.assertIn("enable(metrics='/var/tmp/a.json') contradicts SPILLWAY_METRICS, which says '/var/tmp/A.json'", lines[0])
        self.assertIn("enable(dirs='/TMP,/var/tmp') contradicts SPILLWAY_DIRS", lines[1])
        self.assertEqual(lines[2], "True")
        self.assertIn("enable(metrics='/var/tmp/a.json') contradicts SPILLWAY_METRICS", lines[3])

    def test_a_path_that_the_loader_splits_is_refused_in_words(self):
        code = ("import os, spillway\ntry:\n    spillway.enable(log='info')\nexcept RuntimeError as error:\n    print(error)\n"
                "print('SPILLWAY_LOG' in os.environ, 'LD_PRELOAD' in os.environ, 'libspillway' in open('/proc/self/maps').read())\n")  # fmt: skip
        for name in ("a b", "a:b"):
            with tempfile.TemporaryDirectory() as folder:
                there = Path(folder, name)
                there.symlink_to(f"{BUILD}/lib")
                lines = self.run_code(code, device=False, SPILLWAY_LIBRARY_DIR=str(there))
            self.assertEqual(lines, [f"spillway.enable(): {there}/libspillway.so: the loader splits LD_PRELOAD, which brings it to child "
                                     "processes, at spaces and colons; install Spillway to a path without them",
                                     "False False False"])  # fmt: skip

    def test_what_cannot_serve_raises_and_is_taken_back(self):
        code = ("import os, spillway\ntry:\n    spillway.enable(log='info')\nexcept RuntimeError as error:\n    print(error)\n"
                "print('SPILLWAY_LOG' in os.environ, 'LD_PRELOAD' in os.environ)\n")  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            for name in ("libspillway.so", "libspillway_engine.so"):
                Path(folder, name).symlink_to(Path(BUILD, "lib", name))
            lines = self.run_code(code, device=False, SPILLWAY_LIBRARY_DIR=folder)
            self.assertRegex(lines[0], r"this Spillway supports PyTorch .*, and \d.* is installed")
            self.assertEqual(lines[1:], ["False False"])
            for library in Path(BUILD, "lib").glob("libspillway_torch_*.so"):
                Path(folder, library.name).symlink_to(library)
            Path(folder, "libspillway.so").unlink()
            stub = ("#include <string.h>\nvoid spillway_take_conf(void) {}\n"
                    'long spillway_rebind(char* why, unsigned long bytes) { strncpy(why, "a reason", bytes); return -1; }\n'
                    "const char* spillway_setting(const char* name) { return 0; }\n"
                    "const char* spillway_setting_source(const char* name) { return 0; }\n"
                    "int cuDeviceGetCount(int* count) { return 3; }\n")  # fmt: skip
            subprocess.run(["cc", "-shared", "-fPIC", "-xc", "-", "-o", Path(folder, "libspillway.so")], input=stub, text=True, check=True)
            reason = "Spillway cannot take over the CUDA driver that is in this process: a reason"
            lines = self.run_code(code + code, device=False, SPILLWAY_LIBRARY_DIR=folder)
            self.assertEqual(lines, [reason, "False False"] * 2, "the second call finds the library loaded, and no better")
            Path(folder, "libspillway_engine.so").unlink()
            lines = self.run_code(code, device=False, SPILLWAY_LIBRARY_DIR=folder)
            self.assertIn("Spillway's engine cannot be loaded", lines[0])

    def test_a_second_call_without_a_driver_is_no_contradiction(self):
        code = "import spillway; print(spillway.enable(log='info'), spillway.enable(log='info'))"
        self.assertEqual(self.run_code(code, device=False), ["True True"])

    def test_paths_are_no_booleans(self):
        code = """
import spillway
for settings in ({"report": True}, {"metrics": False}, {"dirs": True}):
    try:
        spillway.enable(**settings)
    except ValueError as error:
        print(error)
"""
        self.assertEqual(self.run_code(code, device=False),
                         ["spillway.enable(report=True): it takes a path, or 'none'", "spillway.enable(metrics=False): it takes a path, or 'none'",
                          "spillway.enable(dirs=True): it takes a path, or 'none'"])  # fmt: skip

    def test_relative_paths_are_those_of_the_folder_of_the_call(self):
        code = """
import os, spillway
os.chdir("/var/tmp")
spillway.enable(metrics="m.json", trace="None", report="/var/tmp/r.json")
os.chdir("/")
print(os.environ["SPILLWAY_METRICS"], os.environ["SPILLWAY_TRACE"], os.environ["SPILLWAY_REPORT"])
print(spillway.enable(metrics="var/tmp/m.json", trace="off"))
"""
        self.assertEqual(self.run_code(code, device=False), ["/var/tmp/m.json None /var/tmp/r.json", "True"])

    def test_a_preloaded_sanitizer_stays_in_front(self):
        code = "import os, spillway; spillway.enable(log='info'); print(os.environ['LD_PRELOAD'])"
        ours = f"{BUILD}/lib/libspillway.so"
        for before, after in (("/x/libasan.so.8:/other.so", f"/x/libasan.so.8:{ours}:/other.so"), ("/a.so libhwasan.so", f"/a.so:libhwasan.so:{ours}"),
                              ("/other.so", f"{ours}:/other.so")):  # fmt: skip
            self.assertEqual(self.run_code(code, device=False, LD_PRELOAD=before), [after])

    def test_preloaded_and_switched_off(self):
        preload = f"{BUILD}/lib/libspillway.so"
        lines = self.run_code(PRELOADED, LD_PRELOAD=preload, SPILLWAY_GPU_MEMORY="96MiB")
        self.assertEqual((lines[0], lines[2]), ("True True", "96"))
        self.assertIn("contradicts SPILLWAY_GPU_MEMORY", lines[1])
        code = "import spillway; print(spillway.enable(gpu_memory='96MiB')); print('libspillway' in open('/proc/self/maps').read())"
        self.assertEqual(self.run_code(code, device=False, SPILLWAY="off"), ["False", "False"])


if __name__ == "__main__":
    unittest.main()
