/* SPDX-License-Identifier: Apache-2.0 */
/* Segments: the launches of one action of a stage, in order on the stage's lane.
 *
 * Outside of begin and end every command is a segment of its own on lane 0. Where the host needs a result in the middle
 * of an action, what was described so far becomes a segment, and the rest another one. */
#pragma once

#include "backend/cuda/cuda.h"

/* A command in a segment: the launch, then its arguments, filled up to a multiple of 16 bytes.
 *
 * Its traffic is that of the tensors which were named for it (cuda_reads, cuda_writes), each once, whole and in the bytes in which
 * it is stored (or its rounded copy is): one that is read and written counts in both, one that is named twice in a row as read counts
 * once. Scratch, values and pinned memory are not in it, nor what a launch reads a second time. It follows from the tensors' shapes, so that
 * segments that are equal without it are equal with it. */
typedef struct cuda_command {
  cuda_launch launch;
  size_t bytes; /* of the arguments */
  size_t read_bytes, written_bytes;
} cuda_command;

/* An alternative to graphs and single launches, for a program that counts them: it must launch the commands. */
typedef struct cuda_launcher {
  petra_status (*launch)(void *context, const cuda_lane *lane, const unsigned char *commands, size_t bytes);
  void *context;
} cuda_launcher;

struct cuda_segment {
  bool open; /* between begin and end */
  int lane, kind;
  unsigned char *commands;
  size_t used, last; /* bytes of commands; where the last begins */
  int64_t capacity;
  size_t read_bytes, written_bytes; /* of the command in the making */
  const petra_tensor *last_read;    /* the same, NULL: none */
  cuda_moment waits[CUDA_TRACKS];   /* what must be over before: the last of each lane */
  cuda_launcher launcher;           /* launch NULL: none */
  petra_status status;              /* of a command that was added between others: for the next that can say so */
};

petra_status cuda_segments_create(cuda_backend *cuda);
void cuda_segments_destroy(cuda_backend *cuda);

/* The stream and the events of a lane beyond those of stages. */
petra_status cuda_track_create(cuda_track *track);

/* begin and end of backend.h. A stage's number is from 1. */
petra_status cuda_begin(petra_backend *backend, int32_t stage, int32_t kind);
petra_status cuda_end(petra_backend *backend);
petra_status cuda_synchronize(petra_backend *backend);
petra_status cuda_settle(petra_backend *backend, petra_tensor *tensor, bool writes);

/* The moment of the segment in the making, on its lane. */
cuda_moment cuda_present(const cuda_backend *cuda);

/* The next command reads or writes this tensor. NULL is allowed. What it only reads is named first; of a tensor whose numbers are in
 * bf16 alone a command that widens them comes before. */
void cuda_reads(cuda_backend *cuda, const petra_tensor *tensor);
void cuda_writes(cuda_backend *cuda, const petra_tensor *tensor);

/* Both at once: y += x. */
void cuda_updates(cuda_backend *cuda, const petra_tensor *tensor);

/* The same, for an argument of the command: the tensor's elements. */
static inline const float *cuda_read(cuda_backend *cuda, const petra_tensor *tensor) {
  cuda_reads(cuda, tensor);
  return tensor->data;
}

static inline float *cuda_write(cuda_backend *cuda, petra_tensor *tensor) {
  cuda_writes(cuda, tensor);
  return tensor->data;
}

static inline float *cuda_update(cuda_backend *cuda, petra_tensor *tensor) {
  cuda_updates(cuda, tensor);
  return tensor->data;
}

/* A tensor in bf16, for the next command, which reads it: an inner tensor itself, of others the storage's rounded copy. Before
 * anything is named for that command cuda_round sees to it that there is one: by a command where what is there is of before. */
petra_status cuda_round(cuda_backend *cuda, const petra_tensor *tensor);
const void *cuda_read_rounded(cuda_backend *cuda, const petra_tensor *tensor);

/* For a command that reads either type: what is there, of bf16 where `*narrow`. */
const void *cuda_read_either(cuda_backend *cuda, const petra_tensor *tensor, bool *narrow);

/* For a command that writes a tensor in bf16 alone: an inner tensor itself, of others what is rounded, which cuda_make_rounded has
 * made. */
petra_status cuda_make_rounded(cuda_backend *cuda, const petra_tensor *tensor);
void *cuda_write_narrow(cuda_backend *cuda, const petra_tensor *tensor);

/* For a command that writes `tensor` and its rounded copy: returns the destination of the copy; NULL if nobody has
 * requested a copy so far. Call it after cuda_writes. */
uint16_t *cuda_write_rounded(cuda_backend *cuda, const petra_tensor *tensor);

/* The lane has at least `bytes` of scratch from now on. */
petra_status cuda_reserve(cuda_backend *cuda, size_t bytes);

/* Adds a command; all bytes of the arguments count when two segments are compared: set them to 0 first
 * (CUDA_ARGUMENTS). */
petra_status cuda_add_command(cuda_backend *cuda, cuda_launch launch, const void *arguments, size_t bytes);
#define CUDA_ARGUMENTS(type, name)                                                                                     \
  type name;                                                                                                           \
  memset(&name, 0, sizeof name)

