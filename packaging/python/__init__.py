"""The program trimtab as a Python package: `trimtab` on the command line, or `python -m trimtab`."""

import os


def program():
    """The path of the program."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "trimtab")
