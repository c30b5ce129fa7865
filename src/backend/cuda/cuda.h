/* SPDX-License-Identifier: Apache-2.0 */
/* The internals of the `cuda` backend: its handle and the functions that its files share.
 *
 * From an operation to the device: an operation (cuda_ops_*.c) describes its launches as commands, each with the
 * tensors that it reads and writes. The commands of one action of a stage form a segment, which runs in order on the
 * stage's lane (cuda_segment.c), as single launches or as one CUDA graph (cuda_graph.c). A segment
 * waits for a segment of another lane only if it reads or writes a tensor that the other wrote, or writes a tensor that
 * the other read.
 *
 * Tensors: cuda_kernels.h says how they are laid out. Masks have one byte per element. Every function that returns a
 * result to the host (download, dot, cross_entropy) waits for the lane that computes it.
 *
 * Only the files of this folder include cuda_runtime_api.h; tests replace it by a run time of their own. */
#pragma once

#include "backend/backend.h"
#include "backend/cuda/cuda_kernels.h"
#include "backend/cuda/cuda_libraries.h"

#include <cuda_runtime_api.h>

enum {
  CUDA_LANES = 16, /* maximum; stage j computes on lane j % lanes; lane 0 also takes all work outside of stages */
  CUDA_TRACKS =
      CUDA_LANES +
      PETRA_PEER_LANES, /* lanes of stages, and lanes of messages from and to other processes (cuda_peers.c) */
  CUDA_EVENTS = 16,     /* number of last segments of a lane for which other lanes can wait individually */
};

/* The sequence number of a segment on its lane: the segment is over once the lane has reached this number. Numbers
 * start at 1; 0: none. */
typedef uint64_t cuda_moment;

/* The target of tensor->layout: the last accesses to the storage. */
typedef struct cuda_storage {
  int write_lane;
  cuda_moment write;
  cuda_moment reads[CUDA_TRACKS]; /* the last access of each lane since the write */
  /* In bf16, for tensors that are stored in f32 (streams, images, filters and their gradients): a copy of their values
   * in bf16, which convolutions read and write; made on first use. An access to the tensor counts as an access to the
   * copy too. NULL: none. */
  uint16_t *rounded;
  bool rounded_valid; /* the copy has the tensor's numbers, rounded */
  bool rounded_alone; /* only the rounded copy is up to date; the f32 values are older (cuda_reads widens the copy) */
} cuda_storage;

typedef struct cuda_track {
  cuda_lane lane;                 /* the view of launches; first member */
  cudaEvent_t ended[CUDA_EVENTS]; /* event of segment s: ended[s % CUDA_EVENTS] */
  cuda_moment submitted;
  cuda_moment waited[CUDA_TRACKS]; /* what this lane has already waited for */
  void **retired;                  /* outgrown scratch that graphs may still use */
  int64_t retired_count, retired_capacity;
} cuda_track;

typedef struct cuda_segment cuda_segment;   /* the segment under construction, below */
typedef struct cuda_graphs cuda_graphs;     /* cuda_graph.c: captured segments */
typedef struct cuda_transfer cuda_transfer; /* cuda_memory.c: pinned memory in transit */
typedef struct cuda_peers cuda_peers;       /* cuda_peers.c: lanes to other processes */

typedef struct cuda_backend {
  petra_backend base;
  int device, lanes; /* number of lanes that stages compute on */
  bool wide_gradients;
  cuda_track track[CUDA_TRACKS];
  cuda_segment *segment;
  cuda_graphs *graphs; /* NULL: every command is launched alone */
  cuda_transfer *transfer;
  cuda_peers *peers; /* NULL: none was connected */
  cuda_convs *convs;
  cuda_blas *blas;
  /* bytes of rounded copies; bytes of the lanes' scratch, including outgrown scratch */
  int64_t rounded_bytes, scratch_bytes;
} cuda_backend;

static inline cuda_backend *cuda_of(petra_backend *backend) {
  return (cuda_backend *)backend;
}

