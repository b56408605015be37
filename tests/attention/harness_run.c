/* harness_run.c - models of one node, run and compared: see harness.h. */
#include "harness_run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../runtime/cpu.h"
#include "../runtime/harness.h"

enum { ISAS = ATTN_ISA_COUNT, THREADS = 2, MAX_SHOWN = 6 };

static const int thread_counts[THREADS] = { 1, 3 };
static const char *const style_names[] = { "constant", "symbolic", "nameless",
                                           "unknown" };

struct check_runner {
    struct test_memory memory[ISAS][THREADS];
    attnrun_runtime *runtime[ISAS][THREADS];
    int shown; /* failures printed of this round */
    int64_t shown_round;
    const char *isa; /* of this run */
    int threads, layout;
    enum case_shapes style;
};

/* ---- failures ---- */

static void describe_operand(const struct check_operand *o)
{
    if (o->dtype == 0) {
        printf(" (absent)");
        return;
    }
    printf(" %s%s %s[", o->constant ? "const " : "", o->name,
           attnrun_dtype_name(o->dtype));
    for (int i = 0; i < o->rank; i++)
        printf("%s%lld", i > 0 ? "," : "", (long long)o->dims[i]);
    printf("]");
}

static void describe_attr(const struct check_attr *a)
{
    printf(" %s=", a->name);
    for (int i = 0; i < a->n; i++) {
        if (i > 0)
            printf(",");
        if (a->kind == 'f')
            printf("%.9g", (double)a->number);
        else if (a->kind == 's' || a->kind == 'S')
            printf("%s", a->words[i]);
        else
            printf("%lld", (long long)a->ints[i]);
    }
}

void check_describe(const struct check *c)
{
    printf("%s: --seed %llu --round %lld: %s:", c->name, (unsigned long long)c->seed,
           (long long)c->round, c->op);
    for (int i = 0; i < c->n_attrs; i++)
        describe_attr(&c->attrs[i]);
    for (int i = 0; i < c->n_in; i++)
        describe_operand(&c->in[i]);
    printf(" ->");
    for (int i = 0; i < c->n_out; i++)
        describe_operand(&c->out[i]);
    printf("\n");
}

