#!/usr/bin/env bash
# Other people's models with half of the device memory that they take, bit for bit: installs what is missing, builds,
# runs every job of jobs/ (or those named) and prints a row for each.
#   tests/third_party/run.sh [--python PATH] [--device auto|gpu|simcuda | --gpu] [--budget PERCENT] [--json FILE] [JOB...]
# --python PATH takes that Python's PyTorch, and installs the packages of requirements.txt there. --build DIR takes the
# libraries that are in DIR already and builds nothing. Exit status 0 only if every row came out as it must.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=integration/quickstart/prepare.sh
. "$ROOT/integration/quickstart/prepare.sh"
# shellcheck source=tests/third_party/install.sh
. "$ROOT/tests/third_party/install.sh"

python_path=""
build=""
arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --python) python_path=${2:?--python needs a path}; shift 2 ;;
    --build) build=${2:?--build needs a directory}; shift 2 ;;
    *) arguments+=("$1"); shift ;;
  esac
done

make_venv "$python_path"
install_third_party
if [ -z "$build" ]; then
  build=$ROOT/build
  install_packages
  build_into "$build" -DSPILLWAY_TESTS=ON
fi
exec "$PYTHON" -B "$ROOT/tests/third_party/run.py" --build "$build" "${arguments[@]}"
