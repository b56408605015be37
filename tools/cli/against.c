/* against.c - attnrun bench --against: this program and another attnrun in turns.
 *
 * In: the path of the other program, and the model with its options. Out: the smallest times of
 * both, their ratio, and a verdict. Both run in short processes, one after the other in each
 * round, so that what else the machine does meets both. In the place of a program, an earlier
 * result as JSON: ratios to its figures, and no verdict. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../io/file.h"
#include "../io/text_stream.h"
#include "bench.h"
#include "child.h"
#include "screen.h"

enum { ROUNDS = 9 };

/* Set for the processes of both programs; not for users. */
static const char turn_variable[] = "ATTNRUN_BENCH_TURN";

bool against_takes_turns(void) { return getenv(turn_variable) != NULL; }

/* The smallest time of some runs of the model by a program. */
static attnrun_status time_once(const struct cli *cli, const char *program,
                                double *min_ms)
{
    struct list arguments = { 0 };
    char *text = NULL;
    int code = 0;
    attnrun_status status = list_add(&arguments, "bench");
    if (status == ATTNRUN_OK)
        status = list_add(&arguments, "--json");
    if (status == ATTNRUN_OK)
        status = list_add(&arguments, "--quiet"); /* the line of progress is ours */
    for (int64_t i = 0; i < cli->words.n && status == ATTNRUN_OK; i++)
        status = list_add(&arguments, cli->words.v[i]);
    if (status == ATTNRUN_OK)
        status = child_run(program, &arguments, false, &text, &code);
    if (status == ATTNRUN_OK && code != 0)
        status = tool_fail(ATTNRUN_E_UNSUPPORTED,
                           "%s bench failed: it ended with exit code %d",
                           tool_path(program), code);
    if (status == ATTNRUN_OK)
        *min_ms = json_member(text, "min_ms");
    if (status == ATTNRUN_OK && !(*min_ms > 0))
        status =
            tool_fail(ATTNRUN_E_UNSUPPORTED,
                      "%s is not an attnrun program: its bench --json gave no min_ms",
                      tool_path(program));
    free(arguments.v);
    free(text);
    return status;
}

/* The quartiles of the ratios say whether the difference is more than noise. */
static const char *verdict_of(double *ratios, bool *slower)
{
    qsort(ratios, ROUNDS, sizeof *ratios, cli_numbers_by_size);
    double low = ratios[ROUNDS / 4], high = ratios[ROUNDS - 1 - ROUNDS / 4];
    *slower = low > 1.02;
    return *slower ? "slower" : high < 0.98 ? "faster" : "no difference";
}

/* ---- an earlier result ---- */

bool against_is_file(const struct cli *cli)
{
    return cli->against != NULL && file_has_extension(cli->against, ".json");
}

/* Time by time and memory by memory, of this run by those of the file. Both machines may differ:
 * a time counts as many operations as the peak of its machine makes in it. */
static double ratio_of(const struct base *base, const char *key, double now, bool scaled)
{
    const double then = json_member(base->text, key),
                 peak = json_member(base->text, "fp32_peak_gflops");
    return scaled ? now * base->peak_gflops / (then * peak) : now / then;
}

attnrun_status base_read(struct base *base, const struct cli *cli)
{
    int64_t bytes = 0;
    *base = (struct base){ .path = cli->against };
    TRY(file_read_all(cli->against, 1 << 24, &base->text, &bytes));
    if (strstr(base->text, "\"attnrun/bench/") != NULL &&
        json_member(base->text, "median_ms") > 0 &&
        json_member(base->text, "fp32_peak_gflops") > 0)
        return ATTNRUN_OK;
    tool_fail(ATTNRUN_E_INPUT, "%s is not a result of attnrun bench --json",
              tool_path(cli->against));
    tool_hint("attnrun bench model.onnx --json > base.json writes one");
    return ATTNRUN_E_INPUT;
}

/* The inputs of a result, from its list to the end of that list, without spaces; NULL: none. */
static char *inputs_of(const char *text)
{
    const char *at = strstr(text, "\"inputs\":");
    char *found = at != NULL ? malloc(strlen(at) + 1) : NULL;
    size_t n = 0;
    int depth = 0;
    for (; found != NULL && *at != 0; at++) {
        if (isspace((unsigned char)*at))
            continue;
        found[n++] = *at;
        depth += *at == '[' ? 1 : *at == ']' ? -1 : 0;
        if (*at == ']' && depth == 0)
            break;
    }
    if (found != NULL)
        found[n] = 0;
    return found;
}

static bool same_inputs(const struct base *base, const struct job *job)
{
    struct text_stream stream;
    if (!text_stream_open(&stream))
        return true;
    struct json json = { .out = stream.file };
    json_open(&json, NULL, '{');
    bench_json_inputs(job, &json);
    json_close(&json, '}');
    char *then = inputs_of(base->text),
         *now = text_stream_close(&stream) ? inputs_of(stream.text) : NULL;
    const bool same = then == NULL || now == NULL || strcmp(then, now) == 0;
    free(then);
    free(now);
    text_stream_free(&stream);
    return same;
}

