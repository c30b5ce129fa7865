/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of test_config.c: configs in their printed form, and configs that must be refused. */
#pragma once

static const char defaults[] = "run:\n"
                               "  name: \"demo\"\n"
                               "  seed: 1\n"
                               "  mode: emulate\n"
                               "  output: \"runs\"\n"
                               "  epochs: 10\n"
                               "  max_microbatches: 0\n"
                               "  eval_every: 1\n"
                               "  checkpoint_every: 1\n"
                               "  keep: last\n"
                               "  drain: auto\n"
                               "  keep_checkpoint: false\n"
                               "  trace_actions: false\n"
                               "data:\n"
                               "  set: cifar10\n"
                               "  path: \"data/cifar-10-batches-bin\"\n"
                               "  batch: 64\n"
                               "  shuffle: true\n"
                               "  augment: [crop, flip]\n"
                               "  limit: 0\n"
                               "  eval_limit: 0\n"
                               "  recalibrate: 0\n"
                               "  workers: 2\n"
                               "  image_size: 224\n"
                               "  resize: 256\n"
                               "  eval_path: \"\"\n"
                               "  eval_share: 0.1\n"
                               "  vocabulary: 0\n"
                               "model:\n"
                               "  family: revnet\n"
                               "  depth: 18\n"
                               "  width: 64\n"
                               "  stem: cifar\n"
                               "  shape: pyramid\n"
                               "  bottleneck: standard\n"
                               "  downsample: conv\n"
                               "  classes: 10\n"
                               "  context: 128\n"
                               "  heads: 4\n"
                               "  kv_heads: 0\n"
                               "  hidden: 0\n"
                               "  rotary_base: 10000\n"
                               "  patch: 4\n"
                               "  coupling: additive\n"
                               "  weights: \"\"\n"
                               "  new_head: false\n"
                               "  zero_init_residual: false\n"
                               "stages:\n"
                               "  partition: block\n"
                               "  count: 0\n"
                               "  blocks: []\n"
                               "  devices: preset\n"
                               "method:\n"
                               "  name: \"petra\"\n"
                               "  accumulate: 1\n"
                               "  program: \"preset\"\n"
                               "  forward_weights: preset\n"
                               "  backward_weights: preset\n"
                               "  invert_weights: preset\n"
                               "  keep: preset\n"
                               "  keep_precision: native\n"
                               "  sync_period: 0\n"
                               "  head: preset\n"
                               "  chunks: 0\n"
                               "  early_recompute: false\n"
                               "  credit: 0\n"
                               "  extra_delay: []\n"
                               "  schedule: \"\"\n"
                               "  mitigation:\n"
                               "    lr_rescheduling: 0\n"
                               "    discrepancy_correction: 0\n"
                               "    spike_compensation: false\n"
                               "    weight_prediction: none\n"
                               "    prediction_horizon: 1\n"
                               "    gradient_shrinking: 1\n"
                               "    stage_momentum: 0\n"
                               "    sync_warmup_epochs: 0\n"
                               "    error_feedback: false\n"
                               "optim:\n"
                               "  name: \"sgd\"\n"
                               "  lr: 0.1\n"
                               "  lr_scaling: goyal\n"
                               "  momentum: 0.9\n"
                               "  nesterov: true\n"
                               "  beta1: 0.9\n"
                               "  beta2: 0.999\n"
                               "  epsilon: 1e-08\n"
                               "  momentum_decay: 0.004\n"
                               "  muon_scale: shape\n"
                               "  adam_lr_share: 1\n"
                               "  trust_coefficient: 0.02\n"
                               "  rotation_sides: both\n"
                               "  rotation_every: 10\n"
                               "  weight_decay: 0.0005\n"
                               "  decay_norm_and_bias: false\n"
                               "  clip: 0\n"
                               "lr:\n"
                               "  schedule: step\n"
                               "  warmup_epochs: 5\n"
                               "  milestones: [150, 225]\n"
                               "  factor: 0.1\n"
                               "  epochs: 0\n"
                               "  decay_epochs: 0\n"
                               "  final: 0\n"
                               "device:\n"
                               "  backend: auto\n"
                               "  precision: fp32\n"
                               "  threads: 0\n"
                               "  groups: 1\n"
                               "  deterministic: true\n"
                               "  graph: auto\n"
                               "  streams: 0\n"
                               "  wide_gradients: false\n"
                               "  plans: \"\"\n"
                               "cluster:\n"
                               "  engines: 1\n"
                               "  overlap: 0\n"
                               "  replicas: 1\n"
                               "  placement: []\n"
                               "  timeout_s: 60\n"
                               "  transport: auto\n"
                               "  gpus: []\n"
                               "  stages: 0\n"
                               "  message:\n"
                               "    up: native\n"
                               "    down: native\n"
                               "    forward_bytes: 0\n"
                               "    backward_bytes: 0\n"
                               "    gradient_bytes: 0\n"
                               "  cost:\n"
                               "    model: unit\n"
                               "    forward_s: 1\n"
                               "    backward_s: 2\n"
                               "    reconstruct_s: 1\n"
                               "    weight_gradient_s: 1\n"
                               "    update_s: 0\n"
                               "    device: a100\n"
                               "    arithmetic: fp32\n"
                               "    profile: \"\"\n"
                               "    launch_s: 0\n"
                               "    efficiency:\n"
                               "      matrix_flops: 1\n"
                               "      matrix_bytes: 1\n"
                               "      elementwise_bytes: 1\n"
                               "  host:\n"
                               "    share: cluster\n"
                               "    action_s: 0\n"
                               "    kernel_s: 0\n"
                               "    ahead: 0\n"
                               "  speeds: []\n"
                               "  link:\n"
                               "    preset: none\n"
                               "    latency_s: 0\n"
                               "    bandwidth_Bps: 0\n"
                               "    sharing: fifo\n"
                               "  node_size: 1\n"
                               "  node_link:\n"
                               "    preset: same\n"
                               "    latency_s: 0\n"
                               "    bandwidth_Bps: 0\n"
                               "  card_Bps: 0\n"
                               "  jitter:\n"
                               "    model: none\n"
                               "    scale: 0.1\n"
                               "  stragglers:\n"
                               "    stages: []\n"
                               "    factor: 1\n"
                               "  pauses:\n"
                               "    mean_between_s: 0\n"
                               "    duration_s: 0\n"
                               "  failures:\n"
                               "    mean_between_s: 0\n"
                               "    restart_s: 0\n"
                               "probe:\n"
                               "  per_epoch: 0\n"
                               "  gradients: false\n"
                               "profile:\n"
                               "  warmup: 3\n"
                               "  repetitions: 15\n";

