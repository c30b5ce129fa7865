# SPDX-License-Identifier: Apache-2.0
"""Runs a subcommand of petra that is written in Python: the program starts this script, with the arguments that it was given."""

import sys

from entry import choose_python
from petrapipe.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], choose_python))
