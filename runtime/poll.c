/* poll.c - reads the flag and the clock of a control; see poll.h.
 *
 * In: a control with the flag of the caller and a deadline. Out: E_CANCELLED or E_TIME once one
 * of them says so, and then at each later poll. Cost: a load of the flag and a look at the clock,
 * for each ATTN_POLL_BYTES of work. */
#include "poll.h"

#include <string.h>
#include <time.h>

#include "checked.h"
#include "range.h"

_Thread_local struct attn_meter attn_meter;
int64_t (*attn_poll_clock)(void);
int64_t attn_poll_interval = ATTN_POLL_BYTES;

int64_t attn_poll_now_ns(void)
{
    struct timespec now;
    if (attn_poll_clock != NULL)
        return attn_poll_clock();
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void attn_control_start(struct attn_control *control, int64_t timeout_us)
{
    control->deadline_ns = 0;
    if (timeout_us > 0 &&
        (!ck_mul(timeout_us, 1000, &control->deadline_ns) ||
         !ck_add(attn_poll_now_ns(), control->deadline_ns, &control->deadline_ns)))
        control->deadline_ns = INT64_MAX;
}

struct attn_meter attn_poll_enter(struct attn_control *control)
{
    struct attn_meter before = attn_meter;
    attn_meter = (struct attn_meter){ .control = control };
    return before;
}

void attn_poll_leave(struct attn_meter before) { attn_meter = before; }

/* A stop that is seen once is seen by all threads of the call from then on. */
static int32_t look(struct attn_control *control)
{
    int32_t stop = __atomic_load_n(&control->stop, __ATOMIC_RELAXED);
    if (stop != ATTN_GO)
        return stop;
    if (control->caller_flag != NULL &&
        __atomic_load_n(control->caller_flag, __ATOMIC_RELAXED) != 0)
        stop = ATTN_STOP_CANCEL;
    else if (control->deadline_ns != 0 && attn_poll_now_ns() > control->deadline_ns)
        stop = ATTN_STOP_TIME;
    if (stop != ATTN_GO)
        __atomic_store_n(&control->stop, stop, __ATOMIC_RELAXED);
    return stop;
}

attn_status attn_poll(void)
{
    int32_t stop = attn_meter.control != NULL ? look(attn_meter.control) : ATTN_GO;
    attn_meter.left =
        stop == ATTN_GO ? attn_poll_interval : 0; /* all that follow say it too */
    if (stop == ATTN_GO)
        return ATTNRUN_OK;
    if (stop == ATTN_STOP_TIME)
        return attn_fail(ATTNRUN_E_TIME, "the time limit has passed");
    return attn_fail(ATTNRUN_E_CANCELLED, "the run was cancelled");
}

attnrun_status attnrun_work_poll(const attnrun_work *work)
{
    if (work == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "work is NULL");
    const struct attn_range *range = work->internal;
    struct attn_meter before = attn_poll_enter(range != NULL ? range->control : NULL);
    attn_status status = attn_poll();
    attn_poll_leave(before);
    return status;
}

attn_status attn_poll_reason(attn_status status)
{
    if (status == ATTNRUN_E_CANCELLED)
        TRY(attn_poll());
    return status;
}

attn_status attn_poll_check(const struct attn_control *control, attn_status status)
{
    if (status == ATTNRUN_OK &&
        __atomic_load_n(&control->stop, __ATOMIC_RELAXED) != ATTN_GO)
        return ATTNRUN_E_CANCELLED;
    return status;
}

bool attn_is_stop(attn_status status)
{
    return status == ATTNRUN_E_CANCELLED || status == ATTNRUN_E_TIME;
}

static int64_t segment(int64_t bytes)
{
    return bytes < ATTN_POLL_BYTES ? bytes : ATTN_POLL_BYTES;
}

attn_status attn_poll_copy(void *to, const void *from, int64_t bytes)
{
    for (int64_t done = 0; done < bytes; done += segment(bytes - done)) {
        memcpy((char *)to + done, (const char *)from + done,
               (size_t)segment(bytes - done));
        TRY(attn_poll_work(segment(bytes - done)));
    }
    return ATTNRUN_OK;
}

attn_status attn_poll_fill(void *to, int byte, int64_t bytes)
{
    for (int64_t done = 0; done < bytes; done += segment(bytes - done)) {
        memset((char *)to + done, byte, (size_t)segment(bytes - done));
        TRY(attn_poll_work(segment(bytes - done)));
    }
    return ATTNRUN_OK;
}
