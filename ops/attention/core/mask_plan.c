/* mask_plan.c - checks a mask program in a plan and summarizes its leaves. mask_program.h
 * describes the program.
 *
 * In: the attributes of FusedAttention and the types of the leaves. Out: whether they are
 * a valid program, the types of its operands, the strides of its leaves, and for each
 * leaf a summary of all its elements. Cost: one pass over the leaves in each run. */
#include <math.h>

#include "mask_program.h"

/* ---- is it a program? ---- */

static bool is_integer(int32_t dtype)
{
    return dtype == ATTNRUN_I64 || dtype == ATTNRUN_I32;
}

static bool is_number(int32_t dtype) { return is_integer(dtype) || dtype == ATTNRUN_F32; }

/* The dtype of an operand of instruction k; 0 where there is none. */
static int32_t mask_type_of(const struct attn_mask_program *p, int64_t operand, int32_t k)
{
    return operand >= 0 && operand < p->n_leaves + k ? p->dtype[operand] : 0;
}

/* The dtype of the result of instruction k; 0 where it has none. */
static int32_t result_type(const struct attn_mask_program *p, int32_t k)
{
    const int64_t *word = p->code + (int64_t)k * MASK_WORDS;
    const int32_t a = mask_type_of(p, word[1], k), b = mask_type_of(p, word[2], k);
    switch (word[0]) {
    case MASK_INT:
        return word[2] == ATTNRUN_I64 || word[2] == ATTNRUN_I32 || word[2] == ATTNRUN_BOOL
                   ? (int32_t)word[2]
                   : 0;
    case MASK_FLOAT:
        return ATTNRUN_F32;
    case MASK_AT_QUERY:
    case MASK_AT_KEY:
        return ATTNRUN_I64;
    case MASK_NEG:
    case MASK_ABS:
        return is_number(a) ? a : 0;
    case MASK_NOT:
        return a == ATTNRUN_BOOL ? a : 0;
    case MASK_CAST:
        return a != 0 && (word[2] == ATTNRUN_F32 || word[2] == ATTNRUN_BOOL ||
                          (a != ATTNRUN_F32 &&
                           (word[2] == ATTNRUN_I64 || word[2] == ATTNRUN_I32)))
                   ? (int32_t)word[2]
                   : 0;
    case MASK_MOD:
        return is_integer(a) && a == b && word[2] >= p->n_leaves &&
                       p->code[(word[2] - p->n_leaves) * MASK_WORDS] == MASK_INT &&
                       p->code[(word[2] - p->n_leaves) * MASK_WORDS + 1] > 0
                   ? a
                   : 0;
    case MASK_EQUAL:
        return a != 0 && a == b ? ATTNRUN_BOOL : 0;
    case MASK_AND:
    case MASK_OR:
    case MASK_XOR:
        return a == ATTNRUN_BOOL && a == b ? a : 0;
    case MASK_WHERE: {
        const int32_t c = mask_type_of(p, word[3], k);
        return a == ATTNRUN_BOOL && b != 0 && b == c ? b : 0;
    }
    default:
        if (word[0] < 0 || word[0] >= MASK_OPCODES || !is_number(a) || a != b)
            return 0;
        return word[0] >= MASK_LESS ? ATTNRUN_BOOL : a;
    }
}

static attn_status plan_code(const attnrun_step *step, struct attn_mask_program *p)
{
    for (int32_t k = 0; k < p->n_code; k++) {
        const int64_t *word = p->code + (int64_t)k * MASK_WORDS;
        const int32_t own = p->n_leaves + k;
        p->dtype[own] = result_type(p, k);
        if (p->dtype[own] == 0)
            return op_fail(
                step, ATTNRUN_E_ATTR,
                "instruction %d of code, [%lld, %lld, %lld, %lld], does not fit "
                "its operands",
                k, (long long)word[0], (long long)word[1], (long long)word[2],
                (long long)word[3]);
        p->by_query[own] = word[0] == MASK_AT_QUERY;
        for (int32_t i = 1; i <= attn_mask_operands(word[0]); i++)
            p->by_query[own] = p->by_query[own] || p->by_query[word[i]];
    }
    return ATTNRUN_OK;
}

/* ---- leaves ---- */

