#!/bin/sh
# An example of an Epilog of slurm.conf, run by root on each node after a job: its folder and its figures go. Spill
# files have no name, so nothing of them is left, whatever ended the job. A status other than 0 drains the node, and
# jobs' users write to the folder of figures: what cannot be removed stays.
set -u

root=${SPILLWAY_SLURM_ROOT:-/local/spillway}
[ -n "${SLURM_JOB_ID:-}" ] || exit 0
case $SLURM_JOB_ID in *[!0-9]*) exit 0 ;; esac

# One file system: nothing that the job has mounted is emptied.
rm -rf --one-file-system -- "$root/jobs/$SLURM_JOB_ID"
find "$root/figures" -maxdepth 1 -type f -name "spillway-$SLURM_JOB_ID-*.prom" -delete
exit 0
