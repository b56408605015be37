/* sweep.c - attnrun bench --set S=128,256,512: time and memory over the size of a symbol.
 *
 * In: the options of bench, with one --set that lists sizes. Out: a row for each size, as a
 * table or JSON, and with --svg a drawing of time and arena over the size, in logarithms. */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "../io/file.h"
#include "bench.h"

enum { MAX_ROWS = 64 };

struct sweep_row {
    int64_t size, arena_bytes;
    double min_ms, median_ms, p90_ms, first_ms;
};

struct sweep {
    char name[64];
    struct sweep_row rows[MAX_ROWS];
    int n;
};

const char *sweep_of(const struct cli *cli)
{
    for (int64_t i = 0; i < cli->sets.n; i++) {
        const char *equals = strrchr(cli->sets.v[i], '=');
        if (equals != NULL && strchr(equals, ',') != NULL)
            return cli->sets.v[i];
    }
    return NULL;
}

attnrun_status sweep_check(const struct cli *cli)
{
    const char *list = sweep_of(cli);
    const size_t n = list != NULL ? (size_t)(strrchr(list, '=') - list) + 1 : 0;
    bool later = false;
    for (int64_t i = 0; list != NULL && i < cli->sets.n; i++) {
        const char *set = cli->sets.v[i], *equals = strrchr(set, '=');
        if (later && equals != NULL && strchr(equals, ',') != NULL)
            return tool_fail(ATTNRUN_E_USAGE, "only one --set may list several sizes");
        if (later && strncmp(set, list, n) == 0)
            return tool_fail(ATTNRUN_E_USAGE, "a later --set names the symbol of '%s'",
                             tool_quote(list));
        later = later || set == list;
    }
    return ATTNRUN_OK;
}

static attnrun_status read_sizes(struct sweep *sweep, const char *text)
{
    const char *equals = strrchr(text, '=');
    if (memchr(text, ',', (size_t)(equals - text)) != NULL)
        return symbols_refuse("--set", text, "SYMBOL=N,N,...");
    snprintf(sweep->name, sizeof sweep->name, "%.*s", (int)(equals - text), text);
    for (const char *at = equals + 1;; at++) {
        char *end = NULL;
        long long size = isdigit((unsigned char)*at) ? strtoll(at, &end, 10) : -1;
        if (size < 0 || (*end != ',' && *end != 0))
            return symbols_refuse("--set", text, "SYMBOL=N,N,...");
        if (sweep->n == MAX_ROWS)
            return tool_fail(ATTNRUN_E_USAGE, "--set: more than %d sizes", MAX_ROWS);
        sweep->rows[sweep->n++].size = size;
        at = end;
        if (*at == 0)
            return ATTNRUN_OK;
    }
}

/* One size: the same options with "S=128" in the place of the list. */
static attnrun_status run_row(struct cli *cli, const struct sweep *sweep,
                              const char *list, struct sweep_row *row)
{
    struct job job = { .cli = cli };
    char text[96];
    snprintf(text, sizeof text, "%s=%" PRId64, sweep->name, row->size);
    for (int64_t i = 0; i < cli->sets.n; i++)
        if (cli->sets.v[i] == list)
            cli->sets.v[i] = text;
    attnrun_status status = bench_job(&job, cli);
    for (int64_t i = 0; i < cli->sets.n; i++)
        if (cli->sets.v[i] == text)
            cli->sets.v[i] = list;
    if (status == ATTNRUN_OK) {
        row->arena_bytes = job.plan.arena_bytes;
        row->min_ms = job.timing.min_ms;
        row->median_ms = job.timing.median_ms;
        row->p90_ms = job.timing.p90_ms;
        row->first_ms = job.timing.first_ms;
    } else {
        tool_fail_at("--set %s", text);
    }
    job_close(&job);
    return status;
}

static void print_rows(const struct cli *cli, const struct sweep *sweep)
{
    printf("%10s %12s %12s %12s %12s %8s\n", tool_quote(sweep->name), "min", "median",
           "p90", "arena", "growth");
    for (int i = 0; i < sweep->n; i++) {
        const struct sweep_row *r = &sweep->rows[i], *before = i > 0 ? r - 1 : r;
        double doubled = log2((double)r->size / (double)before->size);
        printf("%10" PRId64 " %12s %12s %12s %12s", r->size, text_ms(r->min_ms),
               text_ms(r->median_ms), text_ms(r->p90_ms), text_bytes(r->arena_bytes));
        if (i > 0 && isfinite(doubled) && doubled != 0 && before->min_ms > 0)
            printf(" n^%.2f", log2(r->min_ms / before->min_ms) / doubled);
        putchar('\n');
    }
    if (cli->svg != NULL && !file_is_special(cli->svg))
        printf("\nwritten  %s\n", tool_path(cli->svg));
}

