/* progress.c - one line on the terminal, rewritten, for what takes longer than a second.
 * A thread of its own writes it, so that one long call shows as well; without a terminal
 * there is neither line nor thread. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool running, end;
    double start_ms;
    int64_t done, total; /* total 0: not known */
    char what[96];
} line = { .lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER };

static void print_line(double elapsed_s)
{
    char text[256];
    size_t n = (size_t)snprintf(text, sizeof text, "\r\033[K%s  ", line.what);
    if (line.total > 0)
        n += (size_t)snprintf(text + n, sizeof text - n, "%" PRId64 "/%" PRId64 "  ",
                              line.done, line.total);
    else if (line.done > 0)
        n += (size_t)snprintf(text + n, sizeof text - n, "%" PRId64 "  ", line.done);
    n += (size_t)snprintf(text + n, sizeof text - n, "%.0f s", elapsed_s);
    if (line.done > 0 && line.done < line.total)
        n += (size_t)snprintf(text + n, sizeof text - n, ", %.0f s left",
                              elapsed_s * (double)(line.total - line.done) /
                                  (double)line.done);
    (void)!write(STDERR_FILENO, text, n);
}

static void *watch(void *unused)
{
    bool shown = false;
    (void)unused;
    pthread_mutex_lock(&line.lock);
    while (!line.end) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += shown ? 0 : 1;
        until.tv_nsec += shown ? 200000000 : 0;
        if (until.tv_nsec >= 1000000000) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000;
        }
        if (pthread_cond_timedwait(&line.wake, &line.lock, &until) != ETIMEDOUT ||
            line.end)
            continue;
        print_line((cli_now_ms() - line.start_ms) / 1000);
        shown = true;
    }
    pthread_mutex_unlock(&line.lock);
    if (shown)
        (void)!write(STDERR_FILENO, "\r\033[K", 4);
    return NULL;
}

void progress_start(const struct cli *cli, const char *what)
{
    if (cli->quiet || line.running || !isatty(STDERR_FILENO))
        return;
    line.end = false;
    line.start_ms = cli_now_ms();
    line.done = line.total = 0;
    snprintf(line.what, sizeof line.what, "%s", what);
    line.running = pthread_create(&line.thread, NULL, watch, NULL) == 0;
}

void progress_show(int64_t done, int64_t total, const char *what)
{
    if (!line.running)
        return;
    pthread_mutex_lock(&line.lock);
    line.done = done;
    line.total = total;
    snprintf(line.what, sizeof line.what, "%s", tool_quote(what));
    pthread_mutex_unlock(&line.lock);
}

void progress_end(void)
{
    if (!line.running)
        return;
    pthread_mutex_lock(&line.lock);
    line.end = true;
    pthread_cond_signal(&line.wake);
    pthread_mutex_unlock(&line.lock);
    pthread_join(line.thread, NULL);
    line.running = false;
}
