"""Names of kernels as people read them."""

import subprocess


def demangle(names):
    """By c++filt of binutils; OSError or CalledProcessError where it cannot."""
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return text.splitlines()


def readable_names(names):
    """The names as people read them; as they are where there is no c++filt."""
    try:
        return demangle(names)
    except (OSError, subprocess.CalledProcessError):
        return names
