# shellcheck shell=bash
# Sourced by tests/run.sh, tests/nightly.sh and tests/third_party/run.sh, after prepare.sh: the packages whose models the
# jobs train. Needs: PYTHON, which has PyTorch.

# third_party_is_there: every package of requirements.txt in its version.
third_party_is_there() {
  "$PYTHON" - "$ROOT/tests/third_party/requirements.txt" <<'PYTHON_END'
import importlib.metadata, sys
def version(name):
    try:
        return importlib.metadata.version(name).split("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None
wanted = [line.strip().split("==") for line in open(sys.argv[1]) if "==" in line]
sys.exit(0 if all(version(name) == number for name, number in wanted) else 1)
PYTHON_END
}

# install_third_party: what is not there yet. PyTorch and NumPy are held at the versions that are there; with a PyTorch
# other than 2.11 nothing is installed, and the jobs are skipped.
install_third_party() {
  local torch numpy
  read -r torch numpy < <("$PYTHON" -c 'import importlib.metadata as m; print(m.version("torch").split("+")[0], m.version("numpy"))')
  case $torch in
    2.11.*) ;;
    *) echo "PyTorch $torch: the jobs of tests/third_party are skipped, their packages belong to 2.11" >&2; return 0 ;;
  esac
  third_party_is_there && return 0
  say "installing the packages of tests/third_party/requirements.txt (65 MB to fetch, 320 MB on disk)"
  progress "$ROOT/build/logs/third_party.log" true \
    "$PYTHON" -m pip install -q --disable-pip-version-check -r "$ROOT/tests/third_party/requirements.txt" \
    "torch==$torch" "numpy==$numpy"
}
