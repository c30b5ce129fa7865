/* SPDX-License-Identifier: Apache-2.0 */
#include "record/run_h5_columns.h"
#include "exec/probe_row.h"

#include <hdf5.h>

#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))
#define NAMED(row, column, member, column_type, unit, text, ...)                                                       \
  {                                                                                                                    \
    .name = (column), .type = PETRA_COLUMN_##column_type, .units = (unit), .offset = offsetof(row, member),            \
    .meaning = (text), __VA_ARGS__                                                                                     \
  }
#define COLUMN(row, member, type, unit, ...) NAMED(row, #member, member, type, unit, __VA_ARGS__)
#define OF(...) .dimensions = {__VA_ARGS__}
#define OF_STAGE OF(PETRA_DIMENSION_STAGE)
#define OF_RANK OF(PETRA_DIMENSION_RANK)

#define CATEGORY_NAME(name, text) text,
static const char *const categories[] = {PETRA_MEMORY_LIST(CATEGORY_NAME) "total"};
static const char *const backend_parts[] = {"tensors", "filters", "scratch"};
static const char *const time_parts[] = {"computing", "copying", "waiting", "wall"};
static const char *const sent_parts[] = {"messages", "bytes"};
static const char *const figures[] = {"measured", "predicted", "low", "high"};

const petra_dimension_facts petra_dimension_table[PETRA_DIMENSIONS] = {
    [PETRA_DIMENSION_MICROBATCH] = {"microbatch"},
    [PETRA_DIMENSION_EPOCH] = {"epoch"},
    [PETRA_DIMENSION_ACTION] = {"action"},
    [PETRA_DIMENSION_PROBE] = {"probe"},
    [PETRA_DIMENSION_PARAMETER] = {"parameter"},
    [PETRA_DIMENSION_BIN] = {"bin"},
    [PETRA_DIMENSION_STAGE] = {"stage"},
    [PETRA_DIMENSION_RANK] = {"rank"},
    [PETRA_DIMENSION_CATEGORY] = {"category", "categories", categories, PETRA_MEMORY_CATEGORIES},
    [PETRA_DIMENSION_CATEGORY_TOTAL] = {"category", "categories", categories, PETRA_MEMORY_CATEGORIES + 1},
    [PETRA_DIMENSION_BACKEND_PART] = {"part", "parts", backend_parts, PETRA_RUN_H5_BACKEND_PARTS},
    [PETRA_DIMENSION_TIME_PART] = {"part", "parts", time_parts, PETRA_RUN_H5_RANK_TIMES},
    [PETRA_DIMENSION_SENT_PART] = {"part", "parts", sent_parts, PETRA_RUN_H5_RANK_SENT},
    [PETRA_DIMENSION_PATH_PART] = {"kind"}, /* the values come with names */
    [PETRA_DIMENSION_FIGURE] = {"figure", "columns", figures, PETRA_PACE_COLUMNS},
};

/* clang-format off */
static const petra_column train_columns[] = {
    COLUMN(petra_run_h5_train, microbatch, I64, "1", "number of the microbatch, from 0"),
    COLUMN(petra_run_h5_train, epoch, I32, "1", "epoch of the microbatch, from 0"),
    COLUMN(petra_run_h5_train, lr, F64, "1", "learning rate that the last stage uses (or would use) for an update whose last microbatch is this one; in `lockstep` with a split head B comes in a later tick than the loss, and this is the rate of the tick of B"),
    COLUMN(petra_run_h5_train, loss, F64, "nat", "mean cross entropy over the microbatch"),
    COLUMN(petra_run_h5_train, top1, F64, "1", "fraction of the microbatch that is classified correctly"),
    COLUMN(petra_run_h5_train, wall_s, F64, "s", "wall time from the start of the run until the loss is known"),
    COLUMN(petra_run_h5_train, virtual_s, F64, "s", "virtual time from the start of the run until the last stage begins its action of the microbatch; in an executed run of `arrival` it is wall time"),
};

