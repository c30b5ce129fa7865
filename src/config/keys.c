/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config_private.h"

#include "base/log.h"
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
#define WORD_OR_INTEGERS(member, default_text, names, low, high, help)                                                 \
  KEY(INTEGER_LIST, petra_int_list, member, default_text, help, .min = (low), .max = (high),                           \
      .choices = (const char *const[]){names(PETRA_CHOICE_TEXT) NULL})
#define REALS(member, default_text, low, high, help)                                                                   \
  KEY(REAL_LIST, petra_real_list, member, default_text, help, .real_min = (low), .real_max = (high))
#define FLAGS(member, default_text, names, help)                                                                       \
  KEY(FLAG_LIST, unsigned, member, default_text, help, .choices = (names))

/* Upper bounds far above the values of any run. They keep sums and products of such numbers far below 2^63. */
#define MANY INT64_C(1000000)
#define MANY_IMAGES INT64_C(1000000000)
#define MANY_MICROBATCHES INT64_C(1000000000000)
#define MANY_BYTES INT64_C(1000000000000000)

/* clang-format off */
const petra_config_key petra_config_keys[] = {
    STRING_FOR(PLACE, run.name, "demo", FILE_NAME, "name of the run and of its folder"),
    INTEGER(run.seed, "1", 0, INT64_MAX, "seed of every random stream"),
    CHOICE_FOR(WAY, run.mode, "emulate", PETRA_RUN_MODE_CHOICES, "emulate: all stages compute in one process, in the order of a virtual clock; execute: the processes that mpirun started do the same actions, each for some of the stages"),
    STRING_FOR(PLACE, run.output, "runs", NOT_EMPTY, "folder in which petra creates the folder of the run"),
    INTEGER_FOR(LENGTH, run.epochs, "10", 1, MANY, "number of passes over the training samples"),
    INTEGER_FOR(LENGTH, run.max_microbatches, "0", 0, MANY_MICROBATCHES, "maximum number of microbatches of the run; 0: no limit"),
    INTEGER(run.eval_every, "1", 0, MANY, "epochs between evaluations; 0: never"),
    PERIOD_FOR(WAY, run.checkpoint_every, "1", MANY_MICROBATCHES, "interval between checkpoints (checkpoint.h5), from which petra train --resume continues; SIGINT (Ctrl-C), SIGTERM and SIGUSR1 also write a checkpoint and end the run; 0: no checkpoint is written"),
    CHOICE(run.keep, "last", PETRA_KEEP_WEIGHTS_CHOICES, "weights in weights.h5 of the complete run; last: the final weights; best: the weights of the evaluation with the highest top-1 accuracy (for tokens: the lowest loss), the first if several are equal; best.h5 contains them during the run"),
    CHOICE(run.drain, "auto", PETRA_DRAIN_CHOICES, "whether the pipeline is emptied at the end of the run; auto: the choice of the program (docs/semantics/evaluation.md)"),
    BOOLEAN_FOR(PLACE, run.keep_checkpoint, "false", "true: a complete run keeps its last checkpoint, so that petra train --resume can make the run longer (there is none if the run ends before the first checkpoint is due); false: the checkpoint is removed at the end"),
    BOOLEAN(run.trace_actions, "false", "record every action of the run in /trace/actions of run.h5 (48 bytes per action)"),

    CHOICE(data.set, "cifar10", PETRA_DATA_SET_CHOICES, "data set; cifar10, cifar100, shapes, imagefolder and hdf5 have images; text, tokens and grammar have windows of tokens; shapes and grammar are synthetic and need no file"),
    STRING_FOR(WAY, data.path, "data/cifar-10-batches-bin", NONE, "cifar10, cifar100: folder with the binary files; imagefolder: folder that contains train and val; hdf5: the file; text: a file in which each byte is a token; tokens: a .bin or HDF5 file, or a folder with train.bin and val.bin"),
    INTEGER(data.batch, "64", 1, MANY_IMAGES, "samples (images or windows of tokens) per microbatch, at most 65536 with a model"),
    BOOLEAN(data.shuffle, "true", "use a new order of the training samples in every epoch; for tokens also other windows: each epoch draws the offset at which they begin"),
    FLAGS(data.augment, "[crop, flip]", augments, "random changes of the training images ([] for sets of tokens); crop: a window of the image after padding by 4 pixels (imagefolder: a window of random position, size and shape); flip: the mirror image"),
    INTEGER(data.limit, "0", 0, MANY_MICROBATCHES, "N > 0: train only on the first N samples; 0: train on all"),
    INTEGER(data.eval_limit, "0", 0, MANY_IMAGES, "N > 0: evaluate only on the first N samples; 0: evaluate on all"),
    INTEGER(data.recalibrate, "0", 0, 1000000, "N > 0: evaluate a second time, with batch-norm statistics that are estimated with the evaluated weights from the first N training microbatches; 0: off"),
    INTEGER_FOR(WAY, data.workers, "2", 1, 256, "number of threads that load samples"),
    INTEGER(data.image_size, "224", 1, 4096, "imagefolder: width and height of the images that the network receives"),
    INTEGER(data.resize, "256", 1, 4096, "imagefolder: length to which an evaluation resizes the shorter side of an image before it cuts out the centre; at least data.image_size"),
    STRING(data.eval_path, "\"\"", NONE, "text, tokens: file of the evaluation split; empty: the last part of data.path, or val.bin if data.path has train.bin and val.bin"),
    REAL(data.eval_share, "0.1", 0, 1, BELOW_MAX, "text, tokens: fraction of the tokens of a single file, at its end, that is the evaluation split; 0: no evaluation split"),
    INTEGER(data.vocabulary, "0", 0, 65536, "number of possible tokens in a .bin file, which does not contain this number (GPT-2: 50257); a simulation with this number needs no file; 0: the number that the data set states"),

    CHOICE(model.family, "revnet", PETRA_FAMILY_CHOICES, "network; reversible: revnet and the transformers revgpt, revllama (tokens) and revvit (images); ordinary, for comparison: resnet, gpt, llama, vit"),
    INTEGER(model.depth, "18", 1, 1000, "revnet, resnet: layers (18, 34, 50 or 101); with model.shape: constant: blocks, each of two convolutions; transformers: blocks, each with attention and an MLP, which can be stages of their own"),
    INTEGER(model.width, "64", 1, 4096, "revnet, resnet: channels of one stream in the first group of blocks (64 in the paper); transformers: features of a stream"),
    CHOICE(model.stem, "cifar", PETRA_STEM_CHOICES, "first layers; cifar: for small images (3x3); imagenet: for large images (7x7 and pooling)"),
    CHOICE(model.shape, "pyramid", PETRA_SHAPE_CHOICES, "shape of the streams of a revnet or resnet; pyramid: each further group of blocks halves the image and doubles the width; constant (revnet): no block changes the image or the width, so that all blocks are reversible"),
    CHOICE(model.bottleneck, "standard", PETRA_BOTTLENECK_CHOICES, "first block of a group of a revnet of depth 50 or 101; standard: its three convolutions read the input, and the second one halves the image; variant: a strided 1x1 convolution halves the image first, and the three convolutions read the result"),
    CHOICE(model.downsample, "conv", PETRA_DOWNSAMPLE_CHOICES, "how a RevNet halves its images; conv: strided convolutions; invertible: space to depth, which makes these blocks reversible (depth 18, 34)"),
    INTEGER(model.classes, "10", 2, 100000, "number of classes; networks for tokens use the vocabulary of data.set instead"),
    INTEGER(model.context, "128", 1, MANY_IMAGES, "sets of tokens: tokens per window, at most 65536 with a model; the label of each token is the token after it"),
    INTEGER(model.heads, "4", 1, 1024, "transformers: attention heads; must divide model.width"),
    INTEGER(model.kv_heads, "0", 0, 1024, "llama, revllama: heads of keys and values (grouped-query attention); must divide model.heads; 0: model.heads"),
    INTEGER(model.hidden, "0", 0, 65536, "llama, revllama: features inside the gated MLP; 0: 8/3 of model.width, rounded up to a multiple of 32"),
    REAL(model.rotary_base, "10000", 1, 1e12, NONE, "llama, revllama: base of the angles of rotary positions"),
    INTEGER(model.patch, "4", 1, 4096, "vit, revvit: width and height of an image patch; each patch is one position"),
    CHOICE(model.coupling, "additive", PETRA_COUPLING_CHOICES, "reversible transformers: how a block joins its function F to the streams; additive: y1 = x2 + F(x1), y2 = x1; leapfrog: y1 = 2 x1 - x2 + F(x1), y2 = x1"),
    STRING(model.weights, "\"\"", NONE, "weights file to start from; empty: random weights from the seed"),
    BOOLEAN(model.new_head, "false", "with model.weights: start the head with random weights from the seed and ignore the head in the file, which may have another number of classes (for tokens the embedding must still have the same vocabulary)"),
    BOOLEAN(model.zero_init_residual, "false", "start the scale of the last batch norm of each block at 0"),

    CHOICE(stages.partition, "block", PETRA_PARTITION_CHOICES, "block: one block per stage; balanced: stages.count stages; list: stages.blocks"),
    INTEGER(stages.count, "0", 0, 100000, "balanced: number of stages"),
    INTEGERS(stages.blocks, "[]", 1, MANY, NONE, "list: number of blocks of each stage"),
    WORD_OR_INTEGERS(stages.devices, "preset", PETRA_DEVICES_CHOICES, 1, 100000, "device of each stage; loop: stages go round the devices, from the first to the last and again; v: the second half of the stages goes back from the last device to the first; preset: as the program of the method requires"),

    STRING(method.name, "petra", NOT_EMPTY, "training method"),
    INTEGER(method.accumulate, "1", 1, MANY, "microbatches per update of the weights"),
    STRING(method.program, "preset", NOT_EMPTY, "order of the actions, a program that petra methods lists; preset: the program of method.name"),
    CHOICE(method.forward_weights, "preset", PETRA_PASS_WEIGHTS, "weights that the forward reads; double_buffer (for forward and backward together): those of one update earlier"),
    CHOICE(method.backward_weights, "preset", PETRA_PASS_WEIGHTS, "weights that the backward reads; stashed: those that the forward of the microbatch read"),
    CHOICE(method.invert_weights, "preset", PETRA_INVERT_WEIGHTS, "weights that reconstruct an input that is not stored; none: no block is inverted"),
    CHOICE(method.keep, "preset", PETRA_KEEP_CHOICES, "data stored between forward and backward; graph: the graph; input: the input of each block; nothing: only what cannot be reconstructed by inversion"),
    CHOICE(method.keep_precision, "native", PETRA_FORMAT_CHOICES, "number format of the inputs or graphs that are stored between forward and backward (samples of the data set, statistics and weights stay native); the formats are those of cluster.message.up"),
    INTEGER(method.sync_period, "0", 0, MANY_MICROBATCHES, "N > 0: the forward reads a copy of the weights that is refreshed every N microbatches; 0: it reads the weights themselves"),
    CHOICE(method.head, "preset", PETRA_HEAD_CHOICES, "last stage; fused: forward, loss and backward are one action; split: they are two actions; preset: the choice of the program"),
    INTEGER(method.chunks, "0", 0, 100000, "stages per device in programs with a loop (interleaved, looped-bfs, interleaved-zb); 0: 2 in these and in a V, 1 in others"),
    BOOLEAN(method.early_recompute, "false", "in the program gpipe with stored inputs: compute graphs again while the stage waits for the gradient, and store the first graph of a flush (torchgpipe)"),
    INTEGER(method.credit, "0", 0, MANY_MICROBATCHES, "in the program arrival: maximum number of microbatches in flight; 0: no limit"),
    INTEGERS(method.extra_delay, "[]", 0, MANY, OR_ONE, "additional ticks between forward and backward, for methods with a fixed delay; one number for all stages, or a list with one number per stage that never rises; []: none"),
    STRING(method.schedule, "\"\"", NONE, "file with the order of the actions of every device, as petra schedule prints it, or run.h5 of a run that recorded its actions (run.trace_actions); empty: the order of the method"),
    INTEGER(method.mitigation.lr_rescheduling, "0", 0, MANY_MICROBATCHES, "N > 0, delayed methods: a delayed stage starts with a lower rate and reaches the full rate after N updates (PipeMare T1); 0: off"),
    REAL(method.mitigation.discrepancy_correction, "0", 0, 1, BELOW_MAX, "the backward extrapolates back to the weights of its forward; the value is the weight that remains after one delay in the average of updates (PipeMare T2); 0: off"),
    BOOLEAN(method.mitigation.spike_compensation, "false", "a delayed gradient immediately contributes what its momentum would have contributed by now"),
    CHOICE(method.mitigation.weight_prediction, "none", PETRA_PREDICTION_CHOICES, "the forward reads extrapolated weights; velocity: along the momentum to the time of its backward; difference: the same along the last update; spectrain: forward and backward read weights extrapolated along the momentum to the time at which the microbatch has passed the backward of stage 1"),
    REAL(method.mitigation.prediction_horizon, "1", 0, 100, NONE, "distance of the extrapolation of weight_prediction, in delays of the stage (spectrain: in its version differences)"),
    REAL(method.mitigation.gradient_shrinking, "1", 0, 1, NONE, "factor of the gradient for every stage above its own; 1: off"),
    REAL(method.mitigation.stage_momentum, "0", 0, 1, BELOW_MAX, "Nesterov momentum that grows from optim.momentum at the last stage to this value at the first; 0: off"),
    INTEGER(method.mitigation.sync_warmup_epochs, "0", 0, 100000, "N > 0: the first N epochs are trained without delay, in the order of 1f1b; the schedule of the method then starts with their weights and momentum (PipeMare T3); 0: off"),
    BOOLEAN(method.mitigation.error_feedback, "false", "experimental, because the formula was not checked against its paper: a step adds the residual of the step one delay earlier, the difference of the two steps (error feedback for a fixed delay)"),

    STRING_OF(optim.name, "sgd", petra_optimiser_names, "optimiser; if a file or the command line selects another optimiser than before, its keys get the defaults of that optimiser (table below) unless the same place sets them; every optimiser except sgd needs optim.lr there"),
    REAL(optim.lr, "0.1", 0, DBL_MAX, NONE, "learning rate before scaling and schedule; the default is for sgd, the others have no default"),
    CHOICE(optim.lr_scaling, "goyal", PETRA_LR_SCALING_CHOICES, "goyal: optim.lr times replicas times batch times accumulate, divided by 256 (a rule for SGD); none: optim.lr"),
    REAL(optim.momentum, "0.9", 0, 1, BELOW_MAX, "momentum (sgd, muon, lars)"),
    BOOLEAN(optim.nesterov, "true", "Nesterov momentum (sgd, muon, lars)"),
    REAL(optim.beta1, "0.9", 0, 1, BELOW_MAX, "decay factor of the average of gradients per update (adam, adamw, nadamw, basis-rotation; lion: in the direction of its step; muon: for the parameters that AdamW updates)"),
    REAL(optim.beta2, "0.999", 0, 1, BELOW_MAX, "decay factor of the average of squared gradients per update (adam, adamw, nadamw, basis-rotation; lion: of its average of gradients; muon: for the parameters that AdamW updates)"),
    REAL(optim.epsilon, "1.0e-8", 0, DBL_MAX, NONE, "added to the root of the squared gradients (adam, adamw, nadamw, muon, basis-rotation), or to the norm of the gradient (lars)"),
    REAL(optim.momentum_decay, "0.004", 0, DBL_MAX, NONE, "nadamw: how fast its momentum grows to beta1; at update t it is beta1 (1 - 0.96^(t momentum_decay) / 2)"),
    CHOICE(optim.muon_scale, "shape", PETRA_MUON_SCALE_CHOICES, "muon: factor of the step of a matrix; shape: the root of rows / columns, at least 1; rms: 0.2 times the root of the larger of the two, which makes the step about as large as that of AdamW"),
    REAL(optim.adam_lr_share, "1", 0, DBL_MAX, NONE, "muon: learning rate of the parameters that AdamW updates (vectors, embeddings, head), as a multiple of that of the matrices"),
    REAL(optim.trust_coefficient, "0.02", 0, DBL_MAX, NONE, "lars: maximum size of the gradient of a tensor at the rate, as a multiple of the norm of the tensor"),
    CHOICE(optim.rotation_sides, "both", PETRA_ROTATION_SIDES_CHOICES, "basis-rotation: rotate both sides of a matrix, or only the smaller side (of a square matrix: the columns)"),
    INTEGER(optim.rotation_every, "10", 1, MANY, "basis-rotation: number of updates between two bases"),
    REAL(optim.weight_decay, "5.0e-4", 0, DBL_MAX, NONE, "weight decay; sgd, lars, adam: added to the gradient; others: the weights shrink by the product of the weight decay and the rate"),
    BOOLEAN(optim.decay_norm_and_bias, "false", "also decay biases and the scales and shifts of batch norms"),
    REAL(optim.clip, "0", 0, DBL_MAX, NONE, "maximum norm of the gradient of a stage at an update; a stage scales a larger gradient down, by its own norm alone; 0: no clipping"),

    CHOICE(lr.schedule, "step", PETRA_LR_SCHEDULE_CHOICES, "rate after the warm-up; step: multiplied by lr.factor at lr.milestones; cosine: half a cosine that ends at lr.final times the rate after lr.epochs; wsd (warm-up, stable, decay): the full rate, then in the last lr.decay_epochs a decrease to lr.final by one minus the root of the elapsed fraction"),
    INTEGER(lr.warmup_epochs, "5", 0, MANY, "epochs of linear warm-up"),
    INTEGERS(lr.milestones, "[150, 225]", 1, MANY, RISING, "epochs at which the learning rate is multiplied by lr.factor"),
    REAL(lr.factor, "0.1", 0, DBL_MAX, NONE, "factor of the learning rate at each milestone"),
    INTEGER(lr.epochs, "0", 0, MANY, "cosine, wsd: length of the schedule in epochs, including the warm-up; after it the rate stays constant; run.epochs may differ, because --resume can increase it"),
    INTEGER(lr.decay_epochs, "0", 0, MANY, "wsd: number of epochs, the last of lr.epochs, in which the rate falls"),
    REAL(lr.final, "0", 0, 1, NONE, "cosine, wsd: fraction of the rate at the end of lr.epochs"),

    CHOICE(device.backend, "auto", PETRA_BACKEND_CHOICES, "library that computes; auto: the fastest one of this build that this machine supports"),
    CHOICE(device.precision, "fp32", PETRA_PRECISION_CHOICES, "arithmetic of convolutions and matrix products; tensors are double in fp64 and float in the others, except bf16 tensors inside blocks in bf16 (docs/semantics/precision.md; on cpu bf16 needs AVX512-BF16 or AMX); fp64: only ref; tf32: only cuda; transformers: fp32, fp64, or bf16 on cpu"),
    INTEGER(device.threads, "0", 0, 1024, "compute threads; 0: one for each core that the process may use, but not more than a limit of processor time (cgroup) amounts to; if OpenMP gives fewer threads (OMP_THREAD_LIMIT), petra uses these, with a warning if this key asked for more"),
    INTEGER(device.groups, "1", 0, 1024, "emulate on the host: number of groups of compute threads; that many actions of different stages that start at the same time are computed at once, each by device.threads / groups threads; the result depends on the number of threads per group, not on the number of groups; 0: chosen by a rule from the schedule, FLOPs and threads"),
    BOOLEAN(device.deterministic, "true", "two runs with the same seed and number of threads are equal to the bit"),
    CHOICE(device.graph, "auto", PETRA_GRAPH_CHOICES, "cuda: repeat the launches of an action as one CUDA graph; the result is equal to the bit; on (only cuda): a failed capture is an error"),
    INTEGER_FOR(WAY, device.streams, "0", 0, 16, "cuda: number of streams on which stages compute at the same time; stage j uses stream j modulo this number; 0: one per stage, up to 16"),
    BOOLEAN(device.wide_gradients, "false", "cuda in bf16; true: convolutions produce the gradients of streams and weights in float, with kernels that cuDNN compiles at the start (a second each) or, if it cannot, rounded to bf16 and widened; false: rounded to bf16, which costs no time"),
    STRING(device.plans, "\"\"", NONE, "cuda: file with the cuDNN configuration of each shape of convolution; the configurations of other shapes are measured at their first use and added to the file; empty: nothing is measured, and the heuristics of cuDNN decide"),

    INTEGER(cluster.engines, "1", 1, 2, "compute engines per device of the modelled cluster; with 2, forward and backward overlap"),
    REAL(cluster.overlap, "0", 0, 1, NONE, "fraction of the shorter pass that is hidden if one engine overlaps a forward with a backward (method dualpipe-v); the two take the sum of their durations minus this part of the shorter one"),
    INTEGER(cluster.replicas, "1", 1, 1024, "number of pipelines with the same weights; each has data.batch samples of its own in every microbatch, so a microbatch has replicas x data.batch samples; gradients are averaged stage by stage before each update"),
    INTEGERS_FOR(WAY, cluster.placement, "[]", 1, 100000, NONE, "number of neighbouring devices of each process, from the first process on (a device has one stage, with some methods several); execute: [] balances them by the profile, or else by FLOPs; simulate: a process does one action at a time, and [] gives every stage a device of its own"),
    REAL_FOR(WAY, cluster.timeout_s, "60", 1, 1e6, NONE, "execute: if a process is silent for this number of seconds, the run ends with a line that names it"),
    CHOICE_FOR(WAY, cluster.transport, "auto", PETRA_TRANSPORT_CHOICES, "execute: transport of messages between processes; nccl: from GPU to GPU by NVIDIA's NCCL; mpi: through host memory, or from GPU to GPU if the MPI library can; auto: nccl if petra was built with it and every process has a GPU of its own, otherwise mpi"),
    INTEGERS_FOR(WAY, cluster.gpus, "[]", 0, 1000, NONE, "execute with device.backend cuda: for each process, from the first on, the number (from 0) of its GPU on its host; []: process i of a host takes GPU i, and starts again at the first GPU if there are more processes than GPUs"),
    INTEGER(cluster.stages, "0", 0, 100000, "number of equal stages that replace the model, with the costs of cluster.cost and cluster.message; such a config can be simulated but not trained; 0: the stages of the model"),
    CHOICE(cluster.message.up, "native", PETRA_FORMAT_CHOICES, "number format of the messages to the next stage; native: as computed; int8: 127 levels on each side of 0, rounded to the nearest; qsgd:BITS: 2^(BITS-1) - 1 levels on each side, rounded up or down at random without bias; each sample has a scale of its own; evaluations are never rounded"),
    CHOICE(cluster.message.down, "native", PETRA_FORMAT_CHOICES, "number format of the messages to the previous stage: gradients and, if the method inverts, the reconstructed streams"),
    INTEGER(cluster.message.forward_bytes, "0", 0, MANY_BYTES, "with cluster.stages: bytes that each stage sends up per microbatch"),
    INTEGER(cluster.message.backward_bytes, "0", 0, MANY_BYTES, "with cluster.stages: bytes that each stage sends down per microbatch"),
    INTEGER(cluster.message.gradient_bytes, "0", 0, MANY_BYTES, "with cluster.stages: bytes of the gradients of each stage that the replicas average before an update (cluster.replicas)"),
    CHOICE(cluster.cost.model, "unit", PETRA_COST_MODEL_CHOICES, "cost of an action in virtual time; unit: forward 1 s, backward 2 s, reconstruct 1 s, weight_gradient 1 s, update 0 s; constant: the keys below that end in _s; roofline: FLOPs and bytes of the model's stages divided by the peaks of cluster.cost.device, a lower bound; kernels: the same with cluster.cost.launch_s and cluster.cost.efficiency; measured (train): the real time of each action; profile: times that `petra profile` measured"),
    REAL(cluster.cost.forward_s, "1", 0, 1e6, NONE, "seconds of a forward action"),
    REAL(cluster.cost.backward_s, "2", 0, 1e6, NONE, "seconds of a backward action without reconstruction"),
    REAL(cluster.cost.reconstruct_s, "1", 0, 1e6, NONE, "seconds of a reconstruction or recomputation"),
    REAL(cluster.cost.weight_gradient_s, "1", 0, 1e6, NONE, "part of backward_s that a weight-gradient action takes if the program separates it"),
    REAL(cluster.cost.update_s, "0", 0, 1e6, NONE, "seconds of an update"),
    CHOICE(cluster.cost.device, "a100", PETRA_COST_DEVICE_CHOICES, "roofline, kernels: device (table below) whose peak rates determine the costs of every stage"),
    CHOICE(cluster.cost.arithmetic, "fp32", PETRA_COST_ARITHMETIC_CHOICES, "roofline, kernels: arithmetic of convolutions and matrix products, which determines their peak; tensors have 4 bytes per element in each"),
    STRING(cluster.cost.profile, "\"\"", NONE, "profile: file that `petra profile` wrote for this model, batch and precision"),
    REAL(cluster.cost.launch_s, "0", 0, 1e6, NONE, "kernels: seconds that every kernel takes on its device before it does anything"),
    REAL(cluster.cost.efficiency.matrix_flops, "1", 1e-9, 1e9, NONE, "kernels: fraction of the device's peak FLOPs that convolutions and matrix products reach"),
    REAL(cluster.cost.efficiency.matrix_bytes, "1", 1e-9, 1e9, NONE, "kernels: fraction of the device's memory bandwidth that convolutions and matrix products reach"),
    REAL(cluster.cost.efficiency.elementwise_bytes, "1", 1e-9, 1e9, NONE, "kernels: fraction of the device's memory bandwidth that all other kernels reach"),
    CHOICE(cluster.host.share, "cluster", PETRA_HOST_SHARE_CHOICES, "devices that share a host, which issues their actions one at a time; cluster: all; node: those of a node (cluster.node_size); device: each has its own"),
    REAL(cluster.host.action_s, "0", 0, 1e6, NONE, "seconds that a host needs to issue an action (F, B, W or U); the action starts after that"),
    REAL(cluster.host.kernel_s, "0", 0, 1e6, NONE, "additional seconds for each kernel of the action, as counted by the blocks of the model"),
    INTEGER(cluster.host.ahead, "0", 0, MANY, "maximum number of actions of an engine that are issued and not yet started; 0: an action is issued only when nothing else prevents its start"),
    REALS(cluster.speeds, "[]", 1e-6, 1e6, "speed of each device, one number per device; the costs of its stages are divided by it; []: 1 for all"),
    CHOICE(cluster.link.preset, "none", PETRA_LINK_PRESET_CHOICES, "link by name (table below); sets latency_s and bandwidth_Bps unless the same file, or like this key a --set, sets them; none: no latency, infinite bandwidth"),
    REAL(cluster.link.latency_s, "0", 0, 1e6, NONE, "seconds between the end of a transmission and its arrival; overlaps with the next transmission"),
    REAL(cluster.link.bandwidth_Bps, "0", 0, 1e18, NONE, "bytes per second of each link between two devices, per direction; 0: infinite"),
    CHOICE(cluster.link.sharing, "fifo", PETRA_LINK_SHARING_CHOICES, "transmissions on a link or card; fifo: one after another; fair: at the same time, with max-min fair rates"),
    INTEGER(cluster.node_size, "1", 1, 100000, "number of neighbouring devices on one node; they share its network card, and cluster.node_link is the link between them"),
    CHOICE(cluster.node_link.preset, "same", PETRA_NODE_LINK_PRESET_CHOICES, "link between two devices of one node, by name (table below); sets latency_s and bandwidth_Bps like cluster.link.preset; same: as cluster.link, which otherwise is the link between devices of different nodes; if only latency_s or bandwidth_Bps is set: none"),
    REAL(cluster.node_link.latency_s, "0", 0, 1e6, NONE, "like cluster.link.latency_s, between two devices of one node"),
    REAL(cluster.node_link.bandwidth_Bps, "0", 0, 1e18, NONE, "like cluster.link.bandwidth_Bps, between two devices of one node; 0: infinite"),
    REAL(cluster.card_Bps, "0", 0, 1e18, NONE, "bytes per second of the network card of a node, per direction; 0: infinite"),
    CHOICE(cluster.jitter.model, "none", PETRA_JITTER_MODEL_CHOICES, "distribution of the duration of an action; its mean is the cost"),
    REAL(cluster.jitter.scale, "0.1", 0, 10, NONE, "standard deviation of the duration divided by its mean (normal: before negative durations are cut off; exponential: at most 1)"),
    INTEGERS(cluster.stragglers.stages, "[]", 1, 100000, RISING, "stages that are slower than their costs"),
    REAL(cluster.stragglers.factor, "1", 0, 1e6, NONE, "factor by which their actions take longer"),
    REAL(cluster.pauses.mean_between_s, "0", 0, 1e9, NONE, "mean busy time of a stage between two pauses (exponential), at least 1e-6; 0: no pauses"),
    REAL(cluster.pauses.duration_s, "0", 0, 1e6, NONE, "mean length of a pause (exponential)"),
    REAL(cluster.failures.mean_between_s, "0", 0, 1e9, NONE, "mean busy time of a stage between two failures (exponential), at least 1e-6; a failure repeats its action; 0: no failures"),
    REAL(cluster.failures.restart_s, "0", 0, 1e6, NONE, "seconds from a failure until the action starts again"),

    INTEGER(probe.per_epoch, "0", 0, MANY, "train only: number of probes of gradient fidelity per epoch, evenly spaced; each covers one update window; the paper has 15"),
    BOOLEAN(probe.gradients, "false", "log the gradients that the probes compare"),
    INTEGER(profile.warmup, "3", 0, MANY, "`petra profile`: microbatches before the first measured one"),
    INTEGER(profile.repetitions, "15", 1, MANY, "`petra profile`: number of measured microbatches"),
};
/* clang-format on */

