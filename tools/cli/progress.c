/* progress.c - one line on the terminal, rewritten, for what takes longer than a second.
 */
#include <inttypes.h>
#include <unistd.h>

#include "cli.h"

void progress_start(struct progress *progress, const struct cli *cli)
{
    *progress = (struct progress){ .start_ms = cli_now_ms() };
    progress->enabled = !cli->quiet && isatty(STDERR_FILENO);
}

void progress_show(struct progress *progress, int64_t done, int64_t total,
                   const char *what)
{
    double now = cli_now_ms(), elapsed = now - progress->start_ms;
    if (!progress->enabled || elapsed < 1000 || now - progress->last_ms < 100)
        return;
    progress->last_ms = now;
    progress->shown = true;
    fprintf(stderr, "\r\033[K%" PRId64 "/%" PRId64 "  %.0f s", done, total,
            elapsed / 1000);
    if (done > 0 && done < total)
        fprintf(stderr, ", %.0f s left",
                elapsed / 1000 * (double)(total - done) / (double)done);
    fprintf(stderr, "  %.60s", tool_quote(what));
    fflush(stderr);
}

void progress_end(struct progress *progress)
{
    if (progress->shown)
        fprintf(stderr, "\r\033[K");
    progress->shown = false;
}