#define EPOCH_COLUMNS \
    COLUMN(petra_run_h5_epoch, epoch, I32, "1", "number of the epoch, from 0"), \
    COLUMN(petra_run_h5_epoch, train_loss, F64, "nat", "mean over the images (or tokens) whose loss was computed in the ticks of the epoch; in programs without ticks, over the microbatches of the epoch; NaN if there was none"), \
    COLUMN(petra_run_h5_epoch, train_top1, F64, "1", "fraction of the images (or tokens) of the epoch that the training classified correctly"), \
    COLUMN(petra_run_h5_epoch, eval_loss, F64, "nat", "mean cross entropy over the evaluation set"), \
    COLUMN(petra_run_h5_epoch, eval_top1, F64, "1", "fraction of the evaluation set that is classified correctly"), \
    COLUMN(petra_run_h5_epoch, eval_top5, F64, "1", "fraction of the evaluation set whose class is among the five highest scores"), \
    COLUMN(petra_run_h5_epoch, lr, F64, "1", "`/train/lr` of the last loss of the epoch; NaN if there was none; in `lockstep` with a split head it is therefore the rate of the first tick of the next epoch ([semantics](semantics/evaluation.md))"), \
    COLUMN(petra_run_h5_epoch, wall_s, F64, "s", "wall time from the start of the run until the last loss of the epoch or the end of its evaluation")
static const petra_column token_epoch_columns[] = {
    EPOCH_COLUMNS,
    NAMED(petra_run_h5_epoch, "tokens_per_s", rate, F64, "tokens/s", "replaces `images_per_s` in a run on tokens: training tokens divided by the same time"),
};
static const petra_column epoch_columns[] = {
    EPOCH_COLUMNS,
    NAMED(petra_run_h5_epoch, "images_per_s", rate, F64, "images/s", "training images divided by wall time; the time ends at the last loss of the epoch or, if an evaluation follows, at the start of the evaluation; it excludes evaluations and checkpoints and includes probes; in `arrival` it excludes only evaluations after the last loss"),
    COLUMN(petra_run_h5_epoch, eval_loss_recalibrated, F64, "nat", "with `data.recalibrate` > 0: `eval_loss` with [recalibrated statistics](semantics/evaluation.md#recalibrated-statistics)"),
    COLUMN(petra_run_h5_epoch, eval_top1_recalibrated, F64, "1", "`eval_top1` with these statistics"),
    COLUMN(petra_run_h5_epoch, eval_top5_recalibrated, F64, "1", "`eval_top5` with these statistics"),
};
enum { RECALIBRATED_COLUMNS = 3 }; /* the last columns of the table */

static const petra_column stage_columns[] = {
    COLUMN(petra_stage_summary, stage, I32, "1", "number of the stage, from 1"),
    COLUMN(petra_stage_summary, name, TEXT, "1", "name of the stage"),
    COLUMN(petra_stage_summary, reversible, I32, "1", "1 if the input is reconstructed from the output, otherwise 0"),
    COLUMN(petra_stage_summary, parameters, I64, "count", "number of trainable values"),
    COLUMN(petra_stage_summary, forward_flops, I64, "FLOP/image", "FLOPs of the forward pass of one sample: an image, or a window of tokens (the unit is then FLOP/window). A multiply-add of convolutions, the fully connected layer and other matrix products counts two. Products of attention count for each pair of positions that attention reads: T² of T positions, or T(T + 1)/2 if it is causal. Nothing else counts (softmax, norms, GELU, SwiGLU, rotations, additions)"),
    COLUMN(petra_stage_summary, forward_bytes, I64, "byte", "size of the message to the next stage, per microbatch"),
    COLUMN(petra_stage_summary, backward_bytes, I64, "byte", "size of the message to the previous stage, per microbatch"),
    COLUMN(petra_stage_summary, delay, I32, "microbatches", "number of microbatches that the stage forwards between the forward and the backward of a microbatch. `lockstep`: τ_j = 2(J − j), with a split head one more; `1f1b-async` and `forward-locked`: J − j; synchronous programs and orders: 0; `arrival`: −1, because it fixes none; another order from a file: the maximum"),
};

