/* deadlines.c - a clock that jumps past the deadline at the n-th time it is read. */
#include "deadlines.h"

#include "harness.h"
#include "poll.h"

static int64_t clock_reads, late_from;

static int64_t stepping_clock(void)
{
    clock_reads++;
    return clock_reads >= late_from ? clock_reads * INT64_C(1000000000000) : 1;
}

/* Counts the reads of the clock; `late` 0: it is never late. */
static int64_t call_until(attnrun_status (*call)(void *user), void *user, int64_t late,
                          int64_t *stopped)
{
    struct attn_control control = { .stop = ATTN_GO };
    clock_reads = 0;
    late_from = late > 0 ? late : INT64_MAX;
    attn_control_start(&control, 1000000);
    struct attn_meter before = attn_poll_enter(&control);
    const uint64_t errors = attn_error_count();
    const attnrun_status status = call(user);
    attn_poll_leave(before);
    if (late == 0)
        OK(status);
    else if (status != ATTNRUN_OK && status != ATTNRUN_E_TIME)
        fail_msg("late at read %d: %s", (int)late, attnrun_last_error()->message);
    else if (clock_reads > late + 1 ||
             (status == ATTNRUN_OK && attn_error_count() != errors))
        fail_msg("late at read %d of %d: %s", (int)late, (int)clock_reads,
                 attnrun_status_name(status));
    else
        *stopped += status == ATTNRUN_E_TIME;
    return clock_reads;
}

int64_t stop_at_polls(attnrun_status (*call)(void *user), void *user, int64_t step,
                      int64_t last)
{
    int64_t stopped = 0;
    attn_poll_clock = stepping_clock;
    attn_poll_interval = 0;
    const int64_t n = call_until(call, user, 0, NULL),
                  dense = n - last > 2 ? n - last : 2; /* the first sets the deadline */
    for (int64_t late = 2; late < dense; late += step)
        call_until(call, user, late, &stopped);
    for (int64_t late = dense; late <= n; late += last > 0 ? 1 : step)
        call_until(call, user, late, &stopped);
    attn_poll_interval = ATTN_POLL_BYTES;
    attn_poll_clock = NULL;
    return stopped;
}
