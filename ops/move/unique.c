/* unique.c - Unique: the different elements, or slices along `axis`, of x. The step is a
 * dynamic-shape step.
 *
 * x                 any type and shape
 * Y                 sorted (default), or in order of first occurrence
 * indices           where in x each of Y occurs first
 * inverse_indices   where in Y each of x is
 * counts            how often each of Y occurs
 *
 * NaNs are equal to each other and are sorted last. com.microsoft Unique: x f32 (n), in
 * order of first occurrence; the outputs are Y, inverse_indices and counts; no NaN is
 * equal to another one.
 * Cost: a stable merge sort, O(n log n) comparisons; scratch 40 bytes an element. Source:
 * ONNX Unique-11; ONNX Runtime contrib operators. */
#include <math.h>

#include "move.h"

struct unique_args {
    int64_t axis, sorted;
};
static const attnrun_attr_def unique_attrs[] = {
    ATTR_INT(struct unique_args, axis, OP_INT_ABSENT),
    ATTR_FLAG(struct unique_args, sorted, 1), ATTR_END
};

/* The slices that are compared: slice k is element (o, k, i) for all o, i. */
struct slices {
    const attnrun_tensor *x;
    int64_t n, outer, inner;
    bool nan_apart;                                  /* a NaN is equal to itself only */
    int64_t *order, *other, *group, *first, *counts; /* scratch, n each */
};

static attn_status unique_infer(attnrun_step *step)
{
    const struct unique_args *args = step->args;
    const attnrun_type *in = &step->in[0];
    attnrun_dim dims[ATTNRUN_MAX_RANK], n = attnrun_dim_unknown(step),
                                        all = attnrun_dim_unknown(step);
    int axis = 0, rank = args->axis == OP_INT_ABSENT ? 1 : in->rank;
    TRY(op_move_need_bytes(step, 0));
    if (in->dtype == ATTNRUN_C64 || in->dtype == ATTNRUN_C128)
        return op_fail_input(step, 0, ATTNRUN_E_DTYPE, "expected a type with an order");
    if (args->axis != OP_INT_ABSENT && rank >= 0)
        TRY(op_axis(step, args->axis, rank, false, &axis));
    for (int i = 0; i < rank; i++)
        dims[i] = i == axis ? n : in->dims[i];
    if (in->rank >= 0)
        all = args->axis == OP_INT_ABSENT ? op_dims_product(step, in->dims, 0, in->rank)
                                          : in->dims[axis];
    TRY(op_out(step, 0, in->dtype, rank, dims));
    TRY(op_out(step, 1, ATTNRUN_I64, 1, &n));
    TRY(op_out(step, 2, ATTNRUN_I64, 1, &all));
    TRY(op_out(step, 3, ATTNRUN_I64, 1, &n));
    if (!step->concrete)
        return ATTNRUN_OK;
    if (!ck_mul(all.value, 40, &step->scratch_bytes))
        step->scratch_bytes = -1;
    int64_t bytes = dtype_bytes_of(in->dtype, op_count(in, 0, in->rank)), lists;
    if (ck_mul(all.value, 24, &lists) && bytes >= 0 && ck_add(bytes, lists, &bytes))
        attnrun_step_heap_bound(step, bytes);
    return ATTNRUN_OK;
}

static int compare_strings(const attnrun_string *a, const attnrun_string *b)
{
    size_t n = (size_t)(a->n < b->n ? a->n : b->n);
    if (attn_poll_work((int64_t)n) != ATTNRUN_OK)
        return 0; /* the loops around it see the stop */
    int order = n > 0 ? memcmp(a->data, b->data, n) : 0;
    return order != 0 ? order : (a->n > b->n) - (a->n < b->n);
}

