# SPDX-License-Identifier: Apache-2.0
"""The subcommands of petra that are written in Python: a module for each. It loads nothing but the standard library and
command.py; what a subcommand needs is loaded when it runs."""

# In the order of petra --help. src/cli/python.c has their names and summaries as well.
NAMES = ("list", "compare", "reach", "export", "report", "sweep")

# Subcommands in C of which a part is in Python: the program has read their command lines, and passes them on.
PARTS = ("chakra", "inspect", "simulate")
