#!/usr/bin/env bash
# What is too long for every change: all nine configurations of the job, 20 seeds of the model tests, sanitizers over
# everything that does not load PyTorch, and a build with clang. Several hours on 2 cores.
#   tests/nightly.sh [all|jobs|simulation|asan|tsan|clang|tidy|cubins|minors|wheels|pytorch]...
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=integration/quickstart/prepare.sh
. "$ROOT/integration/quickstart/prepare.sh"
# shellcheck source=tests/third_party/install.sh
. "$ROOT/tests/third_party/install.sh"

export SPILLWAY_TEST_SEEDS=20
export CTEST_OUTPUT_ON_FAILURE=1
failed=""

# A part that fails does not keep the others from running.
part() {
  say "$1"
  "run_$1" || failed="$failed $1"
}

run_jobs() {
  build_into "$ROOT/build" -DSPILLWAY_TESTS=ON -DSPILLWAY_BENCH=ON && install_python_package &&
    ctest --test-dir "$ROOT/build" -j 2 --timeout 7200
}

# 10^7 operations of random jobs, a million schedules of each scene with two departures, 100,000 with three, and every mutant.
run_simulation() {
  local simulate=$ROOT/build/tests/core_simulation
  build_into "$ROOT/build" -DSPILLWAY_TESTS=ON -DSPILLWAY_BENCH=ON || return 1
  "$simulate" --seeds=1000..10999 --operations=500 &
  local half=$!
  "$simulate" --seeds=11000..20999 --operations=500 && wait "$half" &&
    "$simulate" --scene=all --departures=2 --most=1000000 && "$simulate" --scene=all --departures=3 --most=100000 && "$simulate" --mutants --seeds=1..3000 --operations=500
}

# What sanitizers look at: all but what loads our libraries into programs without one.
SANITIZED="unit|hooks|engine|io|policy|simcuda"

# driver_run_test starts a Python without the sanitizer; driver_fault_mode_test leaves a signal handler by a jump, out of
# functions that ThreadSanitizer stands in for.
# A build of its own for each sanitizer, without the parts that PyTorch's uninstrumented libraries load.
run_asan() {
  build_into "$ROOT/build/asan" -DSPILLWAY_ASAN=ON -DSPILLWAY_LOCK_CHECKS=ON -DSPILLWAY_TORCH=OFF -DSPILLWAY_BENCH=OFF &&
    SPILLWAY_TEST_OPERATIONS=5000 ASAN_OPTIONS=detect_leaks=0 ctest --test-dir "$ROOT/build/asan" -j 2 --timeout 7200 -L "$SANITIZED" -E driver_run_test
}

run_tsan() {
  build_into "$ROOT/build/tsan" -DSPILLWAY_TSAN=ON -DSPILLWAY_LOCK_CHECKS=ON -DSPILLWAY_TORCH=OFF -DSPILLWAY_BENCH=OFF &&
    SPILLWAY_TEST_OPERATIONS=2000 TSAN_OPTIONS="halt_on_error=1 suppressions=$ROOT/tests/tsan_suppressions.txt" ctest --test-dir "$ROOT/build/tsan" -j 2 --timeout 7200 -L "$SANITIZED" -E "driver_run_test|driver_fault_mode_test"
}

run_clang() {
  install_packages clang &&
    build_into "$ROOT/build/clang" -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++
}

run_tidy() {
  install_packages clang clang-tidy || return 1
  local log=$ROOT/build/tidy.log
  if ! run-clang-tidy -quiet -p "$ROOT/build" "^$ROOT/(allocator|io|policy|integration)/.*\.cc$" >"$log" 2>&1; then
    grep -E "(warning|error):" "$log" | sort -u
    return 1
  fi
}

# Reads the kernels of PyTorch and NCCL for addresses that no launch shows, and the names of those of the libraries that may
# not be read: of each environment that is there, by its own tools. What was read stays in build/cubins and build/cubins-2.15:
# a run that was ended goes on, a finished one costs the extraction alone.
run_cubins() {
  local release folder status=0
  while read -r release folder; do
    [ -d "$ROOT/$folder" ] || continue
    say "cubins of PyTorch $release"
    read_cubins "$ROOT/$folder/bin/python" "$ROOT/build/cubins${folder#build/venv}" || status=1
  done < <(torch_venvs)
  return "$status"
}

read_cubins() {
  local python=$1 work=$2 site torch libraries
  site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  torch=("$site"/torch/lib/libtorch_cuda{,_linalg}.so)
  libraries=("${torch[@]}" "$site"/nvidia/nccl/lib/libnccl.so.2
    "$site"/nvidia/*/lib/libcu{blas,blasLt,fft,solver,solverMg,sparse,sparseLt}.so.* "$site"/nvidia/*/lib/libcudnn_*.so.*)
  "$python" -B "$ROOT/tests/cubins/read.py" "${libraries[@]}" --work "$work" || return 1
  local results=("${libraries[@]##*/}") status=0
  results=("${results[@]/#/$work/}")
  results=("${results[@]/%/.jsonl}")
  "$python" -B "$ROOT/tests/cubins/table.py" "${results[@]:0:${#torch[@]}}" || status=1
  "$python" -B "$ROOT/tests/cubins/families.py" "${results[@]}" || status=1
  return "$status"
}

# The library for every PyTorch minor, and training with seven of them, an environment of 5 GB at a time. What has passed
# on the same sources is not run again.
run_minors() {
  "$PYTHON" -B "$ROOT/tests/minors/minors.py" build && "$PYTHON" -B "$ROOT/tests/minors/minors.py" train &&
    "$PYTHON" -B "$ROOT/tests/minors/minors.py" table
}

# One wheel in fresh environments: four Pythons without PyTorch, three with one each from PyPI (5 GB each, one at a time).
# Pairs that were finished stay so while the libraries are the same. What is not there is skipped, and said.
run_wheels() {
  local status=0
  build_into "$ROOT/build" -DSPILLWAY_TESTS=ON -DSPILLWAY_BENCH=ON || return 1
  python3 -B "$ROOT/tests/integration/packaging/environments.py" --build "$ROOT/build" || status=$?
  [ "$status" = 0 ] || [ "$status" = 77 ]
}

# PyTorch's own tests of torch.cuda, from the source tree that SPILLWAY_PYTORCH_TESTS names. Outcomes stay while the
# libraries are the same.
run_pytorch() {
  local status=0
  build_into "$ROOT/build" -DSPILLWAY_TESTS=ON -DSPILLWAY_BENCH=ON || return 1
  "$PYTHON" -B "$ROOT/tests/pytorch/run.py" --build "$ROOT/build" || status=$?
  [ "$status" = 0 ] || [ "$status" = 77 ]
}

parts=("$@")
[ ${#parts[@]} -gt 0 ] && [ "${parts[0]}" != all ] || parts=(jobs simulation asan tsan clang tidy cubins minors wheels pytorch)
install_packages binutils git
make_venvs ""
install_third_party
for name in "${parts[@]}"; do
  part "$name"
done
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }
