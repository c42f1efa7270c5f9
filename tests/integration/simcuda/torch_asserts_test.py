"""Device-side asserts: a value that PyTorch's CUDA kernel asserts about and that is wrong does not raise at the call, but
fails the device: the next synchronisation and everything after it is AcceleratorError "device-side assert triggered", and
standard error has the line that a device prints. Each operator twice: at its first call of that shape (which the stand-in
runs and waits for) and later (queued). Each in a forked child, since the device is lost afterwards."""

import json
import os
import re
import sys
import tempfile
import traceback
import unittest

import torch
import torch.nn.functional as F

if torch.version.cuda is None:
    print("skipped: this PyTorch was built without CUDA")
    sys.exit(77)

MINOR = int(torch.__version__.split(".")[1])
NAN = float("nan")


def cuda(values, **options):
    return torch.tensor(values, device="cuda", **options)


def ramp(*shape):
    return torch.arange(1.0, 1.0 + torch.Size(shape).numel(), device="cuda").reshape(shape) / 100


def index(bad, good, wrong):
    return cuda(wrong if bad else good)


def probabilities(bad, wrong):
    return cuda(wrong if bad else [0.25, 0.5, 0.25])


def nll(bad, shape, backward):
    """nll_loss of log-probabilities of a shape, whose last target is wrong."""
    ops = torch.ops.aten
    x = F.log_softmax(ramp(*shape), 1)
    target = torch.zeros(shape[:1] + shape[2:], dtype=torch.long, device="cuda")
    target.view(-1)[0] = -100  # ignored
    if bad:
        target.view(-1)[-1] = shape[1]
    two = "2d" if len(shape) == 4 else ""
    if not backward:
        return getattr(ops, f"nll_loss{two}_forward")(x, target, None, 1, -100)
    one = torch.ones((), device="cuda")
    return getattr(ops, f"nll_loss{two}_backward")(one, x, target, None, 1, -100, one)


def multi_margin(bad, backward):
    x, target = ramp(2, 3), index(bad, [0, 2], [0, 3])
    if not backward:
        return F.multi_margin_loss(x, target)
    return torch.ops.aten.multi_margin_loss_backward(torch.ones((), device="cuda"), x, target, 1, 1, None, 1)


def unpool(bad, dims):
    x = ramp(1, 1, *[2] * dims)
    indices = torch.zeros(x.shape, dtype=torch.long, device="cuda")
    if bad:
        indices.view(-1)[1] = 4 ** dims
    return (F.max_unpool2d if dims == 2 else F.max_unpool3d)(x, indices, 2, output_size=[4] * dims)


def set_(bad, good, wrong):
    """x[i] = v with a list of indices: index_put_."""
    x = ramp(4, 3)
    x[index(bad, good, wrong)] = 1.0
    return x


