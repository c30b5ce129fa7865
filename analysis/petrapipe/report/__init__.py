# SPDX-License-Identifier: Apache-2.0
"""The page of `petra report`: data (what is read), figures (for Plotly), page (HTML), write (the
file)."""
