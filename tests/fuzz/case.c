/* case.c - feeds one model with good and hostile inputs; see case.h.
 *
 * Beside what the sanitizers see it is wrong when a status is INTERNAL or none that the header
 * lists, when memory is held afterwards, or when two runs of the same inputs, over memory filled
 * with two patterns, do not give the same bytes. */
#include "case.h"

#include "../../tools/io/value.h"
#include "guard.h"
#include "keep.h"
#include "plan_look.h"
#include "results.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUDGET = 96 << 20, TIMEOUT_US = 1000000, HELD_ALIGN = 16 };
enum { BASE = 1, AVX2, ISAS };

void *fuzz_hold(struct fuzz_case *c, int64_t bytes)
{
    const size_t size = bytes > 0 ? (size_t)bytes : 1;
    void *memory = c->guard ? guard_alloc(size, HELD_ALIGN) : malloc(size);
    if (memory == NULL || c->n_held == FUZZ_HELD) {
        fprintf(stderr, "the fuzz itself has no memory left\n");
        exit(2);
    }
    c->held_bytes[c->n_held] = size;
    c->held[c->n_held++] = memory;
    return memory;
}

static void wrong(const struct fuzz_case *c, const char *what)
{
    fprintf(stderr, "seed %llu: %s\n", (unsigned long long)c->seed, what);
    abort();
}

/* ---- memory with a pattern ---- */

static int pattern;

/* Blocks that end at a guard page have one alignment, so that they can be freed by their size;
 * larger ones are rare. */
enum { GUARD_ALIGN = 64 };

static bool is_guarded(const struct fuzz_case *c, const void *memory)
{
    return c->guard && memory != NULL;
}

static bool fails(struct fuzz_case *c)
{
    const int64_t call = c->calls++;
    return c->fail_at >= 0 && (call == c->fail_at || (c->fail_on && call > c->fail_at));
}

static void *filled_alloc(void *user, size_t bytes, size_t align)
{
    struct fuzz_case *c = user;
    void *memory = NULL;
    if (bytes > BUDGET || (c->faults && fails(c)))
        return NULL;
    if (c->guard)
        memory = align <= GUARD_ALIGN ? guard_alloc(bytes, GUARD_ALIGN) : NULL;
    else if (posix_memalign(&memory, align < 16 ? 16 : align, bytes) != 0)
        memory = NULL;
    if (memory != NULL)
        memset(memory, pattern, bytes);
    return memory;
}

static void filled_free(void *user, void *memory, size_t bytes)
{
    const struct fuzz_case *c = user;
    if (!is_guarded(c, memory))
        free(memory);
    else if (!guard_free(memory, bytes, GUARD_ALIGN))
        wrong(c, "bytes beside a block were written");
}

/* ---- outputs ---- */

/* Reads every byte; the sum keeps the compiler from leaving it out. */
static uint64_t read_bytes(const void *data, int64_t n, uint64_t sum)
{
    for (; n >= 8; n -= 8, data = (const char *)data + 8) {
        uint64_t word;
        memcpy(&word, data, sizeof word);
        sum = (sum ^ word) * UINT64_C(1099511628211);
        sum ^= sum >> 32;
    }
    for (int64_t i = 0; i < n; i++)
        sum = (sum ^ ((const uint8_t *)data)[i]) * UINT64_C(1099511628211);
    return sum;
}

/* The bits of infinity, or 0 where a type has no NaN. */
static uint64_t infinity_of(int32_t dtype)
{
    switch (dtype) {
    case ATTNRUN_F32:
        return 0x7f800000;
    case ATTNRUN_F64:
        return UINT64_C(0x7ff0000000000000);
    case ATTNRUN_F16:
        return 0x7c00;
    case ATTNRUN_BF16:
        return 0x7f80;
    default:
        return 0;
    }
}

/* All NaN are equal: attnrun.h leaves their bits open. */
static uint64_t read_float(const void *at, size_t bytes, uint64_t infinity, uint64_t sum)
{
    const uint64_t sign = UINT64_C(1) << (8 * bytes - 1);
    uint64_t bits = 0;
    memcpy(&bits, at, bytes); /* little-endian */
    if ((bits & ~sign) > infinity)
        bits = infinity + 1;
    return (sum ^ bits) * UINT64_C(1099511628211);
}

