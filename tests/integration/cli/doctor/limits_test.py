"""`spillway doctor` on machines on which one thing is wrong: no GPU, no PyTorch, small limits, directories that do not serve.

Limits are the kernel's own. What only root may set up is skipped for others, and says so.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "fakes"))

from doctor_runs import BUILD, MIB, PROGRAM, QUICK, SIMCUDA, DoctorCase, run, variables  # noqa: E402  (the path comes first)
from wait_until import wait_until  # noqa: E402

SHORT_OF_ROOT = "only root may set this up"
# Refuses io_uring_setup (425) in this process and what it becomes, as a container engine's profile does.
FILTER = """
import ctypes, struct, sys
rows = [(0x20, 0, 0, 0), (0x15, 0, 1, 425), (0x06, 0, 0, 0x00050000 | {error}), (0x06, 0, 0, 0x7fff0000)]
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in rows))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("rows", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(len(rows), ctypes.addressof(program)))) == 0
"""


def in_mounts(test, script):
    """What stands before a command that runs in a mount namespace of its own, after `script`."""
    prefix = ("unshare", "--mount", "--propagation", "private", "sh", "-c", f'{script} || exit 125; exec "$@"', "sh")
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
        test.skipTest(SHORT_OF_ROOT)
    return prefix


def bytes_of(pid, folder):
    """What the process's open files in the folder take on the disk."""
    total = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed in the meantime
            total += link.stat().st_blocks * 512 if os.readlink(link).startswith(f"{folder}/") else 0
    return total