/* What makes the ratios those of two different measurements. */
static void print_differences(const struct base *base, const struct job *job)
{
    const struct {
        const char *key, *word;
        double now;
    } numbers[] = {
        { "weights_bytes", "weights", (double)job->plan.weights_bytes },
        { "threads", "threads", base->threads },
        { "contexts", "contexts", (double)bench_contexts(job->cli) },
    };
    char list[80] = "";
    if (!same_inputs(base, job))
        strcat(list, "inputs");
    for (int i = 0; i < 3; i++) {
        const double then = json_member(base->text, numbers[i].key);
        if (then != numbers[i].now && !isnan(then))
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s",
                     list[0] != 0 ? ", " : "", numbers[i].word);
    }
    if (list[0] != 0)
        screen_line("note", 13, "%s was measured with different %s",
                    tool_path(base->path), list);
}

static const char *const base_keys[] = { "median_ms", "p99_ms", "first_ms", "load_ms" };

void base_print(const struct base *base, const struct job *job)
{
    const struct timing *t = &job->timing;
    const double now[] = { t->median_ms, t->p99_ms, t->first_ms, t->load_ms };
    printf("%-12s %s, which was measured on its own: not interleaved with this\n",
           "against", tool_path(base->path));
    printf("%-12s fp32 peak %.1f GFLOP/s here, %.1f there\n", "machine",
           base->peak_gflops, json_member(base->text, "fp32_peak_gflops"));
    print_differences(base, job);
    for (int i = 0; i < 4; i++)
        printf("%-12s %.3f, scaled by the peaks %.3f (%s)\n", i == 0 ? "ratio" : "",
               ratio_of(base, base_keys[i], now[i], false),
               ratio_of(base, base_keys[i], now[i], true), base_keys[i]);
    printf("%-12s %.3f (arena)\n", "",
           ratio_of(base, "arena_bytes", (double)job->plan.arena_bytes, false));
}

void base_json(const struct base *base, const struct job *job, struct json *json)
{
    const struct timing *t = &job->timing;
    const double now[] = { t->median_ms, t->p99_ms, t->first_ms, t->load_ms };
    json_open(json, "against", '{');
    json_text(json, "file", base->path);
    json_bool(json, "interleaved", false);
    json_real(json, "fp32_peak_gflops", json_member(base->text, "fp32_peak_gflops"));
    for (int i = 0; i < 4; i++) {
        char key[40];
        snprintf(key, sizeof key, "%.*s_ratio", (int)strlen(base_keys[i]) - 3,
                 base_keys[i]);
        json_real(json, key, ratio_of(base, base_keys[i], now[i], false));
        snprintf(key, sizeof key, "%.*s_scaled_ratio", (int)strlen(base_keys[i]) - 3,
                 base_keys[i]);
        json_real(json, key, ratio_of(base, base_keys[i], now[i], true));
    }
    json_real(json, "arena_ratio",
              ratio_of(base, "arena_bytes", (double)job->plan.arena_bytes, false));
    json_close(json, '}');
}

void base_free(struct base *base)
{
    free(base->text);
    base->text = NULL;
}

/* ---- another program ---- */

/* The smallest time of each side, and the ratios of the rounds. */
static attnrun_status take_turns(const struct cli *cli, const char *self, double *ours,
                                 double *theirs, double *ratios)
{
    for (int round = 0; round < ROUNDS; round++) {
        double a = 0, b = 0;
        progress_show(round, ROUNDS, "rounds");
        TRY(time_once(cli, self, &a));
        TRY(time_once(cli, cli->against, &b));
        *ours = fmin(*ours, a);
        *theirs = fmin(*theirs, b);
        ratios[round] = a / b;
    }
    return ATTNRUN_OK;
}

attnrun_status bench_against(struct cli *cli, bool *slower)
{
    char self[4096];
    double ours = (double)INFINITY, theirs = (double)INFINITY, ratios[ROUNDS];
    TRY(child_self(self, sizeof self));
    if (access(cli->against, X_OK) != 0) {
        tool_fail_io("--against: cannot run %s", tool_path(cli->against));
        tool_hint("a result of attnrun bench --json has a name that ends in .json");
        return ATTNRUN_E_IO;
    }
    if (setenv(turn_variable, "1", 1) != 0)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for the environment");
    progress_start(cli, "rounds");
    attnrun_status status = take_turns(cli, self, &ours, &theirs, ratios);
    progress_end();
    TRY(status);
    const char *verdict = verdict_of(ratios, slower);
    if (cli->json) {
        struct json json = { .out = cli_json_stream() };
        json_open(&json, NULL, '{');
        json_text(&json, "schema", "attnrun/against/1");
        json_text(&json, "model", cli->paths.v[0]);
        json_text(&json, "other", cli->against);
        json_int(&json, "rounds", ROUNDS);
        json_ms(&json, "min_ms", ours);
        json_ms(&json, "other_min_ms", theirs);
        json_real(&json, "ratio", ratios[ROUNDS / 2]);
        json_text(&json, "verdict", verdict);
        json_close(&json, '}');
        return ATTNRUN_OK;
    }
    printf("%-12s %s\n%-12s %s (%s)\n", "this", text_ms(ours), "other", text_ms(theirs),
           tool_path(cli->against));
    printf("%-12s %.3f (%.3f to %.3f): this time divided by the other\n", "ratio",
           ratios[ROUNDS / 2], ratios[ROUNDS / 4], ratios[ROUNDS - 1 - ROUNDS / 4]);
    printf("%-12s %s, in %d alternating rounds\n", "verdict", verdict, ROUNDS);
    return ATTNRUN_OK;
}
