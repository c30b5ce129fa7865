/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration of a run: YAML, checked strictly against one table of keys (keys.c). Every key has a default; an
 * unknown key, a wrong type or a value out of range is one error line with file, line and key. Reference:
 * docs/config.md. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Choices: a list gives, for each choice, its C constant and its value in a config file. The enum is generated from the
 * list here; the texts of the key are generated in keys.c. */
#define PETRA_CHOICE_CONSTANT(constant, text) constant,
#define PETRA_CHOICE_TEXT(constant, text) text,
#define PETRA_CHOICE(type, LIST) typedef enum { LIST(PETRA_CHOICE_CONSTANT) } type

/* clang-format off */
#define PETRA_RUN_MODE_CHOICES(X) X(PETRA_MODE_EMULATE, "emulate") X(PETRA_MODE_EXECUTE, "execute")
PETRA_CHOICE(petra_run_mode, PETRA_RUN_MODE_CHOICES);
#define PETRA_KEEP_WEIGHTS_CHOICES(X) X(PETRA_KEEP_LAST, "last") X(PETRA_KEEP_BEST, "best")
PETRA_CHOICE(petra_keep_weights, PETRA_KEEP_WEIGHTS_CHOICES); /* run.keep */
#define PETRA_DRAIN_CHOICES(X) X(PETRA_DRAIN_AUTO, "auto") X(PETRA_DRAIN_TRUE, "true") X(PETRA_DRAIN_FALSE, "false")
PETRA_CHOICE(petra_drain, PETRA_DRAIN_CHOICES);
#define PETRA_DATA_SET_CHOICES(X) \
  X(PETRA_SET_CIFAR10, "cifar10") X(PETRA_SET_CIFAR100, "cifar100") X(PETRA_SET_SHAPES, "shapes") \
  X(PETRA_SET_IMAGEFOLDER, "imagefolder") X(PETRA_SET_HDF5, "hdf5") X(PETRA_SET_TEXT, "text") \
  X(PETRA_SET_TOKENS, "tokens") X(PETRA_SET_GRAMMAR, "grammar")
PETRA_CHOICE(petra_data_set, PETRA_DATA_SET_CHOICES);
#define PETRA_FAMILY_CHOICES(X) \
  X(PETRA_FAMILY_REVNET, "revnet") X(PETRA_FAMILY_RESNET, "resnet") X(PETRA_FAMILY_GPT, "gpt") \
  X(PETRA_FAMILY_REVGPT, "revgpt") X(PETRA_FAMILY_VIT, "vit") X(PETRA_FAMILY_REVVIT, "revvit") \
  X(PETRA_FAMILY_LLAMA, "llama") X(PETRA_FAMILY_REVLLAMA, "revllama")
PETRA_CHOICE(petra_family, PETRA_FAMILY_CHOICES);
#define PETRA_STEM_CHOICES(X) X(PETRA_STEM_CIFAR, "cifar") X(PETRA_STEM_IMAGENET, "imagenet")
PETRA_CHOICE(petra_stem, PETRA_STEM_CHOICES);
#define PETRA_DOWNSAMPLE_CHOICES(X) X(PETRA_DOWNSAMPLE_CONV, "conv") X(PETRA_DOWNSAMPLE_INVERTIBLE, "invertible")
PETRA_CHOICE(petra_downsample, PETRA_DOWNSAMPLE_CHOICES);
#define PETRA_SHAPE_CHOICES(X) X(PETRA_SHAPE_PYRAMID, "pyramid") X(PETRA_SHAPE_CONSTANT, "constant")
PETRA_CHOICE(petra_model_shape, PETRA_SHAPE_CHOICES);
#define PETRA_BOTTLENECK_CHOICES(X) X(PETRA_BOTTLENECK_STANDARD, "standard") X(PETRA_BOTTLENECK_VARIANT, "variant")
PETRA_CHOICE(petra_bottleneck, PETRA_BOTTLENECK_CHOICES);
#define PETRA_COUPLING_CHOICES(X) X(PETRA_COUPLING_ADDITIVE, "additive") X(PETRA_COUPLING_LEAPFROG, "leapfrog")
PETRA_CHOICE(petra_coupling, PETRA_COUPLING_CHOICES);
#define PETRA_PARTITION_CHOICES(X) \
  X(PETRA_PARTITION_BLOCK, "block") X(PETRA_PARTITION_BALANCED, "balanced") X(PETRA_PARTITION_LIST, "list")
