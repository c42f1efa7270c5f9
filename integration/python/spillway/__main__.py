"""`python -m spillway`: the command `spillway`; `spillway doctor` for this Python if no subcommand is given.

It checks the needs of the program that the wheel carries, and becomes that program. If the program cannot run here, it prints
the reason and exits with status 1.
"""

import ctypes
import os
import sys

import spillway
from spillway import command, start_up


def problems():
    """Yields a line for each reason why the program cannot run here."""
    why = start_up.unserved_machine()
    if why:
        yield f"machine: {why}"
        return
    for path in (spillway.library(), program()):
        if not os.path.isfile(path):
            yield f"{path} is missing: reinstall the package"
            return
    engine = os.path.join(spillway.library_dir(), "libspillway_engine.so")
    try:
        ctypes.CDLL(engine, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        yield f"engine cannot be opened, jobs would run without Spillway: {error}"


def program():
    """Returns the program beside the libraries: of the wheel, or of a build that SPILLWAY_LIBRARY_DIR names."""
    if "SPILLWAY_LIBRARY_DIR" in os.environ:
        return os.path.join(os.path.dirname(os.path.abspath(spillway.library_dir())), "bin", "spillway")
    return command.program()


def main():
    if sys.argv[1:] == ["--library"]:
        print(spillway.library())
        return 0
    found = list(problems())
    for line in found:
        sys.stderr.write(f"spillway: {line}\n")
    if found:
        return 1
    given = sys.argv[1:]
    subcommand = given and not given[0].startswith("-")
    os.execv(program(), ["spillway", *(command.arguments(given) if subcommand else command.doctor_arguments(given))])


if __name__ == "__main__":
    sys.exit(main())
