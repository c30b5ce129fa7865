# SPDX-License-Identifier: Apache-2.0
"""torch_logits.py ANALYSIS MODEL.pt DUMP LOGITS [HEADS [ROTARY_BASE]]: the logits of the module
that a state_dict is of, on the images or tokens of a dump of tests/dump_logits; HEADS: of a
transformer, ROTARY_BASE: of a Llama. Where torchvision or Hugging Face's transformers are there,
theirs too. For tests/cli/weights_torch.py; run by a Python that has PyTorch."""

import sys

import numpy
import torch

sys.dont_write_bytecode = True
sys.path[0] = sys.argv[1]  # the transformers beside this script are other ones
import petrapipe  # noqa: E402 - from the folder that was named

state = torch.load(sys.argv[2], weights_only=True)
heads = int(sys.argv[5]) if len(sys.argv) > 5 else None
base = float(sys.argv[6]) if len(sys.argv) > 6 else None
model = petrapipe.of_state_dict(state, heads, base).eval()
dump = numpy.fromfile(sys.argv[3])
shape = [int(value) for value in dump[:4]]
samples = torch.from_numpy(dump[6 : 6 + numpy.prod(shape)].reshape(shape))
samples = samples.long().flatten(1) if heads else samples.to(state["fc.weight"].dtype)
with torch.no_grad():
    logits = model(samples)
    numpy.asarray(logits.double()).tofile(sys.argv[4])

# The names and shapes that the module itself has, whatever was loaded, and torchvision's where it
# is there.
own = {
    name: value.shape
    for name, value in model.state_dict().items()
    if not name.endswith("num_batches_tracked")
}
assert own == {name: value.shape for name, value in state.items()}, own
try:
    if heads:
        import transformers
    else:
        import torchvision
except ImportError as error:
    print(f"no {error.name}")
else:
    if isinstance(model, petrapipe.transformers.Ordinary):
        if isinstance(model, petrapipe.transformers.GPT):
            trunk = model.transformer
            config = transformers.GPT2Config(
                vocab_size=len(trunk.wte.weight),
                n_positions=len(trunk.wpe.weight),
                n_embd=trunk.wte.weight.shape[1],
                n_layer=len(trunk.h),
                n_head=heads,
                tie_word_embeddings=False,
            )
            other = transformers.GPT2LMHeadModel(config)
        else:
            trunk, layer = model.model, model.model.layers[0]
            config = transformers.LlamaConfig(
                vocab_size=len(trunk.embed_tokens.weight),
                hidden_size=trunk.embed_tokens.weight.shape[1],
                num_hidden_layers=len(trunk.layers),
                intermediate_size=len(layer.mlp.gate_proj.weight),
                num_attention_heads=heads,
                num_key_value_heads=heads // layer.self_attn.shared,
                rms_norm_eps=1e-5,
                rope_theta=base,
                tie_word_embeddings=False,
                attn_implementation="eager",
            )
            other = transformers.LlamaForCausalLM(config)
        other.to(logits.dtype).eval().load_state_dict(state)
        with torch.no_grad():
            print(
                f"transformers {transformers.__version__}:"
                f" {float((other(samples).logits - logits).abs().max())} apart"
            )
    elif (
        not heads
        and isinstance(model, petrapipe.networks.ResNet)
        and isinstance(model.maxpool, torch.nn.MaxPool2d)
        and model.fc.in_features in (512, 2048)
    ):
        kind = {(512, 8): "resnet18", (512, 16): "resnet34", (2048, 16): "resnet50"}[
            model.fc.in_features, len(model.blocks())
        ]
        other = (
            getattr(torchvision.models, kind)(num_classes=model.fc.out_features)
            .to(samples.dtype)
            .eval()
        )
        other.load_state_dict(state)
        with torch.no_grad():
            print(f"torchvision {kind}: {float((other(samples) - logits).abs().max())} apart")
