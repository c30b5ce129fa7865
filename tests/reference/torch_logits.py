# SPDX-License-Identifier: Apache-2.0
"""torch_logits.py ANALYSIS MODEL.pt DUMP LOGITS: the logits of the module that a state_dict is of, on the images of a dump of
tests/dump_logits. For tests/cli/weights_torch.py; run by a Python that has PyTorch."""

import sys

import numpy
import torch

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import petra_torch  # noqa: E402: from the folder that was named

state = torch.load(sys.argv[2], weights_only=True)
model = petra_torch.of_state_dict(state).eval()
dump = numpy.fromfile(sys.argv[3])
count, height, width = (int(value) for value in dump[:3])
images = torch.from_numpy(dump[5:5 + count * 3 * height * width].reshape(count, 3, height, width)).to(state["fc.weight"].dtype)
with torch.no_grad():
    numpy.asarray(model(images).double()).tofile(sys.argv[4])

# The names and shapes that the module itself has, whatever was loaded, and torchvision's where it is there.
own = {name: value.shape for name, value in model.state_dict().items() if not name.endswith("num_batches_tracked")}
assert own == {name: value.shape for name, value in state.items()}, own
try:
    import torchvision
except ImportError:
    print("no torchvision")
else:
    if isinstance(model, petra_torch.ResNet) and isinstance(model.maxpool, torch.nn.MaxPool2d) and model.fc.in_features in (512, 2048):
        kind = {(512, 8): "resnet18", (512, 16): "resnet34", (2048, 16): "resnet50"}[model.fc.in_features, len(model.blocks())]
        other = getattr(torchvision.models, kind)(num_classes=model.fc.out_features).to(images.dtype).eval()
        other.load_state_dict(state)
        with torch.no_grad():
            print(f"torchvision {kind}: {float((other(images) - model(images)).abs().max())} apart")