PETRA_CHOICE(petra_partition_kind, PETRA_PARTITION_CHOICES);
#define PETRA_DEVICES_CHOICES(X) X(PETRA_DEVICES_PRESET, "preset") X(PETRA_DEVICES_LOOP, "loop") X(PETRA_DEVICES_V, "v")
PETRA_CHOICE(petra_devices_choice, PETRA_DEVICES_CHOICES); /* stages.devices, unless it is a list */
#define PETRA_LR_SCALING_CHOICES(X) X(PETRA_LR_NONE, "none") X(PETRA_LR_GOYAL, "goyal")
PETRA_CHOICE(petra_lr_scaling, PETRA_LR_SCALING_CHOICES);
#define PETRA_LR_SCHEDULE_CHOICES(X) X(PETRA_LR_STEP, "step") X(PETRA_LR_COSINE, "cosine") X(PETRA_LR_WSD, "wsd")
PETRA_CHOICE(petra_lr_schedule, PETRA_LR_SCHEDULE_CHOICES);
#define PETRA_MUON_SCALE_CHOICES(X) X(PETRA_MUON_SHAPE, "shape") X(PETRA_MUON_RMS, "rms")
PETRA_CHOICE(petra_muon_scale, PETRA_MUON_SCALE_CHOICES); /* nn/optim.h */
#define PETRA_ROTATION_SIDES_CHOICES(X) X(PETRA_ROTATE_BOTH, "both") X(PETRA_ROTATE_SMALLER, "smaller")
PETRA_CHOICE(petra_rotation_sides, PETRA_ROTATION_SIDES_CHOICES); /* nn/optim.h */
#define PETRA_BACKEND_CHOICES(X) \
  X(PETRA_BACKEND_AUTO, "auto") X(PETRA_BACKEND_REF, "ref") X(PETRA_BACKEND_CPU, "cpu") \
  X(PETRA_BACKEND_CUDA, "cuda")
PETRA_CHOICE(petra_backend_kind, PETRA_BACKEND_CHOICES);
#define PETRA_PRECISION_CHOICES(X) \
  X(PETRA_PRECISION_FP32, "fp32") X(PETRA_PRECISION_FP64, "fp64") X(PETRA_PRECISION_TF32, "tf32") \
  X(PETRA_PRECISION_BF16, "bf16")
PETRA_CHOICE(petra_precision, PETRA_PRECISION_CHOICES);
/* Number formats of messages and of stored inputs and graphs. NATIVE: the elements as they were computed. */
#define PETRA_FORMAT_CHOICES(X) \
  X(PETRA_FORMAT_NATIVE, "native") X(PETRA_FORMAT_FP32, "fp32") X(PETRA_FORMAT_BF16, "bf16") \
  X(PETRA_FORMAT_FP16, "fp16") X(PETRA_FORMAT_INT8, "int8") X(PETRA_FORMAT_QSGD2, "qsgd:2") \
  X(PETRA_FORMAT_QSGD3, "qsgd:3") X(PETRA_FORMAT_QSGD4, "qsgd:4") X(PETRA_FORMAT_QSGD5, "qsgd:5") \
  X(PETRA_FORMAT_QSGD6, "qsgd:6") X(PETRA_FORMAT_QSGD7, "qsgd:7") X(PETRA_FORMAT_QSGD8, "qsgd:8")
PETRA_CHOICE(petra_format, PETRA_FORMAT_CHOICES); /* backend/quantise.h */
#define PETRA_TRANSPORT_CHOICES(X) \
  X(PETRA_TRANSPORT_AUTO, "auto") X(PETRA_TRANSPORT_MPI, "mpi") X(PETRA_TRANSPORT_NCCL, "nccl")
