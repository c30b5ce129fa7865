/* SPDX-License-Identifier: Apache-2.0 */
/* Moves messages between the ranks of a run while they compute. A channel is one direction of one boundary, from one rank to
 * another; what is sent on it arrives in order. Both ends know how far the receiver is: every message that it has done
 * with is acknowledged, and a sender waits before it runs further ahead than it may, so that memory at the receiver is
 * bounded. The thread moves what is under way while the rank computes; a rank that waits moves it itself.
 *
 * A signal that asks for the end (base/stop.h) ends waiting with PETRA_STOPPED, unless that is deferred.
 *
 * Ranks hear of each other (a beat a quarter second, through rank 0): one that is not heard of for `timeout_ns`, or that
 * says that it failed, ends the waiting of all others with a status other than PETRA_OK.
 *
 * All functions are for one thread, the rank's own. Failures of the wire: PETRA_BACKEND, logged. */
#pragma once

#include "group/wire.h"

typedef struct petra_progress_thread petra_progress_thread;
typedef struct petra_channel petra_channel;

typedef struct petra_progress_thread_options {
  petra_wire *wire;   /* borrowed */
  const char *name;   /* of this rank in messages: "rank 1 (host, stages 4 .. 6)" */
  int64_t timeout_ns; /* how long a rank may be silent */
} petra_progress_thread_options;

petra_status petra_progress_thread_create(const petra_progress_thread_options *options, petra_progress_thread **out);
/* What a rank may hang in other than a wait of the progress thread, such as the work of a device. Called by the progress thread, with
 * nothing locked; all are set or none. */
typedef struct petra_progress_thread_watch {
  /* Every quarter second: a failure, logged, of what is under way elsewhere. */
  petra_status (*look)(void *context);
  /* Once, when that failed, or a rank is silent or failed, which was logged: what the rank's own thread waits for has to end. */
  void (*give_up)(void *context);
  /* When that thread has not ended the run so much later. */
  void (*stuck)(void *context, petra_status status);
  int64_t stuck_ns;
  const char *what; /* it waits for then, in messages */
  void *context;
} petra_progress_thread_watch;
/* NULL: none any more; none of its functions runs when this returns. */
void petra_progress_thread_watch_set(petra_progress_thread *progress, const petra_progress_thread_watch *watch);

void petra_progress_thread_rename(petra_progress_thread *progress, const char *name);
/* NULL is allowed. What is under way is given up. */
void petra_progress_thread_destroy(petra_progress_thread *progress);

/* The channel `id` (below petra_progress_thread_channels) to, or from, another rank, for messages of at most `capacity` bytes. The progress thread
 * has it until it is destroyed. */
petra_status petra_channel_open_out(petra_progress_thread *progress, int to, int id, size_t capacity,
                                    petra_channel **out);
petra_status petra_channel_open_in(petra_progress_thread *progress, int from, int id, size_t capacity,
                                   petra_channel **out);
int petra_progress_thread_channels(const petra_progress_thread *progress);

/* A buffer of `capacity` bytes for the next message, aligned to 64 bytes: waits until one of two is free, and until the
 * receiver has done with `done` messages of this channel in all. `what` is told when the wait is in vain. */
petra_status petra_channel_buffer(petra_channel *channel, int64_t done, const char *what, void **buffer);

/* The same without waiting: *buffer is NULL where there is no room yet. */
petra_status petra_channel_try_buffer(petra_channel *channel, int64_t done, const char *what, void **buffer);

/* Sends the buffer's first `size` bytes as message `number`. */
petra_status petra_channel_send(petra_channel *channel, int64_t number, size_t size);

/* Waits for the next message, whichever that is, or for message `number`, and gives its bytes, which stay until
 * petra_channel_done. */
petra_status petra_channel_next(petra_channel *channel, const char *what, int64_t *number, const void **data,
                                size_t *size);
petra_status petra_channel_take(petra_channel *channel, int64_t number, const char *what, const void **data,
                                size_t *size);
petra_status petra_channel_done(petra_channel *channel, int64_t number);

/* As petra_channel_take, until the clock (base/clock.h) is at `until_ns`: *data is NULL where the message has not come by then.
 * *came_ns: when it was seen to come, 0.3 ms late at most where the rank did not wait. */
petra_status petra_channel_take_until(petra_channel *channel, int64_t number, int64_t until_ns, const char *what,
                                      const void **data, size_t *size, int64_t *came_ns);

/* The next message of a channel that has come, whatever its number; *data is NULL where none has. */
petra_status petra_channel_poll(petra_channel *channel, int64_t *number, const void **data, size_t *size);

/* For a rank that does what came first. Looks at what is under way, and counts: each message that came, each
 * acknowledgement and each buffer that became free so far is an event. */
petra_status petra_progress_thread_look(petra_progress_thread *progress, int64_t *events);

/* Waits until there are more events than `events`. */
petra_status petra_progress_thread_wait_event(petra_progress_thread *progress, int64_t events, const char *what);

