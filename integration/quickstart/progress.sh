# shellcheck shell=bash
# Sourced by prepare.sh: long commands that say how far they are. Needs nothing.

PROGRESS_SECONDS=${PROGRESS_SECONDS:-15}  # between two lines; a test takes fewer

say() { printf '\n== %s\n' "$*"; }

# duration SECONDS: "45 s" or "3 min".
duration() {
  if [ "$1" -lt 90 ]; then echo "$1 s"; else echo "$((($1 + 30) / 60)) min"; fi
}

# steps_done LOG SECONDS: how far ninja is by the last "[12/321]" of its output, and how long the rest takes at that speed.
steps_done() {
  local last finished all
  last=$(grep -o '^\[[0-9]*/[0-9]*\]' "$1" 2>/dev/null | tail -n 1 | tr -d '[]')
  [ -n "$last" ] || return 0
  finished=${last%/*} all=${last#*/}
  [ "$finished" -gt 0 ] || return 0
  if [ $((10 * finished)) -lt "$all" ]; then
    echo "$finished of $all steps"  # too few to foretell from: the first are the largest
  else
    echo "$finished of $all steps, some $(duration $(($2 * (all - finished) / finished))) more"
  fi
}

# size_of FOLDER: what has arrived in it.
size_of() { echo "${1##*/} has $(du -sm "$1" 2>/dev/null | cut -f 1) MB"; }

# packages_done LOG: how many Debian packages are set up.
packages_done() { echo "$(grep -c '^Setting up' "$1") packages are set up"; }

# progress LOG AMOUNT COMMAND...: runs the command with its output in LOG and says every PROGRESS_SECONDS how long it has
# run and what the command AMOUNT, which gets LOG and the seconds, prints. When the command fails, what it said is shown.
progress() {
  local log=$1 amount=$2 status=0 started=$SECONDS owner=$BASHPID talker
  shift 2
  mkdir -p "$(dirname "$log")"
  : >"$log"
  (
    # Its parent is asked for, since a process that nobody has waited for yet still takes signals.
    while sleep "$PROGRESS_SECONDS" >/dev/null 2>&1 && read -r _ _ _ parent _ <"/proc/$BASHPID/stat" && [ "$parent" = "$owner" ]; do
      seconds=$((SECONDS - started))
      words=$($amount "$log" "$seconds" || true)
      echo "   $(duration "$seconds")${words:+: $words}"
    done
  ) &
  talker=$!
  "$@" >"$log" 2>&1 || status=$?
  kill "$talker" 2>/dev/null || true
  wait "$talker" 2>/dev/null || true
  if [ "$status" != 0 ]; then
    # Of a build: what failed. Else the end.
    { grep -A 60 '^FAILED' "$log" || tail -n 40 "$log"; } | head -n 120 >&2
    echo "All of it: $log" >&2
  fi
  return "$status"
}