/* Element by element: floats, and a state, which has room behind one of its axes. */
static uint64_t read_each(const attnrun_tensor *t, uint64_t sum)
{
    const uint64_t infinity = infinity_of(t->dtype);
    const int64_t bytes = attnrun_dtype_bits(t->dtype) / 8;
    int64_t index[ATTNRUN_MAX_RANK] = { 0 };
    for (int64_t k = attnrun_tensor_count(t); k > 0; k--) {
        const char *at = t->data;
        for (int32_t i = 0; i < t->rank; i++)
            at += index[i] * t->strides[i];
        sum = infinity > 0 ? read_float(at, (size_t)bytes, infinity, sum)
                           : read_bytes(at, bytes, sum);
        for (int32_t i = t->rank - 1; i >= 0 && ++index[i] == t->dims[i]; i--)
            index[i] = 0;
    }
    return sum;
}

/* The bits behind the last element of a type under 8 bits are no result. */
static uint64_t read_elements(const attnrun_tensor *t, uint64_t sum)
{
    attnrun_tensor dense = *t;
    const int64_t bytes = attnrun_tensor_bytes(t);
    const int64_t used = attnrun_tensor_count(t) * attnrun_dtype_bits(t->dtype) % 8;
    fuzz_set_dense(&dense);
    if (infinity_of(t->dtype) > 0 ||
        (attnrun_dtype_bits(t->dtype) >= 8 &&
         memcmp(dense.strides, t->strides, (size_t)t->rank * sizeof *t->strides) != 0))
        return read_each(t, sum);
    if (used == 0)
        return read_bytes(t->data, bytes, sum);
    const uint8_t last =
        (uint8_t)(((const uint8_t *)t->data)[bytes - 1] & ((1 << used) - 1));
    return read_bytes(&last, 1, read_bytes(t->data, bytes - 1, sum));
}

uint64_t fuzz_read(const struct fuzz_case *c, const attnrun_tensor *t, uint64_t sum)
{
    int64_t head[3] = { t->kind, t->dtype, t->rank };
    sum = read_bytes(head, (int64_t)sizeof head, sum);
    if (t->kind == ATTNRUN_OPTIONAL || t->kind == ATTNRUN_OPTIONAL_SEQUENCE)
        return t->data != NULL ? fuzz_read(c, t->data, sum) : sum;
    sum = read_bytes(t->dims, t->rank * 8, sum);
    const bool list = t->kind == ATTNRUN_SEQUENCE || t->kind == ATTNRUN_MAP_SEQUENCE;
    if (list || t->kind == ATTNRUN_MAP) { /* a map: its keys, its values */
        for (int64_t i = 0; i < (list ? t->dims[0] : 2); i++)
            sum = fuzz_read(c, (const attnrun_tensor *)t->data + i, sum);
        return sum;
    }
    if (t->kind != ATTNRUN_TENSOR || attnrun_tensor_count(t) < 0)
        wrong(c, "an output is no tensor, sequence, map or optional");
    if (t->dtype != ATTNRUN_STRING)
        return read_elements(t, sum);
    for (int64_t i = 0; i < attnrun_tensor_count(t); i++) {
        const attnrun_string *s = (const attnrun_string *)t->data + i;
        sum = read_bytes(&s->n, 8, read_bytes(s->data, s->n, sum));
    }
    return sum;
}

/* ---- a run ---- */

static attnrun_status check(struct fuzz_case *c, attnrun_status status)
{
    const attnrun_error *error = attnrun_last_error();
    if (status == ATTNRUN_OK)
        return status;
    c->status = status;
    if (strcmp(attnrun_status_name(status), "UNKNOWN") == 0)
        wrong(c, "a status that the header does not list");
    if (status == ATTNRUN_E_INTERNAL || error->status != status || error->message[0] == 0)
        wrong(c, error->message);
    return status;
}

