#!/bin/sh
# An example of a Prolog of slurm.conf, run by root on each node before a job: a folder of the job's own for what
# Spillway spills, and one for its figures that node_exporter reads. A status other than 0 drains the node.
set -eu
umask 022

root=${SPILLWAY_SLURM_ROOT:-/local/spillway}
[ -n "${SLURM_JOB_ID:-}" ] && [ -n "${SLURM_JOB_UID:-}" ] || exit 0
case $SLURM_JOB_ID$SLURM_JOB_UID in *[!0-9]*) exit 0 ;; esac

# Root gives a folder away below, so nobody else may have put a link or a folder there. What lies above $root is
# to be root's, too.
plain() { [ -n "$(find "$1" -maxdepth 0 -type d -uid "$(id -u)" ${2:+! -perm /022})" ]; }
mkdir -p "$root/jobs" "$root/figures"
if ! plain "$root" closed || ! plain "$root/jobs" closed || ! plain "$root/figures"; then
  echo "spillway prolog: $root, its jobs and its figures are to be folders of root's that others cannot change" >&2
  exit 1
fi
# The owner of a folder alone may enter it: what is spilled is the job's data.
job=$root/jobs/$SLURM_JOB_ID
mkdir -m 700 "$job" 2>/dev/null || [ -n "$(find "$job" -maxdepth 0 -type d)" ]
chown -h "$SLURM_JOB_UID" "$job"
# Any job writes its own files there, and removes nobody else's.
chmod 1777 "$root/figures"
