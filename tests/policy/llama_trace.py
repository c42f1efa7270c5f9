"""Writes a trace (kernels.csv, tensors.csv) of one training step of a Llama-3 shaped model, from shapes alone.

usage: llama_trace.py FOLDER [--model 8b|70b] [--layers N] [--batch N] [--sequence N] [--micro-batches N]
                      [--tflops 400] [--bandwidth 3.3e12]

Weights and gradients in bf16, AdamW's master weights and two moments in fp32, all persistent; every activation is kept
for the backward pass. Kernel times are the larger of operations / tflops and bytes / bandwidth: estimates, no recordings.
--layers is the part of the model that one GPU has in a pipeline; --micro-batches repeats forward and backward.
"""

import argparse
import os

MODELS = {  # hidden, feed-forward, key-value width, layers, vocabulary
    "8b": (4096, 14336, 1024, 32, 128256),
    "70b": (8192, 28672, 1024, 80, 128256),
}
HALF, FULL = 2, 4  # bytes of a number


class Trace:
    def __init__(self, flops, bandwidth):
        self.flops, self.bandwidth = flops, bandwidth
        self.sizes, self.kernels = [], []

    def tensor(self, size, persistent=False):
        self.sizes.append((max(4096, (int(size) + 4095) // 4096 * 4096), persistent))
        return len(self.sizes) - 1

    def kernel(self, name, inputs, outputs, operations=0):
        moved = sum(self.sizes[t][0] for t in inputs + outputs)
        micros = 1e6 * max(operations / self.flops, moved / self.bandwidth, 2e-6)
        self.kernels.append((name, f"{micros:.3f}", sorted(set(inputs)), sorted(set(outputs))))

    def write(self, folder):
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "tensors.csv"), "w", encoding="utf-8") as file:
            file.write("tensor_id,size_bytes,persistent\n")
            file.writelines(f"{t},{size},{int(keep)}\n" for t, (size, keep) in enumerate(self.sizes))
        with open(os.path.join(folder, "kernels.csv"), "w", encoding="utf-8") as file:
            file.write("kernel_id,name,duration_us,inputs,outputs,workspace_bytes\n")
            for k, (name, micros, inputs, outputs) in enumerate(self.kernels):
                file.write(f"{k},{name},{micros},{' '.join(map(str, inputs))},{' '.join(map(str, outputs))},0\n")


class Matrix:
    """A weight with its gradient and AdamW's state."""

    def __init__(self, trace, rows, columns):
        self.trace, self.rows, self.columns = trace, rows, columns
        count = rows * columns
        self.weight, self.gradient = trace.tensor(count * HALF, True), trace.tensor(count * HALF, True)
        self.state = [trace.tensor(count * FULL, True) for _ in range(3)]
        self.fresh = True  # the gradient is overwritten, not added to, in the first micro-batch

    def forward(self, tokens, x):
        y = self.trace.tensor(tokens * self.columns * HALF)
        self.trace.kernel("MatMul_Forward", [x, self.weight], [y], 2 * tokens * self.rows * self.columns)
        return y

    def backward(self, tokens, x, dy):
        dx = self.trace.tensor(tokens * self.rows * HALF)
        work = 2 * tokens * self.rows * self.columns
        self.trace.kernel("MatMul_BackwardData", [dy, self.weight], [dx], work)
        added = [] if self.fresh else [self.gradient]
        self.trace.kernel("MatMul_BackwardWeight", [x, dy, *added], [self.gradient], work)
        self.fresh = False
        return dx

    def update(self):
        self.trace.kernel("AdamW", [self.gradient, *self.state], [self.weight, *self.state])


class Layer:
    def __init__(self, trace, hidden, wide, narrow):
        self.trace, self.hidden, self.wide = trace, hidden, wide
        self.q, self.o = Matrix(trace, hidden, hidden), Matrix(trace, hidden, hidden)
        self.k, self.v = Matrix(trace, hidden, narrow), Matrix(trace, hidden, narrow)
        self.gate, self.up = Matrix(trace, hidden, wide), Matrix(trace, hidden, wide)
        self.down = Matrix(trace, wide, hidden)

    def pointwise(self, name, inputs, tokens, width):
        y = self.trace.tensor(tokens * width * HALF)
        self.trace.kernel(name, inputs, [y])
        return y

    def forward(self, tokens, sequence, x):
        n1 = self.pointwise("Norm_Forward", [x], tokens, self.hidden)
        q, k, v = (m.forward(tokens, n1) for m in (self.q, self.k, self.v))
        a = self.trace.tensor(tokens * self.hidden * HALF)
        self.trace.kernel("Attention_Forward", [q, k, v], [a], 2 * tokens * sequence * self.hidden)
        r1 = self.pointwise("Add_Forward", [x, self.o.forward(tokens, a)], tokens, self.hidden)
        n2 = self.pointwise("Norm_Forward", [r1], tokens, self.hidden)
        g, u = self.gate.forward(tokens, n2), self.up.forward(tokens, n2)
        s = self.pointwise("SiluMul_Forward", [g, u], tokens, self.wide)
        r2 = self.pointwise("Add_Forward", [r1, self.down.forward(tokens, s)], tokens, self.hidden)
        return r2, (x, n1, q, k, v, a, r1, n2, g, u, s)

    def backward(self, tokens, sequence, saved, dy):
        x, n1, q, k, v, a, r1, n2, g, u, s = saved
        ds = self.down.backward(tokens, s, dy)
        dg, du = (self.pointwise("SiluMul_Backward", [ds, g, u], tokens, self.wide) for _ in range(2))
        d2 = [self.gate.backward(tokens, n2, dg), self.up.backward(tokens, n2, du)]
        dr1 = self.pointwise("Norm_Backward", [r1, dy, *d2], tokens, self.hidden)
        da = self.o.backward(tokens, a, dr1)
        dq, dk, dv = (self.trace.tensor(self.trace.sizes[t][0]) for t in (q, k, v))
        self.trace.kernel("Attention_Backward", [q, k, v, a, da], [dq, dk, dv], 5 * tokens * sequence * self.hidden)
        d1 = [m.backward(tokens, n1, d) for m, d in ((self.q, dq), (self.k, dk), (self.v, dv))]
        return self.pointwise("Norm_Backward", [x, dr1, *d1], tokens, self.hidden)

    def matrices(self):
        return (self.q, self.k, self.v, self.o, self.gate, self.up, self.down)


def step(args):
    hidden, wide, narrow, layers, vocabulary = MODELS[args.model]
    trace = Trace(args.tflops * 1e12, args.bandwidth)
    stack = [Layer(trace, hidden, wide, narrow) for _ in range(args.layers or layers)]
    head = Matrix(trace, hidden, vocabulary)
    tokens = args.batch * args.sequence
    for _ in range(args.micro_batches):
        x = trace.tensor(tokens * hidden * HALF)
        trace.kernel("Embedding_Forward", [], [x])
        saved = []
        for layer in stack:
            x, kept = layer.forward(tokens, args.sequence, x)
            saved.append(kept)
        logits = head.forward(tokens, x)
        dlogits = trace.tensor(tokens * vocabulary * HALF)
        trace.kernel("CrossEntropy", [logits], [dlogits])
        dy = head.backward(tokens, x, dlogits)
        for layer, kept in zip(reversed(stack), reversed(saved)):
            dy = layer.backward(tokens, args.sequence, kept, dy)
    for layer in stack:
        for matrix in layer.matrices():
            matrix.update()
    head.update()
    return trace


def main():
    parser = argparse.ArgumentParser(description="Writes the trace of a Llama-3 shaped training step.")
    parser.add_argument("folder")
    parser.add_argument("--model", choices=MODELS, default="70b")
    parser.add_argument("--layers", type=int, default=0, help="default: all")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--sequence", type=int, default=4096)
    parser.add_argument("--micro-batches", type=int, default=1)
    parser.add_argument("--tflops", type=float, default=400)
    parser.add_argument("--bandwidth", type=float, default=3.3e12)
    args = parser.parse_args()
    trace = step(args)
    trace.write(args.folder)
    print(f"{len(trace.kernels)} kernels, {len(trace.sizes)} tensors")


if __name__ == "__main__":
    main()