static void json_rows(const struct cli *cli, const struct sweep *sweep)
{
    struct json json = { .out = cli_json_stream() };
    json_open(&json, NULL, '{');
    json_text(&json, "schema", "attnrun/sweep/1");
    json_text(&json, "model", cli->paths.v[0]);
    json_text(&json, "symbol", sweep->name);
    json_open(&json, "rows", '[');
    for (int i = 0; i < sweep->n; i++) {
        const struct sweep_row *r = &sweep->rows[i];
        json_open(&json, NULL, '{');
        json_int(&json, "size", r->size);
        json_ms(&json, "first_ms", r->first_ms);
        json_ms(&json, "min_ms", r->min_ms);
        json_ms(&json, "median_ms", r->median_ms);
        json_ms(&json, "p90_ms", r->p90_ms);
        json_int(&json, "arena_bytes", r->arena_bytes);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    json_close(&json, '}');
}

/* ---- the drawing: two panels, median time and arena ---- */

struct text {
    char v[32768];
    size_t n;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *text,
                                                      const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(text->v + text->n, sizeof text->v - text->n, format, arguments);
    va_end(arguments);
    text->n += n > 0 && (size_t)n < sizeof text->v - text->n ? (size_t)n : 0;
}

static double value_of(const struct sweep_row *row, bool arena)
{
    double value = arena ? (double)row->arena_bytes : row->median_ms;
    return value > 0 ? value : 1e-6;
}

/* A panel of 300 x 180 at x; the values' decades up, the sizes to the right. */
static void draw_panel(struct text *svg, const struct sweep *s, double x, bool arena)
{
    double low = (double)INFINITY, high = 0, from = low, to = high;
    for (int i = 0; i < s->n; i++) {
        const double size = log2((double)s->rows[i].size + 1);
        from = fmin(from, size);
        to = fmax(to, size);
        low = fmin(low, value_of(&s->rows[i], arena));
        high = fmax(high, value_of(&s->rows[i], arena));
    }
    low = log2(low) - 0.2;
    high = log2(high) + 0.2;
    put(svg,
        "<text x=\"%.0f\" y=\"30\" class=\"t\">%s</text>\n<path class=\"a\" "
        "d=\"M%.0f 45v180h290\"/>\n<polyline class=\"l\" points=\"",
        x, arena ? "arena" : "median time of a run", x);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < s->n; i++) {
            double size = log2((double)s->rows[i].size + 1),
                   v = value_of(&s->rows[i], arena);
            double px = x + 20 + (to > from ? (size - from) / (to - from) : 0.5) * 240;
            double py = 205 - (log2(v) - low) / (high - low) * 155;
            if (pass == 0)
                put(svg, "%.1f,%.1f ", px, py);
            else
                put(svg,
                    "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/><text x=\"%.1f\" "
                    "y=\"%.1f\">"
                    "%s</text><text x=\"%.1f\" y=\"242\" text-anchor=\"middle\">%" PRId64
                    "</text>\n",
                    px, py, px + 7, py + 14, /* below a curve that rises */
                    arena ? text_bytes(s->rows[i].arena_bytes)
                          : text_ms(s->rows[i].median_ms),
                    px, s->rows[i].size);
            if (pass == 0 && i + 1 == s->n)
                put(svg, "\"/>\n");
        }
}

static attnrun_status sweep_draw(const struct cli *cli, const struct sweep *sweep)
{
    struct text *svg = calloc(1, sizeof *svg);
    if (svg == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for a drawing");
    put(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 680 270\" "
             "font-family=\"sans-serif\" font-size=\"11\">\n<title>Time and arena by "
             "size</title>\n"
             "<style>.page{fill:#fff}text{fill:#222}.t{font-size:13px}.a{fill:none;"
             "stroke:#888}"
             ".l{fill:none;stroke:#06c;stroke-width:2}circle{fill:#06c}"
             "@media(prefers-color-scheme:dark){.page{fill:#0d1117}text{fill:#ddd}.l{"
             "stroke:#6bf}circle{"
             "fill:#6bf}}"
             "</style>\n<rect class=\"page\" width=\"100%%\" height=\"100%%\"/>\n");
    draw_panel(svg, sweep, 20, false);
    draw_panel(svg, sweep, 360, true);
    put(svg, "<text x=\"340\" y=\"262\" text-anchor=\"middle\">size of the symbol (both "
             "axes are logarithmic)</text>\n</svg>\n");
    attnrun_status status = output_file_save(cli->svg, svg->v, (int64_t)svg->n);
    free(svg);
    return status;
}

attnrun_status bench_sweep(struct cli *cli, const char *list)
{
    struct sweep sweep = { .n = 0 };
    TRY(read_sizes(&sweep, list));
    attnrun_status status = ATTNRUN_OK;
    progress_start(cli, "sizes");
    for (int i = 0; i < sweep.n && status == ATTNRUN_OK; i++) {
        progress_show(i + 1, sweep.n, "sizes");
        status = run_row(cli, &sweep, list, &sweep.rows[i]);
    }
    progress_end();
    TRY(status);
    if (cli->svg != NULL)
        TRY(sweep_draw(cli, &sweep));
    if (cli->json)
        json_rows(cli, &sweep);
    else if (cli->svg == NULL || !file_is_stdout(cli->svg))
        print_rows(cli, &sweep);
    return ATTNRUN_OK;
}
