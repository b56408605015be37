/* probe.c - opens, plans and runs models, and counts how often the clock is read.
 *
 * usage: poll_probe [-d READ | -f] MODEL...
 *
 * A line for each model: its path, then for opening, planning and running the reads of
 * the clock, the basic blocks in all, the most blocks between two reads (0 where they are
 * not counted) and the most milliseconds between two reads. Inputs are made up from their
 * names: "x%N" is of integers below N, or of strings of N letters, "x=N" is N everywhere, or the
 * text of N, other reals are in (-1, 1), other integers are 0 or 1.
 *
 * -f: with the rewrite passes that change the arithmetic.
 * -d READ: at that read of the clock, the deadline is over; the line is the path, what
 * was done then, the status, and how often the clock was read later. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../runtime/poll.h"
#include "basic_blocks.h"

enum { MAX_INPUTS = 32, STRING_BYTES = 16, TIMEOUT_US = 1000000 };
#define LATE_NS INT64_C(1000000000000) /* more than the timeout from read to read */

/* ---- the clock ---- */

struct gaps {
    int64_t reads;
    uint64_t first, last, longest;
    double last_ms, longest_ms;
};

static struct gaps now;
static int64_t reads_in_all, over_at;

static double clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void note_gap(void)
{
    uint64_t blocks = blocks_done();
    double ms = clock_ms();
    if (blocks - now.last > now.longest)
        now.longest = blocks - now.last;
    if (ms - now.last_ms > now.longest_ms)
        now.longest_ms = ms - now.last_ms;
    now.last = blocks;
    now.last_ms = clock_ms();
}

static int64_t counting_clock(void)
{
    now.reads++;
    reads_in_all++;
    note_gap();
    return over_at > 0 && reads_in_all >= over_at ? LATE_NS * (reads_in_all + 1) : 1;
}

static void begin(void)
{
    now = (struct gaps){ .first = blocks_done(), .last = blocks_done() };
    now.last_ms = clock_ms();
}

static void end(const char *what)
{
    note_gap();
    if (over_at == 0)
        printf(" %s %" PRId64 " %" PRIu64 " %" PRIu64 " %.2f", what, now.reads,
               blocks_done() - now.first, now.longest, now.longest_ms);
}

/* ---- inputs ---- */

static size_t string_bytes(const char *name)
{
    const char *mark = strchr(name, '%');
    return mark != NULL ? (size_t)atoll(mark + 1) : STRING_BYTES;
}

static void fill_string(attnrun_tensor *t, const char *name, char *bytes)
{
    const size_t room = string_bytes(name);
    for (int64_t k = 0; k < attnrun_tensor_count(t); k++) {
        char *text = bytes + (size_t)k * room;
        int n = (int)room;
        if (strchr(name, '%') != NULL)
            memset(text, 'a', room);
        else if (strchr(name, '=') != NULL)
            n = snprintf(text, room, "%s", strchr(name, '=') + 1);
        else
            n = snprintf(text, room, "%d.5 ab", (int)(k * 7919 % 1000));
        ((attnrun_string *)t->data)[k] = (attnrun_string){ text, n };
    }
}

/* Elements of 0 for types that are packed or rare. */
static void fill(attnrun_tensor *t, const char *name)
{
    const char *mark = strpbrk(name, "%=");
    double number = mark != NULL ? strtod(mark + 1, NULL) : 0;
    int64_t n = attnrun_tensor_count(t);
    uint64_t mix = 88172645463325252u;
    for (int64_t k = 0; k < n; k++) {
        mix ^= mix << 13;
        mix ^= mix >> 7;
        mix ^= mix << 17;
        bool modulo = mark != NULL && *mark == '%';
        double value = (double)(mix >> 11) * 0x1p-52 - 1;
        int64_t integer = (int64_t)(mix % (modulo ? (uint64_t)number : 2));
        if (modulo)
            value = (double)integer;
        else if (mark != NULL)
            value = number, integer = (int64_t)number;
        switch (t->dtype) {
        case ATTNRUN_F32:
            ((float *)t->data)[k] = (float)value;
            break;
        case ATTNRUN_F64:
            ((double *)t->data)[k] = value;
            break;
        case ATTNRUN_I64:
            ((int64_t *)t->data)[k] = integer;
            break;
        case ATTNRUN_I32:
            ((int32_t *)t->data)[k] = (int32_t)integer;
            break;
        case ATTNRUN_BOOL:
        case ATTNRUN_U8:
        case ATTNRUN_I8:
            ((uint8_t *)t->data)[k] = (uint8_t)integer;
            break;
        default:
            break;
        }
    }
}

