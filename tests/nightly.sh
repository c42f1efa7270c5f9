#!/usr/bin/env bash
# What is too long for every change, in shards of at most 30 minutes each on 2 cores, from a built tree. Each ends with one
# line of its own figures. tests/README.md says which shards belong to which folder.
#   tests/nightly.sh --list
#   tests/nightly.sh NAME...      some shards, for example: tests/nightly.sh every-call mutants
#   tests/nightly.sh all          all of them, some nine hours
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=integration/quickstart/prepare.sh
. "$ROOT/integration/quickstart/prepare.sh"
# shellcheck source=tests/third_party/install.sh
. "$ROOT/tests/third_party/install.sh"

# A shard without a function of its name (run_job_matrix) runs the tests of ctest that are labelled nightly:NAME.
SHARDS="
job-matrix         all nine configurations of the job
job-scenes         every scene, with both policies, loaded in both ways, two seeds
job-disks          jobs that share a disk, with both policies
job-ends           jobs ended at 220 random moments in every way, and what they leave behind
job-keys           jobs on device memory that the host cannot read, where the machine has memory protection keys
job-plans          plans beside least-recently-used, in pairs; wants a quiet machine
third-party        jobs that we did not write, at full length
estimates          what spillway estimate says of six jobs and 20 runs of other sizes
gpu-rest           the stage of a GPU session that decides nothing at once, played small on simcuda
gpu-visit          a GPU session, rehearsed with its bundle and paths: as it is, with faults, and the table
every-call         each call of the system and of the driver fails, once and from then on; each of the system is late
models             20 seeds of the model tests
simulation-jobs    random jobs in the simulation for 25 minutes; goes on from SPILLWAY_FIRST_SEED
simulation-scenes  60,000 schedules of each scene with two departures, and with three, drawn by SPILLWAY_SAMPLE
mutants            what catches each of the core's broken rules
store-stress       10^6 operations of the spill store over real files with drives that fail, 50 seeds; then its broken rules
streams            jobs that change, recorded with another seed each day and judged; the GPU's lost time of one
links              schedules on links whose directions share, by the referee
public-tables      the newest headers of CUDA and the libraries of real drivers against our tables
asan-core          the memory core's tests under AddressSanitizer and UBSan
asan-rest          the other tests that do not load PyTorch, likewise
tsan-core          the memory core's tests under ThreadSanitizer
tsan-rest          the other tests that do not load PyTorch, likewise
clang              a build with clang: thread-safety analysis, warnings; then the fuzz targets
tidy-allocator     clang-tidy over allocator
tidy-io-policy     clang-tidy over io and policy
tidy-integration   clang-tidy over integration but simcuda
tidy-simcuda       clang-tidy over simcuda
cubins-2.11        kernels of PyTorch 2.11 and its libraries, read for hidden addresses; goes on where it was ended
cubins-2.15        the same of PyTorch 2.15
minors-build       the library for every PyTorch minor, and its interface
minors-old         training with PyTorch 2.4, 2.6, 2.8 and 2.10; what has passed on the same sources is not run again
minors-new         training with PyTorch 2.11, 2.13 and 2.15, and the table of all
wheels             the wheel in Python 3.10 to 3.13, trained with three releases; goes on where it was ended
debian-13          the wheel on a bare Debian 13, from its installation to jobs past their device's memory
pytorch            PyTorch's own tests from SPILLWAY_PYTORCH_TESTS, 25 minutes of them; goes on where it was ended
"

names() { sed -n 's/^\([a-z0-9.-]*\)  *.*/\1/p' <<<"$SHARDS"; }

# build_all [CMAKE_ARGUMENTS...]: what tests/run.sh builds.
build_all() { build_into "$ROOT/build" -DSPILLWAY_TESTS=ON -DSPILLWAY_BENCH=ON; }

# ctest_in BUILD ARGUMENTS...: its tests two at a time; the last line says what they came to.
ctest_in() {
  local build=$1 started=$SECONDS results
  shift
  results=$build/logs/$shard_name.xml
  ctest --test-dir "$build" -j 2 --no-tests=error --output-on-failure --output-junit "$results" "$@" || true
  python3 -B "$ROOT/tests/summary.py" "$results" --name "$shard_name" --seconds $((SECONDS - started)) --logs "$build/Testing/Temporary/LastTest.log"
}