static inline cuda_storage *cuda_storage_of(const petra_tensor *tensor) {
  return (cuda_storage *)tensor->layout;
}

/* Returns true if its elements are bf16. */
static inline bool cuda_is_narrow(const petra_tensor *tensor) {
  return tensor->backend->element_bytes[tensor->kind] == sizeof(uint16_t);
}

/* Returns the number of pixels of an activation, over all images (channels last). */
static inline int64_t cuda_pixels(const petra_tensor *tensor) {
  return (int64_t)tensor->shape[0] * tensor->shape[2] * tensor->shape[3];
}

/* --- cuda_segment.c --- */

/* Returns PETRA_OK, or logs one line "cuda: WHAT: cudaErrorName: its text"; memory errors are PETRA_NO_MEMORY, all
 * others PETRA_BACKEND. */
petra_status cuda_check(cudaError_t error, const char *what);
#define CUDA_TRY(call, what) PETRA_TRY(cuda_check(call, what))

/* --- cuda_memory.c --- */

petra_status cuda_storage_create(petra_backend *backend, petra_tensor *tensor);
void cuda_storage_destroy(petra_backend *backend, petra_tensor *tensor);
petra_status cuda_upload_images(petra_backend *backend, const petra_images *images, petra_tensor *x);

/* --- cuda_peers.c --- */

/* Returns NULL if there are none. */
const petra_peer_ops *cuda_peer_ops(void);
const char *cuda_peers_version(void); /* "NCCL 2.28.9"; NULL */

/* Cancels transfers that hang, so that the final wait for the device can end. */
void cuda_peers_destroy(cuda_backend *cuda);

/* Returns PETRA_CHILD after a cancellation: the results of the device since then are undefined. Logs nothing. */
petra_status cuda_peers_alive(const cuda_backend *cuda);

/* --- the operations of backend.h: cuda_ops_*.c, cuda_memory.c --- */

PETRA_OPERATIONS(PETRA_OPERATION_DECLARE, cuda_)

petra_status cuda_collect(petra_backend *backend, int64_t ticket, petra_cross_entropy *out);

/* --- cuda_segment.c: the launches of one action of a stage, in order on the stage's lane.
 *
 * Outside of begin and end every command is a segment on lane 0. If the host needs a result in the middle of an action,
 * the commands so far become a segment, and the rest become another one. --- */

/* A command in a segment: the launch, then its arguments, filled up to a multiple of 16 bytes.
 *
 * Its traffic (read_bytes, written_bytes) is the size of the tensors named for it (cuda_reads, cuda_writes), each
 * counted once and whole, with the bytes in which the tensor or its rounded copy is stored. A tensor that is read and
 * written counts in both; a tensor that is named as read twice in a row counts once. Scratch, values and pinned memory
 * do not count, and neither do second reads within a launch. The traffic is determined by the tensors' shapes, so
 * comparing it never makes two otherwise equal segments differ. */
typedef struct cuda_command {
  cuda_launch launch;
  size_t bytes; /* size of the arguments */
  size_t read_bytes, written_bytes;
} cuda_command;

/* A hook that replaces graphs and single launches, for a program that counts launches; the hook itself must launch the
 * commands. */
typedef struct cuda_launcher {
  petra_status (*launch)(void *context, const cuda_lane *lane, const unsigned char *commands, size_t bytes);
  void *context;
} cuda_launcher;

struct cuda_segment {
  bool open; /* between begin and end */
  int lane, kind;
  unsigned char *commands;
  size_t used, last; /* bytes of commands; position at which the last command begins */
  int64_t capacity;
  size_t read_bytes, written_bytes; /* of the command under construction */
  const petra_tensor *last_read;    /* the last tensor that the current command reads; NULL: none */
  cuda_moment waits[CUDA_TRACKS];   /* per lane: the last segment that must be over before this one starts */
  cuda_launcher launcher;           /* launch NULL: none */
  /* failure of a command that was added implicitly; the next function that returns a status returns it */
  petra_status status;
};