/* The arguments of the last command of the segment in the making where that is such a launch, to be added to; else NULL. Outside of
 * begin and end there is none: it has run. */
void *cuda_last_command(cuda_backend *cuda, cuda_launch launch);

/* Adds a command, to which all tensors named since the last one belong. */
petra_status cuda_extend_command(cuda_backend *cuda);

/* The command that copies on the device. arithmetic.c */
petra_status cuda_add_copy(cuda_backend *cuda, const void *x, void *y, size_t bytes);

/* Runs what was described so far, as a segment. */
petra_status cuda_submit(cuda_backend *cuda);

/* The command at byte `at` of a segment's, and its arguments; returns where the next one begins. */
size_t cuda_command_at(const unsigned char *commands, size_t at, cuda_command *command, const void **arguments);

/* Launches all commands of a segment one by one. */
petra_status cuda_launch_commands(const cuda_lane *lane, const unsigned char *commands, size_t bytes);

/* For what is not a command, but put on a stream by a library: between enter, after which the tensors are named, and leave
 * the present lane is that of `lane`; what was described before was submitted. After wait its stream waits for all that the
 * tensors need; ended: all that was put on the stream of a lane since, is one segment more. */
petra_status cuda_beside_enter(cuda_backend *cuda, int lane, int *before);
petra_status cuda_beside_wait(cuda_backend *cuda);
void cuda_beside_leave(cuda_backend *cuda, int before);
petra_status cuda_beside_ended(cuda_backend *cuda, int lane);

/* Until the host may count on the end of a segment; a moment that was never submitted is over. */
petra_status cuda_wait_for(cuda_backend *cuda, int lane, cuda_moment moment);

/* Products of tensors as commands of a segment. */

/* c = alpha op(a) op(b) + beta c, of the rows of matrices or sequences; op transposes where that is said. */
petra_status cuda_multiply(cuda_backend *cuda, float alpha, const petra_tensor *a, bool transpose_a,
                           const petra_tensor *b, bool transpose_b, float beta, const petra_tensor *c);

/* Segments as CUDA graphs. A segment that occurs a second time, with the same launches and arguments to the byte, is
 * captured, and from then on launched as one graph. Values that change (rates, labels) lie in device memory at fixed
 * places (below), and the tensor pool assigns storage such that addresses repeat (backend/pool.c). */

/* Creates the graphs. `insist`: a capture that fails is an error; otherwise the segment is launched directly from then
 * on. */
petra_status cuda_graphs_create(bool insist, cuda_graphs **out);
void cuda_graphs_destroy(cuda_graphs *graphs);

/* Runs a segment on a lane, as a graph if there is one. */
petra_status cuda_graphs_launch(cuda_graphs *graphs, int number, const cuda_lane *lane, const unsigned char *commands,
                                size_t bytes);

/* Gets how many graphs there are, and how many segments were launched as a graph and one by one. */
void cuda_graphs_count(const cuda_graphs *graphs, int64_t *captured, int64_t *launched, int64_t *single);

/* Data on its way between host and device, through pinned memory.
 *
 * Tensors go up ahead on a stream of their own; the segment that unpacks them waits for the copy. Small values that
 * change while launches stay the same (rates, labels) have fixed places on the device, by lane, kind of action and
 * order in it, and are copied before a segment if they differ from what lies there. */

enum { CUDA_VALUES_BYTES = 1 << 18 }; /* room for the values of a segment: labels of 65,536 tokens */

petra_status cuda_transfer_create(cuda_transfer **out);
void cuda_transfer_destroy(cuda_transfer *transfer);

/* Memory for `bytes` that go up: the caller fills *pinned, then calls cuda_send, and describes the command that
 * reads *device. */
petra_status cuda_stage(cuda_backend *cuda, size_t bytes, void **pinned, void **device);
petra_status cuda_send(cuda_backend *cuda, size_t bytes);

/* Gets where the segment's launches will find this value on the device. */
petra_status cuda_value(cuda_backend *cuda, const void *value, size_t bytes, const void **device);

/* Called at the start of every segment, on its lane: transfers what the segment needs. */
petra_status cuda_transfer_before(cuda_backend *cuda);

/* Device memory of the lane for a result of at most 64 bytes, until the next result; and what is to come down. */
petra_status cuda_result(cuda_backend *cuda, void **device);
petra_status cuda_receive(cuda_backend *cuda, size_t bytes, void **device);

/* Device memory of the lane for a result that is copied down after the segment and waited for later; once the
 * command that writes it was added, cuda_late_ticket gives the ticket for cuda_collect_result (64 bytes). A ticket
 * is good until three others were given. */
petra_status cuda_late_result(cuda_backend *cuda, void **device);
int64_t cuda_late_ticket(cuda_backend *cuda);
petra_status cuda_collect_result(cuda_backend *cuda, int64_t ticket, const void **host);

/* After the launches of every segment, on its lane. */
petra_status cuda_transfer_after(cuda_backend *cuda);

/* Submits what was described so far and gives `bytes` from the device to the host once they are there. *host is valid
 * until the next call. */
petra_status cuda_fetch(cuda_backend *cuda, const void *device, size_t bytes, const void **host);