run_labelled() { build_all && install_python_package && ctest_in "$ROOT/build" --timeout 1800 -L "^nightly:$1\$"; }

run_models() { build_all && SPILLWAY_TEST_SEEDS=20 ctest_in "$ROOT/build" --timeout 1800 -R "model_test$" -LE "nightly|brief"; }

# Two processes, each with seeds of its own, so that both processors work.
run_simulation_jobs() {
  local simulate=$ROOT/build/tests/core_simulation first=${SPILLWAY_FIRST_SEED:-1000} log=$ROOT/build/nightly/simulation-jobs-half.log half status=0
  build_all || return 1
  "$simulate" --seeds=$((first + 1000000))..$((first + 2000000)) --operations=500 --minutes=25 >"$log" 2>&1 &
  half=$!
  "$simulate" --seeds="$first"..$((first + 999999)) --operations=500 --minutes=25 || status=1
  wait "$half" || status=1
  tail -n 40 "$log"
  return "$status"
}

run_simulation_scenes() {
  local simulate=$ROOT/build/tests/core_simulation sample=${SPILLWAY_SAMPLE:-$(date +%Y%m%d)} log=$ROOT/build/nightly/simulation-scenes-3.log half status=0
  build_all || return 1
  "$simulate" --scene=all --departures=3 --most=30000 --sample="$sample" >"$log" 2>&1 &
  half=$!
  "$simulate" --scene=all --departures=2 --most=60000 --sample="$sample" || status=1
  wait "$half" || status=1
  cat "$log"
  echo "sample $sample: $(grep -ho '[0-9]* schedules' "$log" | awk '{ sum += $1 } END { print sum }') schedules with at most three departures, and as many lines above with two"
  return "$status"
}

# Two processes: what fills the time is drives that are silent.
run_store_stress() {
  local stress=$ROOT/build/tests/store_stress folder=$ROOT/build/nightly/store-stress half status=0
  build_all && mkdir -p "$folder" && cd "$folder" || return 1
  "$stress" --seeds 26..50 --operations 20000 >half.log 2>half.errors &
  half=$!
  "$stress" --seeds 1..25 --operations 20000 2>errors || status=1
  wait "$half" || status=1
  cat half.log
  "$stress" --mutants --seeds 1..60 --operations 1250 2>/dev/null || status=1
  return "$status"
}

# Another seed than those of tests/policy/streams: SPILLWAY_SAMPLE, else the date.
run_streams() {
  local tools=$ROOT/tests/policy/streams folder=$ROOT/build/nightly/streams seed=${SPILLWAY_SAMPLE:-$(date +%Y%m%d)} kind files=() status=0
  build_all && cmake --build "$ROOT/build" --target recording_engine && mkdir -p "$folder" || return 1
  "$PYTHON" -B "$ROOT/bench/lost_share.py" --build "$ROOT/build" --runs 1 --steps 6 --batch 10 --kinds static || status=1
  for kind in static varlen layerdrop fifth mixed accumulation moe gan generation; do
    files+=("$folder/$kind.txt.gz")
    "$PYTHON" -B "$tools/record.py" "$kind" --seed "$seed" --build "$ROOT/build" --out "${files[-1]}" || status=1
  done
  python3 -B "$tools/streams.py" --build "$ROOT/build" "${files[@]}" || status=1
  return "$status"
}

run_mutants() { build_all && "$ROOT/build/tests/core_simulation" --mutants --seeds=1..6000 --operations=500; }