PETRA_CHOICE(petra_transport_choice, PETRA_TRANSPORT_CHOICES); /* cluster.transport */
#define PETRA_GRAPH_CHOICES(X) X(PETRA_GRAPH_AUTO, "auto") X(PETRA_GRAPH_ON, "on") X(PETRA_GRAPH_OFF, "off")
PETRA_CHOICE(petra_graph_choice, PETRA_GRAPH_CHOICES); /* device.graph */
#define PETRA_COST_MODEL_CHOICES(X) \
  X(PETRA_COST_UNIT, "unit") X(PETRA_COST_CONSTANT, "constant") X(PETRA_COST_ROOFLINE, "roofline") \
  X(PETRA_COST_PROFILE, "profile") X(PETRA_COST_MEASURED, "measured") X(PETRA_COST_KERNELS, "kernels")
PETRA_CHOICE(petra_cost_model, PETRA_COST_MODEL_CHOICES);
#define PETRA_HOST_SHARE_CHOICES(X) \
  X(PETRA_HOST_CLUSTER, "cluster") X(PETRA_HOST_NODE, "node") X(PETRA_HOST_DEVICE, "device")
PETRA_CHOICE(petra_host_share, PETRA_HOST_SHARE_CHOICES); /* cluster.host.share */
#define PETRA_COST_DEVICE_CHOICES(X) \
  X(PETRA_COST_A100, "a100") X(PETRA_COST_A100_40, "a100-40") X(PETRA_COST_A100_80, "a100-80") \
  X(PETRA_COST_H100, "h100") X(PETRA_COST_H200, "h200") X(PETRA_COST_B200, "b200") X(PETRA_COST_GB200, "gb200") \
  X(PETRA_COST_V100, "v100") X(PETRA_COST_L40S, "l40s") X(PETRA_COST_RTX_4090, "rtx-4090") \
  X(PETRA_COST_MI300X, "mi300x") X(PETRA_COST_MI355X, "mi355x") X(PETRA_COST_GAUDI3, "gaudi3") \
  X(PETRA_COST_CPU_CORE, "cpu-core")
PETRA_CHOICE(petra_cost_device, PETRA_COST_DEVICE_CHOICES);
#define PETRA_COST_ARITHMETIC_CHOICES(X) \
  X(PETRA_COST_FP32, "fp32") X(PETRA_COST_TF32, "tf32") X(PETRA_COST_BF16, "bf16")
PETRA_CHOICE(petra_cost_arithmetic, PETRA_COST_ARITHMETIC_CHOICES);
enum { PETRA_COST_ARITHMETICS = PETRA_COST_BF16 + 1 };
#define PETRA_HEAD_CHOICES(X) X(PETRA_HEAD_PRESET, "preset") X(PETRA_HEAD_FUSED, "fused") X(PETRA_HEAD_SPLIT, "split")
PETRA_CHOICE(petra_head_choice, PETRA_HEAD_CHOICES); /* method.head */
/* The weights that a pass reads (explained in schedule/method.h). PRESET: the weights of the preset that method.name
 * names. */
#define PETRA_PASS_WEIGHTS(X) \
  X(PETRA_WEIGHTS_PRESET, "preset") X(PETRA_WEIGHTS_LATEST, "latest") X(PETRA_WEIGHTS_STASHED, "stashed") \
  X(PETRA_WEIGHTS_DOUBLE_BUFFER, "double_buffer")
#define PETRA_INVERT_WEIGHTS(X) PETRA_PASS_WEIGHTS(X) X(PETRA_WEIGHTS_NONE, "none")
PETRA_CHOICE(petra_weights, PETRA_INVERT_WEIGHTS); /* NONE is for inversion only: nothing is inverted */
/* The data that a stage keeps of a microbatch between its forward and its backward. PRESET: as in the preset that
 * method.name names. */
#define PETRA_KEEP_CHOICES(X) \
  X(PETRA_KEEP_PRESET, "preset") X(PETRA_KEEP_GRAPH, "graph") X(PETRA_KEEP_INPUT, "input") \
  X(PETRA_KEEP_NOTHING, "nothing")
