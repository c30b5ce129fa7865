# SPDX-License-Identifier: Apache-2.0
"""`petra sweep`: the cells of a grid, each a run of its own in DIR/CELL, and their summary
(docs/sweep.md)."""