petra_status cuda_segments_create(cuda_backend *cuda);
void cuda_segments_destroy(cuda_backend *cuda);

/* Creates the stream, the counters and the events of a lane. cuda_segments_create calls it for the lanes of stages. */
petra_status cuda_track_create(cuda_track *track);

/* begin and end of backend.h. A stage's number is from 1. */
petra_status cuda_begin(petra_backend *backend, int32_t stage, int32_t kind);
petra_status cuda_end(petra_backend *backend);
petra_status cuda_synchronize(petra_backend *backend);
petra_status cuda_settle(petra_backend *backend, petra_tensor *tensor, bool writes);

/* Returns the sequence number that the segment under construction has on its lane. */
cuda_moment cuda_present(const cuda_backend *cuda);

/* Declares that the next command reads or writes this tensor. NULL is allowed. Name the tensors that it only reads
 * first. If only the
 * bf16 copy of a tensor is up to date, a command that widens it is inserted before. */
void cuda_reads(petra_backend *backend, const petra_tensor *tensor);
void cuda_writes(petra_backend *backend, const petra_tensor *tensor);

/* Declares both: the next command updates the tensor, as in y += x. */
void cuda_updates(petra_backend *backend, const petra_tensor *tensor);

/* Do the same and return the tensor's elements, for use as an argument of the command. */
static inline const float *cuda_read(petra_backend *backend, const petra_tensor *tensor) {
  cuda_reads(backend, tensor);
  return tensor->data;
}

static inline float *cuda_write(petra_backend *backend, petra_tensor *tensor) {
  cuda_writes(backend, tensor);
  return tensor->data;
}

static inline float *cuda_update(petra_backend *backend, petra_tensor *tensor) {
  cuda_updates(backend, tensor);
  return tensor->data;
}

/* For the next command, which reads a tensor in bf16: returns the elements of an inner tensor itself, or the rounded
 * copy of any other tensor. Call cuda_round before any tensor is named for that command. It makes sure that the rounded
 * copy is up to date, and adds a command that rounds if it is not. */
petra_status cuda_round(petra_backend *backend, const petra_tensor *tensor);
const void *cuda_read_rounded(petra_backend *backend, const petra_tensor *tensor);

/* For a command that can read either type: returns the values that are up to date; they are bf16 if *narrow is set. */
const void *cuda_read_either(petra_backend *backend, const petra_tensor *tensor, bool *narrow);

/* For a command that writes a tensor only in bf16: returns the elements of an inner tensor itself, or the rounded copy
 * of any other tensor, which cuda_make_rounded has allocated. */
petra_status cuda_make_rounded(petra_backend *backend, const petra_tensor *tensor);
void *cuda_write_narrow(petra_backend *backend, const petra_tensor *tensor);

/* For a command that writes `tensor` and its rounded copy: returns the destination of the copy; NULL if nobody has
 * requested a copy so far. Call it after cuda_writes. */
uint16_t *cuda_write_rounded(petra_backend *backend, const petra_tensor *tensor);

/* Makes sure that from now on the lane has at least `bytes` bytes of scratch. */
petra_status cuda_reserve(petra_backend *backend, size_t bytes);

/* Adds a command. When two segments are compared, all bytes of the arguments count: set them to 0 first
 * (CUDA_ARGUMENTS). */
petra_status cuda_add_command(petra_backend *backend, cuda_launch launch, const void *arguments, size_t bytes);
#define CUDA_ARGUMENTS(type, name)                                                                                     \
  type name;                                                                                                           \
  memset(&name, 0, sizeof name)

/* If the last command of the segment under construction is a launch of this function, returns its arguments, so that
 * the caller can extend them; else returns NULL. Outside of begin and end there is no last command, because it has
 * run. */
void *cuda_last_command(petra_backend *backend, cuda_launch launch);

/* Extends the last command (cuda_last_command): the tensors named since it was added now belong to it. */
petra_status cuda_extend_command(petra_backend *backend);

