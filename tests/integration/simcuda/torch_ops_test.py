"""A few hundred operators on the stand-in GPU, forward and backward, against the same PyTorch on the CPU. Each runs
three times: the first call learns the geometry of its results, the later ones run as promised launches."""

import unittest

from torch_common import run_with_gradients, to_cuda, torch
import torch_ops_table


class OperatorsTest(unittest.TestCase):
    def test_table(self):
        table = torch_ops_table.build()
        self.assertGreater(len(table), 250)
        for name, (function, arguments) in table.items():
            with self.subTest(op=name):
                expected, expected_gradients = run_with_gradients(function, arguments)
                device_arguments = to_cuda(arguments)
                for _ in range(3):
                    found, gradients = run_with_gradients(function, device_arguments)
                    self.assertEqual(len(found), len(expected))
                    self.compare(found, expected)
                    self.compare(gradients, expected_gradients)

    def compare(self, found, expected):
        self.assertEqual(len(found), len(expected))
        for a, b in zip(found, expected):
            self.assertEqual(a.shape, b.shape)
            torch.testing.assert_close(a.cpu(), b.cpu(), rtol=1e-4, atol=1e-5, equal_nan=True)


if __name__ == "__main__":
    unittest.main()