@contextlib.contextmanager
def control_group(test, limit):
    """A control group with a limit of memory; what stands before a command that runs in it."""
    for base, name in ((Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (Path("/sys/fs/cgroup"), "memory.max")):
        folder = base / f"spillway_doctor_{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            (folder / name).write_text(str(limit))
            (folder / "cgroup.procs").read_text()
            yield ("sh", "-c", f'echo $$ > {folder}/cgroup.procs || exit 125; exec "$@"', "sh")
            return
        except OSError as error:
            test.skipTest(f"{SHORT_OF_ROOT}: {error}")
        finally:
            with contextlib.suppress(OSError):
                folder.rmdir()
    test.skipTest(SHORT_OF_ROOT)


class LimitsTest(DoctorCase):
    # ---- Machines that lack something.

    def test_without_a_gpu(self):
        facts = self.facts(device=False, status=1, SPILLWAY_CUDA_DRIVER="")
        if facts["driver"]["problem"] is None:
            self.skipTest("this machine has a driver")
        self.expect(facts, "driver", "bad", "libcuda.so.1 is not found, neither .* nor in /usr/local/nvidia/lib64, .* -> install NVIDIA's")
        self.assertIn("This machine is not usable: driver\n", self.doctor(device=False).stdout)

    def test_a_driver_where_containers_have_it(self):
        over, place = self.folder / "over", "/usr/local/nvidia/lib64"
        over.mkdir()
        prefix = in_mounts(
            self,
            f"mount -t tmpfs tmpfs {over} && mkdir {over}/upper {over}/work && mount -t overlay overlay "
            f"-o lowerdir=/usr/local,upperdir={over}/upper,workdir={over}/work /usr/local && mkdir -p {place} && "
            f"ln -s {BUILD}/lib/simcuda/libcuda.so.1 {place}",
        )
        facts = self.facts(device=False, prefix=prefix)
        if facts["driver"]["found_by_loader"]:
            self.skipTest("this machine has a driver")
        self.assertEqual(facts["driver"]["path"], f"{place}/libcuda.so.1")
        self.expect(facts, "driver", "limited", rf"CUDA 13.*, {place}/libcuda.so.1, .* need the directory in LD_LIBRARY_PATH")
        facts = self.facts(device=False, prefix=prefix, LD_LIBRARY_PATH=place)
        self.expect(facts, "driver", "good", rf"CUDA 13.*, {place}/libcuda.so.1, ")

    def test_a_driver_that_is_named_is_opened(self):
        facts = self.facts(device=False, SPILLWAY_CUDA_DRIVER=f"{BUILD}/lib/simcuda/libcuda.so.1")
        self.assertIsNone(facts["driver"]["problem"])
        not_one = self.folder / "libcuda.so.1"
        not_one.write_text("nothing")
        self.expect(self.facts(status=1, SPILLWAY_CUDA_DRIVER=str(not_one)), "driver", "bad", "file too short|invalid ELF")

    def test_calls_of_the_driver_that_fail(self):
        facts = self.facts(SIMCUDA_FAIL="cuMemHostRegister_v2:1+")
        self.expect(facts, "link of GPU 0", "limited", "not measured: pinning host memory")
        facts = self.facts(status=1, SIMCUDA_FAIL="cuDevicePrimaryCtxRetain:1+")
        self.expect(facts, "GPU 0", "bad", "making a context: ")
        facts = self.facts(SIMCUDA_FAIL="cuMemcpyDtoHAsync_v2:5+")
        self.expect(facts, "link of GPU 0", "limited", "not measured: a copy from the GPU")

    def test_drivers_that_do_not_serve(self):
        for result, words in ((100, "cuInit fails with 100 -> see that nvidia-smi works"), (0, "-> a driver of CUDA 12.4 or newer")):
            library = self.folder / f"libcuda_{result}.so"
            code = f"int cuInit(unsigned flags) {{ return {result}; }}"
            subprocess.run(["cc", "-shared", "-fPIC", "-xc", "-", "-o", library], input=code, text=True, check=True)
            self.expect(self.facts(status=1, device=False, SPILLWAY_CUDA_DRIVER=str(library)), "driver", "bad", words)

    def test_without_pytorch(self):
        empty = {"PYTHONPATH": str(self.spill)}
        bare = run("--json", "--dirs", str(self.spill), "--disk-seconds", "0", PATH="/none")
        self.assertEqual(bare.returncode, 0, bare.stderr)
        self.expect(json.loads(bare.stdout), "PyTorch", "limited", "there is no python3 in PATH -> --python names")
        if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
            self.skipTest("this Python has PyTorch")
        self.expect(self.facts(status=1, **empty), "PyTorch", "bad", "PyTorch is not installed in it")

    def test_a_pytorch_that_is_not_served(self):
        self.pytorch("1.13.1+cu117")
        self.expect(self.facts(status=1), "PyTorch", "bad", r"there is no library for 1\.13 -> PyTorch would keep its own")
        self.pytorch(f"{self.minor()}.0+cpu", cuda="None")
        self.expect(self.facts(status=1), "PyTorch", "bad", "built without CUDA")

    def test_a_python_that_is_none(self):
        self.expect(self.with_python("/no/such/python"), "PyTorch", "bad", "No such file")
        self.expect(self.with_python("/bin/false"), "PyTorch", "bad", "is it a Python")

    def with_python(self, python):
        done = run("--json", "--python", python, "--dirs", str(self.spill), "--disk-seconds", "0")
        self.assertEqual(done.returncode, 1, done.stderr)
        return json.loads(done.stdout)

    def test_asked_for_and_not_loaded(self):
        facts = self.facts(status=1, PYTORCH_CUDA_ALLOC_CONF="backend:spillway")
        self.expect(facts, "loading", "bad", "names backend:spillway, and this Python does not load it")
        facts = self.facts(SPILLWAY="off")
        self.expect(facts, "loading", "limited", "SPILLWAY=off")

    # ---- Limits of the kernel's.

    def test_locked_memory(self):
        facts = self.facts(prefix=("prlimit", "--memlock=65536", "--"))
        self.assertEqual(facts["limits"]["locked_bytes"], 65536)
        self.expect(facts, "locked memory", "limited", "64.00 KiB -> .*ulimit -l unlimited")

    def test_files_and_sizes(self):
        facts = self.facts(prefix=("prlimit", "--nofile=200", f"--fsize={64 * MIB}", "--"))
        self.expect(facts, "open files", "limited", "200 -> raise it")
        self.expect(facts, "file size", "limited", "64.00 MiB")
        self.assertLessEqual(facts["directories"][0]["write"]["bytes"], 64 * MIB)

    def test_a_filter_that_refuses_io_uring(self):
        self.check_filter("EPERM", 1, "a filter of system calls refuses it|the administrator has switched it off")
        self.check_filter("ENOSYS", 38, "has no io_uring")

    def check_filter(self, name, number, words):
        code = FILTER.format(error=number) + f"import os; os.execvpe({SIMCUDA[0]!r}, {[*SIMCUDA, PROGRAM, 'doctor']!r} + sys.argv[1:], os.environ)"
        done = run("--dirs", str(self.spill), "--python", sys.executable, *QUICK, "--json", device=False,
                   command=(sys.executable, "-c", code), PYTHONPATH=str(self.site))  # fmt: skip
        self.assertEqual(done.returncode, 0, f"{name}: {done.stderr}")
        facts = json.loads(done.stdout)
        self.expect(facts, "io_uring", "limited", words)
        self.assertFalse(facts["directories"][0]["io_uring"])
        self.assertGreater(facts["directories"][0]["write"]["bytes"], 0, "by threads")

    def test_a_tiny_control_group(self):
        with control_group(self, 96 * MIB) as prefix:
            facts = self.facts(prefix=prefix, PYTHONDONTWRITEBYTECODE="1")
        self.assertEqual(facts["machine"]["group_memory_bytes"], 96 * MIB)
        self.expect(facts, "host memory", "limited", r"its control group may use 96\.00 MiB")
        value = next(it["value"] for it in facts["settings"] if it["name"] == "host_memory")
        self.assertEqual(value, "0")

    # ---- Directories.

    def test_directories_that_cannot_be_used(self):
        for path, words in (("/no/such/folder", "No such file or directory"), ("/dev/shm", "tmpfs"), ("/proc", "/proc")):
            facts = self.with_directory(path)
            self.expect(facts, f"directory {path}", "bad", words + ".* -> choose others with SPILLWAY_DIRS")
            self.expect(facts, "start", "bad", f"a job is refused: --dirs={path} is invalid; expected: writable directories")
            self.assertEqual(facts["settings"][2]["value"], "none")

    def with_directory(self, path, prefix=(), status=1, **more):
        done = run("--json", "--dirs", path, "--python", sys.executable, *QUICK, prefix=prefix, PYTHONPATH=str(self.site), **more)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def test_a_read_only_directory(self):
        prefix = in_mounts(self, f"mount --bind {self.spill} {self.spill} && mount -o remount,bind,ro {self.spill}")
        facts = self.with_directory(str(self.spill), prefix)
        self.expect(facts, f"directory {self.spill}", "bad", "Read-only file system")

    def test_a_disk_that_is_nearly_full(self):
        image = self.folder / "image"
        with open(image, "wb") as file:
            file.truncate(4 << 30)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True, capture_output=True)
        prefix = in_mounts(self, f"mount -o loop {image} {self.spill}")
        facts = self.with_directory(str(self.spill), prefix, SPILLWAY_DISK_RESERVE="")
        disk = facts["directories"][0]
        self.assertEqual((disk["space_bytes"], disk["reserve_bytes"]), (0, 10 << 30))
        self.assertIn("no space to measure in", disk["rate_problem"])
        self.assertIn("directories with more free space than the reserve", facts["start"]["refusal"])
        values = {it["name"]: it["value"] for it in facts["settings"]}
        self.assertEqual((values["disk_reserve"], values["dirs"]), ("1GiB", str(self.spill)))
        # With what it says, the machine serves, and the figures stop at the space.
        facts = self.with_directory(str(self.spill), prefix, status=0, SPILLWAY_DISK_RESERVE=values["disk_reserve"])
        self.assertGreater(facts["directories"][0]["write"]["bytes"], 0)

    def test_no_directory_at_all(self):
        facts = self.with_directory("none", status=0)
        self.assertEqual(facts["directories"], [])
        self.expect(facts, "directory", "good", "none, as the settings say")

    def test_nothing_is_left_whatever_ends_it(self):
        before = os.statvfs(self.spill).f_bavail
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            command = [*SIMCUDA, PROGRAM, "doctor", "--dirs", str(self.spill), "--disk-seconds", "60"]
            with subprocess.Popen(command, env=variables(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
                for line in process.stderr:
                    if "writing" in line:
                        break
                self.assertTrue(wait_until(lambda: bytes_of(process.pid, self.spill) > MIB))
                process.send_signal(number)
                start = time.monotonic()
                self.assertEqual(process.wait(30), -number)
                self.assertLess(time.monotonic() - start, 10)
            self.assertEqual(list(self.spill.iterdir()), [])
        # The file system gives space back at its next commit; others use it, too.
        self.assertTrue(wait_until(lambda: os.statvfs(self.spill).f_bavail > before * 0.8))


if __name__ == "__main__":
    unittest.main()
