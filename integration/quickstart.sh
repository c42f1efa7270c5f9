#!/usr/bin/env bash
# The whole of Spillway in one command: installs what is missing, builds, and trains the example job four ways
# (uncapped, and on 35 % of the memory that took: alone, with LD_PRELOAD, with the configuration variable).
#   integration/quickstart.sh [--python PATH] [--budget PERCENT] [--host-memory SIZE] [--steps N] [--json FILE]
#                             [--device auto|gpu|simcuda] [-- ARGUMENTS OF train_gpt.py]
# Without a GPU it runs on a stand-in device in host memory. For Debian 12, as root or with sudo.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
case $ROOT in
  *[\ :]*)
    echo "$ROOT: the loader splits LD_PRELOAD at spaces and colons; put the checkout into a path without them" >&2
    exit 2 ;;
esac
# shellcheck source=integration/quickstart/prepare.sh
. "$ROOT/integration/quickstart/prepare.sh"

python_path=""
arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --python) python_path=${2:?--python needs a path}; shift 2 ;;
    --python=*) python_path=${1#*=}; shift ;;
    --) arguments+=("$@"); break ;;
    *) arguments+=("$1"); shift ;;
  esac
done
case " ${arguments[*]:-} " in
  *" -h "* | *" --help "*) exec python3 "$ROOT/integration/quickstart/quickstart.py" --help ;;
esac

# What is wrong with them is said before the build. Where there is no Python yet it is said after it.
! command -v python3 >/dev/null || python3 "$ROOT/integration/quickstart/quickstart.py" --check "${arguments[@]}"

# on_simcuda: the runs are to be on the stand-in device, which is built for that alone.
on_simcuda() {
  case " ${arguments[*]:-} " in
    *"--device gpu "* | *"--device=gpu "*) return 1 ;;
    *"--device simcuda "* | *"--device=simcuda "*) return 0 ;;
  esac
  ! compgen -G '/dev/nvidia[0-9]*' >/dev/null
}

announce "Spillway's quickstart: packages, PyTorch, the build, then four short trainings" 3 "$LIBRARY_CORE_MINUTES" \
  "$ROOT/build/lib/libspillway_engine.so" "$([ -n "$python_path" ] || echo build/venv)"
install_packages
make_venv "$python_path"
TARGETS=(product)
! on_simcuda || TARGETS+=(simcuda)
build_into "$ROOT/build" -DSPILLWAY_TESTS=OFF -DSPILLWAY_BENCH=OFF
install_python_package
exec "$PYTHON" "$ROOT/integration/quickstart/quickstart.py" "${arguments[@]}"