# Name, operator in the assert's line, call(bad).
CASES = [
    ("embedding", "index_select", lambda bad: F.embedding(index(bad, [[0, 3]], [[0, 4]]), ramp(4, 2))),
    ("embedding, negative", "index_select", lambda bad: F.embedding(index(bad, [0, 3], [0, -1]), ramp(4, 2))),
    ("index_select", "index_select", lambda bad: ramp(4, 2).index_select(1, index(bad, [0, 1], [0, 2]))),
    ("index_add_", "index_add_", lambda bad: ramp(4, 2).index_add_(0, index(bad, [0, 3], [0, 4]), ramp(2, 2))),
    ("index_add", "index_add", lambda bad: ramp(4, 2).index_add(0, index(bad, [0, 3], [-1, 0]), ramp(2, 2))),
    ("index_copy_", "index_copy_", lambda bad: ramp(4, 2).index_copy_(0, index(bad, [0, 3], [0, 4]), ramp(2, 2))),
    ("index_fill_", "index_fill_", lambda bad: ramp(4, 2).index_fill_(0, index(bad, [0, -4], [0, -5]), 1.0)),
    ("index_reduce_", "index_reduce_",
     lambda bad: ramp(4, 2).index_reduce_(0, index(bad, [0, 3], [0, 4]), ramp(2, 2), "prod")),
    ("index", "index.Tensor", lambda bad: ramp(4, 3)[index(bad, [0, -4], [0, 4])]),
    ("index, second dimension", "index.Tensor", lambda bad: ramp(4, 3)[:, index(bad, [0, 2], [0, -4])]),
    ("index beside a mask", "index.Tensor",
     lambda bad: ramp(2, 2, 3)[cuda([[True, False], [False, True]]), index(bad, [0, 2], [0, 3])]),
    ("index_put_", "_index_put_impl_", lambda bad: set_(bad, [0, 3], [0, 4])),
    ("index_put", "_index_put_impl_",
     lambda bad: torch.index_put(ramp(4), (index(bad, [0, 3], [-5, 0]),), ramp(2))),
    ("take", "take", lambda bad: ramp(2, 3).take(index(bad, [0, -6], [0, 6]))),
    ("put_", "put_", lambda bad: ramp(2, 3).put_(index(bad, [0, -6], [0, -7]), ramp(2))),
    ("gather", "gather", lambda bad: ramp(2, 3).gather(1, index(bad, [[0, 2]], [[0, 3]]))),
    ("gather of expanded indices", "gather",
     lambda bad: ramp(2, 3).gather(0, index(bad, [[1]], [[2]]).expand(1, 3))),
    ("scatter_", "scatter_", lambda bad: ramp(2, 3).scatter_(1, index(bad, [[0, 2]], [[0, 3]]), ramp(1, 2))),
    ("scatter_ of a value", "scatter_", lambda bad: ramp(2, 3).scatter_(1, index(bad, [[0, 2]], [[0, 3]]), 1.0)),
    ("scatter", "scatter", lambda bad: ramp(2, 3).scatter(1, index(bad, [[0, 2]], [[-1, 0]]), ramp(1, 2))),
    ("scatter_ with reduce", "scatter_",
     lambda bad: ramp(2, 3).scatter_(1, index(bad, [[0, 2]], [[0, 3]]), ramp(1, 2), reduce="multiply")),
    ("scatter_add_", "scatter_add_", lambda bad: ramp(2, 3).scatter_add_(1, index(bad, [[0, 2]], [[0, 3]]), ramp(1, 2))),
    ("scatter_add", "scatter_add", lambda bad: ramp(2, 3).scatter_add(1, index(bad, [[0, 2]], [[0, 3]]), ramp(1, 2))),
    ("scatter_reduce", "scatter_reduce",
     lambda bad: ramp(2, 3).scatter_reduce(1, index(bad, [[0, 2]], [[0, 3]]), ramp(1, 2), "amax")),
    ("scatter_reduce_", "scatter_reduce_",
     lambda bad: ramp(2, 3).scatter_reduce_(1, index(bad, [[0, 2]], [[0, 3]]), ramp(1, 2), "sum")),
    ("one_hot", "scatter_", lambda bad: F.one_hot(index(bad, [0, 2], [0, 3]), 3)),
    ("one_hot, negative", "scatter_", lambda bad: F.one_hot(index(bad, [0, 2], [0, -1]), 3)),
    ("masked_scatter_", "masked_scatter_",
     lambda bad: ramp(4).masked_scatter_(cuda([True, True, bad, False]), ramp(2))),
    ("cross_entropy", "nll_loss_forward", lambda bad: F.cross_entropy(ramp(2, 3), index(bad, [0, 2], [0, 3]))),
    ("nll_loss", "nll_loss_forward", lambda bad: nll(bad, (4, 3), False)),
    ("nll_loss backward", "nll_loss_backward", lambda bad: nll(bad, (4, 3), True)),
    ("nll_loss of images", "nll_loss2d_forward", lambda bad: nll(bad, (2, 3, 2, 2), False)),
    ("nll_loss of images, backward", "nll_loss2d_backward", lambda bad: nll(bad, (2, 3, 2, 2), True)),
    ("multi_margin_loss", "multi_margin_loss", lambda bad: multi_margin(bad, False)),
    ("multi_margin_loss backward", "multi_margin_loss_backward", lambda bad: multi_margin(bad, True)),
    ("binary_cross_entropy", "binary_cross_entropy",
     lambda bad: F.binary_cross_entropy(index(bad, [0.0, 1.0], [0.5, 1.5]), cuda([0.0, 1.0]))),
    ("binary_cross_entropy, target", "binary_cross_entropy",
     lambda bad: F.binary_cross_entropy(cuda([0.25, 0.5]), index(bad, [0.0, 1.0], [-1.0, 0.0]))),
    ("max_unpool2d", "max_unpool2d", lambda bad: unpool(bad, 2)),
    ("max_unpool3d", "max_unpool3d", lambda bad: unpool(bad, 3)),
    ("embedding_bag, offsets", "_embedding_bag",
     lambda bad: F.embedding_bag(cuda([0, 1, 2]), ramp(4, 2), cuda([0, 2, 1] if bad else [0, 1, 2]))),
    ("multinomial, negative", "multinomial", lambda bad: torch.multinomial(probabilities(bad, [0.5, -1.0, 0.5]), 1)),
    ("multinomial, nan", "multinomial", lambda bad: torch.multinomial(probabilities(bad, [0.5, NAN, 0.5]), 2)),
    ("multinomial, sum of zero", "multinomial",
     lambda bad: torch.multinomial(probabilities(bad, [0.0, 0.0, 0.0]), 4, replacement=True)),
    ("bernoulli", "bernoulli", lambda bad: torch.bernoulli(probabilities(bad, [0.5, 1.5, 0.5]))),
    ("bernoulli_", "bernoulli_", lambda bad: ramp(3).bernoulli_(probabilities(bad, [0.5, NAN, 0.5]))),
    ("poisson", "poisson", lambda bad: torch.poisson(probabilities(bad, [0.5, -1.0, 0.5]))),
    ("repeat_interleave", "repeat_interleave",
     lambda bad: torch.repeat_interleave(index(bad, [1, 2], [4, -1]), output_size=3)),
    ("repeat_interleave, size", "repeat_interleave",
     lambda bad: torch.repeat_interleave(index(bad, [1, 2], [1, 1]), output_size=3)),
    ("_assert_async", "_assert_async", lambda bad: torch._assert_async(cuda(not bad), "my words")),
    ("_assert_async, complex", "_assert_async", lambda bad: torch._assert_async(cuda(0j if bad else 0.1j))),
]
if MINOR > 11:
    CASES += [
        ("embedding_bag", "_embedding_bag",
         lambda bad: F.embedding_bag(index(bad, [0, 1, 3], [0, 1, 4]), ramp(4, 2), cuda([0, 1]))),
        ("embedding_renorm_", "embedding_renorm_",
         lambda bad: torch.embedding_renorm_(ramp(4, 2), index(bad, [0, 3], [0, 4]), 1.0, 2.0)),
    ]