/* With c->sizes most inputs are too large to exist: what is planned is run if all are small. */
static attnrun_status plan_sizes(struct fuzz_case *c, attnrun_model *model,
                                 attnrun_context *context, int32_t n, bool *small)
{
    enum { SMALL = 1 << 14 };
    attnrun_model_need need = { .struct_size = sizeof need };
    attnrun_plan_info plan = { .struct_size = sizeof plan };
    *small = n <= FUZZ_INPUTS;
    if (!*small)
        return ATTNRUN_OK;
    attnrun_status status = check(c, attnrun_model_plan(model, c->given, &need));
    if (status == ATTNRUN_OK)
        status = check(c, attnrun_plan(context, c->given, &plan));
    for (int32_t i = 0; i < n && status == ATTNRUN_OK; i++)
        if (c->given[i].kind == ATTNRUN_TENSOR)
            *small = *small && attnrun_tensor_count(&c->given[i]) <= SMALL;
    return status;
}

static attnrun_tensor sized_input(struct fuzz_case *c, int32_t index)
{
    attnrun_tensor t = c->given[index];
    if (t.kind == ATTNRUN_TENSOR && t.data == NULL)
        fuzz_fill(c, &c->random, &t);
    return t;
}

static attnrun_status run_context(struct fuzz_case *c, attnrun_model *model,
                                  attnrun_context *context, uint64_t *sum)
{
    const attnrun_run_options options = { .struct_size = sizeof options,
                                          .timeout_us = TIMEOUT_US };
    attnrun_model_info info = { .struct_size = sizeof info };
    attnrun_status status = check(c, attnrun_model_query(model, &info));
    bool small = true;
    if (status == ATTNRUN_OK && c->sizes)
        status = plan_sizes(c, model, context, info.n_inputs, &small);
    if (!small)
        return status;
    for (int32_t i = 0; i < info.n_inputs && status == ATTNRUN_OK; i++) {
        attnrun_value_info value = { .struct_size = sizeof value };
        status = check(c, attnrun_model_input(model, i, &value));
        if (status != ATTNRUN_OK)
            break;
        attnrun_tensor t = c->sizes ? sized_input(c, i) : fuzz_input(c, i, &value);
        if (c->nudged > 0 && t.kind == ATTNRUN_TENSOR && value_is_float(t.dtype))
            fuzz_nudge(c->seed + (uint64_t)c->nudged, &t,
                       fuzz_hold(c, attnrun_tensor_bytes(&t)), c->traits.rounds);
        if (i < FUZZ_INPUTS)
            c->fed[i] = t;
        status = check(c, attnrun_set_input(context, i, &t));
    }
    if (status == ATTNRUN_OK)
        status = check(c, attnrun_run(context, &options));
    for (int32_t i = 0; i < info.n_outputs && status == ATTNRUN_OK; i++) {
        attnrun_tensor t;
        status = check(c, attnrun_output(context, i, &t));
        if (status == ATTNRUN_OK)
            *sum = fuzz_read(c, &t, *sum);
        if (status == ATTNRUN_OK && c->results != NULL)
            fuzz_results_add(c->results, &t);
    }
    if (status == ATTNRUN_OK && c->keep != NULL)
        fuzz_keep(c, context, &info);
    if (status == ATTNRUN_OK && c->seed % 4 == 0 && !c->faults) {
        const char *what = fuzz_look_at_plan(context);
        if (what != NULL)
            wrong(c, what);
    }
    return status;
}

static void note_op(struct fuzz_case *c, const attnrun_model *model)
{
    attnrun_node_info node = { .struct_size = sizeof node };
    if (attnrun_model_node(model, 0, &node) == ATTNRUN_OK)
        snprintf(c->op, sizeof c->op, "%s%s%s", node.domain, node.domain[0] ? "." : "",
                 node.op_type);
    fuzz_look(model, &c->traits);
}

/* Inner values by name: before the run, and what they are after it. */
static void look_inside(struct fuzz_case *c, const attnrun_model *model,
                        attnrun_context *context, bool after)
{
    attnrun_node_info node = { .struct_size = sizeof node };
    for (int32_t i = 0; attnrun_model_node(model, i, &node) == ATTNRUN_OK; i++)
        for (int32_t k = 0; k < node.n_outputs; k++) {
            attnrun_tensor t;
            if (node.outputs[k][0] == 0)
                continue;
            if (!after)
                (void)attnrun_watch(context, node.outputs[k]);
            else if (attnrun_value(context, node.outputs[k], &t) == ATTNRUN_OK)
                c->overflows = c->overflows || fuzz_are_wild(&t, 1);
        }
}