static void report(struct check *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void report(struct check *c, const char *format, ...)
{
    struct check_runner *r = c->runner;
    c->failures++;
    if (r->shown_round != c->round) {
        r->shown = 0;
        r->shown_round = c->round;
    }
    if (r->shown++ == 0)
        check_describe(c);
    if (r->shown > MAX_SHOWN)
        return;
    printf("    %s, %d threads, rank %d, %s shapes: ", r->isa, r->threads, r->layout,
           style_names[r->style]);
    va_list list;
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf("\n");
}

void check_true(struct check *c, bool condition, const char *format, ...)
{
    char text[400];
    va_list list;
    c->comparisons++;
    if (condition)
        return;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    report(c, "%s", text);
}

/* ---- runtimes ---- */

void check_start(struct check *c)
{
    struct check_runner *r = calloc(1, sizeof *r);
    if (r == NULL)
        exit(2);
    r->shown_round = -1;
    r->isa = "";
    c->runner = r;
    for (int isa = 0; isa < ISAS; isa++)
        for (int t = 0; t < THREADS; t++) {
            const char *name = attn_isa_name((enum attn_isa)isa);
            if (!attn_cpu_has((enum attn_isa)isa) ||
                (c->only_isa != NULL && strcmp(c->only_isa, name) != 0))
                continue;
            test_memory_init(&r->memory[isa][t]);
            attnrun_runtime_options options = { .struct_size = sizeof options,
                                                .threads = thread_counts[t],
                                                .isa = name,
                                                .allocator =
                                                    &r->memory[isa][t].allocator };
            OK(attnrun_runtime_create(&options, &r->runtime[isa][t]));
        }
}

void check_end(struct check *c)
{
    struct check_runner *r = c->runner;
    check_begin(c, "");
    for (int isa = 0; isa < ISAS; isa++)
        for (int t = 0; t < THREADS; t++) {
            if (r->runtime[isa][t] == NULL)
                continue;
            attnrun_runtime_destroy(r->runtime[isa][t]);
            if (atomic_load(&r->memory[isa][t].faults) > 0)
                report(c, "memory of the library was written over");
            if (atomic_load(&r->memory[isa][t].live_blocks) > 0)
                report(c, "memory of the library is still held");
        }
    free(r);
    c->runner = NULL;
}

/* The first one there is, for what does not depend on it. */
static attnrun_runtime *any_runtime(struct check *c)
{
    for (int isa = 0; isa < ISAS; isa++)
        if (c->runner->runtime[isa][0] != NULL) {
            c->runner->isa = attn_isa_name((enum attn_isa)isa);
            c->runner->threads = 1;
            return c->runner->runtime[isa][0];
        }
    fprintf(stderr, "no such instruction set\n");
    exit(2);
}

/* (batch, tokens, heads, dim) <-> (batch, heads, tokens, dim), 4 bytes an element. */
static void swap_heads(const struct check_operand *o, const void *from, void *to,
                       bool to_heads)
{
    const int64_t h_n = o->n_heads, dim = h_n > 0 ? o->dims[2] / h_n : 0;
    const size_t row = (size_t)dim * 4;
    for (int64_t b = 0; b < o->dims[0]; b++)
        for (int64_t t = 0; t < o->dims[1]; t++)
            for (int64_t h = 0; h < h_n; h++) {
                const size_t joined = (size_t)((b * o->dims[1] + t) * h_n + h) * row;
                const size_t by_head = (size_t)((b * h_n + h) * o->dims[1] + t) * row;
                memcpy((char *)to + (to_heads ? by_head : joined),
                       (const char *)from + (to_heads ? joined : by_head), row);
            }
}

static int64_t count_of(const struct check_operand *o)
{
    int64_t n = 1;
    for (int i = 0; i < o->rank; i++)
        n *= o->dims[i];
    return n;
}

static size_t bytes_of(const struct check_operand *o)
{
    return (size_t)(count_of(o) * attnrun_dtype_bits(o->dtype) / 8);
}

/* ---- runs ---- */

static attnrun_status open_case(const struct check *c, attnrun_runtime *runtime,
                                int layout, enum case_shapes style, attnrun_model **model,
                                attnrun_context **context)
{
    size_t bytes;
    uint8_t *file = case_model(c, layout, style, &bytes);
    attnrun_status status = open_bytes(runtime, file, bytes, 0, model);
    free(file);
    if (status != ATTNRUN_OK)
        return status;
    status = attnrun_context_create(*model, context);
    if (status != ATTNRUN_OK)
        attnrun_model_release(*model);
    return status;
}

/* Binds all inputs; those of rank 4 are copies, to be freed: copies[CHECK_OPERANDS]. */
static attnrun_status bind(const struct check *c, attnrun_context *context, int layout,
                           void **copies)
{
    int32_t index = 0;
    for (int i = 0; i < c->n_in; i++) {
        const struct check_operand *o = &c->in[i];
        int64_t dims[ATTNRUN_MAX_RANK];
        attnrun_tensor tensor;
        if (o->constant || o->dtype == 0)
            continue;
        const int rank = case_dims(o, layout, dims);
        void *data = o->data;
        if (rank != o->rank) {
            data = copies[i] = malloc(bytes_of(o) + 1);
            swap_heads(o, o->data, data, true);
        }
        OK(attnrun_tensor_make(o->dtype, rank, dims, data, &tensor));
        attnrun_status status = attnrun_set_input(context, index++, &tensor);
        if (status != ATTNRUN_OK)
            return status;
    }
    return ATTNRUN_OK;
}

/* Two runs, which must agree; outputs in the layout of rank 3, to be freed by the
 * caller. */
static bool take_outputs(struct check *c, attnrun_context *context, int layout,
                         void **got)
{
    bool good = true;
    for (int i = 0; i < c->n_out; i++) {
        const struct check_operand *o = &c->out[i];
        int64_t dims[ATTNRUN_MAX_RANK];
        const int rank = case_dims(o, layout, dims);
        attnrun_tensor y;
        OK(attnrun_output(context, i, &y));
        bool fits = y.dtype == o->dtype && y.rank == rank;
        for (int d = 0; d < rank && fits; d++)
            fits = y.dims[d] == dims[d];
        if (!fits) {
            report(c, "output %s is %s of rank %d [%lld,%lld,%lld,…], not as expected",
                   o->name, attnrun_dtype_name(y.dtype), y.rank, (long long)y.dims[0],
                   (long long)y.dims[1], (long long)y.dims[2]);
            return false;
        }
        void *copy = malloc(bytes_of(o) + 1);
        if (rank != o->rank)
            swap_heads(o, y.data, copy, false);
        else if (bytes_of(o) > 0)
            memcpy(copy, y.data, bytes_of(o));
        if (got[i] != NULL && memcmp(got[i], copy, bytes_of(o)) != 0) {
            report(c, "a second run gives other bits in output %s", o->name);
            good = false;
        }
        free(got[i]);
        got[i] = copy;
    }
    return good;
}

/* Dims that inference gives one name have one size. */
static void check_names(struct check *c, const attnrun_model *model, int layout)
{
    struct {
        char name[48];
        int64_t size;
    } seen[4 * ATTNRUN_MAX_RANK];
    int n = 0;
    for (int i = 0; i < c->n_out; i++) {
        int64_t dims[ATTNRUN_MAX_RANK];
        const int rank = case_dims(&c->out[i], layout, dims);
        attnrun_value_info info = { .struct_size = sizeof info };
        OK(attnrun_model_output(model, i, &info));
        for (int d = 0; d < rank && info.rank == rank; d++) {
            if (info.dim_names[d][0] == 0)
                continue;
            memcpy(seen[n].name, info.dim_names[d], sizeof seen[n].name);
            seen[n++].size = dims[d];
            for (int j = 0; j < n - 1; j++)
                check_true(c,
                           strcmp(seen[j].name, seen[n - 1].name) != 0 ||
                               seen[j].size == dims[d],
                           "inference calls dim %d of %s %s, as another one that is %lld",
                           d, c->out[i].name, seen[j].name, (long long)seen[j].size);
        }
    }
}

/* What is known at load must not contradict; constant shapes must be known. */
static void check_shapes(struct check *c, const attnrun_model *model, int layout,
                         enum case_shapes style)
{
    for (int i = 0; i < c->n_out; i++) {
        int64_t dims[ATTNRUN_MAX_RANK];
        const int rank = case_dims(&c->out[i], layout, dims);
        attnrun_value_info info = { .struct_size = sizeof info };
        OK(attnrun_model_output(model, i, &info));
        bool good = info.rank == rank || (style == UNKNOWN && info.rank < 0);
        for (int d = 0; d < rank && good && info.rank == rank; d++)
            good = info.dims[d] == dims[d] || (style != CONSTANT && info.dims[d] < 0);
        check_true(c, good, "inference says another shape of %s: rank %d [%lld,%lld,…]",
                   c->out[i].name, info.rank, (long long)info.dims[0],
                   (long long)info.dims[1]);
    }
}

/* Opens, runs twice, fills in got[]. */
static bool run_case(struct check *c, attnrun_runtime *runtime, int layout,
                     enum case_shapes style, void **got)
{
    void *copies[CHECK_OPERANDS] = { 0 };
    attnrun_model *model;
    attnrun_context *context;
    c->runner->layout = layout;
    c->runner->style = style;
    if (open_case(c, runtime, layout, style, &model, &context) != ATTNRUN_OK) {
        report(c, "%s", attnrun_last_error()->message);
        return false;
    }
    check_shapes(c, model, layout, style);
    check_names(c, model, layout);
    bool good = bind(c, context, layout, copies) == ATTNRUN_OK;
    for (int run = 0; run < 2 && good; run++) {
        good = attnrun_run(context, NULL) == ATTNRUN_OK;
        if (!good)
            report(c, "%s", attnrun_last_error()->message);
        good = good && take_outputs(c, context, layout, got);
    }
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    for (int i = 0; i < CHECK_OPERANDS; i++)
        free(copies[i]);
    return good;
}

/* ---- comparisons ---- */

static double element(const struct check_operand *o, const void *data, int64_t i)
{
    switch (o->dtype) {
    case ATTNRUN_F32:
        return (double)((const float *)data)[i];
    case ATTNRUN_I8:
        return ((const int8_t *)data)[i];
    case ATTNRUN_I32:
        return ((const int32_t *)data)[i];
    case ATTNRUN_I64:
        return (double)((const int64_t *)data)[i];
    default:
        return ((const uint8_t *)data)[i];
    }
}

static double largest_of(const struct check_operand *o, int64_t n)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        if (o->want[i] != CHECK_SKIP && fabs(o->want[i]) > largest)
            largest = fabs(o->want[i]);
    return isfinite(largest) ? largest : 0;
}

