#!/usr/bin/env bash
# Gathers what a machine with a GPU needs to run tests/gpu/visit.sh out of a finished build:
# Spillway's libraries and programs, stripped of debug information, and beside them the shared libraries of this system
# that they use (but libc's and the compiler's, which every system has). Everything finds its neighbours by $ORIGIN. A build of
# the quickstart lacks the programs for a GPU: they are built first. The wheels of wheels.txt, which visit.sh --stage table
# compares with, come from PyPI and are kept in the build.
#   tests/gpu/bundle.sh [--build DIR] [--to DIR] [--limit MIB]        default: build, gpu in it, and 50
# Ends with 1 when it is above the limit: a copy to the machine may take no more than 64 MiB, the tree included.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=integration/quickstart/prepare.sh
. "$ROOT/integration/quickstart/prepare.sh"

build=$ROOT/build
to=""
limit=50
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=${2:?--build needs a directory}; shift 2 ;;
    --to) to=${2:?--to needs a directory}; shift 2 ;;
    --limit) limit=${2:?--limit needs a number of MiB}; shift 2 ;;
    *) echo "usage: tests/gpu/bundle.sh [--build DIR] [--to DIR] [--limit MIB]" >&2; exit 2 ;;
  esac
done
to=${to:-$build/gpu}
[[ $limit =~ ^[0-9]+$ ]] || { echo "--limit $limit: a whole number of MiB is wanted" >&2; exit 2; }

install_packages patchelf binutils
PYTHON=${PYTHON:-$(sed -n 's/^SPILLWAY_PYTHON:[A-Z]*=//p' "$build/CMakeCache.txt")}
# The programs for a machine with a GPU are in no build that only runs jobs.
for program in tests/gpu_self_test tests/gpu_facts tests/gpu_plain_job bin/gpu_driver_bench; do
  [ ! -x "$build/$program" ] || continue
  TARGETS=(gpu_bundle)
  build_into "$build" -DSPILLWAY_TESTS=ON -DSPILLWAY_BENCH=ON
  break
done
rm -rf "$to"
mkdir -p "$to/lib" "$to/bin" "$to/tests"

# copy FILE FOLDER RUNPATH
copy() {
  install -m 755 "$1" "$to/$2/"
  local copied
  copied=$to/$2/$(basename "$1")
  strip --strip-debug "$copied"
  patchelf --set-rpath "$3" "$copied"
}

for library in "$build"/lib/libspillway_engine.so "$build"/lib/libspillway_torch_*.so; do
  copy "$library" lib "\$ORIGIN"
done
# The preload has no dependency but libc and a layout of its own: it stays as it was linked.
install -m 755 "$build/lib/libspillway.so" "$to/lib/"
strip --strip-debug "$to/lib/libspillway.so"
for program in spillway gpu_driver_bench; do
  copy "$build/bin/$program" bin "\$ORIGIN/../lib"
done
for program in gpu_self_test gpu_facts gpu_plain_job; do
  copy "$build/tests/$program" tests "\$ORIGIN/../lib"
done

# The shared libraries of this system, and theirs.
find "$build/lib" "$build/bin" "$build/tests" -maxdepth 1 \( -name 'libspillway_engine.so' -o -name spillway -o -name gpu_driver_bench \
  -o -name gpu_self_test -o -name gpu_facts -o -name gpu_plain_job \) -exec ldd {} + |
  awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
  grep -vE '/(libc|libm|libdl|libpthread|librt|libstdc\+\+|libgcc_s|ld-linux[^/]*)\.so' | grep -v "^$build/" |
  while read -r library; do
    name=$to/lib/$(basename "$library")
    install -m 644 "$(readlink -f "$library")" "$name"
    patchelf --set-rpath "\$ORIGIN" "$name"
  done

# The pip package's Python files, for loading by the configuration variable.
mkdir -p "$to/python"
cp -r "$ROOT/integration/python/spillway" "$ROOT/integration/python/spillway_start_up.pth" "$to/python/"
cp "$ROOT/integration/settings/settings.def" "$to/python/spillway/"
rm -rf "$to/python/spillway/__pycache__" "$to/python/spillway/lib"

# fetch_wheels TO [FROM]: by version and content; without FROM from PyPI.
fetch_wheels() {
  "$PYTHON" -m pip download -q --disable-pip-version-check --no-deps --require-hashes -r "$ROOT/tests/gpu/wheels.txt" \
    --only-binary :all: --platform any --implementation py --abi none -d "$1" ${2:+--no-index --find-links "$2"}
}
if ! fetch_wheels "$to/wheels" "$build/wheels" 2>/dev/null &&
  ! { fetch_wheels "$build/wheels" && fetch_wheels "$to/wheels" "$build/wheels"; }; then
  echo "the wheels of tests/gpu/wheels.txt cannot be had: visit.sh --stage table will miss them" >&2
fi

newest=$(find "$to" -type f \( -name '*.so*' -o -perm -100 \) -exec objdump -T {} + 2>/dev/null |
  grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -1)
size=$(du -sm --apparent-size "$to" | cut -f1)
echo "$to: $size MiB, needs ${newest/_/ } or newer"
if [ "$size" -gt "$limit" ]; then
  {
    echo "$to has $size MiB, above the limit of $limit MiB (--limit). What may be left out, largest first:"
    (cd "$to" && find lib/libspillway_torch_*.so -type f -printf '  %s %p\n' 2>/dev/null) | sort -rnk1 |
      awk '{ printf "  %6.1f MiB  %s\n", $1 / 1048576, $2 }'
    echo "These are libraries for other PyTorch releases than that machine's."
  } >&2
  exit 1
fi