# A build for each sanitizer, without the parts that PyTorch's uninstrumented libraries load. driver_run_test starts a Python
# without the sanitizer; driver_fault_mode_test leaves a signal handler by a jump, out of functions that ThreadSanitizer stands
# in for. The command has one thread: its simulations take over 300 s under it, and a signal to `spillway run --report` was not handed
# on.
CORE="unit" REST="hooks|engine|io|policy|simcuda|cli"
run_asan() {
  build_into "$ROOT/build/asan" -DSPILLWAY_ASAN=ON -DSPILLWAY_LOCK_CHECKS=ON -DSPILLWAY_TORCH=OFF -DSPILLWAY_BENCH=OFF &&
    SPILLWAY_TEST_OPERATIONS=5000 ASAN_OPTIONS=detect_leaks=0:handle_segv=0 ctest_in "$ROOT/build/asan" --timeout 1500 -L "$1" -LE "nightly|full" -E driver_run_test
}
run_tsan() {
  build_into "$ROOT/build/tsan" -DSPILLWAY_TSAN=ON -DSPILLWAY_LOCK_CHECKS=ON -DSPILLWAY_TORCH=OFF -DSPILLWAY_BENCH=OFF &&
    SPILLWAY_TEST_OPERATIONS=2000 TSAN_OPTIONS="halt_on_error=1 handle_segv=0 history_size=7 suppressions=$ROOT/tests/tsan_suppressions.txt" ctest_in "$ROOT/build/tsan" --timeout 1500 -L "$1" -LE "nightly|full" -E "driver_run_test|driver_fault_mode_test|cli_(estimate|report|report_run)_test"
}
run_asan_core() { run_asan "$CORE"; }
run_asan_rest() { run_asan "$REST"; }
run_tsan_core() { run_tsan "$CORE"; }
run_tsan_rest() { run_tsan "$REST"; }

# Each source alone, so that one that leans on the includes of another is found.
run_clang() {
  install_packages clang &&
    build_into "$ROOT/build/clang" -DSPILLWAY_UNITY=OFF -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ &&
    ctest_in "$ROOT/build/clang" --timeout 600 -L fuzz
}

# run_tidy PATTERN: sources below the checkout. Nothing is built in build/tidy: it has the command of each source.
run_tidy() {
  local log=$ROOT/build/logs/$shard_name.log status=0 sources
  install_packages clang clang-tidy || return 1
  cmake -S "$ROOT" -B "$ROOT/build/tidy" -G Ninja -DSPILLWAY_PYTHON="$PYTHON" -DSPILLWAY_UNITY=OFF >"$log" || return 1
  run-clang-tidy -quiet -p "$ROOT/build/tidy" "^$ROOT/$1.*\.cc$" >"$log" 2>&1 || status=1
  sed -i 's/\x1b\[[0-9;]*m//g' "$log"  # it colours what goes to a file, too
  grep -E "(warning|error):" "$log" | sort -u || true
  sources=$(grep -c '^clang-tidy' "$log" || true)
  echo "$sources sources, $(grep -E "(warning|error):" "$log" | sort -u | wc -l) findings"
  return "$status"
}
run_tidy_allocator() { run_tidy "allocator/"; }
run_tidy_io_policy() { run_tidy "(io|policy)/"; }
run_tidy_integration() { run_tidy "integration/(?!simcuda/)"; }
run_tidy_simcuda() { run_tidy "integration/simcuda/"; }