static void compare(struct check *c, const struct check_operand *o, const void *got,
                    double rtol, double atol)
{
    const int64_t n = count_of(o);
    if (c->of_largest > 0)
        atol += c->of_largest * largest_of(o, n);
    double worst = 0, worst_over = 0;
    int64_t at = -1, wrong = 0;
    for (int64_t i = 0; i < n; i++) {
        const double want = o->want[i], y = element(o, got, i);
        if (want == CHECK_SKIP)
            continue;
        c->comparisons++;
        const double allowed = o->dtype == ATTNRUN_F32 ? atol + rtol * fabs(want) : 0;
        if (isnan(want) ? isnan(y) : fabs(y - want) <= allowed || y == want)
            continue;
        wrong++;
        const double over = isnan(y) || isnan(want) ? HUGE_VAL : fabs(y - want) / allowed;
        if (at < 0 || over > worst_over) {
            worst_over = over;
            worst = fabs(y - want);
            at = i;
        }
    }
    if (at >= 0)
        report(c,
               "%lld of %lld elements of %s are wrong; [%lld] is %.9g, expected %.9g: "
               "off by %.3g, %.3g of what is allowed",
               (long long)wrong, (long long)n, o->name, (long long)at,
               element(o, got, at), o->want[at], worst, worst_over);
}

