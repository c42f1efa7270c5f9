"""The command `spillway`: becomes the program that the wheel carries, which leaves no Python in the process."""

import os
import sys


def program():
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "spillway")


def doctor_arguments(given):
    """Makes the doctor ask this Python about PyTorch, unless the arguments name another one."""
    named = any(argument.split("=", 1)[0] == "--python" for argument in given)
    return ["doctor", *([] if named else ["--python", sys.executable]), *given]


def arguments(given):
    return doctor_arguments(given[1:]) if given[:1] == ["doctor"] else given


def main():
    try:
        os.execv(program(), ["spillway", *arguments(sys.argv[1:])])
    except OSError as error:
        sys.stderr.write(f"spillway: {program()}: {error.strerror}; reinstall the package\n")
    return 127


if __name__ == "__main__":
    sys.exit(main())
