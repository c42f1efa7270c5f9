"""Processes whose SIMCUDA_MACHINE names one file share their devices' memory; what a process held that was killed is free.

Usage: driver_machine_test.py LIBCUDA
"""
import ctypes
import os
import subprocess
import sys
import tempfile
import unittest

MIB = 1 << 20


def child():
    """A process of CUDA's: words on standard input, one answer each."""
    cuda = ctypes.CDLL(sys.argv[2])
    size, context = ctypes.c_size_t, ctypes.c_void_p()
    if cuda.cuInit(0) != 0:
        sys.exit("no device")
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    cuda.cuCtxSetCurrent(context)
    pointers = []
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "take":
            pointer = ctypes.c_uint64()
            answer = cuda.cuMemAlloc_v2(ctypes.byref(pointer), size(int(rest[0]) * MIB))
            pointers += [pointer] if answer == 0 else []
        elif word == "give":
            answer = cuda.cuMemFree_v2(pointers.pop())
        elif word == "free":
            free, total = size(), size()
            cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
            answer = free.value // MIB
        else:
            uuid = ctypes.create_string_buffer(16)
            cuda.cuDeviceGetUuid(uuid, 0)
            answer = uuid.raw.decode()
        print(answer, flush=True)


class Process:
    def __init__(self, machine, memory="64MiB"):
        clean = {key: value for key, value in os.environ.items() if not key.startswith("SIMCUDA_")}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--child", LIBRARY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            stderr=subprocess.PIPE, env={**clean, "SIMCUDA_MACHINE": machine, "SIMCUDA_MEMORY": memory})

    def ask(self, words):
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self):
        self.process.kill()
        return self.process.communicate()[1]


class MachineTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.machine = os.path.join(folder.name, "machine")

    def start(self, machine):
        process = Process(machine)
        self.addCleanup(process.end)
        return process

    def test_one_device_has_its_memory_once(self):
        first, second, alone = self.start(self.machine), self.start(self.machine), self.start("")
        self.assertEqual(first.ask("take 40"), "0")
        self.assertEqual([process.ask("free") for process in (first, second, alone)], ["24", "24", "64"])
        self.assertEqual(second.ask("take 32"), "2")  # out of memory
        self.assertEqual(second.ask("take 16"), "0")
        self.assertEqual(first.ask("free"), "8")
        self.assertEqual(first.ask("give"), "0")
        self.assertEqual(second.ask("take 48"), "0")
        self.assertEqual(alone.ask("take 64"), "0")

    def test_a_killed_process_holds_nothing(self):
        first, second = self.start(self.machine), self.start(self.machine)
        first.ask("take 40")
        first.end()
        self.assertEqual(second.ask("free"), "64")
        self.assertEqual(second.ask("take 60"), "0")

    def test_devices_of_two_machines_differ(self):
        first, second, other = (self.start(machine) for machine in (self.machine, self.machine, self.machine + "2"))
        names = [process.ask("name") for process in (first, second, other, self.start(""))]
        self.assertEqual(names[0], names[1])
        self.assertEqual(len(set(names)), 3)
        self.assertEqual(names[3], "simcuda-device-0")

    def test_a_file_that_cannot_be_is_named(self):
        process = self.start("/nowhere/machine")
        self.assertIn("simcuda: SIMCUDA_MACHINE=/nowhere/machine: No such file or directory", process.end()
                      if process.process.wait() else "")


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        child()
    else:
        LIBRARY = sys.argv.pop(1)
        unittest.main(verbosity=2)
