/* poll.h - how a call of the library is stopped: by the caller's flag, or by a deadline.
 *
 * A call that may take long enters its control, for its own thread and for those that
 * work for it; whatever loops below it polls. A loop whose length comes from a file or an
 * input does not do more than about ATTN_POLL_BYTES of work between two polls. */
#ifndef ATTN_POLL_H
#define ATTN_POLL_H

#include <stdbool.h>

#include "heap.h"
#include "meter.h"

enum { ATTN_GO = 0, ATTN_STOP_CANCEL = 1, ATTN_STOP_TIME = 2, ATTN_STOP_FAILED = 3 };

/* What all threads of a call share. */
struct attn_control {
    int32_t stop;                       /* ATTN_GO … ; operators see it as work->cancel */
    const int32_t *caller_flag;         /* nonzero: cancelled; or NULL */
    int64_t deadline_ns;                /* of CLOCK_MONOTONIC; 0: none */
    const attnrun_run_options *options; /* of a run; or NULL */
    struct attn_heap_total heap;        /* of all frames */
};

/* Where tests count how often the clock is read, and say what it shows. NULL: the clock
 * of the system. */
extern int64_t (*attn_poll_clock)(void);
int64_t attn_poll_now_ns(void);
/* Bytes of work between two polls: ATTN_POLL_BYTES. Tests make it 0, and all work polls. */
extern int64_t attn_poll_interval;

/* The deadline of a call that may take `timeout_us` from now on; 0: none. */
void attn_control_start(struct attn_control *control, int64_t timeout_us);
/* From here on this thread polls `control`; returns what it polled before. */
struct attn_meter attn_poll_enter(struct attn_control *control);
void attn_poll_leave(struct attn_meter before);

/* The status of a loop that was left: E_CANCELLED becomes the real reason. */
attn_status attn_poll_reason(attn_status status);
bool attn_is_stop(attn_status status);
/* What run() returned; E_CANCELLED where a poll below it has stopped the call: then its
 * results may be unfinished. */
attn_status attn_poll_check(const struct attn_control *control, attn_status status);

/* memcpy() and memset() of any length. */
attn_status attn_poll_copy(void *to, const void *from, int64_t bytes);
attn_status attn_poll_fill(void *to, int byte, int64_t bytes);

#endif
