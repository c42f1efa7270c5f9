# shellcheck shell=bash
# Sourced by tests/run.sh and tests/third_party/run.sh, after prepare.sh: the packages whose models the jobs train.
# Needs: PYTHON, which has PyTorch.

# install_third_party: what requirements.txt names and is not there yet. PyTorch and NumPy stay as they are, because the
# file names PyTorch's version and NumPy is there already.
install_third_party() {
  local list=$ROOT/tests/third_party/requirements.txt
  "$PYTHON" - "$list" <<'PYTHON_END' && return 0
import importlib.metadata, sys
wanted = [line.split("==") for line in open(sys.argv[1]).read().split() if "==" in line]
def there(name, version):
    try:
        return importlib.metadata.version(name).split("+")[0] == version
    except importlib.metadata.PackageNotFoundError:
        return False
sys.exit(0 if all(there(name, version) for name, version in wanted) else 1)
PYTHON_END
  say "installing the packages of tests/third_party/requirements.txt (about 50 MB to fetch, 270 MB on disk)"
  "$PYTHON" -m pip install -q --disable-pip-version-check -r "$list"
}