static attn_status plan_leaf(const attnrun_step *step, int in, const int64_t *axes,
                             const int64_t *sizes, struct attn_mask_leaf *leaf)
{
    const attnrun_type *t = &step->in[in];
    int64_t strides[ATTNRUN_MAX_RANK], stride = 1, elements = 1;
    uint32_t used = 0;
    for (int a = t->rank - 1; a >= 0; a--) {
        strides[a] = stride;
        stride *= t->dims[a].value > 0 ? t->dims[a].value : 1;
    }
    *leaf = (struct attn_mask_leaf){ .dtype = t->dtype };
    for (int k = 0; k < MASK_AXES; k++) {
        const int64_t axis = axes[k];
        if (axis < -1 || axis >= t->rank || (axis >= 0 && (used >> axis & 1)))
            return op_fail(step, ATTNRUN_E_ATTR,
                           "axes holds %lld for input %d, expected -1 or another axis "
                           "below its rank, %d",
                           (long long)axis, in, t->rank);
        if (axis < 0)
            continue;
        used |= UINT32_C(1) << axis;
        const int64_t dim = t->dims[axis].value;
        if (dim != 1 && dim != sizes[k])
            return op_fail_input(step, in, ATTNRUN_E_SHAPE,
                                 "dim %lld cannot be broadcast to %lld", (long long)axis,
                                 (long long)sizes[k]);
        leaf->stride[k] = dim == 1 ? 0 : strides[axis];
    }
    for (int a = 0; a < t->rank; a++)
        elements *= used >> a & 1 ? 1 : t->dims[a].value;
    if (elements != 1)
        return op_fail_input(step, in, ATTNRUN_E_SHAPE,
                             "expected 1 in each dim that axes does not name");
    return ATTNRUN_OK;
}

static void plan_table(struct attn_mask_program *p, struct attn_mask_leaf *leaf,
                       const int64_t *sizes)
{
    const bool query = leaf->stride[MASK_QUERY] != 0, key = leaf->stride[MASK_KEY] != 0;
    leaf->axis = query && key ? -1 : query ? MASK_QUERY : key ? MASK_KEY : MASK_AXES;
    leaf->windows = leaf->stride[MASK_BLOCK] != 0 ? sizes[MASK_BLOCK] : 1;
    leaf->batches = leaf->stride[MASK_BATCH] != 0 ? sizes[MASK_BATCH] : 1;
    leaf->heads = leaf->stride[MASK_HEAD] != 0 ? sizes[MASK_HEAD] : 1;
    leaf->table = p->entries;
    /* A bias that all blocks share is read once for each of them, and once more to bound it. */
    leaf->pairs = leaf->axis < 0 && leaf->windows == 1 && leaf->batches == 1 &&
                  sizes[MASK_BLOCK] > 1;
    if (leaf->pairs)
        leaf->axis = MASK_AXES;
    if (leaf->axis < 0)
        return;
    const int64_t n = leaf->axis == MASK_AXES ? 1 : sizes[leaf->axis];
    leaf->blocks = ceil_div(n, ATTN_MASK_BLOCK);
    for (int64_t blocks = leaf->blocks; blocks > 0; blocks = (blocks + 1) / 2) {
        leaf->entries += blocks;
        if (blocks == 1)
            break;
    }
    p->entries += leaf->entries * leaf->windows * leaf->batches * leaf->heads;
}

static bool may_be_soft(const struct attn_mask_program *p)
{
    if (p->add >= 0)
        return true;
    return p->keep >= 0 && p->fill > -INFINITY;
}