/* Every key that has a second value differs from its default; the strings hold what YAML makes awkward. */
static const char changed[] =
    "run:\n"
    "  name: \"- yes: #1 'it' \\\"\\\\\\\" {[&*!|>%@`~\"\n"
    "  seed: 9223372036854775807\n"
    "  mode: execute\n"
    "  output: \" tab\\t line\\n cr\\u000D bell\\u0007 nel\\u0085 ls\\u2028 bom\\uFEFF \xf4\x8f\xbf\xbf"
    " \xc3\xa4\xe2\x82\xac\xf0\x9f\x8c\x8d \"\n"
    "  epochs: 1000000\n"
    "  max_microbatches: 7\n"
    "  eval_every: 0\n"
    "  checkpoint_every: 6\n"
    "  keep: best\n"
    "  drain: false\n"
    "  keep_checkpoint: true\n"
    "  trace_actions: true\n"
    "data:\n"
    "  set: shapes\n"
    "  path: \"null\"\n"
    "  batch: 1000000000\n"
    "  shuffle: false\n"
    "  augment: [flip]\n"
    "  limit: 3\n"
    "  eval_limit: 4\n"
    "  recalibrate: 5\n"
    "  workers: 256\n"
    "  image_size: 32\n"
    "  resize: 4096\n"
    "  eval_path: \"~\"\n"
    "  eval_share: 0\n"
    "  vocabulary: 65536\n"
    "model:\n"
    "  family: resnet\n"
    "  depth: 50\n"
    "  width: 1\n"
    "  stem: imagenet\n"
    "  shape: constant\n"
    "  bottleneck: variant\n"
    "  downsample: invertible\n"
    "  classes: 100000\n"
    "  context: 1000000000\n"
    "  heads: 1024\n"
    "  kv_heads: 7\n"
    "  hidden: 65536\n"
    "  rotary_base: 1\n"
    "  patch: 4096\n"
    "  coupling: leapfrog\n"
    "  weights: \"010\"\n"
    "  new_head: true\n"
    "  zero_init_residual: true\n"
    "stages:\n"
    "  partition: list\n"
    "  count: 3\n"
    "  blocks: [2, 3, 5]\n"
    "  devices: [1, 2, 2, 1]\n"
    "method:\n"
    "  name: \"true\"\n"
    "  accumulate: 8\n"
    "  program: \"gpipe\"\n"
    "  forward_weights: double_buffer\n"
    "  backward_weights: stashed\n"
    "  invert_weights: none\n"
    "  keep: nothing\n"
    "  keep_precision: int8\n"
    "  sync_period: 7\n"
    "  head: split\n"
    "  chunks: 4\n"
    "  early_recompute: true\n"
    "  credit: 9\n"
    "  extra_delay: [7, 7, 0]\n"
    "  schedule: \"own.schedule\"\n"
    "  mitigation:\n"
    "    lr_rescheduling: 40\n"
    "    discrepancy_correction: 0.1\n"
    "    spike_compensation: true\n"
    "    weight_prediction: difference\n"
    "    prediction_horizon: 2\n"
    "    gradient_shrinking: 0.5\n"
    "    stage_momentum: 0.99\n"
    "    sync_warmup_epochs: 3\n"
    "    error_feedback: true\n"
    "optim:\n"
    "  name: \"sgd\"\n"
    "  lr: 0.30000000000000004\n"
    "  lr_scaling: none\n"
    "  momentum: 0\n"
    "  nesterov: false\n"
    "  beta1: 0.5\n"
    "  beta2: 0.25\n"
    "  epsilon: 0\n"
    "  momentum_decay: 0.125\n"
    "  muon_scale: rms\n"
    "  adam_lr_share: 0.75\n"
    "  trust_coefficient: 0.25\n"
    "  rotation_sides: smaller\n"
    "  rotation_every: 100000\n"
    "  weight_decay: 1e-300\n"
    "  decay_norm_and_bias: true\n"
    "  clip: 10\n"
    "lr:\n"
    "  schedule: wsd\n"
    "  warmup_epochs: 0\n"
    "  milestones: []\n"
    "  factor: 1e+20\n"
    "  epochs: 90\n"
    "  decay_epochs: 9\n"
    "  final: 0.0625\n"
    "device:\n"
    "  backend: ref\n"
    "  precision: fp64\n"
    "  threads: 1024\n"
    "  groups: 1024\n"
    "  deterministic: false\n"
    "  graph: off\n"
    "  streams: 16\n"
    "  wide_gradients: true\n"
    "  plans: \"h100.plans\"\n"
    "cluster:\n"
    "  engines: 2\n"
    "  overlap: 0.25\n"
    "  replicas: 3\n"
    "  placement: [4, 6]\n"
    "  timeout_s: 1.5\n"
    "  transport: nccl\n"
    "  gpus: [0, 3]\n"
    "  stages: 100000\n"
    "  message:\n"
    "    up: bf16\n"
    "    down: qsgd:4\n"
    "    forward_bytes: 1000000000000000\n"
    "    backward_bytes: 5\n"
    "    gradient_bytes: 6\n"
    "  cost:\n"
    "    model: constant\n"
    "    forward_s: 0.001\n"
    "    backward_s: 1000000\n"
    "    reconstruct_s: 0\n"
    "    weight_gradient_s: 0.25\n"
    "    update_s: 0.5\n"
    "    device: cpu-core\n"
    "    arithmetic: bf16\n"
    "    profile: \"some/where.h5\"\n"
    "    launch_s: 1e-06\n"
    "    efficiency:\n"
    "      matrix_flops: 0.5\n"
    "      matrix_bytes: 1e-09\n"
    "      elementwise_bytes: 2\n"
    "  host:\n"
    "    share: node\n"
    "    action_s: 0.002\n"
    "    kernel_s: 1.5e-05\n"
    "    ahead: 3\n"
    "  speeds: [1, 0.5, 1e-06, 1000000]\n"
    "  link:\n"
    "    preset: wan\n"
    "    latency_s: 1e-06\n"
    "    bandwidth_Bps: 12500000000\n"
    "    sharing: fair\n"
    "  node_size: 8\n"
    "  node_link:\n"
    "    preset: ib-xdr\n"
    "    latency_s: 0.25\n"
    "    bandwidth_Bps: 9e+17\n"
    "  card_Bps: 1e+18\n"
    "  jitter:\n"
    "    model: exponential\n"
    "    scale: 10\n"
    "  stragglers:\n"
    "    stages: [2, 7]\n"
    "    factor: 1.5\n"
    "  pauses:\n"
    "    mean_between_s: 3\n"
    "    duration_s: 4\n"
    "  failures:\n"
    "    mean_between_s: 5\n"
    "    restart_s: 6\n"
    "probe:\n"
    "  per_epoch: 15\n"
    "  gradients: true\n"
    "profile:\n"
    "  warmup: 0\n"
    "  repetitions: 1000000\n";