def error_of(call):
    try:
        call()
    except Exception as error:  # the test compares its type
        return [type(error).__name__, str(error).splitlines()[0]]
    return None


def play(case, first):
    """In a child: what the call and the two calls after it raise."""
    call = case[2]
    if not first:
        for _ in range(2):
            call(False)
        torch.cuda.synchronize()
    return {"call": error_of(lambda: call(True)), "synchronize": error_of(torch.cuda.synchronize),
            "later": error_of(lambda: torch.ones(3, device="cuda").sum().item()),
            "allocation": error_of(lambda: torch.empty(1 << 28, device="cuda"))}


def in_a_child(function):
    """The function's result by way of JSON, and what the child wrote to standard error."""
    with tempfile.TemporaryFile() as answers, tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            os.dup2(said.fileno(), 2)
            status = 1
            try:
                os.write(answers.fileno(), json.dumps(function()).encode())
                status = 0
            except BaseException:  # nothing may go on in the child
                traceback.print_exc()
            os._exit(status)
        _, status = os.waitpid(child, 0)
        answers.seek(0)
        said.seek(0)
        words = said.read().decode()
        if status != 0:
            raise AssertionError(f"the child ended with {status}:\n{words}")
        return json.loads(answers.read()), words


class AssertsTest(unittest.TestCase):
    def check(self, case, first):
        name, op, _ = case
        answer, said = in_a_child(lambda: play(case, first))
        self.assertIsNone(answer["call"], f"{name}: the call itself raised\n{said}")
        for step in ("synchronize", "later", "allocation"):
            self.assertIsNotNone(answer[step], f"{name}: {step} raised nothing\n{said}")
            self.assertEqual(answer[step][0], "AcceleratorError", (name, step, answer[step]))
            self.assertIn("device-side assert triggered", answer[step][1])
        self.assertRegex(said, rf"aten::{re.escape(op)}[^:]*: block: \[\d+,0,0\], thread: \[\d+,0,0\] Assertion `.+` failed\.")

    def test_the_first_call(self):
        for case in CASES:
            with self.subTest(case[0]):
                self.check(case, True)

    def test_a_later_call(self):
        for case in CASES:
            with self.subTest(case[0]):
                self.check(case, False)

    def test_the_backward_of_an_embedding_is_not_reached_with_bad_indices(self):
        def train():
            weight = ramp(4, 2).requires_grad_()
            step = error_of(lambda: F.embedding(cuda([0, 4]), weight).sum().backward())
            return {"step": step, "gradient": weight.grad is not None, "after": error_of(torch.cuda.synchronize)}
        answer, said = in_a_child(train)
        self.assertIn("device-side assert triggered", answer["step"][1], said)
        self.assertIn("device-side assert triggered", answer["after"][1], said)
        self.assertFalse(answer["gradient"])

    def test_what_the_host_checks_raises_there_and_the_device_goes_on(self):
        def host():
            x = ramp(4)
            errors = [
                error_of(lambda: x.index_put_((cuda([0, 4]),), ramp(2), accumulate=True)),
                error_of(lambda: torch.repeat_interleave(cuda([1, -1]))),
                error_of(lambda: torch.multinomial(ramp(3), 4)),
                error_of(lambda: x.index_select(0, cuda([0.5]))),
                error_of(lambda: F.one_hot(cuda([0, 1]), 0)),
                error_of(lambda: x.bernoulli_(1.5)),
            ]
            return {"errors": errors, "sum": x.sum().item()}
        answer, said = in_a_child(host)
        self.assertEqual([error and error[0] for error in answer["errors"]],
                         ["IndexError"] + ["RuntimeError"] * 5, (answer, said))
        self.assertAlmostEqual(answer["sum"], 0.1, places=6)
        self.assertNotIn("Assertion", said)

    def test_accumulated_and_deterministic_index_put_wait_as_on_a_gpu(self):
        def put():
            torch.use_deterministic_algorithms(True)
            x = ramp(4)
            for _ in range(3):
                x.index_put_((cuda([0, 1]),), ramp(2))
            return {"error": error_of(lambda: x.index_put_((cuda([0, 4]),), ramp(2))), "end": error_of(torch.cuda.synchronize)}
        answer, said = in_a_child(put)
        self.assertEqual(answer["error"][0], "IndexError", (answer, said))
        self.assertIsNone(answer["end"])


if __name__ == "__main__":
    unittest.main()