attn_status attn_mask_plan(const attnrun_step *step, int first, attnrun_ints code,
                           attnrun_ints known_outputs, attnrun_ints axes,
                           const int64_t *sizes, struct attn_mask_program *p)
{
    const int32_t n_leaves = step->n_in > first ? step->n_in - first : 0;
    if (n_leaves > MASK_MAX_LEAVES || code.n % MASK_WORDS != 0 ||
        code.n > MASK_MAX_CODE * MASK_WORDS || known_outputs.v == NULL ||
        known_outputs.n != MASK_CONSTANTS || axes.n != (int64_t)n_leaves * MASK_AXES ||
        (n_leaves > 0 && axes.v == NULL))
        return op_fail(step, ATTNRUN_E_ATTR,
                       "code has %s, mask %lld and axes %lld, expected a "
                       "multiple of %d up to %d, then %d and %lld: %d for each of at "
                       "most %d inputs of the mask",
                       attn_plural(code.n, "number"), (long long)known_outputs.n,
                       (long long)axes.n, MASK_WORDS, MASK_MAX_CODE * MASK_WORDS,
                       MASK_CONSTANTS, (long long)n_leaves * MASK_AXES, MASK_AXES,
                       MASK_MAX_LEAVES);
    *p = (struct attn_mask_program){ .code = code.v,
                                     .n_code = (int32_t)(code.n / MASK_WORDS),
                                     .n_leaves = n_leaves,
                                     .queries = sizes[MASK_QUERY],
                                     .keys = sizes[MASK_KEY] };
    p->n = n_leaves + p->n_code;
    for (int32_t l = 0; l < n_leaves; l++) {
        TRY(plan_leaf(step, first + l, axes.v + (int64_t)l * MASK_AXES, sizes,
                      &p->leaf[l]));
        plan_table(p, &p->leaf[l], sizes);
        p->dtype[l] = p->leaf[l].dtype;
        p->by_query[l] = p->leaf[l].stride[MASK_QUERY] != 0;
    }
    TRY(plan_code(step, p));
    const uint32_t bits = (uint32_t)known_outputs.v[MASK_FACT_FILL];
    memcpy(&p->fill, &bits, sizeof bits);
    const int64_t keep = known_outputs.v[MASK_FACT_KEEP],
                  add = known_outputs.v[MASK_FACT_ADD];
    if (keep < -1 || keep >= p->n || add < -1 || add >= p->n ||
        (keep >= 0 && p->dtype[keep] != ATTNRUN_BOOL) ||
        (add >= 0 && p->dtype[add] != ATTNRUN_F32))
        return op_fail(step, ATTNRUN_E_ATTR,
                       "mask names the values %lld and %lld, expected -1 or a b8 value, "
                       "and -1 or an f32 value, of %d",
                       (long long)keep, (long long)add, p->n);
    p->keep = (int32_t)keep;
    p->add = (int32_t)add;
    p->soft = may_be_soft(p);
    for (int k = 0; k < 2; k++) {
        const int64_t max = known_outputs.v[MASK_FACT_QUERIES + k];
        if (max >= 0 && sizes[MASK_QUERY + k] > max)
            return op_fail(
                step, ATTNRUN_E_SHAPE,
                "there are %lld %s, but the mask of the file covers at most %lld",
                (long long)sizes[MASK_QUERY + k], k == 0 ? "queries" : "keys",
                (long long)max);
    }
    return ATTNRUN_OK;
}

int64_t attn_mask_table_bytes(const struct attn_mask_program *p)
{
    return p->entries * (int64_t)sizeof(struct attn_mask_entry);
}

/* ---- summaries ---- */

static double element(const attnrun_tensor *x, int64_t at)
{
    switch (x->dtype) {
    case ATTNRUN_I64:
        return (double)((const int64_t *)x->data)[at];
    case ATTNRUN_I32:
        return (double)((const int32_t *)x->data)[at];
    case ATTNRUN_F32:
        return (double)((const float *)x->data)[at];
    default:
        return ((const uint8_t *)x->data)[at] != 0 ? 1.0 : 0.0;
    }
}

/* Summarizes elements t0 … t1 - 1 along the axis of a leaf, the first of which is at
 * `at`. */
static struct attn_mask_entry summary(const attnrun_tensor *x, int64_t at, int64_t stride,
                                      int64_t t0, int64_t t1)
{
    const double far = 1e15; /* integers up to there are exact, and their differences */
    const double x0 = element(x, at), x1 = t1 - t0 > 1 ? element(x, at + stride) : x0;
    struct attn_mask_entry e = { .low = HUGE_VAL,
                                 .high = -HUGE_VAL,
                                 .line = x->dtype != ATTNRUN_F32 && fabs(x0) < far &&
                                         fabs(x1) < far };
    const double step = x1 - x0;
    for (int64_t t = t0; t < t1; t++) {
        const double v = element(x, at + (t - t0) * stride);
        e.nan = e.nan || isnan(v) || (x->dtype != ATTNRUN_F32 && fabs(v) > 9e15);
        e.low = v < e.low ? v : e.low;
        e.high = v > e.high ? v : e.high;
        e.line = e.line && v - x0 == step * (double)(t - t0);
    }
    if (e.line && fabs(e.low) < far && fabs(e.high) < far &&
        fabs(step) * (double)t1 < far) {
        e.step = (int64_t)step;
        e.base = (int64_t)x0 - e.step * t0;
    } else {
        e.line = false;
    }
    return e;
}