/* Memory and content for input `index`; NULL where its shape is not known. */
static void *make_input(const attnrun_model *model, int32_t index, attnrun_tensor *t)
{
    attnrun_value_info info = { .struct_size = sizeof info };
    if (attnrun_model_input(model, index, &info) != ATTNRUN_OK ||
        attnrun_tensor_make(info.dtype, info.rank, info.dims, NULL, t) != ATTNRUN_OK)
        return NULL;
    size_t bytes = (size_t)attnrun_tensor_bytes(t);
    size_t text = info.dtype == ATTNRUN_STRING
                      ? (size_t)attnrun_tensor_count(t) * string_bytes(info.name)
                      : 0;
    t->data = calloc(1, bytes + text + 1);
    if (t->data != NULL && text > 0)
        fill_string(t, info.name, (char *)t->data + bytes);
    else if (t->data != NULL)
        fill(t, info.name);
    return t->data;
}

/* ---- one model ---- */

static attnrun_status plan_and_run(attnrun_model *model, attnrun_context *context,
                                   void **memory, const char **what)
{
    attnrun_tensor inputs[MAX_INPUTS];
    attnrun_run_options options = { .struct_size = sizeof options,
                                    .timeout_us = TIMEOUT_US };
    attnrun_model_info info = { .struct_size = sizeof info };
    attnrun_status status = attnrun_model_query(model, &info);
    if (status != ATTNRUN_OK || info.n_inputs > MAX_INPUTS)
        return ATTNRUN_E_USAGE;
    for (int32_t i = 0; i < info.n_inputs; i++) {
        memory[i] = make_input(model, i, &inputs[i]);
        if (memory[i] == NULL)
            return ATTNRUN_E_INPUT;
    }
    *what = "plan";
    begin();
    status = attnrun_plan(context, inputs, NULL);
    end(*what);
    for (int32_t i = 0; i < info.n_inputs && status == ATTNRUN_OK; i++)
        status = attnrun_set_input(context, i, &inputs[i]);
    if (status != ATTNRUN_OK)
        return status;
    *what = "run";
    begin();
    status = attnrun_run(context, &options);
    end(*what);
    return status;
}

static attnrun_status probe(attnrun_runtime *runtime, const char *path, uint32_t flags,
                            const char **what)
{
    attnrun_source source = { .struct_size = sizeof source,
                              .flags = flags,
                              .path = path,
                              .timeout_us = TIMEOUT_US };
    void *memory[MAX_INPUTS] = { NULL };
    attnrun_model *model = NULL;
    attnrun_context *context = NULL;
    *what = "open";
    begin();
    attnrun_status status = attnrun_model_open(runtime, &source, &model);
    end(*what);
    if (status == ATTNRUN_OK) {
        *what = "pack";
        begin();
        status = attnrun_context_create(model, &context);
        end(*what);
    }
    if (status == ATTNRUN_OK)
        status = attnrun_set_timeout(context, TIMEOUT_US);
    if (status == ATTNRUN_OK)
        status = plan_and_run(model, context, memory, what);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    for (int i = 0; i < MAX_INPUTS; i++)
        free(memory[i]);
    return status;
}

int main(int argc, char **argv)
{
    attnrun_runtime_options options = { .struct_size = sizeof options, .threads = 1 };
    attnrun_runtime *runtime;
    uint32_t flags = ATTNRUN_NO_FUSION;
    int first = 1;
    if (argc > 2 && strcmp(argv[1], "-d") == 0) {
        over_at = atoll(argv[2]);
        first = 3;
    }
    if (argc > 1 && strcmp(argv[1], "-f") == 0) {
        flags = 0;
        first = 2;
    }
    if (blocks_are_counted())
        options.isa = "base";
    if (attnrun_runtime_create(&options, &runtime) != ATTNRUN_OK)
        return 1;
    attn_poll_clock = counting_clock;
    for (int i = first; i < argc; i++) {
        const char *what = "";
        reads_in_all = 0;
        printf("%s", argv[i]);
        attnrun_status status = probe(runtime, argv[i], flags, &what);
        if (over_at > 0)
            printf(" %s %s %" PRId64, what, attnrun_status_name(status),
                   reads_in_all >= over_at ? reads_in_all - over_at : -1);
        else if (status != ATTNRUN_OK)
            printf(" failed %s", attnrun_last_error()->message);
        printf("\n");
        fflush(stdout);
    }
    attnrun_runtime_destroy(runtime);
    return 0;
}
