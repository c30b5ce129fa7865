/* SPDX-License-Identifier: Apache-2.0 */
#include "config/keys.h"

#include "config/optimiser.h"

#include <float.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

static const char *const augments[] = {"crop", "flip", NULL}; /* bit 0, bit 1 */

const char *const petra_period_words[] = {
    [PETRA_PERIOD_EPOCHS] = "epochs", [PETRA_PERIOD_MICROBATCHES] = "microbatches", [PETRA_PERIOD_MINUTES] = "minutes"};

_Static_assert(PETRA_AUGMENT_CROP == 1 << 0 && PETRA_AUGMENT_FLIP == 1 << 1, "order of augments[]");
_Static_assert(sizeof(petra_run_mode) == sizeof(int) && sizeof(petra_drain) == sizeof(int), "enums are stored as int");

/* A key's path is the spelling of its member; _Generic makes a member of another type a compile error. */
#define KEY(kind, ctype, member, default_text, help_text, ...)                                                         \
  {                                                                                                                    \
    .path = #member, .type = PETRA_KEY_##kind,                                                                         \
    .offset = offsetof(petra_config, member) + 0 * _Generic(((petra_config *)0)->member, ctype : 0),                   \
    .default_value = (default_text), .help = (help_text), __VA_ARGS__                                                  \
  }
