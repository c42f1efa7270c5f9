#!/bin/sh
# An example of a TaskProlog of slurm.conf, run by the user before each task: the lines that it prints become
# variables of the task. A variable that the user has set stays; it wins over PyTorch's and over files of settings.
root=${SPILLWAY_SLURM_ROOT:-/local/spillway}
job=${SLURM_JOB_ID:-}
case $job in "" | *[!0-9]*) exit 0 ;; esac

say() {
  eval "given=\${$1:-}"
  [ -n "$given" ] || printf 'export %s=%s\n' "$1" "$2"
}

[ -w "$root/jobs/$job" ] && say SPILLWAY_DIRS "$root/jobs/$SLURM_JOB_ID"
[ -w "$root/figures" ] && say SPILLWAY_PROMETHEUS "$root/figures/spillway-$job-%p.prom"
exit 0
