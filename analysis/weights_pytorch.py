#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Converts weights.h5 to a state_dict of PyTorch and back (docs/pytorch.md).

    weights_pytorch.py weights.h5 model.pt   also .npz and .safetensors, which need no PyTorch
    weights_pytorch.py resnet18.pth weights.h5   for petra train --set model.weights=weights.h5
    weights_pytorch.py gpt2.safetensors gpt2.h5 --heads 12
    weights_pytorch.py llama/model.safetensors llama.h5 --context 1024

Needs h5py, numpy and xxhash (Debian: python3-h5py, python3-xxhash), torch for .pt and .pth, and
safetensors for .safetensors."""

import sys

from entry import run

if __name__ == "__main__":
    more = {".pt": "torch", ".pth": "torch", ".safetensors": "safetensors"}
    needed = {more[end] for end in more if any(word.endswith(end) for word in sys.argv[1:])}
    run("petrapipe.weights", "numpy", "h5py", "xxhash", *needed)
