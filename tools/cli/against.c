/* against.c - attnrun bench --against: this program and another attnrun in turns.
 *
 * In: the path of the other program, and the model with its options. Out: the smallest times of
 * both, their ratio, and a verdict. Both run in short processes, one after the other in each
 * round, so that what else the machine does meets both. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

enum { ROUNDS = 9, OUTPUT_BYTES = 1 << 16 };

/* The number of "key": in a JSON object of attnrun; NaN where it is not there. */
static double number_of(const char *text, const char *key)
{
    char quoted[40];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(text, quoted);
    return at == NULL ? (double)NAN : strtod(at + strlen(quoted), NULL);
}

static attnrun_status read_output(int from, pid_t child, const char *program, char *text)
{
    size_t n = 0;
    ssize_t got;
    int result = 0;
    while (n + 1 < OUTPUT_BYTES && (got = read(from, text + n, OUTPUT_BYTES - 1 - n)) > 0)
        n += (size_t)got;
    text[n] = 0;
    close(from);
    if (waitpid(child, &result, 0) != child || !WIFEXITED(result) ||
        WEXITSTATUS(result) != 0)
        return tool_fail(
            ATTNRUN_E_UNSUPPORTED, "%s bench failed: it ended with exit code %d",
            tool_path(program), WIFEXITED(result) ? WEXITSTATUS(result) : 70);
    return ATTNRUN_OK;
}

/* The smallest time of some runs of the model by a program. */
static attnrun_status time_once(const struct cli *cli, const char *program,
                                double *min_ms)
{
    int ends[2];
    const struct list *words = &cli->words;
    const char **argv = calloc((size_t)words->n + 6, sizeof *argv);
    char *text = malloc(OUTPUT_BYTES);
    attnrun_status status = ATTNRUN_OK;
    if (argv == NULL || text == NULL || pipe(ends) != 0) {
        free(argv);
        free(text);
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for a process");
    }
    argv[0] = program;
    argv[1] = "bench";
    argv[2] = "--json";
    for (int64_t i = 0; i < words->n; i++)
        argv[3 + i] = words->v[i];
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        execv(program, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(ends[1]);
    status = read_output(ends[0], child, program, text);
    if (status == ATTNRUN_OK)
        *min_ms = number_of(text, "min_ms");
    if (status == ATTNRUN_OK && !(*min_ms > 0))
        status = tool_fail(ATTNRUN_E_UNSUPPORTED, "%s bench gives no min_ms",
                           tool_path(program));
    free(argv);
    free(text);
    return status;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The quartiles of the ratios say whether the difference is more than noise. */
static const char *verdict_of(double *ratios, bool *slower)
{
    qsort(ratios, ROUNDS, sizeof *ratios, by_size);
    double low = ratios[ROUNDS / 4], high = ratios[ROUNDS - 1 - ROUNDS / 4];
    *slower = low > 1.02;
    return *slower ? "slower" : high < 0.98 ? "faster" : "no difference";
}

attnrun_status bench_against(struct cli *cli, bool *slower)
{
    char self[4096];
    double ours = (double)INFINITY, theirs = (double)INFINITY, ratios[ROUNDS];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    if (access(cli->against, X_OK) != 0)
        return tool_fail_io("--against: cannot run %s", tool_path(cli->against));
    progress_start(cli, "rounds");
    for (int round = 0; round < ROUNDS; round++) {
        double a = 0, b = 0;
        TRY(time_once(cli, self, &a));
        TRY(time_once(cli, cli->against, &b));
        ours = fmin(ours, a);
        theirs = fmin(theirs, b);
        ratios[round] = a / b;
        progress_show(round + 1, ROUNDS, "rounds");
    }
    progress_end();
    const char *verdict = verdict_of(ratios, slower);
    if (cli->json) {
        struct json json = { .out = cli_json_stream() };
        json_open(&json, NULL, '{');
        json_text(&json, "schema", "attnrun/against/1");
        json_text(&json, "model", cli->paths.v[0]);
        json_text(&json, "other", cli->against);
        json_int(&json, "rounds", ROUNDS);
        json_real(&json, "min_ms", ours);
        json_real(&json, "other_min_ms", theirs);
        json_real(&json, "ratio", ratios[ROUNDS / 2]);
        json_text(&json, "verdict", verdict);
        json_close(&json, '}');
        return ATTNRUN_OK;
    }
    printf("%-12s %s\n%-12s %s (%s)\n", "this", text_ms(ours), "other", text_ms(theirs),
           tool_path(cli->against));
    printf("%-12s %.3f (%.3f to %.3f), the time of this by that of the other\n", "ratio",
           ratios[ROUNDS / 2], ratios[ROUNDS / 4], ratios[ROUNDS - 1 - ROUNDS / 4]);
    printf("%-12s %s, in %d rounds of turns\n", "verdict", verdict, ROUNDS);
    return ATTNRUN_OK;
}