static const petra_column action_columns[] = {
    COLUMN(petra_trace_row, start_ns, I64, "ns", "virtual time of the start"),
    COLUMN(petra_trace_row, end_ns, I64, "ns", "virtual time of the end"),
    NAMED(petra_trace_row, "stage", action.stage, I32, "1", "number of the stage, from 1; if devices have several stages, the attribute `devices` has the device of each stage"),
    NAMED(petra_trace_row, "kind", action.kind, I32, "1", "index in the attribute `kinds`: `F`, `B`, `W`, `U`, `E`; on the virtual clock an E (evaluation) takes no time"),
    NAMED(petra_trace_row, "microbatch", action.microbatch, I64, "1", "number of the microbatch, from 0; for U the last one that it covers, for E the last one of the epoch"),
    NAMED(petra_trace_row, "version_read", result.version_read, I64, "1", "version of the weights that the action uses, as a number of updates. For U, W and E, and for F and B that read the latest weights, it is the number of updates before the action. For B with `backward_weights: stashed` it is the version of its F. For F with `forward_weights: double_buffer` it is an older version"),
    NAMED(petra_trace_row, "version_written", result.version_written, I64, "1", "version after the action for U; otherwise -1"),
};

static const petra_column probe_columns[] = {
    COLUMN(petra_probe_row, microbatch, I64, "1", "first microbatch of the update window, which has `method.accumulate` microbatches"),
    COLUMN(petra_probe_row, epoch, I32, "1", "epoch of this microbatch, from 0"),
    NAMED(petra_probe_row, "MEASURE/PAIR", stage, F64, "1", "mean of the measure over the tensors of the stage whose gradient is not 0", OF_STAGE),
    NAMED(petra_probe_row, "concatenated_cosine/PAIR", concatenated, F64, "1", "cosine of the same tensors as one vector", OF_STAGE),
    NAMED(petra_probe_row, "reconstruction_error", reconstruction, F64, "1", "‖x̃ − x‖/‖x‖ of the input of the stage; NaN if the input is not reconstructed", OF_STAGE),
    NAMED(petra_probe_row, "parameter/MEASURE/PAIR", parameter, F64, "1", "measure of each tensor", OF(PETRA_DIMENSION_PARAMETER)),
};
static const petra_column parameter_columns[] = {
    COLUMN(petra_run_h5_parameter, name, TEXT, "1", "name of the tensor, `SS/NAME` as in `weights.h5`"),
    COLUMN(petra_run_h5_parameter, stage, I32, "1", "stage of the tensor, from 1"),
    COLUMN(petra_run_h5_parameter, zero, I32, "1", "1 if the gradient is 0 in exact arithmetic, so that the figures of the tensor show rounding errors; otherwise 0"),
};
static const petra_column probe_peak_columns[] = {
    {"peak_bytes", PETRA_COLUMN_I64, "byte", 0, "maximum memory of the probes, written at the end of the run; with `run.mode: execute` the sum of the maxima of all processes", OF(PETRA_DIMENSION_CATEGORY)},
};

static const petra_column local_columns[] = {
    COLUMN(petra_run_h5_local, train_loss, F64, "nat", "mean training loss of each stage over the images (or tokens) of the epoch: that of its auxiliary head, for the last stage that of the network's head; NaN if there was none", OF(PETRA_DIMENSION_EPOCH, PETRA_DIMENSION_STAGE)),
    COLUMN(petra_run_h5_local, train_top1, F64, "1", "fraction of them that this head classified correctly", OF(PETRA_DIMENSION_EPOCH, PETRA_DIMENSION_STAGE)),
};
static const petra_column memory_columns[] = {
    COLUMN(petra_run_h5_peaks, peak_bytes, I64, "byte", "maximum memory in each category", OF(PETRA_DIMENSION_STAGE, PETRA_DIMENSION_CATEGORY)),
    COLUMN(petra_run_h5_peaks, total_peak_bytes, I64, "byte", "maximum memory in all categories together; it does not exceed the sum of the row of `peak_bytes`, because the peaks need not coincide", OF_STAGE),
};
static const petra_column backend_columns[] = {
    {"backend_bytes", PETRA_COLUMN_I64, "byte", 0, "only in a training: memory of the backend of each process at the end, which is its maximum (without `run.mode: execute` there is one process)", OF(PETRA_DIMENSION_RANK, PETRA_DIMENSION_BACKEND_PART)},
};
static const petra_column memory_time_columns[] = {
    NAMED(petra_run_h5_memory_time, "bin_ns", width_ns, I64, "ns", "width of a bin; bin b begins at b times this width"),
    NAMED(petra_run_h5_memory_time, "bytes", values, I64, "byte", "maximum memory within the bin: the nine categories, then their total", OF(PETRA_DIMENSION_BIN, PETRA_DIMENSION_STAGE, PETRA_DIMENSION_CATEGORY_TOTAL)),
};

