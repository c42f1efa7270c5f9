"""CUDA graphs on the stand-in GPU: a captured training step replays to the bits of the eager one."""

import unittest

import torch_common as common

import torch
import torch.nn.functional as F

CUDA = common.CUDA


class Step:
    """A small training step with everything in place: matmul, bias, activation, loss, gradient, momentum."""

    def __init__(self):
        torch.manual_seed(7)
        self.weight = torch.randn(64, 64).to(CUDA).requires_grad_()
        self.bias = torch.randn(64).to(CUDA).requires_grad_()
        self.momentum = [torch.zeros_like(self.weight), torch.zeros_like(self.bias)]
        self.input = torch.randn(32, 64).to(CUDA)
        self.loss = torch.zeros((), device=CUDA)

    def run(self):
        output = F.gelu(self.input @ self.weight + self.bias)
        loss = (output * output).mean()
        gradients = torch.autograd.grad(loss, [self.weight, self.bias])
        with torch.no_grad():
            for parameter, momentum, gradient in zip([self.weight, self.bias], self.momentum, gradients):
                momentum.mul_(0.9).add_(gradient)
                parameter.add_(momentum, alpha=-0.1)
            self.loss.copy_(loss)

    def state(self):
        return [t.detach().cpu().clone() for t in [self.weight, self.bias, *self.momentum, self.loss]]


def warm_up(function):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            function()
    torch.cuda.current_stream().wait_stream(stream)


class GraphTest(unittest.TestCase):
    def assertSameBits(self, left, right):
        for a, b in zip(left, right, strict=True):
            self.assertTrue(torch.equal(a, b))

    def test_replays_equal_eager_steps(self):
        eager, graphed = Step(), Step()
        warm_up(eager.run)
        warm_up(graphed.run)
        graph = torch.cuda.CUDAGraph()
        before = graphed.state()
        with torch.cuda.graph(graph):
            graphed.run()
        self.assertSameBits(graphed.state(), before)  # a capture computes nothing
        for step in range(3):
            data = torch.full((32, 64), 0.25 * step) + torch.arange(64) / 64
            eager.input.copy_(data)
            graphed.input.copy_(data)
            eager.run()
            graph.replay()
            self.assertSameBits(graphed.state(), eager.state())

    def test_fork_and_join_inside_a_capture(self):
        x = torch.arange(256.0, device=CUDA)
        left, right, total = (torch.zeros_like(x) for _ in range(3))
        side = torch.cuda.Stream()

        def run():
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.mul(x, 3, out=left)
            torch.add(x, 1, out=right)
            torch.cuda.current_stream().wait_stream(side)
            torch.add(left, right, out=total)

        warm_up(run)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        x.fill_(5)
        graph.replay()
        self.assertEqual(total.cpu().tolist(), [21.0] * 256)

    def test_random_numbers_differ_between_replays_and_follow_the_seed(self):
        x = torch.ones(512, device=CUDA)
        out = torch.empty_like(x)

        def run():
            out.copy_(F.dropout(x, 0.5))

        warm_up(run)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        # Beginning a capture writes the generator's seed on the capture's stream, which a replay does not wait for.
        torch.cuda.synchronize()

        def replays():
            torch.cuda.manual_seed(3)
            results = []
            for _ in range(2):
                graph.replay()
                results.append(out.cpu())
            return results

        first, second = replays()
        self.assertFalse(torch.equal(first, second))
        self.assertSameBits(replays(), [first, second])

    def test_an_op_that_was_not_warmed_up_is_captured(self):
        x = torch.arange(15.0, device=CUDA).view(3, 5)
        index = torch.tensor([2, 0], device=CUDA)
        grown = torch.empty(0, device=CUDA)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            sums = torch.cumsum(x, 1)
            rows = torch.index_select(x, 0, index)
            torch.add(x, 1, out=grown)
            x.add_(1)
        self.assertEqual(x[0, 0].item(), 0)  # a capture computes nothing
        graph.replay()
        self.assertEqual(sums[0].tolist(), [0.0, 1.0, 3.0, 6.0, 10.0])
        self.assertEqual(rows[:, 0].tolist(), [10.0, 0.0])
        self.assertEqual(grown[0].tolist(), [1.0, 2.0, 3.0, 4.0, 5.0])
        self.assertEqual(x[0, 0].item(), 1)

    def test_random_numbers_that_were_not_warmed_up_are_those_of_the_replay(self):
        x, y = torch.zeros(2, 64, device=CUDA)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            x.uniform_()
        torch.cuda.synchronize()
        torch.cuda.manual_seed(3)
        graph.replay()
        torch.cuda.synchronize()
        torch.cuda.manual_seed(3)
        self.assertTrue(torch.equal(x, y.uniform_()))

    def test_a_shape_that_depends_on_data_is_refused(self):
        x = torch.ones(3, 5, device=CUDA)
        graph = torch.cuda.CUDAGraph()
        with self.assertRaisesRegex(RuntimeError, "nonzero must wait for its result"):
            with torch.cuda.graph(graph):
                torch.nonzero(x)

    def test_waiting_inside_a_capture_fails(self):
        x = torch.ones(4, device=CUDA)
        graph = torch.cuda.CUDAGraph()
        with self.assertRaisesRegex(RuntimeError, "captur"):
            with torch.cuda.graph(graph):
                x.cpu()
        torch.cuda.synchronize()
        self.assertEqual((x + 1).sum().item(), 8)


if __name__ == "__main__":
    unittest.main()
