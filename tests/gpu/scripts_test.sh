#!/usr/bin/env bash
# Where there is no GPU the programs say so; bad arguments are refused; what bundle.sh gathers finds everything beside
# itself. Skipped on a machine with a GPU.
#   PYTHON=... BUILD=... tests/gpu/scripts_test.sh
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
compgen -G "/dev/nvidia[0-9]*" >/dev/null && exit 77

fail() { echo "$*" >&2; exit 1; }

# expect STATUS WORDS COMMAND...
expect() {
  local wanted=$1 words=$2 said status=0
  shift 2
  said=$("$@" 2>&1) || status=$?
  [ "$status" = "$wanted" ] || fail "$*: status $status instead of $wanted: $said"
  grep -qF -- "$words" <<<"$said" || fail "$*: does not say \"$words\": $said"
}

bundle=$(mktemp -d)
trap 'rm -rf "$bundle"' EXIT
"$ROOT/tests/gpu/bundle.sh" --build "$BUILD" --to "$bundle/gpu"
expect 1 "MiB, above the limit of 1 MiB" "$ROOT/tests/gpu/bundle.sh" --build "$BUILD" --to "$bundle/small" --limit 1
expect 1 "MiB  lib/libspillway_torch_" "$ROOT/tests/gpu/bundle.sh" --build "$BUILD" --to "$bundle/small" --limit 1
expect 2 "a whole number of MiB" "$ROOT/tests/gpu/bundle.sh" --build "$BUILD" --to "$bundle/small" --limit all
for file in "$bundle"/gpu/lib/libspillway_engine.so "$bundle"/gpu/bin/* "$bundle"/gpu/tests/*; do
  missing=$(env -u LD_LIBRARY_PATH ldd "$file" | grep -E "not found|$BUILD/" || true)
  [ -z "$missing" ] || fail "$file: $missing"
  outside=$(env -u LD_LIBRARY_PATH ldd "$file" | awk '$2 == "=>" { print $3 }' | grep -v "^$bundle/" |
    grep -vE '/(libc|libm|libdl|libpthread|librt|libstdc\+\+|libgcc_s)\.so' || true)
  [ -z "$outside" ] || fail "$file takes from the system: $outside"
done
expect 2 "There is no CUDA driver" "$bundle/gpu/tests/gpu_self_test"
expect 2 "There is no CUDA driver" "$bundle/gpu/tests/gpu_facts" copies
expect 2 "There is no GPU here" "$ROOT/tests/gpu/visit.sh" --stage first --python "$PYTHON" --build "$bundle/gpu" --work "$bundle/visit"
[ -z "$(ls -A "$bundle/visit" 2>/dev/null)" ] || fail "a session without a device left files"