static int compare_elements(const attnrun_tensor *x, int64_t a, int64_t b)
{
    if (x->dtype == ATTNRUN_STRING)
        return compare_strings((const attnrun_string *)x->data + a,
                               (const attnrun_string *)x->data + b);
    if (x->dtype == ATTNRUN_U64) {
        uint64_t p = ((const uint64_t *)x->data)[a], q = ((const uint64_t *)x->data)[b];
        return (p > q) - (p < q);
    }
    if (dtype_in(x->dtype, ATTN_DT_SINT | ATTN_DT_UINT | ATTN_DT(BOOL))) {
        int64_t p = tensor_get_int(x, a), q = tensor_get_int(x, b);
        return (p > q) - (p < q);
    }
    double p = tensor_get_real(x, a), q = tensor_get_real(x, b);
    if (p != p || q != q)
        return (p != p) - (q != q);
    return (p > q) - (p < q);
}

static int unique_compare(const struct slices *s, int64_t a, int64_t b)
{
    for (int64_t o = 0; o < s->outer; o++)
        for (int64_t i = 0; i < s->inner; i++) {
            if (attn_stops(o * s->inner + i))
                return 0;
            int order = compare_elements(s->x, (o * s->n + a) * s->inner + i,
                                         (o * s->n + b) * s->inner + i);
            if (order != 0)
                return order;
        }
    if (s->nan_apart && a != b && isnan(((const float *)s->x->data)[a]))
        return a < b ? -1 : 1;
    return 0;
}

/* Merges order[from, middle) and order[middle, end) into other[from, end). */
static void merge_runs(const struct slices *s, int64_t from, int64_t middle, int64_t end)
{
    int64_t a = from, b = middle;
    for (int64_t k = from; k < end && !attn_stops(k); k++) {
        bool left =
            b >= end || (a < middle && unique_compare(s, s->order[a], s->order[b]) <= 0);
        s->other[k] = s->order[left ? a++ : b++];
    }
}

static attn_status sort(struct slices *s, const attnrun_work *work)
{
    for (int64_t k = 0; k < s->n; k++)
        s->order[k] = k;
    for (int64_t width = 1; width < s->n; width *= 2) {
        for (int64_t from = 0; from < s->n; from += 2 * width) {
            int64_t middle = from + width < s->n ? from + width : s->n;
            int64_t end = from + 2 * width < s->n ? from + 2 * width : s->n;
            merge_runs(s, from, middle, end);
            if (OP_CANCELLED_AFTER(work, (end - from) * 16))
                return ATTNRUN_E_CANCELLED;
        }
        int64_t *sorted = s->other;
        s->other = s->order;
        s->order = sorted;
    }
    return ATTNRUN_OK;
}

/* Numbers the groups of equal slices; returns how many. */
static int64_t number_groups(const struct slices *s, bool sorted)
{
    int64_t groups = 0, next = 0;
    for (int64_t k = 0; k < s->n && !attn_stops(k); k++) {
        if (k == 0 || unique_compare(s, s->order[k - 1], s->order[k]) != 0) {
            s->first[groups] = s->order[k];
            s->counts[groups++] = 0;
        }
        s->group[s->order[k]] = groups - 1;
        s->counts[groups - 1]++;
    }
    if (sorted || attn_poll() != ATTNRUN_OK) /* stopped: groups are missing */
        return groups;
    /* By first occurrence: other[] maps old numbers to new ones, order[] keeps the
     * counts. */
    for (int64_t g = 0; g < groups; g++)
        s->other[g] = -1;
    for (int64_t k = 0; k < s->n && !attn_stops(k); k++) {
        int64_t old = s->group[k];
        if (s->other[old] < 0) {
            s->order[next] = s->counts[old];
            s->first[next] = k;
            s->other[old] = next++;
        }
        s->group[k] = s->other[old];
    }
    memcpy(s->counts, s->order, (size_t)groups * 8);
    return groups;
}

static attn_status write_list(const attnrun_step *step, int out, const int64_t *values,
                              int64_t n)
{
    TRY(attnrun_step_alloc(step, out, ATTNRUN_I64, 1, &n));
    if (op_has_out(step, out) && step->y[out].data != NULL && n > 0)
        TRY(attn_poll_copy(step->y[out].data, values, n * 8));
    return ATTNRUN_OK;
}

