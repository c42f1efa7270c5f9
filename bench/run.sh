#!/bin/sh
# Every measurement of what Spillway costs, in one run of less than 15 minutes: tables on the screen, and JSON.
#
#   bench/run.sh [--build DIRECTORY] [--out DIRECTORY] [--spill DIRECTORY]
#
# Needs a finished build (default: build). Figures go to --out (default: build/bench), one file per measurement and
# costs.json with all of them; the disk that is measured is that of --spill (default: /var/tmp).
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build
out=
spill=/var/tmp
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=$(cd "$2" && pwd); shift 2 ;;
    --out) out=$2; shift 2 ;;
    --spill) spill=$2; shift 2 ;;
    *) sed -n '2,7p' "$0" >&2; exit 2 ;;
  esac
done
out=${out:-$build/bench}
mkdir -p "$out"
python=${SPILLWAY_PYTHON:-$root/build/venv/bin/python}

title() { printf '\n== %s\n' "$1"; }

title "machine"
{
  uname -sr
  grep -m1 'model name' /proc/cpuinfo | sed 's/.*: //'
  printf '%s processors, load %s\n' "$(nproc)" "$(cut -d' ' -f1-3 /proc/loadavg)"
  "$python" -c 'import torch; print("PyTorch", torch.__version__)'
  git -C "$root" log -1 --format='commit %h' 2>/dev/null || true
} | tee "$out/machine.txt"

title "a launch, everything resident"
"$build/bin/launch_scan_bench" --json "$out/launch.json"
title "allocation and free of a cached block"
"$python" "$root/bench/torch_allocations.py" --build "$build" --json "$out/allocations.json"
title "the example job where everything fits"
"$python" "$root/bench/fits.py" --build "$build" --pairs 5 --json "$out/fits.json"
title "evictions and faults"
"$build/bin/motion_bench" --dir "$spill" --rounds 5 --json "$out/motion.json"
title "choice of what leaves, by number of blocks"
"$build/bin/victim_bench" --json "$out/victims.json"
"$build/bin/plan_bench" --json "$out/plans.json"
title "a fault, by what was and what is allocated"
"$build/bin/history_bench" --json "$out/history.json"
title "the first bytes into a host tier, pinned at 10 ms for 32 MiB, its pages made by the driver and before"
"$build/bin/host_tier_bench" --json "$out/host_tier.json"
title "the spill store alone"
"$build/bin/io_engine_bench" --dir "$spill" --mib 256 --rounds 3 | tee "$out/io.txt"

"$python" - "$out" <<'END'
import json, sys
from pathlib import Path

out = Path(sys.argv[1])
names = ("launch", "allocations", "fits", "motion", "victims", "history", "host_tier")
report = {"machine": (out / "machine.txt").read_text().splitlines()}
report |= {name: json.loads((out / f"{name}.json").read_text()) for name in names}
(out / "costs.json").write_text(json.dumps(report, indent=1) + "\n")
print(f"\nwritten to {out}/costs.json")
END
