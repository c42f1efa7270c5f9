"""The example job, unchanged, in a process that calls spillway.enable() after `import torch`."""

import json
import os
import sys
from pathlib import Path

import torch  # noqa: F401  (enable() must work behind it)

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "integration" / "examples"))

import spillway  # noqa: E402
import train_gpt  # noqa: E402  (the path comes first)

if __name__ == "__main__":
    spillway.enable(**json.loads(os.environ["JOB_SETTINGS"]))
    sys.exit(train_gpt.main())