PETRA_CHOICE(petra_keep, PETRA_KEEP_CHOICES);
#define PETRA_LINK_SHARING_CHOICES(X) X(PETRA_LINK_FIFO, "fifo") X(PETRA_LINK_FAIR, "fair")
PETRA_CHOICE(petra_link_sharing, PETRA_LINK_SHARING_CHOICES);
#define PETRA_LINK_PRESET_CHOICES(X) \
  X(PETRA_LINK_NONE, "none") X(PETRA_LINK_NVLINK3, "nvlink3") X(PETRA_LINK_NVLINK4, "nvlink4") \
  X(PETRA_LINK_NVLINK5, "nvlink5") X(PETRA_LINK_XGMI, "xgmi") X(PETRA_LINK_PCIE4_X16, "pcie4-x16") \
  X(PETRA_LINK_PCIE5_X16, "pcie5-x16") X(PETRA_LINK_10GBE, "10gbe") X(PETRA_LINK_100GBE, "100gbe") \
  X(PETRA_LINK_400GBE, "400gbe") X(PETRA_LINK_800GBE, "800gbe") X(PETRA_LINK_IB_NDR, "ib-ndr") \
  X(PETRA_LINK_IB_XDR, "ib-xdr") X(PETRA_LINK_WAN, "wan")
PETRA_CHOICE(petra_link_preset_choice, PETRA_LINK_PRESET_CHOICES); /* cluster.link.preset */
/* cluster.node_link.preset: the same presets, then "same": the values of cluster.link. */
#define PETRA_NODE_LINK_PRESET_CHOICES(X) PETRA_LINK_PRESET_CHOICES(X) X(PETRA_NODE_LINK_SAME, "same")
enum { PETRA_NODE_LINK_SAME = PETRA_LINK_WAN + 1 };
#define PETRA_JITTER_MODEL_CHOICES(X) \
  X(PETRA_JITTER_NONE, "none") X(PETRA_JITTER_NORMAL, "normal") X(PETRA_JITTER_LOGNORMAL, "lognormal") \
  X(PETRA_JITTER_GAMMA, "gamma") X(PETRA_JITTER_EXPONENTIAL, "exponential")
PETRA_CHOICE(petra_jitter_model, PETRA_JITTER_MODEL_CHOICES);
#define PETRA_PREDICTION_CHOICES(X) \
  X(PETRA_PREDICTION_NONE, "none") X(PETRA_PREDICTION_VELOCITY, "velocity") \
  X(PETRA_PREDICTION_DIFFERENCE, "difference") X(PETRA_PREDICTION_SPECTRAIN, "spectrain")
PETRA_CHOICE(petra_prediction, PETRA_PREDICTION_CHOICES);
/* clang-format on */
typedef enum { PETRA_AUGMENT_CROP = 1, PETRA_AUGMENT_FLIP = 2 } petra_augment_flag; /* bits of data.augment */

/* The augmentation of an image before it is normalised. data/loader.h chooses and applies it, or a backend applies it
 * instead (backend/backend.h, petra_images). Pixel (y, x) of the result is pixel (y + shift_y, x' + shift_x) of the
 * image if that lies inside it, else 0; x' is width - 1 - x if `flip` is set, else x. */
typedef struct petra_augment_choice {
  int32_t shift_y, shift_x; /* offset of the crop - PETRA_AUGMENT_PADDING; 0 without crop */
  bool flip;
} petra_augment_choice;

/* A list of integers. The config owns `values`. */
typedef struct petra_int_list {
  int64_t *values;
  int64_t count;
  int word; /* for keys that allow a word instead of a list: index of the word, plus 1; 0: a list */
} petra_int_list;

/* Mitigations of the delay of a delayed method. The rules are in stage/delay_mitigation.h. */
typedef struct petra_mitigation {
  int64_t lr_rescheduling;       /* K: updates until the rate reaches its full value; 0: none */
  double discrepancy_correction; /* decay of the average of updates; 0: none */
  bool spike_compensation;
  petra_prediction weight_prediction;
  double prediction_horizon; /* unit: delays; for SpecTrain: version differences */
  double gradient_shrinking; /* factor per stage; 1: none */
  double stage_momentum;     /* limit that the first of many stages approaches; 0: none */
  int64_t sync_warmup_epochs;
  bool error_feedback;
} petra_mitigation;

