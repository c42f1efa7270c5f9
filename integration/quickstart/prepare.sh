# shellcheck shell=bash
# Sourced by integration/quickstart.sh and tests/run.sh: installs what is missing, makes virtual environments, builds.
# Needs: ROOT (the checkout). Sets: PYTHON (the Python with PyTorch), PYTHONS (that one and those of other releases).
# What each step prints is kept in build/logs.

# shellcheck source=integration/quickstart/progress.sh
. "$ROOT/integration/quickstart/progress.sh"

PACKAGES="build-essential cmake ninja-build ccache pkg-config python3 python3-venv liburing-dev libabsl-dev
  libgtest-dev libgmock-dev libbenchmark-dev libxxhash-dev nlohmann-json3-dev libcli11-dev coinor-libclp-dev"

if [ "$(uname -sm)" != "Linux x86_64" ]; then
  echo "Spillway is for Linux on x86_64; this is $(uname -sm)." >&2
  exit 1
fi

TARGETS=()

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# missing_packages [MORE...]: the names of those that are not there yet.
missing_packages() {
  local package
  for package in $PACKAGES "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
  done
}

# Of 2 cores and no compiler cache, as measured (docs/using.md): the libraries and commands; tests and benchmarks.
LIBRARY_CORE_MINUTES=10 TEST_CORE_MINUTES=18

# announce WORDS MINUTES CORE_MINUTES BUILT FOLDERS [PACKAGES...]: the first line of a command: what it does, how long that and
# all that is still to be done before take, and what is installed. BUILT: a file that is there when CORE_MINUTES of compiling
# are done; FOLDERS: virtual environments below ROOT that are needed.
announce() {
  local words=$1 minutes=$2 core_minutes=$3 built=$4 folders=$5 missing folder installs=""
  shift 5
  missing=$(missing_packages "$@" | wc -l)
  if [ "$missing" -gt 0 ]; then
    minutes=$((minutes + 1)) installs="$missing Debian packages"
  fi
  for folder in $folders; do
    [ ! -x "$ROOT/$folder/bin/python" ] || continue
    minutes=$((minutes + 2)) installs="${installs:+$installs, }PyTorch into $folder (5 GB)"
  done
  [ -e "$built" ] || minutes=$((minutes + 1 + core_minutes / $(nproc)))
  say "$words; some $minutes minutes${installs:+, with $installs to install first}"
}

# install_packages [MORE...]: Debian packages that are not there yet; nothing happens when all are.
install_packages() {
  local missing
  missing=$(missing_packages "$@" | tr '\n' ' ')
  [ -n "$missing" ] || return 0
  say "installing Debian packages: ${missing% } (with what they need; a minute)"
  as_root true  # sudo may ask for a password, which it cannot below
  # shellcheck disable=SC2086,SC2016  # a list of names; the inner shell's own words
  progress "$ROOT/build/logs/packages.log" packages_done as_root env DEBIAN_FRONTEND=noninteractive \
    sh -c 'apt-get -q update && apt-get -q install -y --no-install-recommends "$@"' sh $missing
}

# torch_venvs: the lines of integration/torch/versions.txt that are environments, "RELEASE FOLDER" each.
torch_venvs() { grep '^[0-9]' "$ROOT/integration/torch/versions.txt" | grep -v ' headers$'; }

# fill_venv RELEASE FOLDER: a virtual environment with that PyTorch from PyPI; nothing happens when it is there.
fill_venv() {
  local release=$1 folder=$2 python=$ROOT/$2/bin/python
  "$python" -c 'import importlib.metadata as m; m.version("torch"), m.version("numpy")' 2>/dev/null && return 0
  say "making $folder with PyTorch $release (5 GB on disk; 1 to 3 minutes)"
  filled() { size_of "$ROOT/$folder"; }
  progress "$ROOT/build/logs/${folder##*/}.log" filled new_venv "$release" "$ROOT/$folder"
}

# new_venv RELEASE PATH
new_venv() {
  "$(command -v /usr/bin/python3 || command -v python3)" -m venv "$2" &&
    "$2/bin/python" -m pip install -q --disable-pip-version-check "torch==$1" numpy
}

# make_venv [PATH_OF_PYTHON]: the given Python if it has PyTorch, else the first line of versions.txt.
make_venv() {
  if [ -n "${1:-}" ]; then
    PYTHON=$1
    "$PYTHON" -c 'import importlib.metadata as m; m.version("torch")' 2>/dev/null || {
      echo "There is no PyTorch in $PYTHON (--python)." >&2
      return 1
    }
  else
    local release folder
    read -r release folder < <(torch_venvs)
    fill_venv "$release" "$folder"
    PYTHON=$ROOT/$folder/bin/python
  fi
  PYTHONS=("$PYTHON")
}

# make_venvs [PATH_OF_PYTHON]: the given Python alone, or every line of versions.txt, all at the same time.
make_venvs() {
  if [ -n "${1:-}" ]; then
    make_venv "$1"
    return
  fi
  local release folder jobs=() job
  PYTHONS=()
  while read -r release folder; do
    fill_venv "$release" "$folder" &
    jobs+=($!)
    PYTHONS+=("$ROOT/$folder/bin/python")
  done < <(torch_venvs)
  for job in "${jobs[@]}"; do
    wait "$job" || return 1
  done
  PYTHON=${PYTHONS[0]}
}

# build_into DIRECTORY [CMAKE_ARGUMENTS...]: configures and builds everything, or what TARGETS names.
build_into() {
  local directory=$1
  shift
  say "building into ${directory#"$ROOT"/}"
  # What one checkout has compiled serves every other: paths below the checkout count as relative ones.
  export CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=$ROOT CCACHE_SLOPPINESS=pch_defines,time_macros
  if command -v ccache >/dev/null; then
    set -- -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache "$@"
  fi
  # Where the caller goes on by && or ||, set -e ends nothing in here.
  progress "$directory/logs/configure.log" true cmake -S "$ROOT" -B "$directory" -G Ninja -DSPILLWAY_PYTHON="$PYTHON" "$@" || return 1
  progress "$directory/logs/build.log" steps_done ninja -C "$directory" "${TARGETS[@]}" || return 1
  # Without a network the build is whole; only `spillway report` then makes no page, and says so.
  "$ROOT/integration/packaging/fetch_vega.py" --build "$directory" >/dev/null || true
}

# install_python_package: the start-up hook and `python -m spillway`, with the libraries just built, in each of PYTHONS.
install_python_package() {
  local python
  for python in "${PYTHONS[@]}"; do
    progress "$ROOT/build/logs/package.log" true \
      "$python" -m pip install -q --disable-pip-version-check --force-reinstall --no-deps "$ROOT/integration/python" || return 1
  done
}