static void write_slices(const attnrun_step *step, const struct slices *s, int64_t groups)
{
    int64_t bytes = s->inner * dtype_bytes(s->x->dtype);
    char *y = step->y[0].data;
    for (int64_t o = 0; o < s->outer && y != NULL; o++)
        for (int64_t g = 0; g < groups; g++)
            if (attn_poll_copy(y + (o * groups + g) * bytes,
                               (const char *)s->x->data +
                                   (o * s->n + s->first[g]) * bytes,
                               bytes) != ATTNRUN_OK)
                return;
}

static void split_scratch(struct slices *s, int64_t *scratch)
{
    s->order = scratch;
    s->other = s->order + s->n;
    s->group = s->other + s->n;
    s->first = s->group + s->n;
    s->counts = s->first + s->n;
}

static attn_status unique_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct unique_args *args = step->args;
    const attnrun_tensor *x = &step->x[0];
    struct slices s = { .x = x, .n = tensor_count(x), .outer = 1, .inner = 1 };
    int64_t dims[ATTNRUN_MAX_RANK];
    int axis = 0, rank = 1;
    memcpy(dims, x->dims, sizeof dims);
    if (args->axis != OP_INT_ABSENT) {
        rank = x->rank;
        axis = (int)(args->axis < 0 ? args->axis + rank : args->axis);
        s.n = x->dims[axis];
        s.outer = tensor_count(x) > 0 ? tensor_dims_product(x, 0, axis) : 0;
        s.inner = tensor_dims_product(x, axis + 1, rank);
    }
    split_scratch(&s, work->scratch);
    TRY(sort(&s, work));
    int64_t groups = number_groups(&s, args->sorted != 0);
    TRY(attn_poll()); /* else some numbers are missing */
    dims[axis] = groups;
    TRY(attnrun_step_alloc(step, 0, x->dtype, rank, dims));
    TRY(write_list(step, 1, s.first, groups));
    TRY(write_list(step, 2, s.group, s.n));
    TRY(write_list(step, 3, s.counts, groups));
    write_slices(step, &s, groups);
    return ATTNRUN_OK;
}

const attnrun_op_def op_unique_11 = {
    OP_ROW,
    .flags = ATTNRUN_OP_DYNAMIC,
    .name = "Unique",
    .since = 11,
    .inputs = "X:T",
    .outputs = "Y:T indices:i64? inverse_indices:i64? counts:i64?",
    .types = "T=all",
    .args_bytes = sizeof(struct unique_args),
    .attrs = unique_attrs,
    .infer = unique_infer,
    .run = unique_run
};

/* ---- com.microsoft Unique ---- */

static attn_status flat_infer(attnrun_step *step)
{
    const attnrun_type *in = &step->in[0];
    attnrun_dim n = attnrun_dim_unknown(step);
    TRY(op_need_rank(step, 0, 1));
    TRY(op_out(step, 0, in->dtype, 1, &n));
    TRY(op_out(step, 1, ATTNRUN_I64, in->rank, in->dims));
    TRY(op_out(step, 2, ATTNRUN_I64, 1, &n));
    if (step->concrete && !ck_mul(in->dims[0].value, 40, &step->scratch_bytes))
        step->scratch_bytes = -1;
    return ATTNRUN_OK;
}

static attn_status flat_run(const attnrun_step *step, const attnrun_work *work)
{
    const attnrun_tensor *x = &step->x[0];
    struct slices s = {
        .x = x, .n = tensor_count(x), .outer = 1, .inner = 1, .nan_apart = true
    };
    split_scratch(&s, work->scratch);
    TRY(sort(&s, work));
    int64_t groups = number_groups(&s, false);
    TRY(attnrun_step_alloc(step, 0, x->dtype, 1, &groups));
    TRY(write_list(step, 1, s.group, s.n));
    TRY(write_list(step, 2, s.counts, groups));
    write_slices(step, &s, groups);
    return ATTNRUN_OK;
}

const attnrun_op_def op_ms_unique_1 = {
    OP_ROW_OF("com.microsoft"), .flags = ATTNRUN_OP_DYNAMIC,
    .name = "Unique",           .since = 1,
    .inputs = "x:f32",          .outputs = "y:f32 idx:i64 counts:i64",
    .infer = flat_infer,        .run = flat_run,
    .cost = "O(n log n)",       .source = "ONNX Runtime contrib operators",
};