/* The unit of a period between two events. */
typedef enum petra_period_unit {
  PETRA_PERIOD_EPOCHS,
  PETRA_PERIOD_MICROBATCHES,
  PETRA_PERIOD_MINUTES,
  PETRA_PERIOD_UNITS
} petra_period_unit;
typedef struct petra_period {
  double count; /* 0: never; a whole number unless the unit is minutes */
  petra_period_unit unit;
} petra_period;

/* A list of finite numbers. The config owns `values`. */
typedef struct petra_real_list {
  double *values;
  int64_t count;
} petra_real_list;

typedef struct petra_config {
  struct {
    char *name;
    int64_t seed; /* 0 .. 2^63 - 1 */
    petra_run_mode mode;
    char *output;                  /* parent folder of the run folder */
    int64_t epochs;                /* >= 1 */
    int64_t max_microbatches;      /* 0: no limit; else the run ends after this number of microbatches */
    int64_t eval_every;            /* epochs between evaluations; 0: never */
    petra_period checkpoint_every; /* period between checkpoints; 0: no checkpoints are written */
    bool keep_checkpoint;          /* keeps the checkpoint when the run is complete */
    petra_keep_weights keep;       /* the weights that weights.h5 holds at the end */
    petra_drain drain;
    bool trace_actions;
  } run;
  struct {
    petra_data_set set;
    char *path;
    int64_t batch; /* samples per microbatch, >= 1 */
    bool shuffle;
    unsigned augment;   /* bits of petra_augment_flag */
    int64_t limit;      /* 0: all; else only the first `limit` training samples */
    int64_t eval_limit; /* the same limit for the evaluation set */
    int64_t workers;    /* loader threads, 1 .. 256 */
    int64_t image_size; /* imagefolder: side of the network's input images, pixels */
    int64_t resize;     /* imagefolder, evaluation: shorter side before the centre is cut out, pixels */
    /* Number of microbatches from which an evaluation estimates batch-norm statistics; 0: it does not estimate them. */
    int64_t recalibrate;
    char *eval_path; /* text, tokens: file of the evaluation split, or "" */
    /* text or tokens in one file without eval_path: the share at its end that is the evaluation split */
    double eval_share;
    int64_t vocabulary; /* tokens without a vocabulary in their file: number of different tokens; 0: not given */
  } data;
  struct {
    petra_family family;
    int64_t depth; /* 18, 34, 50, 101; transformers and networks of constant shape: number of blocks */
    int64_t width; /* channels of one stream in the first group (64 in the paper); transformers: number of features */
    petra_stem stem;
    petra_model_shape shape;
    petra_bottleneck bottleneck;
    petra_downsample downsample;
    int64_t classes;
    int64_t context;         /* token sets: positions of a window */
    int64_t heads;           /* transformers: attention heads */
    int64_t patch;           /* vit, revvit: side of a patch, pixels */
    int64_t kv_heads;        /* llama, revllama: heads of keys and values; 0: equal to `heads` */
    int64_t hidden;          /* llama, revllama: features inside an MLP; 0: determined by the width */
    double rotary_base;      /* llama, revllama: base of the angles of rotary positions */
    petra_coupling coupling; /* reversible transformers */
    char *weights;           /* a weights.h5 to start from, or "" */
    bool new_head;           /* the head is initialised, not read from `weights` */
    bool zero_init_residual; /* scale of the last batch norm of each block starts at 0 */
  } model;
  struct {
    petra_partition_kind partition;
    int64_t count;          /* balanced: number of stages */
    petra_int_list blocks;  /* list: blocks per stage */
    petra_int_list devices; /* the device of each stage, from 1, or a word */
  } stages;
  struct {
    char *name;         /* a preset of schedule/method.h */
    int64_t accumulate; /* k >= 1 */
    char *program;      /* "preset" or a program of schedule/program.h */
    petra_weights forward_weights, backward_weights, invert_weights;
    petra_keep keep;
    petra_format keep_precision; /* precision of the activations that are kept between F and B */
    /* number of microbatches after which F's copy of the weights is refreshed; 0: F has no copy */
    int64_t sync_period;
    petra_head_choice head;
    int64_t chunks;       /* stages per device, for programs that interleave stages */
    bool early_recompute; /* gpipe: graphs are recomputed before the gradient has arrived */
    int64_t credit;       /* arrival: maximum number of microbatches in flight; 0: no limit */
    /* Additional ticks between F and B: one number for all stages, or one per stage; none: 0. */
    petra_int_list extra_delay;
    char *schedule; /* a file with the order of actions, which replaces the method's program, or "" */
    petra_mitigation mitigation;
  } method;
  struct petra_optim_keys {
    char *name; /* config/optimiser.h lists which of the keys below it uses */
    double lr;
    petra_lr_scaling lr_scaling;
    double momentum;
    bool nesterov;
    double beta1, beta2, epsilon;
    double momentum_decay; /* nadamw */
    petra_muon_scale muon_scale;
    double trust_coefficient; /* lars */
    double adam_lr_share;     /* muon: share of the learning rate that applies to parameters that AdamW updates */
    petra_rotation_sides rotation_sides;
    int64_t rotation_every; /* basis-rotation: updates from one basis to the next */
    double weight_decay;
    bool decay_norm_and_bias;
    double clip; /* maximum norm of a stage's gradient; 0: no maximum */
  } optim;
  struct {
    petra_lr_schedule schedule;
    int64_t warmup_epochs;
    petra_int_list milestones; /* epochs, rising */
    double factor;
    int64_t epochs;       /* length of the schedule; cosine, wsd */
    int64_t decay_epochs; /* number of epochs at the end in which the rate decays; wsd */
    double final;         /* share of the rate at the end of the schedule; cosine, wsd */
  } lr;
  struct {
    petra_backend_kind backend;
    petra_precision precision;
    int64_t threads; /* compute threads; 0: all cores that this process may use */
    int64_t groups;  /* groups of these threads; 0: chosen (setup/thread_groups.h) */
    bool deterministic;
    petra_graph_choice graph;
    int64_t streams; /* cuda: streams that stages compute on; 0: one per stage, up to 16 */
    bool wide_gradients;
    char *plans; /* file of measured choices for convolutions; "": nothing is measured */
  } device;
  struct {
    int64_t replicas;         /* pipelines on different parts of every microbatch */
    petra_int_list placement; /* execute: stages of each process; none: balanced */
    double timeout_s;         /* execute: maximum time without a message from a process */
    petra_transport_choice transport;
    petra_int_list gpus; /* execute: the GPU of each process; none: chosen by the rank of the process on its host */
    int64_t engines;     /* compute engines per device: 1 or 2 */
    double overlap;      /* share of the shorter part of an overlapped step that is hidden */
    int64_t stages;      /* cost-only runs: number of stages, without a model; 0: the stages of the model */
    struct {
      petra_format up, down;
      int64_t forward_bytes, backward_bytes, gradient_bytes; /* for the stages of cluster.stages */
    } message;
    struct {
      petra_cost_model model;
      double forward_s, backward_s, reconstruct_s, weight_gradient_s, update_s; /* cost.model: constant */
      petra_cost_device device;                                                 /* cost.model: roofline */
      petra_cost_arithmetic arithmetic; /* arithmetic of convolutions and products; cost.model: roofline */
      char *profile;                    /* a file of `petra profile`; cost.model: profile */
      double launch_s;                  /* launch time of every kernel; cost.model: kernels */
      struct {
        double matrix_flops, matrix_bytes, elementwise_bytes;
      } efficiency; /* shares of the device's peaks; cost.model: kernels */
    } cost;
    struct {
      petra_host_share share;
      /* Time to issue an action, and time for each of its kernels; both 0: hosts take no time. */
      double action_s, kernel_s;
      /* Maximum number of actions of an engine that may be issued before they start; 0: an action is issued only when
       * it is ready to start. */
      int64_t ahead;
    } host;
    petra_real_list speeds; /* speeds of the devices relative to the costs; none: all 1 */
    struct {
      /* Source of the defaults of the two values below, which are the values in effect. */
      petra_link_preset_choice preset;
      double latency_s, bandwidth_Bps; /* bandwidth 0: infinite */
      petra_link_sharing sharing;
    } link;
    int64_t node_size; /* devices of a node, which share its network card */
    struct {
      unsigned preset;                 /* petra_link_preset_choice or PETRA_NODE_LINK_SAME */
      double latency_s, bandwidth_Bps; /* not used with PETRA_NODE_LINK_SAME; bandwidth 0: infinite */
    } node_link;                       /* link between devices of one node */
    double card_Bps;                   /* in each direction; 0: infinite */
    struct {
      petra_jitter_model model;
      double scale; /* standard deviation of an action's duration over its mean */
    } jitter;
    struct {
      petra_int_list stages; /* from 1 */
      double factor;
    } stragglers;
    struct {
      double mean_between_s, duration_s; /* mean_between_s 0: none */
    } pauses;
    struct {
      double mean_between_s, restart_s; /* mean_between_s 0: none */
    } failures;
  } cluster;
  struct {
    int64_t per_epoch; /* probes of gradient fidelity per epoch; 0: none */
    bool gradients;    /* log the gradients themselves */
  } probe;
  struct {
    int64_t warmup, repetitions; /* number of microbatches before the measurement, and number of measured ones */
  } profile;
  int optimiser;                  /* optimiser of the layers before the current one (config/optimiser.h); private */
  bool of_tokens;                 /* after the last layer, data.set was a token set; private */
  bool (*takes)(const char *key); /* keys that the current file may set; NULL: all; private */
  bool *fresh;                    /* for each key: true if the current layer has set it (config/document.h); private */
  /* for each key: the start of its error lines ("FILE:LINE: key"), NULL if it has its default; private */
  char **labels;
} petra_config;

