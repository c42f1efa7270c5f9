#!/usr/bin/env bash
# Measures Spillway on the GPU that is here, in under nine minutes: what the driver's calls cost, what the launch hook
# costs, and the example job's tokens/s at 100, 50 and 35 % of its peak, from host memory and from the SSD, beside the
# uncapped job and PyTorch's save_on_cpu. Needs what tests/gpu/run.sh needs.
#   bench/gpu/run.sh [--python PATH] [--build DIR] [--json FILE] [--minutes M] [--device gpu|simcuda] [--size large|small]
#                    [--only PART[,PART]]      parts: driver, launch, job
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/gpu/run_python.sh
. "$ROOT/tests/gpu/run_python.sh"
run_python bench/gpu/run.py "$@"
