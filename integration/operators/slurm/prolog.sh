#!/bin/sh
# An example of a Prolog of slurm.conf, run by root on each node before a job: a folder of the job's own for what
# Spillway spills, and one for its figures that node_exporter reads. A status other than 0 drains the node.
set -eu
umask 022

root=${SPILLWAY_SLURM_ROOT:-/local/spillway}
[ -n "${SLURM_JOB_ID:-}" ] && [ -n "${SLURM_JOB_UID:-}" ] || exit 0
case $SLURM_JOB_ID$SLURM_JOB_UID in *[!0-9]*) exit 0 ;; esac

mkdir -p "$root/jobs" "$root/figures"
# The owner of a folder alone may enter it: what is spilled is the job's data.
mkdir -m 700 "$root/jobs/$SLURM_JOB_ID" 2>/dev/null || [ -d "$root/jobs/$SLURM_JOB_ID" ]
chown "$SLURM_JOB_UID" "$root/jobs/$SLURM_JOB_ID"
# Any job writes its own files there, and removes nobody else's.
chmod 1777 "$root/figures"