/* Reads `path` ("-": standard input; NULL: nothing, all defaults). A file may name another file as its `base` (relative
 * to its own folder). The base is read first and may name a base itself. Then applies `sets` in order, each
 * "key.path=VALUE" with VALUE as YAML. Errors: PETRA_IO (unreadable), PETRA_CONFIG (an error in the config; one line
 * "FILE:LINE: key: error, expected value" or "--set key=...: ...") or PETRA_NO_MEMORY. */
petra_status petra_config_load(const char *path, const char *const *sets, int set_count, petra_config **out);

/* A config file whose bytes have been read already, such as a pipe. If `text` is NULL, the file is read. */
typedef struct petra_config_text {
  const char *path;
  const char *text;
  size_t size;
} petra_config_text;

/* Loads a config from a text. */
petra_status petra_config_load_text(const petra_config_text *text, const char *const *sets, int set_count,
                                    petra_config **out);

/* Settings "key.path=value". Messages begin with `where`, the origin of the settings; NULL: they are arguments of
 * --set. With `lines`, they are values of keys in these lines of the file `where`, such as a grid; a setting without
 * "=" is only a key. */
typedef struct petra_config_sets {
  const char *where;
  const char *const *sets;
  int count;
  const int64_t *lines;
} petra_config_sets;