/* Adds a command that copies `bytes` bytes on the device. */
petra_status cuda_add_copy(petra_backend *backend, const void *x, void *y, size_t bytes);

/* Runs the commands described so far as a segment. */
petra_status cuda_submit(cuda_backend *cuda);

/* Gets the command at byte `at` of a segment's commands, and its arguments; returns the position of the next one. */
size_t cuda_command_at(const unsigned char *commands, size_t at, cuda_command *command, const void **arguments);

/* Launches all commands of a segment one by one. */
petra_status cuda_launch_commands(const cuda_lane *lane, const unsigned char *commands, size_t bytes);

/* For work that is not a command but that a library puts on a stream. cuda_beside_enter submits the commands described
 * so far and makes `lane` the current lane until cuda_beside_leave; name the tensors after it. cuda_beside_wait makes
 * the lane's stream wait for all work that the tensors need. cuda_beside_ended turns all work that was put on the
 * lane's stream since then into one more segment. */
petra_status cuda_beside_enter(cuda_backend *cuda, int lane, int *before);
petra_status cuda_beside_wait(cuda_backend *cuda);
void cuda_beside_leave(cuda_backend *cuda, int before);
petra_status cuda_beside_ended(cuda_backend *cuda, int lane);

/* Waits until a segment has ended; a segment that was never submitted counts as ended. */
petra_status cuda_wait_for(cuda_backend *cuda, int lane, cuda_moment moment);

/* Products of tensors as commands of a segment. */

/* c = alpha op(a) op(b) + beta c on the rows of matrices or sequences; op transposes its operand if transpose_a or
 * transpose_b is set. */
petra_status cuda_multiply(petra_backend *backend, float alpha, const petra_tensor *a, bool transpose_a,
                           const petra_tensor *b, bool transpose_b, float beta, const petra_tensor *c);

/* Segments as CUDA graphs. A segment that occurs a second time, with the same launches and arguments to the byte, is
 * captured, and from then on launched as one graph. Values that change (rates, labels) lie at fixed addresses in device
 * memory (below), and the tensor pool assigns storage so that addresses repeat (backend/tensor_pool.c). */

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
 * Tensors are uploaded in advance on a separate stream; the segment that unpacks them waits for the copy. Small values
 * that change while launches stay the same (rates, labels) have fixed addresses on the device, by lane, kind of action
 * and order in it. They are copied before a segment if they differ from the values on the device. */

enum { CUDA_VALUES_BYTES = 1 << 18 }; /* room for the values of a segment: labels of 65,536 tokens */

petra_status cuda_transfer_create(cuda_transfer **out);
void cuda_transfer_destroy(cuda_transfer *transfer);

/* Gets the address at which the segment's launches will find this value on the device. */
petra_status cuda_value(petra_backend *backend, const void *value, size_t bytes, const void **device);

/* Called at the start of every segment, on its lane: transfers what the segment needs. */
petra_status cuda_transfer_before(cuda_backend *cuda);

/* Gets device memory of the lane for a result of at most 64 bytes, valid until the next result. */
petra_status cuda_result(petra_backend *backend, void **device);

/* Gets device memory of the lane for a result of 64 bytes that is downloaded after the segment and waited for later.
 * Once the command that writes it has been added, cuda_late_ticket returns a ticket for cuda_collect_result, which is
 * valid until three more tickets have been returned. */
petra_status cuda_late_result(petra_backend *backend, void **device);
int64_t cuda_late_ticket(petra_backend *backend);
petra_status cuda_collect_result(petra_backend *backend, int64_t ticket, const void **host);

/* Called after the launches of every segment, on its lane. */
petra_status cuda_transfer_after(cuda_backend *cuda);

/* Submits the commands described so far, waits for them, and downloads `bytes` bytes from the device to the host. *host
 * is valid until the next call. */
petra_status cuda_fetch(petra_backend *backend, const void *device, size_t bytes, const void **host);