static bool same_bits(struct check *c, void *const *got, void *const *other)
{
    bool same = true;
    for (int i = 0; i < c->n_out; i++)
        same = same && memcmp(got[i], other[i], bytes_of(&c->out[i])) == 0;
    return same;
}

static void free_outputs(void **got)
{
    for (int i = 0; i < 4; i++) {
        free(got[i]);
        got[i] = NULL;
    }
}

/* The variants must give the bits of `first`. */
static void run_variant(struct check *c, attnrun_runtime *runtime, int layout,
                        void *const *first, const char *what)
{
    void *got[4] = { 0 };
    const enum case_shapes style = (enum case_shapes)check_below(c, SHAPE_STYLES);
    if (run_case(c, runtime, layout, style, got))
        check_true(c, same_bits(c, first, got), "%s gives other bits", what);
    free_outputs(got);
}

static bool has_heads(const struct check *c)
{
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i].heads)
            return true;
    return false;
}

/* Whether this round is for the instruction set: all are, or every n-th, which change from round
 * to round. */
static bool has_turn(const struct check *c, int isa)
{
    const struct check_runner *r = c->runner;
    int n = 0, before = 0;
    for (int i = 0; i < ISAS; i++) {
        n += r->runtime[i][0] != NULL;
        before += i < isa && r->runtime[i][0] != NULL;
    }
    const int64_t every = c->every_isa < n ? c->every_isa : n;
    return r->runtime[isa][0] != NULL &&
           (every < 2 || (before + c->round + (int64_t)c->seed) % every == 0);
}

void check_run_with(struct check *c, double rtol, double atol)
{
    struct check_runner *r = c->runner;
    for (int isa = 0; isa < ISAS; isa++) {
        void *got[4] = { 0 };
        if (!has_turn(c, isa))
            continue;
        r->isa = attn_isa_name((enum attn_isa)isa);
        r->threads = thread_counts[0];
        if (run_case(c, r->runtime[isa][0], 3,
                     (enum case_shapes)(c->round % SHAPE_STYLES), got)) {
            for (int i = 0; i < c->n_out; i++)
                compare(c, &c->out[i], got[i], rtol, atol);
            if (has_heads(c) && !c->no_twin)
                run_variant(c, r->runtime[isa][0], 4, got, "rank 4");
            r->threads = thread_counts[1];
            run_variant(c, r->runtime[isa][1], 3, got, "three threads");
            for (int i = 0; i < c->n_out; i++) {
                free(c->got[i]);
                c->got[i] = got[i];
                got[i] = NULL;
            }
        }
        free_outputs(got);
    }
}