/* The summary of two neighbours. One element alone is a line of any slope. */
static struct attn_mask_entry both(const struct attn_mask_entry *a,
                                   const struct attn_mask_entry *b)
{
    struct attn_mask_entry e = *a;
    e.low = b->low < e.low ? b->low : e.low;
    e.high = b->high > e.high ? b->high : e.high;
    e.nan = a->nan || b->nan;
    e.line = a->line && b->line && a->step == b->step && a->base == b->base;
    return e;
}

/* A block of one element at the end continues the line of its neighbour. */
static void continue_line(struct attn_mask_entry *last,
                          const struct attn_mask_entry *before, int64_t t)
{
    if (last->line && before->line &&
        last->low == (double)before->base + (double)before->step * (double)t) {
        last->base = before->base;
        last->step = before->step;
    }
}

static void fill_levels(const struct attn_mask_leaf *leaf, struct attn_mask_entry *e)
{
    for (int64_t blocks = leaf->blocks; blocks > 1; blocks = (blocks + 1) / 2) {
        struct attn_mask_entry *up = e + blocks;
        for (int64_t i = 0; i < blocks; i += 2)
            up[i / 2] = i + 1 < blocks ? both(&e[i], &e[i + 1]) : e[i];
        e = up;
    }
}

/* Summarizes all pairs of a head. */
static attn_status summarize_pairs(const struct attn_mask_program *p,
                                   const struct attn_mask_leaf *leaf,
                                   const attnrun_tensor *x, int64_t at,
                                   struct attn_mask_entry *e)
{
    *e = (struct attn_mask_entry){ .low = HUGE_VAL, .high = -HUGE_VAL };
    for (int64_t i = 0; i < p->queries; i++, at += leaf->stride[MASK_QUERY]) {
        const struct attn_mask_entry row =
            summary(x, at, leaf->stride[MASK_KEY], 0, p->keys);
        *e = i == 0 ? row : both(e, &row);
        TRY(attn_poll_work(p->keys * 8));
    }
    e->line = false;
    return ATTNRUN_OK;
}

attn_status attn_mask_summarize(const struct attn_mask_program *p, int32_t l,
                                const attnrun_tensor *x, struct attn_mask_entry *table)
{
    const struct attn_mask_leaf *leaf = &p->leaf[l];
    const int64_t stride =
        leaf->axis < 0 || leaf->axis == MASK_AXES ? 0 : leaf->stride[leaf->axis];
    const int64_t n = leaf->axis == MASK_QUERY ? p->queries
                      : leaf->axis == MASK_KEY ? p->keys
                                               : 1;
    const int64_t places = leaf->windows * leaf->batches * leaf->heads;
    for (int64_t o = 0; leaf->axis >= 0 && o < places; o++) {
        struct attn_mask_entry *e = table + leaf->table + o * leaf->entries;
        const int64_t b = o / leaf->heads;
        const int64_t at = b / leaf->batches * leaf->stride[MASK_BLOCK] +
                           b % leaf->batches * leaf->stride[MASK_BATCH] +
                           o % leaf->heads * leaf->stride[MASK_HEAD];
        if (leaf->pairs) {
            TRY(summarize_pairs(p, leaf, x, at, e));
            continue;
        }
        for (int64_t i = 0, t = 0; i < leaf->blocks; i++, t += ATTN_MASK_BLOCK) {
            const int64_t end = n - t < ATTN_MASK_BLOCK ? n : t + ATTN_MASK_BLOCK;
            e[i] = summary(x, at + t * stride, stride, t, end);
            if (i > 0 && end - t == 1)
                continue_line(&e[i], &e[i - 1], t);
        }
        TRY(attn_poll_work(n * 8));
        fill_levels(leaf, e);
    }
    return ATTNRUN_OK;
}
