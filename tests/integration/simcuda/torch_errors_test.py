"""Errors: those that PyTorch raises at the call still do and leave the device usable; those of the device surface at
the next synchronisation with their text; what cannot run says its name. Started with two devices."""

import subprocess
import sys
import unittest

from torch_common import CUDA, torch

BAD_INDEX = """
import torch
x = torch.arange(6.0, device="cuda")
good = torch.tensor([0, 5], device="cuda")
bad = torch.tensor([0, 6], device="cuda")
for _ in range(2):
    x.index_select(0, good)
torch.cuda.synchronize()
y = x.index_select(0, bad)
print("launched")
try:
    torch.cuda.synchronize()
except RuntimeError as error:
    print("raised", type(error).__name__)
try:
    x.sum().item()
except RuntimeError as error:
    print("still", type(error).__name__)
"""


class ErrorsTest(unittest.TestCase):
    def test_wrong_arguments_raise_at_the_call(self):
        a, b = torch.ones(3, 4, device=CUDA), torch.ones(3, 4, device=CUDA)
        for call in (lambda: a @ b, lambda: a.add_(torch.ones(5, device=CUDA)), lambda: torch.cat([a, b[0, 0]]),
                     lambda: a.view(5), lambda: torch.nn.functional.linear(a, torch.ones(2, 3, device=CUDA))):
            for _ in range(2):
                with self.assertRaises(RuntimeError):
                    call()
        self.assertEqual(a.sum().item(), 12)

    def test_devices_must_agree(self):
        a, b = torch.ones(3, device=CUDA), torch.ones(3)
        with self.assertRaisesRegex(RuntimeError, "same device.*cuda:0 and cpu"):
            a + b
        with self.assertRaisesRegex(RuntimeError, "same device.*cuda:0 and cuda:1"):
            a + b.to("cuda:1")
        self.assertEqual((a.to("cuda:1") + b.to("cuda:1")).device, torch.device("cuda:1"))
        self.assertEqual((a + torch.tensor(1.0)).tolist(), [2, 2, 2])

    def test_an_operator_without_a_cpu_form_says_its_name(self):
        x = torch.ones(2, 3, device=CUDA)
        with self.assertRaisesRegex(NotImplementedError, "aten::batch_norm_stats"):
            torch.batch_norm_stats(x, 1e-5)
        with self.assertRaisesRegex(RuntimeError, "aten::histc"):
            torch.histc(torch.arange(5, device=CUDA), 5)
        self.assertEqual(x.sum().item(), 6)

    def test_an_index_error_surfaces_at_the_next_synchronisation(self):
        run = subprocess.run([sys.executable, "-c", BAD_INDEX], capture_output=True, text=True)
        self.assertEqual(run.stdout.split(), ["launched", "raised", "AcceleratorError", "still", "AcceleratorError"],
                         run.stdout + run.stderr)
        self.assertIn("device-side assert triggered: aten::index_select", run.stderr)
        self.assertRegex(run.stderr, r"thread: \[1,0,0\] Assertion `.*` failed\. \(index 6 is out of bounds\)")

    def test_out_of_memory_is_pytorchs_own(self):
        x = torch.ones(1 << 20, device=CUDA)
        x + 1
        with self.assertRaises(torch.cuda.OutOfMemoryError):
            x.expand(4096, 1 << 20).contiguous()
        self.assertEqual((x + 1)[0].item(), 2)


if __name__ == "__main__":
    unittest.main()
