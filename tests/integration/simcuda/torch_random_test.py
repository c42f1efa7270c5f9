"""Random numbers: they depend on the CUDA generator's seed and offset at the launch, never on time or order."""

import unittest

from torch_common import CUDA, Driver, torch
from torch.nn import functional as F


def draws():
    x = torch.ones(40, 50, device=CUDA)
    return [
        torch.rand(100, device=CUDA),
        torch.randn(7, 9, device=CUDA),
        torch.randint(0, 50, (30,), device=CUDA),
        torch.randperm(50, device=CUDA),
        torch.bernoulli(x * 0.3),
        torch.multinomial(x, 5),
        F.dropout(x, 0.25),
        F.rrelu(-x, training=True),
        x.clone().uniform_(2, 3),
        x.clone().exponential_(),
        torch.normal(x, x),
        torch.poisson(x * 4),
    ]


class RandomTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.driver = Driver()

    def tearDown(self):
        self.driver.set("DELAY", 0)

    def same(self, a, b):
        return all(torch.equal(x.cpu(), y.cpu()) for x, y in zip(a, b))

    def test_the_seed_decides_whatever_the_timing(self):
        torch.manual_seed(5)
        first = draws()
        for _ in range(2):
            self.driver.set("DELAY", 300)
            torch.manual_seed(5)
            self.assertTrue(self.same(first, draws()))
        torch.manual_seed(6)
        for a, b in zip(first, draws()):
            self.assertFalse(torch.equal(a, b))

    def test_consecutive_draws_differ(self):
        torch.manual_seed(5)
        values = [torch.rand(8, device=CUDA).cpu() for _ in range(20)]
        self.assertEqual(len({tuple(value.tolist()) for value in values}), 20)

    def test_state_can_be_saved_and_restored(self):
        torch.manual_seed(5)
        draws()
        state = torch.cuda.get_rng_state()
        first = draws()
        torch.cuda.set_rng_state(state)
        self.assertTrue(self.same(first, draws()))

    def test_explicit_generators(self):
        a = torch.Generator(device="cuda").manual_seed(3)
        b = torch.Generator(device="cuda").manual_seed(3)
        before = torch.cuda.get_rng_state()
        for _ in range(3):
            x, y = torch.rand(9, device=CUDA, generator=a), torch.rand(9, device=CUDA, generator=b)
            self.assertTrue(torch.equal(x, y))
        self.assertTrue(torch.equal(before, torch.cuda.get_rng_state()))

    def test_the_generator_of_the_cpu_is_left_alone(self):
        torch.manual_seed(5)
        expected = torch.rand(5)
        torch.manual_seed(5)
        draws()
        torch.cuda.synchronize()
        self.assertTrue(torch.equal(expected, torch.rand(5)))

    def test_dropout_scales_and_its_backward_uses_the_mask(self):
        x = torch.ones(200, 200, device=CUDA, requires_grad=True)
        y = F.dropout(x, 0.25)
        y.sum().backward()
        self.assertTrue(torch.equal(y, x.grad))
        kept = (y != 0).float().mean().item()
        self.assertAlmostEqual(kept, 0.75, delta=0.02)
        torch.testing.assert_close(y.max().item(), 1 / 0.75)

    def test_distributions_have_their_moments(self):
        torch.manual_seed(1)
        normal = torch.randn(20000, device=CUDA)
        self.assertAlmostEqual(normal.mean().item(), 0, delta=0.03)
        self.assertAlmostEqual(normal.std().item(), 1, delta=0.03)
        self.assertEqual(torch.randperm(100, device=CUDA).sort()[0].tolist(), list(range(100)))


if __name__ == "__main__":
    unittest.main()
