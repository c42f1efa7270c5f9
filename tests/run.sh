#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test but the nightly ones; the last line is ctest's summary.
#   tests/run.sh [--python PATH] [ARGUMENTS OF ctest...]     for example: tests/run.sh -R Residency
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=integration/quickstart/prepare.sh
. "$ROOT/integration/quickstart/prepare.sh"
# shellcheck source=tests/third_party/install.sh
. "$ROOT/tests/third_party/install.sh"

python_path=""
if [ "${1:-}" = --python ]; then
  python_path=${2:?--python needs a path}
  shift 2
fi

install_packages binutils git patchelf
# Without a browser the test of the report's page is skipped; nothing else needs one.
install_packages chromium poppler-utils || echo "chromium cannot be installed: cli_report_page_test is skipped" >&2
make_venvs "$python_path"
install_third_party
build_into "$ROOT/build" -DSPILLWAY_TESTS=ON -DSPILLWAY_BENCH=ON
install_python_package
say "tests"
export CTEST_OUTPUT_ON_FAILURE=1
# Jobs are marked as serial; the rest runs two at a time. --quiet would also hide the summary.
ctest --test-dir "$ROOT/build" -j 2 --timeout 900 --no-tests=error -LE nightly "$@"
