#!/usr/bin/env bash
# One visit to a GPU, in four stages of under nine minutes each: facts, truth, other people's jobs, speed. With their default
# times all four fit half an hour, the machine's start included: 1, 2, 4 and 3 in turn (docs/gpu.md). Needs a checkout,
# what tests/gpu/bundle.sh gathered in build/gpu (or a build on this machine), and a Python; PyTorch and other packages are
# used in whatever version they are there. Where there is no GPU it runs on simcuda, as with --simcuda.
#   tests/gpu/visit.sh --stage 1|2|3|4 [--simcuda] [--python PATH] [--build DIR] [--spill DIR] [--json FILE] [--archive FILE]
#                      [--minutes M] [--size large|small] [--work DIR] [--only WORDS,WORDS]
# Ends with 0 when nothing was wrong, 1 when something was, 2 where there is neither device nor stand-in, 3 when time ran out.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/gpu/run_python.sh
. "$ROOT/tests/gpu/run_python.sh"
run_python tests/gpu/visit.py "$@"
