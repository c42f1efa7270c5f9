# Sourced by visit.sh and run.sh: a script with the Python that --python names.
#   run_python SCRIPT [--python PATH] [ARGUMENT...]      SCRIPT: from the root of the checkout, ROOT
run_python() {
  local script=$1 python=python3 arguments=()
  shift
  while [ $# -gt 0 ]; do
    case $1 in
      --python) python=${2:?--python needs a path}; shift 2 ;;
      *) arguments+=("$1"); shift ;;
    esac
  done
  exec "$python" -B "$ROOT/$script" "${arguments[@]}"
}
