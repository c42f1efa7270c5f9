"""The command `spillway`: becomes the program that the wheel carries. Nothing of Python's is left in the process."""

import os
import sys


def program():
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "spillway")


def main():
    try:
        os.execv(program(), ["spillway", *sys.argv[1:]])
    except OSError as error:
        sys.stderr.write(f"spillway: {program()}: {error.strerror}; install the package again\n")
    return 127


if __name__ == "__main__":
    sys.exit(main())