static const petra_column ranks_columns[] = {
    COLUMN(petra_run_h5_ranks_table, of_stage, I32, "1", "rank of each stage (with replicas: of each stage of replica 0); the attribute `hosts` has the host names of the R ranks", OF_STAGE),
    COLUMN(petra_run_h5_ranks_table, replica, I32, "1", "replica of the stages of each rank, from 0 (`cluster.replicas`)", OF_RANK),
    COLUMN(petra_run_h5_ranks_table, time_ns, I64, "ns", "wall-clock times. `computing`: in actions, including evaluations, without copying and waiting. `copying`: turning tensors into messages and back. `waiting`: for messages and for room. `wall`: from the beginning to the end of the training; the part that is in none of the other three is the time of the schedule itself. With NCCL, devices copy and wait while the host continues; this time is in none of `computing`, `copying` and `waiting`", OF(PETRA_DIMENSION_RANK, PETRA_DIMENSION_TIME_PART)),
    COLUMN(petra_run_h5_ranks_table, sent, I64, "1, byte", "`messages` and `bytes` sent to other ranks, including those from GPU to GPU", OF(PETRA_DIMENSION_RANK, PETRA_DIMENSION_SENT_PART)),
};

static const petra_column simulate_columns[] = {
    COLUMN(petra_run_h5_simulation, makespan_s, F64, "s", "virtual time at which the last action ends"),
    COLUMN(petra_run_h5_simulation, makespan_ns, I64, "ns", "exact value of `makespan_s`"),
    COLUMN(petra_run_h5_simulation, time_per_microbatch_s, F64, "s", "time per microbatch ([definition](semantics/time.md#figures)); NaN if the run is too short"),
    NAMED(petra_run_h5_simulation, "time_per_microbatch_low_s", low_s, F64, "s", "the same with every cost at its first quartile; only if the costs are those of a profile", .optional = true),
    NAMED(petra_run_h5_simulation, "time_per_microbatch_high_s", high_s, F64, "s", "the same with every cost at its third quartile", .optional = true),
    COLUMN(petra_run_h5_simulation, bubble_fraction, F64, "1", "idle fraction of the time of all engines"),
    COLUMN(petra_run_h5_simulation, actions, I64, "count", "number of actions that ran"),
    COLUMN(petra_run_h5_simulation, microbatches, I64, "count", "number of microbatches that were offered"),
    COLUMN(petra_run_h5_simulation, wall_s, F64, "s", "wall time that the simulation took"),
    COLUMN(petra_run_h5_simulation, utilization, F64, "1", "fraction of time in which this stage keeps the engines of its device (with `cluster.placement`: of its rank) busy", OF_STAGE),
    COLUMN(petra_run_h5_simulation, lag_mean, F64, "updates", "mean [lag](semantics/methods.md#the-other-methods): number of updates between the weights that a forward read and the latest weights at its backward", OF_STAGE),
    COLUMN(petra_run_h5_simulation, lag_max, I64, "updates", "maximum lag", OF_STAGE),
    COLUMN(petra_run_h5_simulation, in_flight_max, I64, "microbatches", "maximum number of microbatches between F and B", OF_STAGE),
    COLUMN(petra_run_h5_simulation, kept_max, I64, "microbatches", "maximum number of microbatches whose graph or input is stored: until B, or until W if W is split from B (`zb-h1`)", OF_STAGE),
    COLUMN(petra_run_h5_simulation, bytes_up, I64, "byte", "bytes sent over the link to the next stage", OF_STAGE),
    COLUMN(petra_run_h5_simulation, bytes_down, I64, "byte", "bytes sent over the link to the previous stage", OF_STAGE),
    COLUMN(petra_run_h5_simulation, bytes_exchanged, I64, "byte", "with `cluster.replicas`: bytes sent over the link to the replicas of the stage, which equals the bytes received; everything in `/simulate` is for one replica", OF_STAGE),
    COLUMN(petra_run_h5_simulation, rank_busy, F64, "1", "with `cluster.placement`: fraction of the makespan in which each rank performs actions", OF_RANK),
    COLUMN(petra_run_h5_simulation, critical_stage_ns, I64, "ns", "with `--critical-path`: time of the critical path in actions of each stage", OF_STAGE),
    COLUMN(petra_run_h5_simulation, critical_ns, I64, "ns", "with `--critical-path`: parts of the critical path, whose sum is the makespan", OF(PETRA_DIMENSION_PATH_PART)),
    COLUMN(petra_run_h5_simulation, of_stage, I32, "1", "with `cluster.placement`: rank of each stage, from 0", OF_STAGE),
};