static attnrun_status run_once(struct fuzz_case *c, attnrun_runtime *runtime,
                               uint32_t flags, uint64_t *sum)
{
    const attnrun_source source = {
        .struct_size = sizeof source, .flags = flags, .data = c->model, .bytes = c->bytes
    };
    attnrun_model *model = NULL;
    attnrun_context *context = NULL;
    attnrun_status status = check(c, attnrun_model_open(runtime, &source, &model));
    if (status == ATTNRUN_OK)
        note_op(c, model);
    if (status == ATTNRUN_OK)
        status = check(c, attnrun_context_create(model, &context));
    if (status == ATTNRUN_OK && c->watches)
        look_inside(c, model, context, false);
    if (status == ATTNRUN_OK)
        status = run_context(c, model, context, sum);
    if (status == ATTNRUN_OK && c->watches)
        look_inside(c, model, context, true);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    return status;
}

/* How a case is run. */
struct way {
    int fill, threads, isa;
    uint32_t flags;
    int64_t fail_at; /* -1: no allocation fails */
    bool fail_on;
    uint64_t budget; /* 0: BUDGET */
};

/* Sorting the registry and starting threads takes a third of a small case, so runtimes are kept
 * for the cases behind, but for those with a budget or with allocations that fail. */
static attnrun_runtime *kept[ISAS][2];

static attnrun_runtime **place_of(const struct fuzz_case *c, const struct way *way)
{
    return c->faults ? NULL : &kept[way->isa][way->threads > 1];
}

static attnrun_status take_runtime(struct fuzz_case *c, const struct way *way,
                                   attnrun_runtime **runtime)
{
    const attnrun_allocator memory = { .struct_size = sizeof memory,
                                       .user = c,
                                       .alloc = filled_alloc,
                                       .free = filled_free };
    static const char *const isas[] = { [BASE] = "base", [AVX2] = "avx2" };
    const uint64_t budget = way->budget > 0 ? way->budget : BUDGET;
    const attnrun_runtime_options options = { .struct_size = sizeof options,
                                              .threads = way->threads,
                                              .isa = isas[way->isa],
                                              .max_memory = budget,
                                              .allocator = &memory };
    attnrun_runtime **place = place_of(c, way);
    *runtime = place != NULL ? *place : NULL;
    if (*runtime != NULL)
        return ATTNRUN_OK;
    const attnrun_status status = attnrun_runtime_create(&options, runtime);
    if (place != NULL)
        *place = *runtime;
    return status;
}

void fuzz_case_forget(void)
{
    for (int i = 0; i < ISAS * 2; i++) {
        attnrun_runtime_destroy(kept[i / 2][i % 2]);
        kept[i / 2][i % 2] = NULL;
    }
}

static uint64_t run_filled(struct fuzz_case *c, struct way way, attnrun_status *status)
{
    attnrun_runtime *runtime;
    attnrun_runtime_info before = { .struct_size = sizeof before }, after = before;
    uint64_t sum = 0;
    pattern = way.fill;
    c->fail_at = -1;
    *status = take_runtime(c, &way, &runtime);
    if (*status == ATTNRUN_E_MEMORY && way.budget > 0)
        return 0;
    if (*status != ATTNRUN_OK || attnrun_runtime_query(runtime, &before) != ATTNRUN_OK)
        wrong(c, "there is no runtime");
    c->calls = 0;
    c->fail_at = way.fail_at;
    c->fail_on = way.fail_on;
    *status = run_once(c, runtime, way.flags, &sum);
    c->fail_at = -1;
    if (attnrun_runtime_query(runtime, &after) != ATTNRUN_OK ||
        after.used_memory != before.used_memory)
        wrong(c, "memory is held afterwards");
    c->peak = after.peak_memory;
    if (place_of(c, &way) == NULL)
        attnrun_runtime_destroy(runtime);
    return sum;
}

static attnrun_status run_for(struct fuzz_case *c, struct way way,
                              const struct fuzz_random *inputs,
                              struct fuzz_results *results)
{
    attnrun_status status;
    c->random = *inputs;
    c->results = results;
    run_filled(c, way, &status);
    c->results = NULL;
    return status;
}

