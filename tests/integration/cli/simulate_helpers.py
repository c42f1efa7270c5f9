"""What the tests of `spillway simulate` share: the program, small traces as CSV."""

import json
import os
import subprocess

PROGRAM = os.path.join(os.environ["SPILLWAY_BUILD"], "bin", "spillway")
MIB = 2**20


def simulate(trace, *options):
    command = [PROGRAM, "simulate", "--trace", str(trace), *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)


def without_lp():
    """Whether the program was built without CLP, and says so."""
    run = simulate("llama3-8b:layers=1", "--gpu-memory", "1TB", "--bound", "lp")
    return run.returncode == 2 and "not available: this build has no CLP" in run.stderr


def result_of(trace, *options):
    """The JSON of a run that must succeed."""
    run = simulate(trace, *options, "--json")
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def write_csv(folder, tensors, kernels):
    """`tensors`: (bytes, persistent); `kernels`: (name, microseconds, inputs, outputs, workspace)."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "tensors.csv"), "w", encoding="utf-8") as file:
        file.write("tensor_id,size_bytes,persistent\n")
        file.writelines(f"{t},{size},{int(keep)}\n" for t, (size, keep) in enumerate(tensors))
    with open(os.path.join(folder, "kernels.csv"), "w", encoding="utf-8") as file:
        file.write("kernel_id,name,duration_us,inputs,outputs,workspace_bytes\n")
        for k, (name, micros, inputs, outputs, workspace) in enumerate(kernels):
            lists = [" ".join(map(str, sorted(ids))) for ids in (inputs, outputs)]
            time = f"{micros:.3f}" if isinstance(micros, int) else micros
            file.write(f"{k},{name},{time},{lists[0]},{lists[1]},{workspace}\n")
    return folder


def layered(folder, layers=12, micros=2000, activation=20 * MIB, weight=8 * MIB):
    """A forward pass that keeps an activation per layer and a backward pass that reads them in reverse."""
    tensors = [(weight, True)] * layers + [(activation, False)] * (layers + 1)
    kernels = [("input", micros, [], [layers], 0)]
    for i in range(layers):
        kernels.append(("forward", micros, [i, layers + i], [layers + i + 1], 0))
    for i in reversed(range(layers)):
        kernels.append(("backward", 2 * micros, [i, layers + i, layers + i + 1], [i], 4 * MIB))
    return write_csv(folder, tensors, kernels)


def number(value):
    """Seven bits a byte, lowest first."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def encode(tensors, kernels):
    """The compact form, written down a second time. `tensors`: (bytes, persistent, life or None); `kernels`: (name,
    nanoseconds, inputs, outputs)."""
    out = b"SPILLTRC\x02" + number(len(tensors))
    for size, keep, life in tensors:
        out += number(size << 2 | (2 if life else 0) | int(keep))
        if life:
            out += number(life[0]) + number(life[1])
    out += number(len(kernels))
    for name, nanos, *lists in kernels:
        out += number(len(name)) + name.encode() + number(nanos) + number(0)
        for ids in lists:
            differences = [b - a for a, b in zip([0, *sorted(ids)], sorted(ids))]
            out += number(len(differences)) + b"".join(map(number, differences))
    checksum = 0xCBF29CE484222325
    for byte in out:
        checksum = (checksum ^ byte) * 0x100000001B3 % 2**64
    return out + checksum.to_bytes(8, "little")
