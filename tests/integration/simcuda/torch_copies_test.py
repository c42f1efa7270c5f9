"""Copies and conversions of all kinds, in-place and out= forms, views and sharing. Started with two devices."""

import itertools
import unittest

from torch_common import CUDA, Driver, torch

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8,
          torch.bool, torch.complex64]
LAYOUTS = {
    "contiguous": lambda x: x.contiguous(),
    "transposed": lambda x: x.t().contiguous().t(),
    "strided": lambda x: x.repeat_interleave(2, 1)[:, ::2],
    "offset": lambda x: torch.cat([x[:1], x])[1:],
}


class CopiesTest(unittest.TestCase):
    def check(self, found, expected):
        torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=0)

    def test_conversions_on_the_device(self):
        base = torch.arange(24).reshape(4, 6) % 7
        for source, target in itertools.product(DTYPES, DTYPES):
            if source.is_complex and not target.is_complex:
                continue
            with self.subTest(source=source, target=target):
                x = base.to(source)
                self.check(x.to(CUDA).to(target), x.to(target))

    def test_layouts_in_every_direction(self):
        base = torch.arange(24.0).reshape(4, 6)
        places = ("cpu", "cuda:0", "cuda:1")
        for (a, make_a), (b, make_b) in itertools.product(LAYOUTS.items(), LAYOUTS.items()):
            for source, target in itertools.product(places, places):
                for dtype in (torch.float32, torch.float64):
                    with self.subTest(source=f"{a} on {source}", target=f"{b} on {target}", dtype=dtype):
                        x = make_a(base.to(source))
                        y = make_b(torch.zeros(4, 6, dtype=dtype, device=target))
                        y.copy_(x)
                        self.check(y, base.to(dtype))

    def test_broadcast_and_conjugate_copies(self):
        x = torch.zeros(3, 4, device=CUDA)
        x.copy_(torch.arange(4.0))
        self.check(x, torch.arange(4.0).expand(3, 4))
        x.copy_(torch.arange(3.0, device=CUDA)[:, None])
        self.check(x, torch.arange(3.0)[:, None].expand(3, 4))
        z = torch.complex(torch.arange(4.0), torch.arange(4.0) + 1)
        for target in ("cpu", CUDA):
            y = torch.zeros(4, dtype=torch.complex64, device=target)
            y.copy_(z.to(CUDA).conj())
            self.check(y, z.conj().resolve_conj())
        self.check(z.to(CUDA).conj().imag + 0, -z.imag)

    def test_pinned_and_pageable_memory(self):
        pinned = torch.arange(1 << 16, dtype=torch.float32).pin_memory()
        self.assertTrue(pinned.is_pinned())
        x = pinned.to(CUDA, non_blocking=True)
        back = torch.empty_like(pinned, pin_memory=True)
        back.copy_(x, non_blocking=True)
        torch.cuda.synchronize()
        self.check(back, pinned)
        pageable = torch.arange(1000.0)
        driver = Driver()
        x = torch.empty(1000, device=CUDA)
        driver.set("KERNEL_TIME", 5000)
        x.fill_(1)
        x.copy_(pageable, non_blocking=True)
        pageable.fill_(-1)  # pageable sources have been read when the call returns
        driver.set("KERNEL_TIME", 0)
        self.check(x, torch.arange(1000.0))

    def test_plain_copies_are_no_launches(self):
        driver = Driver()
        x = torch.arange(1000.0, device=CUDA)
        torch.cuda.synchronize()
        before = driver.stats()
        y = x.clone()
        z = y.cpu()
        w = z.to(CUDA)
        torch.cuda.synchronize()
        after = driver.stats()
        self.assertEqual(after.launches, before.launches)
        self.assertEqual(after.copies - before.copies, 3)
        self.check(w, torch.arange(1000.0))

    def test_channels_last(self):
        x = torch.arange(120.0).reshape(2, 3, 4, 5)
        y = x.to(CUDA).to(memory_format=torch.channels_last)
        self.assertTrue(y.is_contiguous(memory_format=torch.channels_last))
        self.check(y, x)
        self.check(y.clone(), x)
        self.check(y.contiguous(), x)

    def test_empty_tensors(self):
        x = torch.empty(0, 3, device=CUDA)
        self.assertEqual((x + 1).shape, (0, 3))
        self.assertEqual(x.sum().item(), 0)
        self.assertEqual(torch.cat([x, torch.ones(2, 3, device=CUDA)]).shape, (2, 3))
        self.assertEqual((x.t() @ x).abs().sum().item(), 0)


