"""Replaces this process by the program: signals and exit codes are its own."""

import os
import sys

from trimtab import program


def main():
    os.environ.setdefault("TRIMTAB_PYTHON", sys.executable)  # trackers are installed beside this package
    os.execv(program(), ["trimtab", *sys.argv[1:]])


if __name__ == "__main__":
    main()