/* Copies a config; error lines about a value of the copy begin in the same way as error lines about the original. */
petra_status petra_config_copy(const petra_config *config, petra_config **out);

void petra_config_destroy(petra_config *config);
PETRA_DESTROYS(petra_config_destroy, petra_config)

/* Logs "FILE:LINE: key: message" for a value that is wrong only in combination. FILE:LINE is the line that sets the key
 * ("default" if it was not set). Returns PETRA_CONFIG. */
petra_status petra_config_fail(const petra_config *config, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Warns, with one line per key, of keys that were set and have no effect because of the value of another key, such as
 * cluster.cost.device with cluster.cost.model: unit. Errors: PETRA_NO_MEMORY. */
petra_status petra_config_warn_idle(const petra_config *config);

/* Determines whether a key has a value other than its default. Errors: PETRA_NO_MEMORY. */
petra_status petra_config_changed(const petra_config *config, const char *key, bool *out);

/* Returns the value of a key that is a real number. Errors: PETRA_CONFIG, logged, if there is no such key or it has
 * another type. */
petra_status petra_config_number(const petra_config *config, const char *key, double *out);

/* Classifies what a key decides about a run, from the most to the least important. */
typedef enum petra_config_role {
  PETRA_ROLE_RESULT, /* the results and the log */
  PETRA_ROLE_LENGTH, /* the length of the run */
  PETRA_ROLE_WAY,    /* how the same results are computed: number of reading threads, location of inputs */
  PETRA_ROLE_PLACE   /* the location of the files of the run */
} petra_config_role;

enum { PETRA_CONFIG_VALUE = 200 };

/* The first key in which two configs differ, and the beginnings of its two values as YAML. */
typedef struct petra_config_difference {
  const char *key;
  char a[PETRA_CONFIG_VALUE], b[PETRA_CONFIG_VALUE];
} petra_config_difference;

/* Returns true if two configs have different values of keys with roles up to `last`, and sets *difference. */
bool petra_config_differs(const petra_config *a, const petra_config *b, petra_config_role last,
                          petra_config_difference *difference);

/* Does the same comparison with the text of a config that was found in `path`. Keys that are newer than the text have
 * their defaults. Errors: as for petra_config_load. */
petra_status petra_config_compare_text(const char *path, const char *text, const petra_config *b,
                                       petra_config_role last, bool *differs, petra_config_difference *difference);

/* Calls `report` with a setting "key=value" for each key that must be set to get from the config `from` to the config
 * `to`, in the order of the keys. Strings are unchanged, all other values are YAML. Stops if `report` does not return
 * PETRA_OK, and returns its status. Errors: PETRA_NO_MEMORY. */
petra_status petra_config_report_settings(const petra_config *from, const petra_config *to,
                                          petra_status (*report)(void *context, const char *setting), void *context);

/* Creates a config of defaults, with the optimiser of `config` and the defaults of that optimiser. */
petra_status petra_config_plain(const petra_config *config, petra_config **out);

/* Prints "method.keep: graph, method.head: split": the keys that begin with `prefix` and do not have their default (the
 * default of the config's optimiser, if it has one), except the keys in the list (ended by NULL). Prints `before`
 * before the first; prints nothing if there is none. */
petra_status petra_config_print_changes(const petra_config *config, const char *prefix, const char *const *listed,
                                        const char *before, FILE *out);

/* Writes the fully expanded config as YAML that petra_config_load reads back to the same values. */
petra_status petra_config_print(const petra_config *config, FILE *out);

/* Prints the table of keys, for a terminal (--help-config) or as the Markdown table of docs/config.md. */
void petra_config_help(FILE *out);
void petra_config_help_markdown(FILE *out);

/* Prints a line "key PATH VALUE..." for each key with the words that it accepts; strings without a list have "FILE",
 * other types nothing. For strings that are names from another table, `print_names` prints " VALUE..." and returns
 * true. */
void petra_config_help_words(FILE *out, bool (*print_names)(FILE *out, const char *path));

/* Returns the string of a choice, such as ("device.precision", 1) -> "fp64"; "?" if there is none. */
const char *petra_config_choice_name(const char *key, int value);

/* Links by name (cluster.link.preset): latency and bandwidth, with their sources. */

typedef struct petra_link_preset {
  const char *name;
  double latency_s;     /* from the end of a transmission to its arrival */
  double bandwidth_Bps; /* in each direction; 0: infinite */
  const char *bandwidth_source, *latency_source;
} petra_link_preset;

/* Returns the preset of a petra_link_preset_choice, 0 .. count - 1. */
const petra_link_preset *petra_link_preset_of(int choice);
int petra_link_preset_count(void);

/* The kinds of samples of data sets, and the words for them. Every line and column that counts samples or labels takes
 * its noun from here. */

typedef enum petra_sample_kind {
  PETRA_SAMPLE_IMAGE, /* labelled RGB images: one label per sample */
  /* windows of tokens: for each of the model.context tokens, the token that follows it is a label */
  PETRA_SAMPLE_TOKENS
} petra_sample_kind;

typedef struct petra_sample_words {
  const char *sample, *samples; /* "image", "images"; "window", "windows" */
  const char *labels;           /* unit of losses and rates: "images", "tokens" */
  const char *rate;             /* name of the rate in files: "images_per_s", "tokens_per_s" */
} petra_sample_words;

/* Returns the kind of the config's data.set. */
petra_sample_kind petra_sample_kind_of(const petra_config *config);
const petra_sample_words *petra_sample_words_of(petra_sample_kind kind);

/* Returns the number of labels of a sample of the config's data.set: 1, or model.context. */
int64_t petra_sample_labels(const petra_config *config);
