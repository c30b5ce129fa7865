/* SPDX-License-Identifier: Apache-2.0 */
/* Moves messages between the ranks of a run while they compute. A channel is one direction of one boundary, from one
 * rank to another; its messages arrive in order. The receiver acknowledges every message that it has finished with, and
 * a sender waits before it gets too far ahead, so that memory at the receiver is bounded. The thread makes progress on
 * messages while the rank computes; a rank that waits makes progress itself.
 *
 * A signal that requests the end (base/stop.h) ends waiting with PETRA_STOPPED, unless signals are deferred.
 *
 * Ranks exchange beats through rank 0 every quarter second. If a rank is silent for `timeout_ns`, or reports a failure,
 * the waiting of all others ends with a status other than PETRA_OK.
 *
 * Only the rank's own thread may call these functions. If the wire fails they log it and return PETRA_BACKEND. */
#pragma once

#include "group/wire.h"

typedef struct petra_progress_thread petra_progress_thread;
typedef struct petra_channel petra_channel;

/* `name` names this rank in messages: "rank 1 (host, stages 4 .. 6)". The maximum silence of a rank is `timeout_ns`.
 * `wire` must outlive the progress thread. */
petra_status petra_progress_thread_create(petra_wire *wire, const char *name, int64_t timeout_ns,
                                          petra_progress_thread **out);

/* Watches other work in which a rank can hang, such as the work of a device. The progress thread calls these functions
 * without a lock. Set all of them or none. */
typedef struct petra_progress_thread_watch {
  /* Is called every quarter second. Returns a failure, logged, of the work that is watched. */
  petra_status (*look)(void *context);
  /* Is called once after `look` failed, or after a rank failed or went silent; the failure is logged already. It must
   * end the work that the rank's own thread waits for. */
  void (*give_up)(void *context);
  /* Is called if that thread has not ended the run `stuck_ns` later. */
  void (*stuck)(void *context, petra_status status);
  int64_t stuck_ns;
  const char *what; /* in messages: the work that the rank's thread waits for */
  void *context;
} petra_progress_thread_watch;
/* NULL removes the watch. None of the old watch's functions runs when this returns. */
void petra_progress_thread_watch_set(petra_progress_thread *progress, const petra_progress_thread_watch *watch);

/* Calls call(context) in the progress thread, which makes no progress meanwhile, and returns its status. A library that
 * moves messages from and to a device requires that device to be the current device of the thread. */
petra_status petra_progress_thread_call(petra_progress_thread *progress, petra_status (*call)(void *context),
                                        void *context);

void petra_progress_thread_rename(petra_progress_thread *progress, const char *name);
/* NULL is allowed. Messages under way are cancelled. */
void petra_progress_thread_destroy(petra_progress_thread *progress);

/* Opens the channel `id` (below petra_progress_thread_channels) to, or from, another rank, for messages of at most
 * `capacity` bytes. The progress thread owns the channel. */
petra_status petra_channel_open_out(petra_progress_thread *progress, int to, int id, size_t capacity,
                                    petra_channel **out);
petra_status petra_channel_open_in(petra_progress_thread *progress, int from, int id, size_t capacity,
                                   petra_channel **out);
int petra_progress_thread_channels(const petra_progress_thread *progress);

/* Returns a buffer of `capacity` bytes for the next message, aligned to 64 bytes. Waits until one of two buffers is
 * free and the receiver has finished with `done` messages of this channel in total. `what` names in messages what the
 * rank waits for. */
petra_status petra_channel_buffer(petra_channel *channel, int64_t done, const char *what, void **buffer);

/* Sends the buffer's first `size` bytes as message `number`. */
petra_status petra_channel_send(petra_channel *channel, int64_t number, size_t size);

/* Wait for the next message, or for message `number`. Its bytes are valid until petra_channel_done. */
petra_status petra_channel_next(petra_channel *channel, const char *what, int64_t *number, const void **data,
                                size_t *size);
petra_status petra_channel_take(petra_channel *channel, int64_t number, const char *what, const void **data,
                                size_t *size);
petra_status petra_channel_done(petra_channel *channel, int64_t number);

/* Works as petra_channel_take, but waits at most until the clock (base/clock.h) reads `until_ns`; *data is NULL if the
 * message has not arrived by then. */
petra_status petra_channel_take_until(petra_channel *channel, int64_t number, int64_t until_ns, const char *what,
                                      const void **data, size_t *size);

/* Returns the next message that has arrived, whatever its number; *data is NULL if there is none. */
petra_status petra_channel_poll(petra_channel *channel, int64_t *number, const void **data, size_t *size);

/* For a rank that handles messages in the order of arrival: makes progress, and gets the number of events so far. An
 * event is a message that arrived, an acknowledgement, or a buffer that became free. */
petra_status petra_progress_thread_look(petra_progress_thread *progress, int64_t *events);

