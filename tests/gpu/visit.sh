#!/usr/bin/env bash
# One GPU session (docs/gpu.md): `first`: what decides, for one command of 9 minutes; `second`, sent at once behind it: what
# is left, or the cause of what was wrong (3 minutes); `table`: other people's ways to save memory beside none (8 minutes);
# `rest`: for a longer session. Needs a checkout, what tests/gpu/bundle.sh gathered in build/gpu (or a build on this machine),
# and a Python; PyTorch and other packages are used in whatever version they are there. Where there is no GPU it runs on
# simcuda, as with --simcuda.
#   tests/gpu/visit.sh --stage first|second|table|rest [--simcuda] [--python PATH] [--build DIR] [--spill DIR] [--work DIR]
#                      [--out DIR] [--minutes M] [--size large|small] [--only WORDS,WORDS]
# Ends with 0 when nothing was wrong, 1 when something was, 2 where there is neither device nor stand-in, 3 when time ran out.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python=python3 arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --python) python=${2:?--python needs a path}; shift 2 ;;
    *) arguments+=("$1"); shift ;;
  esac
done
exec "$python" -B "$ROOT/tests/gpu/visit.py" "${arguments[@]}"