static const petra_column pace_columns[] = {
    COLUMN(petra_run_h5_pace, microbatch_s, F64, "s", "time per microbatch, defined as for a simulation, without evaluations and checkpoints", OF(PETRA_DIMENSION_FIGURE)),
    COLUMN(petra_run_h5_pace, stage_s, F64, "s", "time per microbatch in actions of the stage: the mean forward, plus all other actions divided by the number of microbatches sent back; it includes turning tensors into messages and back, and excludes waiting", OF(PETRA_DIMENSION_STAGE, PETRA_DIMENSION_FIGURE)),
    COLUMN(petra_run_h5_pace, busy, F64, "1", "for the ranks of replica 0: fraction of time in which the rank performs actions; the time runs from the start of the first action to the end of the last, without evaluations and checkpoints", OF(PETRA_DIMENSION_RANK, PETRA_DIMENSION_FIGURE)),
};
/* clang-format on */

_Static_assert(sizeof epoch_columns / sizeof *epoch_columns <= PETRA_RUN_H5_MAX_COLUMNS, "raise MAX_COLUMNS");
_Static_assert(sizeof(petra_action_kind) == sizeof(int32_t), "the type of /trace/actions/kind");
_Static_assert(sizeof train_columns / sizeof *train_columns <= PETRA_RUN_H5_MAX_COLUMNS, "raise MAX_COLUMNS");

/* Chunks: 8 KiB per column of /train, so that the log of a short run stays small and the log of a long run has few
 * chunks. Runs have 10 to 1000 epochs, and up to billions of actions. */