const int petra_config_key_count = sizeof petra_config_keys / sizeof *petra_config_keys;

int petra_config_key_find(const char *path) {
  for (int i = 0; i < petra_config_key_count; i++)
    if (strcmp(petra_config_keys[i].path, path) == 0)
      return i;
  return -1;
}

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

/* Appends to a string in a buffer; truncates the text if it does not fit. */
__attribute__((format(printf, 3, 4))) static void append(char *out, size_t size, const char *format, ...) {
  size_t used = strlen(out);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(out + used, size - used, format, arguments);
  va_end(arguments);
}

/* Appends "a, b or c". */
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
    if (key->choices)
      append(out, size, ", or one of ");
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

/* --- keys that have no effect because of the value of another key --- */

/* `key` has an effect only if the choice `others[0]` is one of `values` or, if there are no values, if any of `others`
 * does not have its default. A message names the first two of them. */
typedef struct need {
  const char *key, *others[3], *values[2];
} need;

static const need needs[] = {
    {"data.image_size", {"data.set"}, {"imagefolder"}},
    {"data.resize", {"data.set"}, {"imagefolder"}},
    {"data.eval_path", {"data.set"}, {"text", "tokens"}},
    {"data.eval_share", {"data.set"}, {"text", "tokens"}},
    {"data.vocabulary", {"data.set"}, {"tokens"}},
    {"stages.blocks", {"stages.partition"}, {"list"}},
    {"cluster.cost.forward_s", {"cluster.cost.model"}, {"constant"}},
    {"cluster.cost.backward_s", {"cluster.cost.model"}, {"constant"}},
    {"cluster.cost.reconstruct_s", {"cluster.cost.model"}, {"constant"}},
    {"cluster.cost.weight_gradient_s", {"cluster.cost.model"}, {"constant"}},
    {"cluster.cost.update_s", {"cluster.cost.model"}, {"constant"}},
    {"cluster.cost.device", {"cluster.cost.model"}, {"roofline", "kernels"}},
    {"cluster.cost.arithmetic", {"cluster.cost.model"}, {"roofline", "kernels"}},
    {"cluster.cost.profile", {"cluster.cost.model"}, {"profile"}},
    {"cluster.cost.launch_s", {"cluster.cost.model"}, {"kernels"}},
    {"cluster.cost.efficiency.matrix_flops", {"cluster.cost.model"}, {"kernels"}},
    {"cluster.cost.efficiency.matrix_bytes", {"cluster.cost.model"}, {"kernels"}},
    {"cluster.cost.efficiency.elementwise_bytes", {"cluster.cost.model"}, {"kernels"}},
    {"cluster.host.share", {"cluster.host.action_s", "cluster.host.kernel_s"}, {NULL}},
    {"cluster.host.ahead", {"cluster.host.action_s", "cluster.host.kernel_s"}, {NULL}},
    {"cluster.link.sharing", {"cluster.link.bandwidth_Bps", "cluster.card_Bps", "cluster.cost.profile"}, {NULL}},
    {"cluster.node_link.preset", {"cluster.node_size"}, {NULL}},
    {"cluster.jitter.scale", {"cluster.jitter.model"}, {NULL}},
    {"cluster.stragglers.factor", {"cluster.stragglers.stages"}, {NULL}},
    {"cluster.pauses.duration_s", {"cluster.pauses.mean_between_s"}, {NULL}},
    {"cluster.failures.restart_s", {"cluster.failures.mean_between_s"}, {NULL}},
    {"probe.gradients", {"probe.per_epoch"}, {NULL}},
};