/* A config and the two parts of its error line: what follows the file's name, and something further on. */
static const struct {
  const char *text, *place, *reason;
} bad[] = {
    {"run:\n  epochs: 1.5\n", ":2: run.epochs: ", "'1.5' is not an integer; expected an integer, 1 .. 1000000"},
    {"cluster: {cost: {model: roof}}",
     ":1: cluster.cost.model: ", "unit, constant, roofline, profile, measured or kernels"},
    {"cluster: {cost: {device: a10}}", ":1: cluster.cost.device: ", "mi355x, gaudi3 or cpu-core"},
    {"cluster: {cost: {arithmetic: fp16}}", ":1: cluster.cost.arithmetic: ", "fp32, tf32 or bf16"},
    {"probe: {per_epoch: -1}", ":1: probe.per_epoch: ", "expected an integer, 0 .. 1000000"},
    {"probe: {gradients: 1}", ":1: probe.gradients: ", "expected true or false"},
    {"run: {epochs: 010}", ":1: run.epochs: ", "'010' is not an integer"},
    {"run: {epochs: nan}", ":1: run.epochs: ", "not an integer"},
    {"run: {epochs: 1e3}", ":1: run.epochs: ", "not an integer"},
    {"run: {epochs: yes}", ":1: run.epochs: ", "not an integer"},
    {"run: {epochs: 0x10}", ":1: run.epochs: ", "not an integer"},
    {"run: {epochs: 0o7}", ":1: run.epochs: ", "not an integer"},
    {"run: {epochs: 1_000}", ":1: run.epochs: ", "not an integer"},
    {"run: {epochs: ''}", ":1: run.epochs: ", "\"\" is a string"},
    {"run: {epochs: \"5\"}", ":1: run.epochs: ", "\"5\" is a string; expected an integer"},
    {"run: {epochs: ~}", ":1: run.epochs: ", "'~' is not an integer"},
    {"run:\n\n  epochs:\n  seed: 1\n", ":3: run.epochs: ", "no value; expected an integer"},
    {"run: {epochs: 0}", ":1: run.epochs: ", "'0' is out of range"},
    {"run: {epochs: 1000001}", ":1: run.epochs: ", "out of range"},
    {"run: {seed: -1}", ":1: run.seed: ", "out of range"},
    {"run: {seed: 9223372036854775808}", ":1: run.seed: ", "out of range"},
    {"run: {seed: 99999999999999999999999999}", ":1: run.seed: ", "out of range"},
    {"run: {epochs: [3]}", ":1: run.epochs: ", "a list; expected an integer"},
    {"run: {epochs: {a: 1}}", ":1: run.epochs: ", "a mapping; expected an integer"},
    {"run: {name: a/b}", ":1: run.name: ", "'a/b' is not a file name"},
    {"run: {name: ''}", ":1: run.name: ", "not a file name"},
    {"run: {name: ..}", ":1: run.name: ", "not a file name"},
    {"run: {name: }", ":1: run.name: ", "no value"},
    {"run: {name: null}", ":1: run.name: ", "'null' is not a string"},
    {"run: {name: \"a\\0b\"}", ":1: run.name: ", "NUL"},
    {"run: {output: ''}", ":1: run.output: ", "is empty"},
    {"run: {mode: simulated}", ":1: run.mode: ", "'simulated' is unknown; expected emulate or execute"},
    {"run: {drain: yes}", ":1: run.drain: ", "expected auto, true or false"},
    {"run: {trace_actions: on}", ":1: run.trace_actions: ", "'on' is not a boolean; expected true or false"},
    {"data: {shuffle: True}", ":1: data.shuffle: ", "'True' is not a boolean; expected true or false"},
    {"data: {shuffle: yes}", ":1: data.shuffle: ", "not a boolean"},
    {"data: {shuffle: \"true\"}", ":1: data.shuffle: ", "\"true\" is a string"},
    {"data: {shuffle: 1}", ":1: data.shuffle: ", "not a boolean"},
    {"data: {batch: 1000000001}", ":1: data.batch: ", "expected an integer, 1 .. 1000000000"},
    {"data: {workers: 0}", ":1: data.workers: ", "1 .. 256"},
    {"data: {image_size: 4097}", ":1: data.image_size: ", "expected an integer, 1 .. 4096"},
    {"data: {resize: 0}", ":1: data.resize: ", "expected an integer, 1 .. 4096"},
    {"data:\n  augment:\n    - crop\n    - cropp\n", ":4: data.augment: ", "'cropp' is unknown; expected a list"},
    {"data: {augment: [flip, flip]}", ":1: data.augment: ", "'flip' is there twice"},
    {"data: {augment: crop}", ":1: data.augment: ", "'crop' is not a list"},
    {"data: {augment: {crop: flip}}", ":1: data.augment: ", "a mapping; expected a list"},
    {"method: {extra_delay: -1}",
     ":1: method.extra_delay: ", "'-1' is out of range; expected an integer, or a list of"},
    {"method: {extra_delay: [1, x]}",
     ":1: method.extra_delay: ", "'x' is not an integer; expected an integer, or a list"},
    {"cluster: {host: {share: rack}}", ":1: cluster.host.share: ", "cluster, node or device"},
    {"cluster: {cost: {efficiency: {matrix_flops: 0}}}", ":1: cluster.cost.efficiency.matrix_flops: ", "1e-09 .. "},
    {"model: {depth: 1001}", ":1: model.depth: ", "expected an integer, 1 .. 1000"},
    {"model: {depth: '18'}", ":1: model.depth: ", "is a string; expected an integer"},
    {"model: {heads: 0}", ":1: model.heads: ", "expected an integer, 1 .. 1024"},
    {"model: {kv_heads: -1}", ":1: model.kv_heads: ", "expected an integer, 0 .. 1024"},
    {"model: {hidden: 65537}", ":1: model.hidden: ", "expected an integer, 0 .. 65536"},
    {"model: {rotary_base: 0.5}", ":1: model.rotary_base: ", "expected a number, 1 .. 1000000000000"},
    {"model: {coupling: symplectic}", ":1: model.coupling: ", "expected additive or leapfrog"},
    {"model: {patch: 4097}", ":1: model.patch: ", "expected an integer, 1 .. 4096"},
    {"model: {width: 4097}", ":1: model.width: ", "1 .. 4096"},
    {"model: {classes: 1}", ":1: model.classes: ", "2 .. 100000"},
    {"model: {weights: }", ":1: model.weights: ", "no value; expected a string"},
    {"stages: {blocks: [1, 0]}", ":1: stages.blocks: ", "'0' is out of range"},
    {"stages: {blocks: [1,\n [2]]}", ":2: stages.blocks: ", "an item is itself a list"},
    {"stages: {blocks: [1,\n\n {a: b}]}", ":3: stages.blocks: ", "an item is itself a mapping"},
    {"stages: {blocks: 3}", ":1: stages.blocks: ", "'3' is not a list"},
    {"stages: {blocks: }", ":1: stages.blocks: ", "no value; expected a list"},
    {"optim: {name: adamax}",
     ":1: optim.name: ", "'adamax' is unknown; expected sgd, adamw, nadamw, lion, muon, basis-rotation, lars or adam"},
    {"optim: {name: adamw}", ":1: optim.name: ", "adamw without optim.lr, which has no default for this optimiser"},
    {"optim: {lr: .nan}", ":1: optim.lr: ", "'.nan' is not a finite number"},
    {"optim: {lr: .inf}", ":1: optim.lr: ", "not a finite number"},
    {"optim: {lr: inf}", ":1: optim.lr: ", "not a finite number"},
    {"optim: {lr: 1e999}", ":1: optim.lr: ", "out of range"},
    {"optim: {lr: 1e-999}", ":1: optim.lr: ", "out of range"},
    {"optim: {lr: -0.1}", ":1: optim.lr: ", "expected a number, 0 or more"},
    {"optim: {lr: 0x1p3}", ":1: optim.lr: ", "not a finite number"},
    {"optim: {lr: .}", ":1: optim.lr: ", "not a finite number"},
    {"optim: {lr: 1e}", ":1: optim.lr: ", "not a finite number"},
    {"optim: {lr: 00.5}", ":1: optim.lr: ", "not a finite number"},
    {"optim: {lr: '0.1'}", ":1: optim.lr: ", "is a string"},
    {"optim: {momentum: 1}", ":1: optim.momentum: ", "0 .. 1 (1 excluded)"},
    {"lr: {milestones: [3, 3]}", ":1: lr.milestones: ", "'3' is not above the item before it"},
    {"lr:\n  milestones: [1,\n    '2']", ":3: lr.milestones: ", "\"2\" is a string"},
    {"device: {threads: 1025}", ":1: device.threads: ", "0 .. 1024"},
    {"device: {groups: 1025}", ":1: device.groups: ", "0 .. 1024"},
    {"cluster: {engines: 3}", ":1: cluster.engines: ", "1 .. 2"},
    {"stages: {devices: w}", ":1: stages.devices: 'w' is unknown", "preset, loop or v"},
    {"stages: {devices: [0]}", ":1: stages.devices: '0' is out of range", "1 .. 100000"},
    {"stages: {devices: 2}", ":1: stages.devices: '2' is unknown", "a list of integers, each 1 .. 100000, or one of"},
    {"cluster:\n  cost:\n    forward_s: 1000001", ":3: cluster.cost.forward_s: ", "0 .. 1000000"},
    {"cluster:\n  stages: -1", ":2: cluster.stages: ", "0 .. 100000"},
    {"cluster: {link: {preset: nvlink6}}",
     ":1: cluster.link.preset: ", "expected none, nvlink3, nvlink4, nvlink5, xgmi"},
    {"cluster: {link: {latency_s: -1}}", ":1: cluster.link.latency_s: ", "0 .. 1000000"},
    {"cluster: {link: {bandwidth_Bps: .nan}}", ":1: cluster.link.bandwidth_Bps: ", "a number"},
    {"cluster: {link: {sharing: lifo}}", ":1: cluster.link.sharing: ", "fifo or fair"},
    {"cluster: {node_link: {preset: nvlink6}}", ":1: cluster.node_link.preset: ", "ib-xdr, wan or same"},
    {"cluster: {node_link: {latency_s: -1}}", ":1: cluster.node_link.latency_s: ", "0 .. 1000000"},
    {"cluster: {link: {preset: same}}", ":1: cluster.link.preset: ", "ib-ndr, ib-xdr or wan"},
    {"cluster: {node_size: 0}", ":1: cluster.node_size: ", "1 .. 100000"},
    {"cluster: {message: {forward_bytes: -3}}", ":1: cluster.message.forward_bytes: ", "0 .. "},
    {"cluster: {jitter: {model: cauchy}}",
     ":1: cluster.jitter.model: ", "none, normal, lognormal, gamma or exponential"},
    {"cluster: {stragglers: {stages: [0]}}", ":1: cluster.stragglers.stages: ", "1 .. 100000"},
    {"method: {keep: all}", ":1: method.keep: ", "preset, graph, input or nothing"},
    {"method: {forward_weights: none}", ":1: method.forward_weights: ", "preset, latest, stashed or double_buffer"},
    {"cluster: {speeds: [1, 0]}",
     ":1: cluster.speeds: ", "'0' is out of range; expected a list of numbers, each 1e-06 .. 1000000"},
    {"cluster: {speeds: [-1]}", ":1: cluster.speeds: ", "'-1' is out of range"},
    {"cluster: {speeds: [1, .nan]}", ":1: cluster.speeds: ", "'.nan' is not a finite number"},
    {"cluster: {speeds: [.inf]}", ":1: cluster.speeds: ", "not a finite number"},
    {"cluster: {speeds: ['1']}", ":1: cluster.speeds: ", "\"1\" is a string"},
    {"cluster: {speeds: [1, [2]]}", ":1: cluster.speeds: ", "an item is itself a list"},
    {"cluster: {speeds: 0.5}", ":1: cluster.speeds: ", "'0.5' is not a list"},
    {"profile: {repetitions: 0}", ":1: profile.repetitions: ", "1 .. 1000000"},
    {"method: {head: both}", ":1: method.head: ", "preset, fused or split"},
    {"method: {mitigation: {weight_prediction: linear}}",
     ":1: method.mitigation.weight_prediction: ", "none, velocity, difference or spectrain"},
    {"method: {mitigation: {gradient_shrinking: 1.5}}",
     ":1: method.mitigation.gradient_shrinking: ", "a number, 0 .. 1"},
    {"method: {mitigation: {discrepancy_correction: 1}}",
     ":1: method.mitigation.discrepancy_correction: ", "0 .. 1 (1 excluded)"},
    {"method: {mitigation: [spike_compensation]}",
     ":1: method.mitigation: ", "expected a mapping with any of lr_rescheduling"},
    {"method: {mitigation: {error_feedback: 1}}", ":1: method.mitigation.error_feedback: ", "true or false"},
    {"method: {mitigation: {spike: true}}", ":1: method.mitigation.spike: ", "unknown key"},
    {"cluster: {cost: 3}", ":1: cluster.cost: ", "a single value; expected a mapping with any of model, forward_s"},
    /* keys */
    {"run:\n  epoch: 5\n", ":2: run.epoch: ", "unknown key; expected one of name, seed"},
    {"run: {epoch: 5}", ":1: run.epoch: ", "did you mean run.epochs?"},
    {"epochs: 5", ":1: epochs: ", "did you mean run.epochs?"},
    {"modle: {}", ":1: modle: ", "did you mean model?"},
    {"cluster: {cost: {mode: unit}}", ":1: cluster.cost.mode: ", "did you mean cluster.cost.model?"},
    {"{run: {}, zzz: 1}", ":1: zzz: ", "unknown key; expected one of run, data, model, stages"},
    {"zzz: 1", ":1: zzz: ", "profile (or base)"},
    {"run: {}\nbase: [a]", ":2: base: ", "a list; expected the file of a config"},
    {"base:\n", ":1: base: ", "no value"},
    {"base: no/such.yaml", ":1: base: ", "no/such.yaml cannot be read: No such file or directory"},
    {"base: /", ":1: base: ", "/ cannot be read: Is a directory"},
    {"base: '-'", ":1: base: ", "standard input; expected the file of a config"},
    {"base: \"a\\0b\"", ":1: base: ", "NUL"},
    {"base: /dev/null\nbase: /dev/null", ":2: base: ", "repeated key"},
    {"run.epochs: 5", ":1: run.epochs: ", "a key with a dot"},
    {"<<: {run: {}}", ":1: <<: ", "unknown key"},
    {"'': 1", ":1: ''", "unknown key"},
    {"run: {'': 1}", ":1: run.''", "unknown key"},
    {"run: {\"name\\0\": a}", ":1: run.name\\x00: ", "unknown key"},
    {"run: {seed: 1, epochs: 2,\n seed: 1}", ":2: run.seed: ", "repeated key; expected it once (first in line 1)"},
    {"run: {seed: 1}\n\nrun: {epochs: 2}", ":3: run: ", "repeated key"},
    {"? [a]\n: b", ":1: ", "a key that is a list or a mapping"},
    {"run: {? {a: b} : c}", ":1: run: ", "a key that is a list or a mapping"},
    /* the document */
    {"run:\n", ":1: run: ", "no value; expected a mapping"},
    {"run: 5\n", ":1: run: ", "a single value; expected a mapping"},
    {"run: [a]\n", ":1: run: ", "a list; expected a mapping"},
    {"\nhello\n", ":2: ", "a single value; expected a mapping with any of run"},
    {"~", ":1: ", "a single value; expected a mapping"},
    {"- run", ":1: ", "a list; expected a mapping"},
    {"run: {}\n---\nrun: {}\n", ":2: ", "a second document"},
    {"run: {}\n...\n---\n", ":3: ", "a second document"},
    {"run: &a {seed: 1}", ":1: ", "an anchor"},
    {"run:\n  seed: &a 1\n", ":2: ", "an anchor"},
    {"run: {name: *a}", ":1: ", "an alias"},
    {"run: {name: !!str 5}", ":1: ", "a tag"},
    {"run: {seed: 1", ":1: ", "not YAML: "},
    {"run:\n\tseed: 1\n", ":2: ", "not YAML: "},
    {"run: a: b", ":1: ", "not YAML: mapping values are not allowed"},
    {"run: {name: \"\\ud800\"}", ":1: ", "not YAML: "},
    {"%YAML 3.0\n---\n{}", ":1: ", "not YAML: "},
    {"run: {name: a}\nx\xff", ":2: ", "byte 0xff is not UTF-8"},
    {"\n\xc0\x80", ":2: ", "byte 0xc0 is not UTF-8"},
    {"\xed\xa0\x80", ":1: ", "byte 0xed is not UTF-8"},
    {"\xe2\x82", ":1: ", "byte 0xe2 is not UTF-8"},
    {"run: {name: a\x1b[2J}", ":1: ", "the character U+001B"},
};