/* The first message of a channel that has come and is not done with, as the last look found it, and when it came
 * (base/clock.h); false: none. */
bool petra_channel_first(petra_channel *channel, int64_t *number, int64_t *came_ns);

/* Whether petra_channel_buffer with this `done` would not wait, as the last look found it. */
bool petra_channel_has_room(petra_channel *channel, int64_t done);

/* --- a place at which all ranks meet ---
 * Each rank goes from place to place on its own, in one order, counted from 0. When one asks for a meeting, the threads of the
 * progress threads agree on a place that no rank has passed: the one that the foremost rank is about to reach. Meanwhile a rank goes
 * no further than it said it would. */

/* What ranks do after a meeting. */
typedef enum petra_meeting_end {
  PETRA_MEETING_GO_ON,
  PETRA_MEETING_STOP,   /* a signal asked for it: they end the run */
  PETRA_MEETING_DISCARD /* they end the run, which had not begun, and write no checkpoint before */
} petra_meeting_end;

/* From now on a signal at any rank (base/stop.h) asks for a meeting, and rank 0 does when `every_ns` have gone by since the
 * last one; 0: never. `place`: where the rank is. Called by all ranks. */
void petra_progress_thread_meet(petra_progress_thread *progress, int64_t every_ns, int64_t place);

/* Of rank 0: whether a signal would now end a run that has not begun. False, and nothing changes, if it is too late for that
 * as a meeting was asked for. */
bool petra_progress_thread_unbegun(petra_progress_thread *progress, bool unbegun);

/* Before the rank goes on to `place`. False: it must not, as a meeting was asked for and this rank has not been there. */
bool petra_progress_thread_may_go(petra_progress_thread *progress, int64_t place);

/* The place of the meeting; -1: there is none, or it is not known yet. petra_progress_thread_wait_event is woken when it is. */
int64_t petra_progress_thread_meeting(petra_progress_thread *progress, petra_meeting_end *end);

/* After petra_progress_thread_may_go refused: waits for the place. */
petra_status petra_progress_thread_await_meeting(petra_progress_thread *progress, int64_t *place,
                                                 petra_meeting_end *end);

/* This rank has been at the place, together with all others, and goes on. */
void petra_progress_thread_met(petra_progress_thread *progress);

/* The time to the next meeting counts from now. */
void petra_progress_thread_meet_restart(petra_progress_thread *progress);

/* Bytes sent on all channels, and nanoseconds that the rank waited for messages and for room, so far. */
typedef struct petra_progress_thread_counts {
  int64_t bytes_sent, messages_sent;
  int64_t wait_ns;
} petra_progress_thread_counts;
petra_progress_thread_counts petra_progress_thread_counts_now(petra_progress_thread *progress);

/* Bytes that the buffers of a channel hold now, and at most so far. */
int64_t petra_channel_bytes(petra_channel *channel);
int64_t petra_channel_bytes_max(petra_channel *channel);

/* Bytes that a channel will hold at most, at the end that sends, and at the one that receives while `waiting` messages wait to be
 * taken. */
int64_t petra_channel_bytes_out(size_t capacity);
int64_t petra_channel_bytes_in(size_t capacity, int waiting);

/* Sends to, and receives from, one rank exactly `size` bytes, beside the channels, and returns when that is done. */
petra_status petra_progress_thread_put(petra_progress_thread *progress, int to, const void *data, size_t size);
petra_status petra_progress_thread_get(petra_progress_thread *progress, int from, void *data, size_t size);

/* A message straight from, or to, memory that stays as it is until it is done, such as a device's that the wire can read
 * (wire.h). `id` is that of a channel that is not opened; both ends name such messages of exactly `size` bytes in one order.
 * They are not counted. */
petra_status petra_progress_thread_begin(petra_progress_thread *progress, int other, int id, bool sends, void *data,
                                         size_t size, int *request);
bool petra_progress_thread_over(petra_progress_thread *progress, int *request); /* true again and again, once it is */
petra_status petra_progress_thread_await(petra_progress_thread *progress, int *request, const char *what);
void petra_progress_thread_cancel(petra_progress_thread *progress, int *request); /* a receive's */

/* What the progress thread failed with, if it has; passed on, not logged. */
petra_status petra_progress_thread_failed(petra_progress_thread *progress);

/* The rank that has not been heard of or has said that it failed; -1: none. */
int petra_progress_thread_lost(petra_progress_thread *progress);

/* Moves what is under way, and fails where waiting for `what` would: the wire failed, or a rank is lost. For a rank that
 * neither computes nor waits for a message. */
petra_status petra_progress_thread_check(petra_progress_thread *progress, const char *what);

/* Tells rank 0, from another one, or another one from rank 0, that this rank failed, with which status and line. */
petra_status petra_progress_thread_fail(petra_progress_thread *progress, int to, petra_status failed, const char *line);

/* Ends every process of the run at once, with the exit status `code`. */
void petra_progress_thread_abort(petra_progress_thread *progress, int code);