#define ROWS(group, of, chunk, row, columns)                                                                           \
  { group, PETRA_DIMENSION_##of, chunk, sizeof(row), columns, COUNT(columns) }
#define ONCE(group, columns)                                                                                           \
  { group, PETRA_DIMENSION_NONE, 0, 0, columns, COUNT(columns) }
const petra_column_group petra_run_h5_train_group = ROWS("train", MICROBATCH, 1024, petra_run_h5_train, train_columns);
const petra_column_group petra_run_h5_action_group =
    ROWS("trace/actions", ACTION, 4096, petra_trace_row, action_columns);
const petra_column_group petra_run_h5_stage_group = ROWS("model", STAGE, 0, petra_stage_summary, stage_columns);
const petra_column_group petra_run_h5_probe_group = ROWS("probe", PROBE, 0, petra_probe_row, probe_columns);
const petra_column_group petra_run_h5_parameter_group =
    ROWS("probe/parameter", PARAMETER, 0, petra_run_h5_parameter, parameter_columns);
const petra_column_group petra_run_h5_probe_peak_group = ONCE("probe", probe_peak_columns);
const petra_column_group petra_run_h5_local_group = ONCE("local", local_columns);
const petra_column_group petra_run_h5_memory_group = ONCE("memory", memory_columns);
const petra_column_group petra_run_h5_backend_group = ONCE("memory", backend_columns);
const petra_column_group petra_run_h5_memory_time_group = ONCE("memory", memory_time_columns);
const petra_column_group petra_run_h5_ranks_group = ONCE("ranks", ranks_columns);
const petra_column_group petra_run_h5_simulate_group = ONCE("simulate", simulate_columns);
const petra_column_group petra_run_h5_pace_group = ONCE("pace", pace_columns);

static const petra_column_group token_epoch_group = ROWS("epoch", EPOCH, 64, petra_run_h5_epoch, token_epoch_columns);
static const petra_column_group epoch_recalibrated_group = ROWS("epoch", EPOCH, 64, petra_run_h5_epoch, epoch_columns);
static const petra_column_group epoch_group = {"epoch",
                                               PETRA_DIMENSION_EPOCH,
                                               64,
                                               sizeof(petra_run_h5_epoch),
                                               epoch_columns,
                                               COUNT(epoch_columns) - RECALIBRATED_COLUMNS};

const petra_column_group *petra_run_h5_epoch_group(petra_sample_kind samples, bool recalibrates) {
  if (samples == PETRA_SAMPLE_TOKENS)
    return &token_epoch_group;
  return recalibrates ? &epoch_recalibrated_group : &epoch_group;
}

int petra_column_rank(const petra_column *column) {
  int rank = 0;
  while (rank < PETRA_COLUMN_RANK && column->dimensions[rank] != PETRA_DIMENSION_NONE)
    rank++;
  return rank;
}

double petra_column_real(const petra_column *column, const void *row) {
  double value;
  memcpy(&value, (const char *)row + column->offset, sizeof value);
  return value;
}

int64_t petra_column_memory_type(petra_column_type type) {
  if (type == PETRA_COLUMN_F64)
    return H5T_NATIVE_DOUBLE;
  return type == PETRA_COLUMN_I64 ? H5T_NATIVE_INT64 : H5T_NATIVE_INT32;
}

int64_t petra_column_file_type(petra_column_type type) {
  if (type == PETRA_COLUMN_F64)
    return H5T_IEEE_F64LE;
  return type == PETRA_COLUMN_I64 ? H5T_STD_I64LE : H5T_STD_I32LE;
}

/* --- the document --- */

/* Prints the dimensions of a column, such as "`stage`, `category` (9)". */
static void print_dimensions(const petra_column *column, FILE *out) {
  for (int d = 0; d < petra_column_rank(column); d++) {
    const petra_dimension_facts *facts = &petra_dimension_table[column->dimensions[d]];
    fprintf(out, "%s`%s`", d > 0 ? ", " : "", facts->name);
    if (facts->count > 0)
      fprintf(out, " (%d)", facts->count);
  }
}

static void print_column(const petra_column_group *group, const petra_column *column, bool dimensions, FILE *out) {
  static const char *const types[] = {"int32", "int64", "float64", "string of fixed length, padded with zeros"};
  const bool member = group == &petra_run_h5_stage_group;
  fprintf(out, "| `%s%s%s%s` | %s | ", member ? "" : "/", member ? "" : group->name, member ? "" : "/", column->name,
          types[column->type]);
  if (dimensions) {
    print_dimensions(column, out);
    fputs(petra_column_rank(column) > 0 ? " | " : "| ", out);
  }
  fprintf(out, "%s | %s |\n", column->units, column->meaning);
}

void petra_run_h5_print_tables(FILE *out) {
  static const struct {
    const char *title;
    const petra_column_group *group;
  } tables[] = {{"stages", &petra_run_h5_stage_group},
                {"train", &petra_run_h5_train_group},
                {"epoch", &epoch_recalibrated_group},
                {"local", &petra_run_h5_local_group},
                {"probe", &petra_run_h5_probe_group},
                {"parameters", &petra_run_h5_parameter_group},
                {"probe-memory", &petra_run_h5_probe_peak_group},
                {"memory", &petra_run_h5_memory_group},
                {"backends", &petra_run_h5_backend_group},
                {"memory-over-time", &petra_run_h5_memory_time_group},
                {"simulate", &petra_run_h5_simulate_group},
                {"actions", &petra_run_h5_action_group},
                {"ranks", &petra_run_h5_ranks_group},
                {"pace", &petra_run_h5_pace_group}};
  for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
    const petra_column_group *group = tables[t].group;
    const bool dimensions = group->dimension == PETRA_DIMENSION_NONE || group == &petra_run_h5_probe_group;
    fprintf(out, "<!-- columns: %s -->\n\n| %s | type |%s units | meaning |\n|---|---|%s---|---|\n", tables[t].title,
            group == &petra_run_h5_stage_group ? "member" : "data set", dimensions ? " dimensions |" : "",
            dimensions ? "---|" : "");
    for (int c = 0; c < group->count; c++)
      print_column(group, &group->columns[c], dimensions, out);
    if (group == &epoch_recalibrated_group)
      print_column(group, &token_epoch_columns[COUNT(token_epoch_columns) - 1], dimensions, out);
    fputs("\n<!-- end -->\n", out);
  }
}
