#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Table 3 of the paper beside what petra counts: table_3.py [PETRA]. Exit status 1 if a total is
not the expected one."""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PETRA = sys.argv[1] if len(sys.argv) > 1 else "build/petra"
# 10^9 bytes; the paper prints one digit less, for the first of the two accountings.
EXPECTED = {"paper": [44.45, 43.58, 21.20, 20.33], "strict": [66.14, 65.26, 22.26, 21.38]}
PRINTED = ["44.5 (0.0 %)", "43.6 (2.0 %)", "21.2 (52.3 %)", "20.3 (54.3 %)"]


def memory(accounting):
    config = os.path.join(HERE, "revnet50-imagenet.yaml")
    command = [PETRA, "inspect", config, "--image-size", "224", "--memory", accounting, "--json"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)["memory"][
        "rows"
    ]


def main():
    wrong = 0
    print("accounting  inputs kept  weights kept  expected GB  measured GB  saving %  paper")
    for accounting, expected in EXPECTED.items():
        for row, total, printed in zip(memory(accounting), expected, PRINTED):
            measured = round(row["total_bytes"] / 1e9, 2)
            wrong += measured != total
            kept = ["yes" if row[key] else "no" for key in ("inputs_kept", "weights_kept")]
            print(
                f"{accounting:10}  {kept[0]:11}  {kept[1]:12}  {total:11.2f}  {measured:11.2f} "
                f" {100 * row['saving']:8.1f}  {printed if accounting == 'paper' else '-'}"
            )
    print(f"{wrong} of 8 totals differ from the expected ones")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