/* Waits until the count of events exceeds `events`. */
petra_status petra_progress_thread_wait_event(petra_progress_thread *progress, int64_t events, const char *what);

/* Gets the number of the first message that, at the last look, had arrived and was not finished, and the time of its
 * arrival (base/clock.h), which is at most 0.3 ms late if the rank did not wait. Returns false if there is none. */
bool petra_channel_first(petra_channel *channel, int64_t *number, int64_t *came_ns);

/* Returns true if petra_channel_buffer with this `done` would not wait, according to the last look. */
bool petra_channel_has_room(petra_channel *channel, int64_t done);

/* --- the agreement on a checkpoint ---
 * Every rank goes through the positions of one order, counted from 0, at its own speed. When a rank requests a
 * checkpoint, the progress threads agree on a position that no rank has passed: the position that the foremost rank is
 * about to reach. Until they agree, no rank goes further than the position that it announced. */

/* What the ranks do after the checkpoint. */
typedef enum petra_agreed {
  PETRA_AGREED_CONTINUE,
  PETRA_AGREED_STOP,   /* a signal requested it: they end the run */
  PETRA_AGREED_DISCARD /* they end the run, which had not begun, and write no checkpoint */
} petra_agreed;

/* Call this on all ranks. From now on a signal at any rank (base/stop.h) requests a checkpoint, and so does rank 0 once
 * `every_ns` have passed since the last one; 0: never. `position` is the present position of the rank. */
void petra_agreement_start(petra_progress_thread *progress, int64_t every_ns, int64_t position);

/* Call this on rank 0. Sets whether a signal from now on ends the run with PETRA_AGREED_DISCARD. Returns false, and
 * changes nothing, if a checkpoint was requested already. */
bool petra_agreement_discard(petra_progress_thread *progress, bool discards);

/* Call this before the rank passes on to `position`. If it returns false, the rank must not pass on, because a
 * checkpoint was requested that this rank has not written. */
bool petra_agreement_may_pass(petra_progress_thread *progress, int64_t position);

/* Returns the position of the requested checkpoint; -1 if none is requested, or the position is not known yet. Once it
 * is known, petra_progress_thread_wait_event returns. */
int64_t petra_agreement_position(petra_progress_thread *progress, petra_agreed *then);

/* Waits until the position is known, after petra_agreement_may_pass returned false. */
petra_status petra_agreement_wait(petra_progress_thread *progress, int64_t *position, petra_agreed *then);

/* Measures the time to the next checkpoint from now. With `written` this rank has written the requested checkpoint. */
void petra_agreement_leave(petra_progress_thread *progress, bool written);

/* Bytes sent on all channels so far, and nanoseconds that the rank waited for messages and for room. */
typedef struct petra_progress_thread_counts {
  int64_t bytes_sent, messages_sent;
  int64_t wait_ns;
} petra_progress_thread_counts;
petra_progress_thread_counts petra_progress_thread_counts_now(petra_progress_thread *progress);

/* Returns the bytes that the buffers of a channel occupy. They never become fewer. */
int64_t petra_channel_bytes(petra_channel *channel);

/* Return the maximum number of bytes that a channel occupies: at the sender, and at the receiver while `waiting`
 * messages wait to be taken. */
int64_t petra_channel_bytes_out(size_t capacity);
int64_t petra_channel_bytes_in(size_t capacity, int waiting);

/* Send exactly `size` bytes to one rank, or receive them from it, beside the channels. They return when the transfer is
 * complete. */
petra_status petra_progress_thread_put(petra_progress_thread *progress, int to, const void *data, size_t size);
petra_status petra_progress_thread_get(petra_progress_thread *progress, int from, void *data, size_t size);

/* Begins to send a message directly from memory, or to receive it there. The memory may be memory of a device that the
 * wire can read (wire.h). It must not change until the transfer is complete. `id` is the id of a channel that is not
 * opened. Both ends name such messages, of exactly `size` bytes, in the same order. These messages are not counted. */
petra_status petra_progress_thread_begin(petra_progress_thread *progress, int other, int id, bool sends, void *data,
                                         size_t size, int *request);
bool petra_progress_thread_over(petra_progress_thread *progress, int *request); /* stays true once it is */
petra_status petra_progress_thread_await(petra_progress_thread *progress, int *request, const char *what);
void petra_progress_thread_cancel(petra_progress_thread *progress, int *request); /* of a receive */

/* Returns the status with which the progress thread failed, without logging it. */
petra_status petra_progress_thread_failed(petra_progress_thread *progress);

/* Returns the rank that is silent or has reported a failure; -1: none. */
int petra_progress_thread_lost(petra_progress_thread *progress);

/* Reports to rank 0, or from rank 0 to another rank, that this rank failed, with its status and line. */
petra_status petra_progress_thread_fail(petra_progress_thread *progress, int to, petra_status failed, const char *line);

/* Ends every process of the run immediately, with the exit status `code`. */
void petra_progress_thread_abort(petra_progress_thread *progress, int code);
