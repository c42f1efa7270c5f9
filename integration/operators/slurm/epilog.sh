#!/bin/sh
# An example of an Epilog of slurm.conf, run by root on each node after a job: its folder and its figures go. Spill
# files have no name, so nothing of them is left, whatever ended the job.
set -eu

root=${SPILLWAY_SLURM_ROOT:-/local/spillway}
[ -n "${SLURM_JOB_ID:-}" ] || exit 0
case $SLURM_JOB_ID in *[!0-9]*) exit 0 ;; esac

rm -f -- "$root/figures/spillway-$SLURM_JOB_ID"-*.prom
# One file system: nothing that the job has mounted is emptied.
rm -rf --one-file-system -- "$root/jobs/$SLURM_JOB_ID"
