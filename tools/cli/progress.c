/* progress.c - one line on the terminal, rewritten, for what takes longer than a second.
 * A timer's signal writes it, so that one long call shows as well; without a terminal
 * there is neither line nor timer. */
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "cli.h"

static const char *volatile line_what;
static volatile sig_atomic_t line_done, line_total, line_ticks, line_shown;
static int depth; /* progress_start() within another: its line is that of the outer one */
static bool running;

/* Decimal digits of n at `out`; only what a signal handler may do. */
static size_t put_number(char *out, int n)
{
    char digits[16];
    size_t count = 0, length = 0;
    do
        digits[count++] = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    while (count > 0)
        out[length++] = digits[--count];
    return length;
}

static size_t progress_put_text(char *out, const char *text)
{
    size_t n = strlen(text);
    memcpy(out, text, n);
    return n;
}

/* "what  12/100  3 s" */
static void on_tick(int number)
{
    char out[160];
    size_t n = progress_put_text(out, "\r\033[K");
    (void)number;
    n += progress_put_text(out + n, line_what);
    if (line_done > 0 || line_total > 0) {
        n += progress_put_text(out + n, "  ");
        n += put_number(out + n, line_done);
    }
    if (line_total > 0) {
        n += progress_put_text(out + n, "/");
        n += put_number(out + n, line_total);
    }
    n += progress_put_text(out + n, "  ");
    n += put_number(out + n, 1 + line_ticks++ / 4);
    n += progress_put_text(out + n, " s");
    line_shown = 1;
    (void)!write(STDERR_FILENO, out, n);
}

void progress_start(const struct cli *cli, const char *what)
{
    struct itimerval timer = { .it_value = { 1, 0 }, .it_interval = { 0, 250000 } };
    struct sigaction action;
    if (depth++ > 0 || cli->quiet || !isatty(STDERR_FILENO))
        return;
    line_what = what;
    line_done = line_total = line_ticks = 0;
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    action.sa_handler = on_tick;
    action.sa_flags = SA_RESTART;
    running = sigaction(SIGALRM, &action, NULL) == 0 &&
              setitimer(ITIMER_REAL, &timer, NULL) == 0;
}

void progress_show(int64_t done, int64_t total, const char *what)
{
    if (depth > 1)
        return;
    line_what = what;
    line_done = done < INT32_MAX ? (int)done : INT32_MAX;
    line_total = total < INT32_MAX ? (int)total : INT32_MAX;
}

void progress_end(void)
{
    struct itimerval never = { .it_value = { 0, 0 } };
    if (--depth > 0 || !running)
        return;
    setitimer(ITIMER_REAL, &never, NULL);
    if (line_shown)
        (void)!write(STDERR_FILENO, "\r\033[K", 4);
    line_shown = 0;
    running = false;
}