/* Whether a value on the way overflows, so that sums and quotients in another order may be NaN. */
static bool overflows_inside(struct fuzz_case *c, struct way way,
                             const struct fuzz_random *inputs)
{
    way.flags |= ATTNRUN_NO_FUSION;
    c->watches = true;
    run_for(c, way, inputs, NULL);
    c->watches = false;
    return c->overflows;
}

/* Whether another way may fail where `way` does not, whose outputs are `one`. */
static bool may_fail(const struct fuzz_case *c, struct way way, struct way another,
                     attnrun_status status, const struct fuzz_results *one)
{
    const int fuses = (another.flags & ATTNRUN_NO_FUSION) == 0,
              fused = (way.flags & ATTNRUN_NO_FUSION) == 0;
    switch (status) {
    case ATTNRUN_E_TIME:
    case ATTNRUN_E_MEMORY:
        return true;
    case ATTNRUN_E_SHAPE: /* at sizes, which may be axes, a pass took out what does not fit */
    case ATTNRUN_E_ATTR:
        return (status == ATTNRUN_E_SHAPE && fuzz_results_are_empty(one)) ||
               (c->forms && fuses < fused);
    case ATTNRUN_E_RANGE: /* scores beyond those that the mask of the file hides */
        return c->forms && fuses > fused && fuzz_are_wild(c->fed, FUZZ_INPUTS);
    default:
        return false;
    }
}

/* In another way the outputs are those of `one`, which is of `way`, but for rounding. */
static void compare(struct fuzz_case *c, struct way way, struct way another,
                    const struct fuzz_random *inputs, const struct fuzz_results *one)
{
    struct fuzz_results other = { .n = 0 };
    char why[256], all[1200];
    const attnrun_status status = run_for(c, another, inputs, &other);
    if (status != ATTNRUN_OK && !may_fail(c, way, another, status, one)) {
        snprintf(all, sizeof all, "%s: it fails where it is %s: %s", c->op,
                 another.flags & ATTNRUN_NO_FUSION ? "not fused" : "fused",
                 attnrun_last_error()->message);
        wrong(c, all);
    }
    const bool fma = (way.isa == BASE) != (another.isa == BASE);
    const bool wild = c->traits.wild || fuzz_are_wild(c->fed, FUZZ_INPUTS);
    const bool nan = (c->forms && !c->tame) || (c->traits.hides && wild) ||
                     (fma && fuzz_are_large(c->fed, FUZZ_INPUTS));
    const bool tall =
        c->traits.attends && (c->traits.tall || fuzz_are_tall(c->fed, FUZZ_INPUTS));
    struct fuzz_room room = { NULL, nan, c->traits.rounds, tall, c->forms };
    bool agrees = status != ATTNRUN_OK ||
                  ((c->traits.attends || c->traits.splits) && wild) ||
                  fuzz_results_agree(one, &other, room, why, sizeof why);
    while (!agrees && c->nudged < FUZZ_NUDGES) {
        struct fuzz_results near = { .n = 0 };
        c->nudged++;
        run_for(c, way, inputs, &near);
        room.near = &near;
        agrees = fuzz_results_agree(one, &other, room, why, sizeof why);
        fuzz_results_free(&near);
    }
    c->nudged = 0;
    if (!agrees && !fuzz_has_huge(c->model, c->bytes) &&
        !(c->forms && overflows_inside(c, way, inputs))) {
        snprintf(all, sizeof all, "%s %s: %s", c->op,
                 another.flags & ATTNRUN_NO_FUSION ? "not fused" : "fused", why);
        wrong(c, all);
    }
    fuzz_results_free(&other);
}

/* Says which of the three ways by itself gives other outputs. */
static void name_difference(struct fuzz_case *c, struct way one, struct way other,
                            const struct fuzz_random *inputs, uint64_t sum)
{
    const struct way ways[] = {
        { other.fill, one.threads, one.isa, one.flags, -1, false, 0 },
        { one.fill, other.threads, one.isa, one.flags, -1, false, 0 },
        { one.fill, one.threads, one.isa, other.flags, -1, false, 0 },
    };
    static const char *const names[] = { "old memory", "threads", "packed matrices" };
    char all[128] = "an output depends on";
    attnrun_status status;
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
        c->random = *inputs;
        if (run_filled(c, ways[k], &status) != sum)
            snprintf(all + strlen(all), sizeof all - strlen(all), " %s;", names[k]);
    }
    wrong(c, all);
}