#define STRING_FOR(role_name, member, default_text, rule_name, help)                                                   \
  KEY(STRING, char *, member, default_text, help, .rule = PETRA_RULE_##rule_name, .role = PETRA_ROLE_##role_name)
#define STRING(...) STRING_FOR(RESULT, __VA_ARGS__)
#define STRING_OF(member, default_text, names, help) KEY(STRING, char *, member, default_text, help, .choices = (names))
#define INTEGER_FOR(role_name, member, default_text, low, high, help)                                                  \
  KEY(INTEGER, int64_t, member, default_text, help, .min = (low), .max = (high), .role = PETRA_ROLE_##role_name)
#define INTEGER(...) INTEGER_FOR(RESULT, __VA_ARGS__)
#define REAL_FOR(role_name, member, default_text, low, high, rule_name, help)                                          \
  KEY(REAL, double, member, default_text, help, .real_min = (low), .real_max = (high), .rule = PETRA_RULE_##rule_name, \
      .role = PETRA_ROLE_##role_name)
#define REAL(...) REAL_FOR(RESULT, __VA_ARGS__)
#define BOOLEAN_FOR(role_name, member, default_text, help)                                                             \
  KEY(BOOLEAN, bool, member, default_text, help, .role = PETRA_ROLE_##role_name)
#define BOOLEAN(...) BOOLEAN_FOR(RESULT, __VA_ARGS__)
#define CHOICE_FOR(role_name, member, default_text, names, help)                                                       \
  KEY(CHOICE, unsigned, member, default_text, help, .choices = (const char *const[]){names(PETRA_CHOICE_TEXT) NULL},   \
      .role = PETRA_ROLE_##role_name)
#define CHOICE(...) CHOICE_FOR(RESULT, __VA_ARGS__)
#define PERIOD_FOR(role_name, member, default_text, high, help)                                                        \
  KEY(PERIOD, petra_period, member, default_text, help, .real_max = (high), .role = PETRA_ROLE_##role_name)
#define INTEGERS_FOR(role_name, member, default_text, low, high, rule_name, help)                                      \
  KEY(INTEGER_LIST, petra_int_list, member, default_text, help, .min = (low), .max = (high),                           \
      .rule = PETRA_RULE_##rule_name, .role = PETRA_ROLE_##role_name)
#define INTEGERS(...) INTEGERS_FOR(RESULT, __VA_ARGS__)
#define REALS(member, default_text, low, high, help)                                                                   \
  KEY(REAL_LIST, petra_real_list, member, default_text, help, .real_min = (low), .real_max = (high))
#define FLAGS(member, default_text, names, help)                                                                       \
  KEY(FLAG_LIST, unsigned, member, default_text, help, .choices = (names))

/* Upper bounds that no run comes near; they keep sums and products of such numbers far from 2^63. */
#define MANY INT64_C(1000000)
#define MANY_IMAGES INT64_C(1000000000)
#define MANY_MICROBATCHES INT64_C(1000000000000)
#define MANY_BYTES INT64_C(1000000000000000)

/* clang-format off */
const petra_config_key petra_config_keys[] = {
    STRING_FOR(PLACE, run.name, "demo", FILE_NAME, "name of the run, which is the name of its folder"),
    INTEGER(run.seed, "1", 0, INT64_MAX, "seed of every random stream"),
    CHOICE_FOR(WAY, run.mode, "emulate", PETRA_RUN_MODE_CHOICES, "emulate: real maths on one device under a virtual clock; execute: the same actions on the processes that mpirun started, each with some of the stages"),
    STRING_FOR(PLACE, run.output, "runs", NOT_EMPTY, "folder in which the run's folder is made"),
    INTEGER_FOR(LENGTH, run.epochs, "10", 1, MANY, "passes over the training samples"),
    INTEGER_FOR(LENGTH, run.max_microbatches, "0", 0, MANY_MICROBATCHES, "the run ends after so many microbatches; 0: no limit"),
    INTEGER(run.eval_every, "1", 0, MANY, "epochs between evaluations; 0: never"),
    PERIOD_FOR(WAY, run.checkpoint_every, "1", MANY_MICROBATCHES, "how often a checkpoint (checkpoint.h5) is written, from which petra train --resume goes on; SIGINT (Ctrl-C), SIGTERM and SIGUSR1 also write one, and end the run; 0: none is written"),
    CHOICE(run.keep, "last", PETRA_KEEP_WEIGHTS_CHOICES, "the weights that weights.h5 has when the run is complete; last: those at its end; best: those of the evaluation with the highest top-1 accuracy, of tokens with the lowest loss, the first of equals, which are in best.h5 until then"),
    CHOICE(run.drain, "auto", PETRA_DRAIN_CHOICES, "whether the pipeline is emptied at the end of the run; auto: as the program has it (docs/semantics/evaluation.md)"),
    BOOLEAN_FOR(PLACE, run.keep_checkpoint, "false", "a complete run keeps its last checkpoint, so that petra train --resume can make it longer (a run that ends before the first one is due has none); else it is removed at the end"),
    BOOLEAN(run.trace_actions, "false", "every action of the run goes into /trace/actions of run.h5 (48 bytes an action)"),

    CHOICE(data.set, "cifar10", PETRA_DATA_SET_CHOICES, "the samples: images, or windows of the tokens of text, tokens and grammar; shapes and grammar are synthetic and need no file"),
    STRING_FOR(WAY, data.path, "data/cifar-10-batches-bin", NONE, "folder with the data set's binary files; imagefolder: the folder that holds train and val; hdf5: the file; text: a file, each byte of which is a token; tokens: a .bin or HDF5 file, or the folder of train.bin and val.bin"),
    INTEGER(data.batch, "64", 1, 65536, "samples (images, windows of tokens) per microbatch"),
    BOOLEAN(data.shuffle, "true", "new order of the training samples in every epoch; of tokens also other windows: they begin at an offset that each epoch draws"),
    FLAGS(data.augment, "[crop, flip]", augments, "random changes of the training images, [] for sets of tokens; crop: a window of the image padded by 4 pixels; imagefolder: a window of random place, size and shape"),
    INTEGER(data.limit, "0", 0, MANY_IMAGES, "train on the first so many samples only; 0: all"),
    INTEGER(data.eval_limit, "0", 0, MANY_IMAGES, "evaluate on the first so many samples only; 0: all"),
    INTEGER(data.recalibrate, "0", 0, 1000000, "evaluate a second time, with batch-norm statistics that are estimated with the evaluated weights from the first so many training microbatches; 0: no"),
    INTEGER_FOR(WAY, data.workers, "2", 1, 256, "threads that load samples"),
    INTEGER(data.image_size, "224", 1, 4096, "imagefolder: width and height of the images that the network gets"),
    INTEGER(data.resize, "256", 1, 4096, "imagefolder: shorter side to which an image is resized in evaluation, before its centre is cut out; at least data.image_size"),
    STRING(data.eval_path, "\"\"", NONE, "text, tokens: the file of the evaluation split; empty: the last part of data.path, or val.bin beside train.bin"),
    REAL(data.eval_share, "0.1", 0, 1, BELOW_MAX, "text, tokens: the last part of one file that is its evaluation split, as a share of its tokens; 0: there is none"),
    INTEGER(data.vocabulary, "0", 0, 65536, "tokens in a .bin file, which does not state it: how many different ones there can be (GPT-2: 50257); 0: as the data set states it"),

    CHOICE(model.family, "revnet", PETRA_FAMILY_CHOICES, "reversible networks (revnet, and the transformers revgpt of tokens and revvit of images), and the ordinary ones they are compared with"),
    INTEGER(model.depth, "18", 1, 1000, "revnet, resnet: layers, 18, 34 or 50; transformers: blocks, each attention and an MLP, which may be stages of their own"),
    INTEGER(model.width, "64", 1, 4096, "channels of one stream in the first group of blocks; the paper has 64; transformers: features of a stream"),
    CHOICE(model.stem, "cifar", PETRA_STEM_CHOICES, "first layers: for small images (3x3) or large ones (7x7 and pooling)"),
    CHOICE(model.downsample, "conv", PETRA_DOWNSAMPLE_CHOICES, "how a RevNet halves its images: conv: strided convolutions; invertible: space to depth, so that these blocks are reversible (depth 18, 34)"),
    INTEGER(model.classes, "10", 2, 100000, "classes of the head; gpt, revgpt: their vocabulary is that of data.set"),
    INTEGER(model.context, "128", 1, 65536, "sets of tokens: tokens of a window, each of which has the one after it as its label"),
    INTEGER(model.heads, "4", 1, 1024, "transformers: heads of attention, a divisor of model.width"),
    INTEGER(model.patch, "4", 1, 4096, "vit, revvit: width and height of a patch of the image, which is one position"),
    STRING(model.weights, "\"\"", NONE, "weights file to start from; empty: random weights from the seed"),
    BOOLEAN(model.new_head, "false", "with model.weights: the head starts from the seed's random weights and that of the file is not read, which may have another number of classes"),
    BOOLEAN(model.zero_init_residual, "false", "scale of the last batch norm of each block starts at 0"),

    CHOICE(stages.partition, "block", PETRA_PARTITION_CHOICES, "block: one block a stage; balanced: stages.count stages; list: stages.blocks"),
    INTEGER(stages.count, "0", 0, 100000, "number of stages where the partition is balanced"),
    INTEGERS(stages.blocks, "[]", 1, MANY, NONE, "blocks of each stage where the partition is list"),

    STRING(method.name, "petra", NOT_EMPTY, "training method"),
    INTEGER(method.accumulate, "1", 1, MANY, "microbatches per update of the weights"),
    STRING(method.program, "preset", NOT_EMPTY, "order of the actions: a program of petra methods; preset: that of method.name"),
    CHOICE(method.forward_weights, "preset", PETRA_PASS_WEIGHTS, "weights that forward reads; double_buffer (forward and backward alike): those of one update before"),
    CHOICE(method.backward_weights, "preset", PETRA_PASS_WEIGHTS, "weights that backward reads; stashed: those of the microbatch's forward"),
    CHOICE(method.invert_weights, "preset", PETRA_INVERT_WEIGHTS, "weights with which the input is reconstructed where nothing is kept; none: nothing is inverted"),
    CHOICE(method.keep, "preset", PETRA_KEEP_CHOICES, "kept between forward and backward: the graph, each block's input, or nothing but what cannot be inverted"),
    INTEGER(method.sync_period, "0", 0, MANY_MICROBATCHES, "forward reads a copy of the weights that is refreshed every so many microbatches; 0: the weights themselves"),
    CHOICE(method.head, "preset", PETRA_HEAD_CHOICES, "last stage: fused does forward, loss and backward in one action, split in two; preset: as the program has it"),
    INTEGER(method.chunks, "0", 0, 100000, "stages on each device, where the program interleaves them; 0: 2 there, else 1"),
    BOOLEAN(method.early_recompute, "false", "where the program is gpipe and inputs are kept: graphs are computed again while the stage waits for the gradient, and the first graph of a flush is kept (torchgpipe)"),
    INTEGER(method.credit, "0", 0, MANY_MICROBATCHES, "most microbatches in flight where the program is arrival; 0: no limit"),
    INTEGERS(method.extra_delay, "[]", 0, MANY, OR_ONE, "ticks more between forward and backward, of methods with a fixed delay: one number for all stages, or a list of one a stage that does not rise; []: none"),
    STRING(method.schedule, "\"\"", NONE, "file with the order of every device's actions, as petra schedule prints it, or the run.h5 of a run that recorded them (run.trace_actions); empty: the method's own order"),
    INTEGER(method.mitigation.lr_rescheduling, "0", 0, MANY_MICROBATCHES, "of delayed methods: a late stage starts with a lower rate, which reaches the full one after so many updates (PipeMare T1); 0: none"),
    REAL(method.mitigation.discrepancy_correction, "0", 0, 1, BELOW_MAX, "backward extrapolates back to the weights of its forward; the value is the weight left after one delay in the average of updates (PipeMare T2); 0: none"),
    BOOLEAN(method.mitigation.spike_compensation, "false", "a late gradient brings at once what its momentum would have brought by then"),
    CHOICE(method.mitigation.weight_prediction, "none", PETRA_PREDICTION_CHOICES, "forward reads weights extrapolated to its backward, along the momentum (velocity) or the last update (difference); spectrain: forward and backward read weights extrapolated along the momentum to where the microbatch is through with stage 1"),
    REAL(method.mitigation.prediction_horizon, "1", 0, 100, NONE, "how far weight_prediction extrapolates, in delays of the stage (spectrain: in its version differences)"),
    REAL(method.mitigation.gradient_shrinking, "1", 0, 1, NONE, "factor of the gradient for every stage above its own; 1: none"),
    REAL(method.mitigation.stage_momentum, "0", 0, 1, BELOW_MAX, "Nesterov momentum that grows from optim.momentum at the last stage towards this at the first; 0: none"),
    INTEGER(method.mitigation.sync_warmup_epochs, "0", 0, 100000, "so many first epochs are trained without delay, in the order of 1f1b; the method's own schedule then begins with their weights and momentum (PipeMare T3); 0: none"),
    BOOLEAN(method.mitigation.error_feedback, "false", "a step also makes good what the step of one delay before lacked: the difference of the two (error feedback for a fixed delay)"),

    STRING_OF(optim.name, "sgd", petra_optimiser_names, "optimiser; a file or command line that chooses another one than before gives its keys the defaults of that one (table below), unless they stand beside it, and for all but sgd has to give optim.lr"),
    REAL(optim.lr, "0.1", 0, DBL_MAX, NONE, "learning rate before scaling and schedule; the default is that of sgd, others have none"),
    CHOICE(optim.lr_scaling, "goyal", PETRA_LR_SCALING_CHOICES, "goyal: lr times replicas times batch times accumulate over 256 (a rule of SGD); none: lr as it is"),
    REAL(optim.momentum, "0.9", 0, 1, BELOW_MAX, "momentum (sgd, muon)"),
    BOOLEAN(optim.nesterov, "true", "Nesterov momentum (sgd, muon)"),
    REAL(optim.beta1, "0.9", 0, 1, BELOW_MAX, "what stays of the average of gradients at each update (adamw, nadamw, basis-rotation; lion: in the direction of its step; muon: of what AdamW moves)"),
    REAL(optim.beta2, "0.999", 0, 1, BELOW_MAX, "what stays of the average of squared gradients at each update (adamw, nadamw, basis-rotation; lion: of its average of gradients; muon: of what AdamW moves)"),
    REAL(optim.epsilon, "1.0e-8", 0, DBL_MAX, NONE, "added to the root of the squared gradients (adamw, nadamw, muon, basis-rotation)"),
    REAL(optim.momentum_decay, "0.004", 0, DBL_MAX, NONE, "nadamw: how fast its momentum grows to beta1; at update t it is beta1 (1 - 0.96^(t momentum_decay) / 2)"),
    CHOICE(optim.muon_scale, "shape", PETRA_MUON_SCALE_CHOICES, "muon: factor of the step of a matrix; shape: the root of rows / columns, at least 1; rms: 0.2 times the root of the larger of the two, so that the step is about as large as AdamW's"),
    REAL(optim.adam_lr_share, "1", 0, DBL_MAX, NONE, "muon: rate of what AdamW moves (vectors, embeddings, head), as a share of that of the matrices"),
    CHOICE(optim.rotation_sides, "both", PETRA_ROTATION_SIDES_CHOICES, "basis-rotation: of a matrix rotate both sides, or the smaller one (the columns' of a square one)"),
    INTEGER(optim.rotation_every, "10", 1, MANY, "basis-rotation: so many updates are from one basis to the next"),
    REAL(optim.weight_decay, "5.0e-4", 0, DBL_MAX, NONE, "weight decay; sgd: added to the gradient; others: the weights shrink by its product with the rate"),
    BOOLEAN(optim.decay_norm_and_bias, "false", "decay scales and shifts of batch norms and biases too"),
    REAL(optim.clip, "0", 0, DBL_MAX, NONE, "at an update a stage whose gradient has a larger norm scales it to this one; each stage by its own norm; 0: none does"),

    CHOICE(lr.schedule, "step", PETRA_LR_SCHEDULE_CHOICES, "after the warm-up; step: lr.factor at lr.milestones; cosine: half a cosine down to lr.final of the rate at the end of lr.epochs; wsd (warm-up, stable, decay): full rate, then by one minus the root of what has passed of the last lr.decay_epochs down to lr.final"),
    INTEGER(lr.warmup_epochs, "5", 0, MANY, "epochs of linear warm-up"),
    INTEGERS(lr.milestones, "[150, 225]", 1, MANY, RISING, "epochs at which the learning rate is multiplied by lr.factor"),
    REAL(lr.factor, "0.1", 0, DBL_MAX, NONE, "factor of the learning rate at each milestone"),
    INTEGER(lr.epochs, "0", 0, MANY, "cosine, wsd: epochs of the schedule, warm-up included, after which the rate stays; run.epochs may be others, as it may grow from one --resume to the next"),
    INTEGER(lr.decay_epochs, "0", 0, MANY, "wsd: how many of lr.epochs, the last, the rate falls"),
    REAL(lr.final, "0", 0, 1, NONE, "cosine, wsd: share of the rate that is left at the end of lr.epochs"),

    CHOICE(device.backend, "auto", PETRA_BACKEND_CHOICES, "library that computes; auto: the fastest that this build and this machine have"),
    CHOICE(device.precision, "fp32", PETRA_PRECISION_CHOICES, "arithmetic of convolutions and matrix products; tensors are of double in fp64 and of float in all others, but in bf16 inside of blocks (docs/semantics/precision.md; on cpu it needs AVX512-BF16 or AMX); fp64: ref only, tf32: cuda only; transformers: fp32, fp64 or, on cpu, bf16"),
    INTEGER(device.threads, "0", 0, 1024, "compute threads; 0: one for each core that the process may use: those that it may run on, and no more than a limit of processor time (cgroup) is worth; where OpenMP gives fewer (OMP_THREAD_LIMIT), these, with a warning if a number was asked for"),
    INTEGER(device.groups, "1", 0, 1024, "groups that the compute threads are divided into, in emulate on the host: as many actions of different stages that start at one moment are done at once, each by device.threads / groups threads; the result depends on the threads of a group alone, not on the number of groups; 0: by a rule from the schedule, FLOPs and threads"),
    BOOLEAN(device.deterministic, "true", "two runs with the same seed and number of threads are bit-identical"),
    CHOICE(device.graph, "auto", PETRA_GRAPH_CHOICES, "cuda: launches of an action that come again as one CUDA graph; the result is bit-identical; on (cuda only): a capture that fails is an error"),
    INTEGER_FOR(WAY, device.streams, "0", 0, 16, "cuda: streams that stages compute on at once, stage j on number j modulo them; 0: one each, up to 16"),
    BOOLEAN(device.wide_gradients, "false", "cuda in bf16: convolutions give the gradients of streams and of weights in float, by kernels that cuDNN compiles at the start (a second each) or, where it cannot, rounded to bf16 and widened; false: rounded to bf16, which costs no time"),
    STRING(device.plans, "\"\"", NONE, "cuda: file of the configurations of cuDNN that convolutions take, by shape; those of other shapes are measured when they are first needed, and added to it; empty: nothing is measured, cuDNN's heuristics choose"),

    INTEGER(cluster.engines, "1", 1, 2, "compute engines per device of the modelled cluster; with 2, forward and backward overlap"),
    INTEGER(cluster.replicas, "1", 1, 1024, "so many pipelines with the same weights, each on data.batch samples of its own of every microbatch, whose gradients are averaged stage by stage before each update; a microbatch has replicas x data.batch samples"),
    INTEGERS_FOR(WAY, cluster.placement, "[]", 1, 100000, NONE, "how many neighbouring stages (with method interleaved: devices) each process has, from the first on; execute: [] balances them by the profile, else by FLOPs; simulate: a process does one action at a time, [] gives every stage a device of its own"),
    REAL_FOR(WAY, cluster.timeout_s, "60", 1, 1e6, NONE, "execute: seconds that a process may be silent until the run ends with a line that names it"),
    CHOICE_FOR(WAY, cluster.transport, "auto", PETRA_TRANSPORT_CHOICES, "execute: how messages go between processes; nccl: from GPU to GPU, by NVIDIA's NCCL; mpi: through host memory, or from GPU to GPU where the MPI library can; auto: nccl where petra was built with it and every process computes with a GPU of its own, else mpi"),
    INTEGERS_FOR(WAY, cluster.gpus, "[]", 0, 1000, NONE, "execute with device.backend cuda: the number, from 0, of the GPU on its host that each process takes, from the first process on; []: that of its place among the processes of the host, from the first again where there are more processes than GPUs"),
    INTEGER(cluster.stages, "0", 0, 100000, "so many equal stages and no model, with the costs of cluster.cost and cluster.message, in simulate or, where processes sleep for the costs, in train with run.mode: execute; 0: the model's stages"),
    INTEGER(cluster.message.forward_bytes, "0", 0, MANY_BYTES, "bytes that each of cluster.stages sends up per microbatch"),
    INTEGER(cluster.message.backward_bytes, "0", 0, MANY_BYTES, "bytes that each of cluster.stages sends down per microbatch"),
    INTEGER(cluster.message.gradient_bytes, "0", 0, MANY_BYTES, "bytes of the gradients that the replicas of each of cluster.stages average before an update (cluster.replicas)"),
    CHOICE(cluster.cost.model, "unit", PETRA_COST_MODEL_CHOICES, "cost of an action in virtual time; unit: forward 1 s, backward 2 s, reconstruct 1 s, weight_gradient 1 s, update 0 s; constant: the keys below that end in _s; roofline: FLOPs and bytes of the model's stages over the peaks of cluster.cost.device, a bound; kernels: the same with cluster.cost.launch_s and cluster.cost.efficiency; measured (train): how long each action really takes; profile: times that `petra profile` measured"),
    REAL(cluster.cost.forward_s, "1", 0, 1e6, NONE, "seconds of a forward action"),
    REAL(cluster.cost.backward_s, "2", 0, 1e6, NONE, "seconds of a backward action without reconstruction"),
    REAL(cluster.cost.reconstruct_s, "1", 0, 1e6, NONE, "seconds of a reconstruction or recomputation"),
    REAL(cluster.cost.weight_gradient_s, "1", 0, 1e6, NONE, "the part of backward_s that a weight-gradient action takes where the program splits it off"),
    REAL(cluster.cost.update_s, "0", 0, 1e6, NONE, "seconds of an update"),
    CHOICE(cluster.cost.device, "a100", PETRA_COST_DEVICE_CHOICES, "roofline, kernels: the device (table below) whose peak rates the costs of every stage are computed from"),
    CHOICE(cluster.cost.arithmetic, "fp32", PETRA_COST_ARITHMETIC_CHOICES, "roofline, kernels: arithmetic of convolutions and matrix products, which sets their peak; tensors, and so messages, have 4 bytes an element in each"),
    STRING(cluster.cost.profile, "\"\"", NONE, "profile: the file that `petra profile` wrote for this model, batch and precision"),
    REAL(cluster.cost.launch_s, "0", 0, 1e6, NONE, "kernels: seconds that every kernel takes on its device before it does anything"),
    REAL(cluster.cost.efficiency.matrix_flops, "1", 1e-9, 1e9, NONE, "kernels: share of the device's peak FLOPs that convolutions and matrix products reach"),
    REAL(cluster.cost.efficiency.matrix_bytes, "1", 1e-9, 1e9, NONE, "kernels: share of the device's memory bandwidth that convolutions and matrix products reach"),
    REAL(cluster.cost.efficiency.elementwise_bytes, "1", 1e-9, 1e9, NONE, "kernels: share of the device's memory bandwidth that all other kernels reach"),
    CHOICE(cluster.host.share, "cluster", PETRA_HOST_SHARE_CHOICES, "the devices whose actions one host issues, one action at a time: cluster: all; node: those of a node (cluster.node_size); device: one"),
    REAL(cluster.host.action_s, "0", 0, 1e6, NONE, "seconds in which a host issues an action (F, B, W or U), which starts after that"),
    REAL(cluster.host.kernel_s, "0", 0, 1e6, NONE, "seconds more for each kernel of the action, as the blocks of the model count them"),
    INTEGER(cluster.host.ahead, "0", 0, MANY, "0: an action is issued when nothing else keeps it from starting; else so many actions of an engine may be issued and not started"),
    REALS(cluster.speeds, "[]", 1e-6, 1e6, "speed of each device, by which the costs of its stages are divided: one number a device; [] means 1 for all"),
    CHOICE(cluster.link.preset, "none", PETRA_LINK_PRESET_CHOICES, "a link by name (table below): its latency_s and bandwidth_Bps, unless they stand in the same file or, as this key, in a --set; none: no latency, infinite bandwidth"),
    REAL(cluster.link.latency_s, "0", 0, 1e6, NONE, "seconds between the end of a transmission and its arrival; overlaps with the next one"),
    REAL(cluster.link.bandwidth_Bps, "0", 0, 1e18, NONE, "bytes per second of each link between neighbouring devices, per direction; 0: infinite"),
    CHOICE(cluster.link.sharing, "fifo", PETRA_LINK_SHARING_CHOICES, "transmissions on a link or card: fifo: one after the other; fair: at once, with max-min fair rates"),
    INTEGER(cluster.node_size, "1", 1, 100000, "neighbouring devices on one node, which share its network card"),
    REAL(cluster.card_Bps, "0", 0, 1e18, NONE, "bytes per second of a node's network card, per direction; 0: infinite"),
    CHOICE(cluster.jitter.model, "none", PETRA_JITTER_MODEL_CHOICES, "distribution of an action's duration around its cost, which stays the mean"),
    REAL(cluster.jitter.scale, "0.1", 0, 10, NONE, "standard deviation of the duration over its mean (normal: before negative durations are cut off; exponential: at most 1)"),
    INTEGERS(cluster.stragglers.stages, "[]", 1, 100000, RISING, "stages that are slower than their costs"),
    REAL(cluster.stragglers.factor, "1", 0, 1e6, NONE, "how many times longer their actions take"),
    REAL(cluster.pauses.mean_between_s, "0", 0, 1e9, NONE, "mean busy time of a stage between two pauses (exponential), at least 1e-6; 0: no pauses"),
    REAL(cluster.pauses.duration_s, "0", 0, 1e6, NONE, "mean length of a pause (exponential)"),
    REAL(cluster.failures.mean_between_s, "0", 0, 1e9, NONE, "mean busy time of a stage between two failures (exponential), at least 1e-6, each of which repeats its action; 0: no failures"),
    REAL(cluster.failures.restart_s, "0", 0, 1e6, NONE, "seconds from a failure to the new start of the action"),

    INTEGER(probe.per_epoch, "0", 0, MANY, "train only: probes of gradient fidelity in each epoch, evenly spaced, each of one update window; the paper has 15"),
    BOOLEAN(probe.gradients, "false", "log the gradients that the probes compare"),
    INTEGER(profile.warmup, "3", 0, MANY, "`petra profile`: microbatches before the first one that is measured"),
    INTEGER(profile.repetitions, "15", 1, MANY, "`petra profile`: microbatches that are measured"),
};
/* clang-format on */

const int petra_config_key_count = sizeof petra_config_keys / sizeof *petra_config_keys;

int petra_config_key_find(const char *path) {
  for (int i = 0; i < petra_config_key_count; i++)
    if (strcmp(petra_config_keys[i].path, path) == 0)
      return i;
  return -1;
}

/* True if `path` lies below `section`. */
static bool is_below(const char *path, const char *section, size_t length) {
  return length == 0 || (strncmp(path, section, length) == 0 && path[length] == '.');
}

bool petra_config_is_section(const char *path) {
  for (int i = 0; i < petra_config_key_count; i++)
    if (is_below(petra_config_keys[i].path, path, strlen(path)))
      return true;
  return false;
}

const char *petra_config_choice_name(const char *path, int value) {
  int index = petra_config_key_find(path);
  const petra_config_key *key = index < 0 ? NULL : &petra_config_keys[index];
  bool named = key && (key->type == PETRA_KEY_CHOICE || key->type == PETRA_KEY_FLAG_LIST);
  for (int i = 0; named && key->choices[i]; i++)
    if (value == (key->type == PETRA_KEY_CHOICE ? i : 1 << i))
      return key->choices[i];
  return "?";
}

int petra_period_letters(const char *word, double count) {
  const size_t length = strlen(word);
  return (int)(count != 1 ? length : strcmp(word, "microbatches") == 0 ? length - strlen("es") : length - strlen("s"));
}

/* Appends to a string in a buffer; what does not fit is cut. */
__attribute__((format(printf, 3, 4))) static void append(char *out, size_t size, const char *format, ...) {
  size_t used = strlen(out);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(out + used, size - used, format, arguments);
  va_end(arguments);
}

/* "a, b or c" */
static void append_choices(char *out, size_t size, const char *const *choices) {
  for (int i = 0; choices[i]; i++)
    append(out, size, "%s%s", i == 0 ? "" : choices[i + 1] ? ", " : " or ", choices[i]);
}

static void append_real_range(char *out, size_t size, const petra_config_key *key) {
  append(out, size, "%.15g", key->real_min);
  if (key->real_max == DBL_MAX)
    append(out, size, " or more");
  else
    append(out, size, " .. %.15g", key->real_max);
  if (key->rule == PETRA_RULE_BELOW_MAX)
    append(out, size, " (%.15g excluded)", key->real_max);
}

char *petra_config_expected(const petra_config_key *key, char *out, size_t size) {
  out[0] = 0;
  switch (key->type) {
  case PETRA_KEY_STRING:
    if (!key->choices)
      append(out, size, "%s",
             key->rule == PETRA_RULE_FILE_NAME   ? "a plain file name of 1 to 255 bytes without '/'"
             : key->rule == PETRA_RULE_NOT_EMPTY ? "a string that is not empty"
                                                 : "a string");
    break;
  case PETRA_KEY_INTEGER:
    if (!key->choices)
      append(out, size, "an integer, %" PRId64 " .. %" PRId64, key->min, key->max);
    break;
  case PETRA_KEY_REAL:
    append(out, size, "a number, ");
    append_real_range(out, size, key);
    break;
  case PETRA_KEY_BOOLEAN:
    append(out, size, "true or false");
    break;
  case PETRA_KEY_PERIOD:
    append(out, size, "a number of epochs, or \"N microbatches\" or \"N minutes\", N from 0 to %.15g", key->real_max);
    break;
  case PETRA_KEY_REAL_LIST:
    append(out, size, "a list of numbers, each ");
    append_real_range(out, size, key);
    break;
  case PETRA_KEY_INTEGER_LIST:
    append(out, size, "%sa list of integers, each %" PRId64 " .. %" PRId64 "%s",
           key->rule == PETRA_RULE_OR_ONE ? "an integer, or " : "", key->min, key->max,
           key->rule == PETRA_RULE_RISING ? ", strictly rising" : "");
    break;
  case PETRA_KEY_FLAG_LIST:
    append(out, size, "a list of any of ");
    break;
  case PETRA_KEY_CHOICE:
    break;
  }
  if (key->choices)
    append_choices(out, size, key->choices);
  return out;
}

char *petra_config_children(const char *section, char *out, size_t size) {
  size_t length = strlen(section), skip = length ? length + 1 : 0;
  const char *last = "";
  size_t last_length = 0;
  out[0] = 0;
  for (int i = 0; i < petra_config_key_count; i++) {
    if (!is_below(petra_config_keys[i].path, section, length))
      continue;
    const char *name = petra_config_keys[i].path + skip;
    size_t name_length = strcspn(name, ".");
    if (name_length == last_length && strncmp(name, last, name_length) == 0)
      continue; /* another key of the same inner section */
    append(out, size, "%s%.*s", out[0] ? ", " : "", (int)name_length, name);
    last = name, last_length = name_length;
  }
  return out;
}
