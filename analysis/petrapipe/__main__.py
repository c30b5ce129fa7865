# SPDX-License-Identifier: Apache-2.0
"""`python -m petrapipe NAME ...` does what `petra NAME ...` does, for the subcommands that are written in Python."""

import sys

from petrapipe.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