# read_cubins FOLDER SECONDS: kernels of the environment's PyTorch and NCCL for addresses that no launch shows, and the names of
# those of the libraries that may not be read, by the environment's own tools. What was read stays in build/cubins*; a finished
# run costs the extraction alone.
read_cubins() {
  local python=$ROOT/$1/bin/python work=$ROOT/build/cubins${1#build/venv} site torch libraries results status=0
  [ -x "$python" ] || { echo "skipped: $1 is not there; tests/run.sh --all makes it"; return 0; }
  site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  torch=("$site"/torch/lib/libtorch_cuda{,_linalg}.so)
  libraries=("${torch[@]}" "$site"/nvidia/nccl/lib/libnccl.so.2
    "$site"/nvidia/*/lib/libcu{blas,blasLt,fft,solver,solverMg,sparse,sparseLt}.so.* "$site"/nvidia/*/lib/libcudnn_*.so.*)
  if ! "$python" -B "$ROOT/tests/cubins/read.py" "${libraries[@]}" --work "$work" --seconds "$2"; then
    echo "not finished: run the shard again, it goes on"
    return 1
  fi
  results=("${libraries[@]##*/}")
  results=("${results[@]/#/$work/}")
  results=("${results[@]/%/.jsonl}")
  "$python" -B "$ROOT/tests/cubins/table.py" "${results[@]:0:${#torch[@]}}" || status=1
  "$python" -B "$ROOT/tests/cubins/families.py" "${results[@]}" || status=1
  echo "$(cat "${results[@]}" | wc -l) kernels"
  return "$status"
}
run_cubins_2_11() {
  local site status=0
  read_cubins build/venv 1500 || status=1
  [ ! -x "$ROOT/build/venv/bin/python" ] && return "$status"
  site=$("$ROOT/build/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  # What a first run knows of these kernels' writes.
  "$ROOT/build/venv/bin/python" -B "$ROOT/tests/cubins/writes.py" "$site/torch/lib/libtorch_cuda.so" || status=1
  return "$status"
}
run_cubins_2_15() { read_cubins build/venv-2.15 1500; }

# An environment of 5 GB at a time.
run_minors_build() { "$PYTHON" -B "$ROOT/tests/minors/minors.py" build; }
run_minors_old() { "$PYTHON" -B "$ROOT/tests/minors/minors.py" train 2.4 2.6 2.8 2.10; }
run_minors_new() {
  "$PYTHON" -B "$ROOT/tests/minors/minors.py" train 2.11 2.13 2.15 && "$PYTHON" -B "$ROOT/tests/minors/minors.py" table
}

# One wheel in fresh environments: four Pythons without PyTorch, three with one each from PyPI (5 GB each, one at a time).
# What is not there is skipped, by name.
run_wheels() {
  local status=0
  build_all || return 1
  python3 -B "$ROOT/tests/integration/packaging/environments.py" --build "$ROOT/build" || status=$?
  [ "$status" = 0 ] || [ "$status" = 77 ]
}

# A system of its own (debootstrap, root), which stays in build/debian-13 with PyTorch in it, 6 GB.
run_debian_13() {
  local status=0
  build_all && install_packages debootstrap || return 1
  python3 -B "$ROOT/tests/integration/packaging/debian_13.py" --build "$ROOT/build" || status=$?
  [ "$status" = 0 ] || [ "$status" = 77 ]
}

run_pytorch() {
  local status=0
  build_all || return 1
  "$PYTHON" -B "$ROOT/tests/pytorch/run.py" --build "$ROOT/build" --minutes 25 || status=$?
  [ "$status" != 3 ] || echo "not finished: run the shard again, it goes on"
  [ "$status" = 0 ] || [ "$status" = 77 ]
}

# run_shard NAME: its output goes to a log as well; prints the line of its figures and keeps it for the end.
run_shard() {
  local shard_name=$1 function=run_${1//[-.]/_} log=$ROOT/build/nightly/$1.log started=$SECONDS outcome=passed line
  mkdir -p "$ROOT/build/nightly"
  say "$1: $(sed -n "s/^$1  *//p" <<<"$SHARDS")"
  if ! declare -F "$function" >/dev/null; then
    function="run_labelled $1"
  fi
  if ! $function 2>&1 | tee "$log"; then
    outcome=FAILED
    failed=1
  fi
  line="nightly $1: $outcome in $(duration $((SECONDS - started))): $(tail -n 1 "$log"); log: build/nightly/$1.log"
  echo "$line"
  lines+=("$line")
}

case ${1:-} in
  --list) echo "${SHARDS#?}"; exit 0 ;;
  "" | -*) echo "usage: tests/nightly.sh --list | all | NAME..." >&2; exit 2 ;;
  all) mapfile -t shards < <(names) ;;
  *) shards=("$@") ;;
esac
for name in "${shards[@]}"; do
  names | grep -qxF -- "$name" || { echo "there is no shard $name; tests/nightly.sh --list names them" >&2; exit 2; }
done

say "${#shards[@]} shard(s) of tests/nightly.sh, at most 30 minutes each, after the build"
export CTEST_OUTPUT_ON_FAILURE=1
failed=0 lines=()
install_packages binutils git
make_venvs ""
install_third_party
for name in "${shards[@]}"; do
  run_shard "$name"
done
[ ${#lines[@]} -eq 1 ] || { say "all of them"; printf '%s\n' "${lines[@]}"; }
exit "$failed"
