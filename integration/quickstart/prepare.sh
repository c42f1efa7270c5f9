# shellcheck shell=bash
# Sourced by integration/quickstart.sh and tests/run.sh: installs what is missing, makes build/venv, builds.
# Needs: ROOT (the checkout). Sets: PYTHON (the Python with PyTorch).

TORCH_VERSION=2.11.0
PACKAGES="build-essential cmake ninja-build ccache pkg-config python3 python3-venv liburing-dev libabsl-dev libtbb-dev
  libgtest-dev libgmock-dev libbenchmark-dev libxxhash-dev nlohmann-json3-dev libcli11-dev"

say() { printf '\n== %s\n' "$*"; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# install_packages [MORE...]: Debian packages that are not there yet; nothing happens when all are.
install_packages() {
  local missing="" package
  for package in $PACKAGES "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing="$missing $package"
  done
  [ -n "$missing" ] || return 0
  say "installing Debian packages:$missing"
  as_root apt-get -q update >/dev/null
  # shellcheck disable=SC2086  # a list of names
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends $missing >/dev/null
}

# make_venv [PATH_OF_PYTHON]: the given Python if it has PyTorch, else build/venv with PyTorch from PyPI.
make_venv() {
  if [ -n "${1:-}" ]; then
    PYTHON=$1
    "$PYTHON" -c 'import importlib.metadata as m; m.version("torch")' 2>/dev/null || {
      echo "There is no PyTorch in $PYTHON (--python)." >&2
      return 1
    }
    return 0
  fi
  PYTHON=$ROOT/build/venv/bin/python
  if ! "$PYTHON" -c 'import importlib.metadata as m; m.version("torch"), m.version("numpy")' 2>/dev/null; then
    say "making build/venv with PyTorch $TORCH_VERSION (about 5 GB on disk)"
    mkdir -p "$ROOT/build"
    "$(command -v /usr/bin/python3 || command -v python3)" -m venv "$ROOT/build/venv"
    "$ROOT/build/venv/bin/pip" install -q --disable-pip-version-check "torch==$TORCH_VERSION" numpy
  fi
}

# build_into DIRECTORY [CMAKE_ARGUMENTS...]: configures and builds everything.
build_into() {
  local directory=$1
  shift
  say "building into ${directory#"$ROOT"/}"
  export CCACHE_NOHASHDIR=1
  if command -v ccache >/dev/null; then
    set -- -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache "$@"
  fi
  mkdir -p "$directory"
  cmake -S "$ROOT" -B "$directory" -G Ninja -DSPILLWAY_PYTHON="$PYTHON" "$@" >"$directory/configure.log" 2>&1 || {
    cat "$directory/configure.log" >&2
    return 1
  }
  # --quiet keeps the output to what failed.
  ninja -C "$directory" --quiet
}

# install_python_package: the start-up hook and `python -m spillway`, with the libraries just built.
install_python_package() {
  "$PYTHON" -m pip install -q --disable-pip-version-check --force-reinstall --no-deps "$ROOT/integration/python"
}