class WritesTest(unittest.TestCase):
    def check(self, function, *shapes):
        """The function on the stand-in three times (learned, then promised) against the CPU."""
        inputs = [torch.arange(torch.tensor(shape).prod().item(), dtype=torch.float32).reshape(shape) for shape in shapes]
        expected = function(*[x.clone() for x in inputs])
        for _ in range(3):
            torch.testing.assert_close(function(*[x.to(CUDA) for x in inputs]).cpu(), expected)

    def test_in_place_on_views(self):
        def function(x):
            x[1:, ::2].mul_(3)
            x.t()[0].add_(x[0, 1])
            x.diagonal().fill_(-1)
            x.view(-1)[3:5] = torch.tensor([7.0, 8.0])
            x[x > 20] = 0
            return x

        self.check(function, (4, 6))

    def test_in_place_returns_the_same_tensor(self):
        x = torch.zeros(3, device=CUDA)
        self.assertIs(x.add_(1), x)
        out = torch.empty(3, device=CUDA)
        self.assertIs(torch.add(x, 1, out=out), out)
        self.assertEqual(out.tolist(), [2, 2, 2])

    def test_overlapping_inputs(self):
        self.check(lambda x: torch.add(x[:-1], x[1:]), (9,))
        self.check(lambda x: x.expand(3, 9).contiguous().add_(x), (9,))

    def test_out_that_must_grow(self):
        def function(a, b):
            out = torch.empty(0, device=a.device)
            torch.mm(a, b, out=out)
            first = out.clone()
            torch.add(a, 1, out=out.resize_(0))
            rows = torch.empty(0, device=a.device)
            torch.cat([a, a], out=rows)
            values, indices = torch.empty(0, device=a.device), torch.empty(0, dtype=torch.int64, device=a.device)
            torch.sort(a, dim=1, descending=True, out=(values, indices))
            return torch.cat([x.flatten() for x in (first, out, rows, values, indices.float())])

        self.check(function, (3, 4), (4, 5))

    def test_results_that_share_storage(self):
        x = torch.arange(6.0, device=CUDA)
        for _ in range(3):
            parts = torch.split(x, 2)
            self.assertEqual({part.untyped_storage().data_ptr() for part in parts}, {x.untyped_storage().data_ptr()})
            values, _ = x.reshape(2, 3).max(1)
            self.assertNotEqual(values.untyped_storage().data_ptr(), x.untyped_storage().data_ptr())

    def test_list_operators(self):
        def function(a, b, c):
            tensors = [a, b.t(), c]
            torch._foreach_mul_(tensors, [1.0, 2.0, 3.0])
            torch._foreach_add_(tensors, tensors, alpha=0.5)
            roots = torch._foreach_sqrt(tensors)
            norms = torch._foreach_norm(roots)
            torch._foreach_addcmul_(roots, tensors, tensors, 0.1)
            return torch.cat([x.flatten() for x in [*roots, *norms]])

        self.check(function, (3, 4), (4, 5), (6,))

    def test_storage_growth_and_sharing(self):
        x = torch.arange(4.0, device=CUDA)
        y = x.view(2, 2)
        x.untyped_storage().resize_(64)
        x.resize_(16)
        x[4:].fill_(5)
        y.add_(1)
        self.assertEqual(x[:5].tolist(), [1, 2, 3, 4, 5])


if __name__ == "__main__":
    unittest.main()