/* With other memory and threads, matrices packed or not; with c->oracle other kernels, fusion. */
static void run_again(struct fuzz_case *c, struct way way,
                      const struct fuzz_random *inputs, uint64_t sum)
{
    struct fuzz_results results = { .n = 0 };
    attnrun_status status;
    c->random = *inputs;
    c->results = c->oracle ? &results : NULL;
    const struct way first = way;
    way.fill = 0xff;
    way.threads = c->seed % 4 == 0 ? 3 : 1;
    way.flags ^= c->packed ? 0 : (uint32_t)ATTNRUN_IN_PLACE;
    const uint64_t again = run_filled(c, way, &status);
    c->results = NULL;
    /* More threads take more scratch memory, which large inputs do not always leave. */
    if (status != ATTNRUN_OK && status != ATTNRUN_E_TIME &&
        !(c->sizes && status == ATTNRUN_E_LIMIT))
        wrong(c, "the second run fails");
    if (status == ATTNRUN_OK && again != sum)
        name_difference(c, first, way, inputs, sum);
    if (status == ATTNRUN_OK && c->oracle) {
        struct way other = way;
        other.isa = (way.isa + 1 + (int)(c->seed / 4 % 2)) % ISAS;
        compare(c, way, other, inputs, &results);
        other = way;
        other.flags ^= ATTNRUN_NO_FUSION;
        compare(c, way, other, inputs, &results);
    }
    fuzz_results_free(&results);
}

/* One allocation fails, or all from one on, or the budget is small: said, or done without. */
static void run_with_faults(struct fuzz_case *c, struct way way,
                            const struct fuzz_random *inputs, uint64_t sum)
{
    enum { FAULTS = 8, BUDGETS = 4 };
    struct fuzz_random r = { c->seed };
    const int64_t calls = c->calls;
    const uint64_t peak = c->peak;
    for (int k = 0; k < FAULTS + BUDGETS; k++) {
        char what[128];
        attnrun_status status;
        way.fail_at = k < FAULTS ? fuzz_below(&r, calls) : -1;
        way.fail_on = k % 2 == 1;
        way.budget = k < FAULTS ? 0 : 1 + (uint64_t)fuzz_below(&r, (int64_t)peak);
        c->random = *inputs;
        const uint64_t again = run_filled(c, way, &status);
        snprintf(what, sizeof what,
                 "allocation %lld of %lld %s, or %llu of %llu bytes: %s",
                 (long long)way.fail_at, (long long)calls,
                 way.fail_on ? "and all after it" : "", (unsigned long long)way.budget,
                 (unsigned long long)peak, attnrun_status_name(status));
        if ((status != ATTNRUN_OK && status != ATTNRUN_E_MEMORY &&
             status != ATTNRUN_E_TIME) ||
            (status == ATTNRUN_OK && again != sum))
            wrong(c, what);
    }
    c->status = ATTNRUN_OK;
}

void fuzz_case_run(struct fuzz_case *c)
{
    static const uint32_t flags[] = {
        0, ATTNRUN_IN_PLACE, 0, ATTNRUN_NO_FUSION, ATTNRUN_COPY, ATTNRUN_FORCE_BODIES
    };
    const uint32_t any = flags[fuzz_below(&c->random, 6)];
    struct way way = {
        .fill = 0x5a, .threads = 1, .isa = (int)(c->seed % ISAS), .fail_at = -1
    };
    way.flags = c->packed ? any & ATTNRUN_COPY : any;
    const struct fuzz_random inputs = c->random;
    attnrun_status status;
    const uint64_t sum = run_filled(c, way, &status);
    c->keep = NULL;
    if (status == ATTNRUN_OK && c->faults)
        run_with_faults(c, way, &inputs, sum);
    else if (status == ATTNRUN_OK)
        run_again(c, way, &inputs, sum);
}

void fuzz_case_end(struct fuzz_case *c)
{
    bool whole = true;
    for (int i = 0; i < c->n_held; i++)
        if (c->guard)
            whole = guard_free(c->held[i], c->held_bytes[i], HELD_ALIGN) && whole;
        else
            free(c->held[i]);
    free(c->model);
    c->n_held = 0;
    c->model = NULL;
    if (!whole)
        wrong(c, "bytes beside an input were written");
}
