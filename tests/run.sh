#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests; the last line says what they came to.
#   tests/run.sh [--python PATH] [ARGUMENTS OF ctest...]          the small set: a small form of each kind
#   tests/run.sh --all [--python PATH] [ARGUMENTS OF ctest...]    every test but the nightly ones
# for example: tests/run.sh -R Residency
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=integration/quickstart/prepare.sh
. "$ROOT/integration/quickstart/prepare.sh"
# shellcheck source=tests/third_party/install.sh
. "$ROOT/tests/third_party/install.sh"

what="small set of tests" minutes=10 left_out="full|nightly" folders=build/venv packages="binutils git patchelf"
case ${1:-} in
  --all)
    what="whole set of tests" minutes=30 left_out="brief|nightly" folders=$(torch_venvs | cut -d ' ' -f 2 | tr '\n' ' ')
    shift ;;
  -h | --help)
    sed -n '2,5s/^# \{0,1\}//p' "$0"
    exit ;;
esac
python_path=""
if [ "${1:-}" = --python ]; then
  python_path=${2:?--python needs a path}
  folders=""
  shift 2
fi

core_minutes=$TEST_CORE_MINUTES
[ -e "$ROOT/build/lib/libspillway_engine.so" ] || core_minutes=$((core_minutes + LIBRARY_CORE_MINUTES))
# shellcheck disable=SC2086  # a list of names
announce "Spillway's $what: packages, the build, then the tests" "$minutes" "$core_minutes" \
  "$ROOT/build/tests/residency_test" "$folders" $packages
# shellcheck disable=SC2086
install_packages $packages
if [ "$left_out" = "brief|nightly" ]; then
  # Without a browser the test of the report's page is skipped; nothing else needs one.
  install_packages chromium poppler-utils || echo "chromium cannot be installed: cli_report_page_test is skipped" >&2
  # Without them written_test skips those file systems.
  install_packages xfsprogs btrfs-progs bindfs || echo "xfsprogs, btrfs-progs and bindfs cannot be installed" >&2
  make_venvs "$python_path"
else
  make_venv "$python_path"
fi
install_third_party
build_into "$ROOT/build" -DSPILLWAY_TESTS=ON -DSPILLWAY_BENCH=ON
install_python_package
say "$what"
started=$SECONDS status=0 results=$ROOT/build/logs/tests.xml
rm -f "$results"
# Two at a time. --quiet would also hide the summary.
ctest --test-dir "$ROOT/build" -j 2 --timeout 900 --no-tests=error --output-on-failure --output-junit "$results" -LE "$left_out" "$@" || status=$?
case " $* " in *" -N "*) exit "$status" ;; esac  # nothing was to run
python3 -B "$ROOT/tests/summary.py" "$results" --name "${0##*/}" --seconds $((SECONDS - started)) \
  --logs build/Testing/Temporary/LastTest.log