static petra_status is_met(const petra_config *config, const need *n, bool *out) {
  *out = false;
  for (int i = 0; !n->values[0] && i < 3 && n->others[i] && !*out; i++)
    PETRA_TRY(petra_config_changed(config, n->others[i], out));
  const petra_config_key *other = &petra_config_keys[petra_config_key_find(n->others[0])];
  for (int i = 0; i < 2 && n->values[i]; i++)
    *out |= strcmp(other->choices[*(const unsigned *)(const void *)((const char *)config + other->offset)],
                   n->values[i]) == 0;
  return PETRA_OK;
}

/* Returns true if the command line replaces the value in the file to which the key belongs. */
static bool is_overridden(const petra_config *config, const need *n) {
  const char *label = config->labels[petra_config_key_find(n->key)];
  const char *other = config->labels[petra_config_key_find(n->others[0])];
  return other && strncmp(other, "--set ", 6) == 0 && label && strncmp(label, "--set ", 6) != 0;
}

petra_status petra_config_warn_idle(const petra_config *config) {
  for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
    const need *n = &needs[i];
    const char *label = config->labels[petra_config_key_find(n->key)];
    bool changed, met;
    PETRA_TRY(petra_config_changed(config, n->key, &changed));
    PETRA_TRY(is_met(config, n, &met));
    if (!changed || met || is_overridden(config, n))
      continue;
    petra_log(PETRA_LOG_WARNING, "%s: has no effect; expected %s%s%s%s%s beside it", label ? label : n->key,
              n->others[0],
              n->values[0]   ? ": "
              : n->others[1] ? " or "
                             : "",
              n->values[0]   ? n->values[0]
              : n->others[1] ? n->others[1]
                             : "",
              n->values[0] && n->values[1] ? " or " : "", n->values[0] && n->values[1] ? n->values[1] : "");
  }
  return PETRA_OK;
}