void check_run(struct check *c, enum check_class tolerance)
{
    static const double rtol[] = { 0, 1e-5, 1e-4, 1e-3 };
    static const double atol[] = { 0, 1e-6, 1e-5, 1e-5 };
    check_run_with(c, rtol[tolerance], atol[tolerance]);
}

/* ---- refusals ---- */

static bool has_all_words(const char *message, const char *words)
{
    char copy[512], *rest = copy, *word;
    snprintf(copy, sizeof copy, "%s", words);
    while ((word = strtok_r(NULL, "|", &rest)) != NULL)
        if (strstr(message, word) == NULL)
            return false;
    return strstr(message, "node.under.test") != NULL;
}

static void refuse_as(struct check *c, attnrun_status expected, const char *words,
                      enum case_shapes style)
{
    void *copies[CHECK_OPERANDS] = { 0 };
    attnrun_model *model;
    attnrun_context *context;
    attnrun_runtime *runtime = any_runtime(c);
    c->runner->layout = 3;
    c->runner->style = style;
    attnrun_status status = open_case(c, runtime, 3, style, &model, &context);
    if (status == ATTNRUN_OK) {
        status = bind(c, context, 3, copies);
        if (status == ATTNRUN_OK)
            status = attnrun_run(context, NULL);
        attnrun_context_destroy(context);
        attnrun_model_release(model);
    }
    const char *message = attnrun_last_error()->message;
    check_true(c, status == expected && has_all_words(message, words),
               "gave %s, expected %s with '%s'; the sentence is: %s",
               attnrun_status_name(status), attnrun_status_name(expected), words,
               status == ATTNRUN_OK ? "" : message);
    for (int i = 0; i < CHECK_OPERANDS; i++)
        free(copies[i]);
}

void check_refuses(struct check *c, attnrun_status status, const char *words)
{
    for (int style = 0; style < SHAPE_STYLES; style++)
        refuse_as(c, status, words, (enum case_shapes)style);
}

/* ---- memory ---- */

static int64_t scratch_of(attnrun_context *context, int32_t n_blocks)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < n_blocks; i++) {
        attnrun_plan_block block = { .struct_size = sizeof block };
        OK(attnrun_plan_get_block(context, i, &block));
        if (strcmp(block.name, "scratch") == 0 || strcmp(block.name, "shared") == 0)
            sum += block.bytes;
    }
    return sum;
}

void check_extra_memory(struct check *c, int64_t max)
{
    attnrun_model *model;
    attnrun_context *context;
    attnrun_tensor inputs[CHECK_OPERANDS];
    attnrun_plan_info info = { .struct_size = sizeof info };
    int n = 0;
    attnrun_runtime *runtime = any_runtime(c);
    c->runner->layout = 3;
    c->runner->style = CONSTANT;
    if (open_case(c, runtime, 3, CONSTANT, &model, &context) != ATTNRUN_OK) {
        report(c, "%s", attnrun_last_error()->message);
        return;
    }
    for (int i = 0; i < c->n_in; i++) {
        const struct check_operand *o = &c->in[i];
        if (!o->constant && o->dtype != 0)
            OK(attnrun_tensor_make(o->dtype, o->rank, o->dims, o->data, &inputs[n++]));
    }
    attnrun_status status = attnrun_plan(context, inputs, &info);
    check_true(c, status == ATTNRUN_OK, "%s",
               status == ATTNRUN_OK ? "" : attnrun_last_error()->message);
    if (status == ATTNRUN_OK) {
        c->extra_bytes = scratch_of(context, info.n_blocks);
        check_true(c, info.n_dynamic_steps == 0, "the step is late");
        check_true(c, c->extra_bytes <= max, "needs %lld bytes of scratch, allowed %lld",
                   (long long)c->extra_bytes, (long long)max);
        if (c->verbose)
            printf("%s: %.2f MiB beyond inputs and outputs\n", c->name,
                   (double)c->extra_bytes / 1048576.0);
    }
    attnrun_context_destroy(context);
    attnrun_model_release(model);
}
