"""Feature maps of 7 by 7, whose shape kernels get by value, while a block of 1 GiB is live that no kernel names. Where the driver
places addresses as it likes, the divisor 7 with its magic number and shift is an address within it: 0x324924925. Prints a hash of
what was computed.
"""

import hashlib
import json

import torch

untouched = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
torch.manual_seed(7)
maps = torch.randn(64, 512, 7, 7, device="cuda")
pooled = (maps * maps.mean(dim=(2, 3), keepdim=True)).permute(0, 2, 3, 1).contiguous()
torch.cuda.synchronize()
print("RESULT", json.dumps({"sha256": hashlib.sha256(pooled.cpu().numpy().tobytes()).hexdigest(), "untouched_bytes": untouched.numel()}),
      flush=True)  # fmt: skip
