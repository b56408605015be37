/* write_mask.c - writes a mask program from the nodes that make a mask of all pairs of queries and
 * keys. In: the values that are added to scores, or keep them. Out: instructions, and leaves.
 * Leaves are values that have no dim of queries or none of keys, and values that cannot be
 * followed further.
 *
 *   Range ── Unsqueeze ─┐                                   the position of the query, of the key
 *         └─ Unsqueeze ─┴ Sub ── Abs ── LessOrEqual 256     sub, abs, less or equal
 *   mask ─── Unsqueeze ──────────────── And                 leaf 0: (1, n); and
 *
 * The pass follows elementwise nodes, Trilu and nodes that move axes. Expand is left out, since
 * the mask is broadcast anyway. A Range over all queries or keys is their positions
 * (mask_positions.c). A constant matrix that is a band (mask_band.c), also cut to the
 * present queries and keys, becomes a comparison of positions, and the program holds for as many
 * as the constant has. Each axis of a value is one of blocks, batch, heads, queries and keys, or
 * has one element. A stack replaces recursion. */
#include "write_mask.h"

#include <math.h>

#include "../../runtime/dtype.h"
#include "../../runtime/poll.h"

enum { RESULT = MASK_RESULT, MAX_VALUES = 96, MAX_STACK = 96 };

/* A value, and which axis of the mask each of its axes is. */
struct request {
    int32_t value;
    int8_t axes[ATTNRUN_MAX_RANK];
};

struct known {
    struct request request;
    int64_t operand;
};

struct mask_writer {
    const struct attn_graph *graph;
    const struct attn_mask_source *source;
    struct attn_mask_written *out;
    struct known known[MAX_VALUES];
    struct request stack[MAX_STACK];
    int32_t n_known, n_stack;
    int64_t max[2]; /* queries and keys; -1: any number */
    bool failed, fits;
};

static bool is_known_type(const struct mask_writer *w, int32_t value)
{
    const attnrun_type *t = match_type(w->graph, value);
    return t->kind == ATTNRUN_TENSOR && t->rank >= 0 &&
           (t->dtype == ATTNRUN_BOOL || t->dtype == ATTNRUN_I64 ||
            t->dtype == ATTNRUN_I32 || t->dtype == ATTNRUN_F32);
}

static bool same_request(const struct mask_writer *w, const struct request *a,
                         const struct request *b)
{
    const int32_t rank = match_type(w->graph, a->value)->rank;
    return a->value == b->value &&
           (rank <= 0 || memcmp(a->axes, b->axes, (size_t)rank * sizeof a->axes[0]) == 0);
}

static bool find_mask_value(const struct mask_writer *w, const struct request *r,
                            int64_t *operand)
{
    for (int32_t k = 0; k < w->n_known; k++)
        if (same_request(w, &w->known[k].request, r)) {
            *operand = w->known[k].operand;
            return true;
        }
    return false;
}

static void remember(struct mask_writer *w, const struct request *r, int64_t operand)
{
    if (w->n_known == MAX_VALUES)
        w->failed = true;
    else
        w->known[w->n_known++] = (struct known){ *r, operand };
}

/* ---- instructions and leaves ---- */

static int64_t write_mask_put(struct mask_writer *w, int64_t opcode, int64_t a, int64_t b,
                              int64_t c)
{
    const int64_t word[MASK_WORDS] = { opcode, a, b, c };
    for (int32_t k = 0; k < w->out->n_code; k++)
        if (memcmp(w->out->code + k * MASK_WORDS, word, sizeof word) == 0)
            return RESULT + k;
    if (w->out->n_code == MASK_MAX_CODE) {
        w->failed = true;
        return 0;
    }
    memcpy(w->out->code + w->out->n_code * MASK_WORDS, word, sizeof word);
    return RESULT + w->out->n_code++;
}

static int64_t put_element(struct mask_writer *w, const attnrun_tensor *x, int64_t k)
{
    if (x->dtype != ATTNRUN_F32)
        return write_mask_put(w, MASK_INT, tensor_get_int(x, k), x->dtype, 0);
    const float number = (float)tensor_get_real(x, k);
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return write_mask_put(w, MASK_FLOAT, bits, 0, 0);
}

/* A dim that is the mask's, or is broadcast to it, or the sum would not be computed. */
static bool dim_fits(const struct mask_writer *w, attnrun_dim dim, int axis)
{
    return dim_is(dim, 1) ||
           (axis >= 0 && dim_equal(w->source->dims[axis],
                                   attn_dim_combine(w->graph->model->dims, DIM_BROADCAST,
                                                    w->source->dims[axis], dim)));
}

static void check_fit(struct mask_writer *w, const struct request *r)
{
    const attnrun_type *t = match_type(w->graph, r->value);
    for (int i = 0; i < t->rank; i++)
        w->fits = w->fits && dim_fits(w, t->dims[i], r->axes[i]);
}

static int64_t put_leaf(struct mask_writer *w, const struct request *r)
{
    struct attn_mask_written *out = w->out;
    if (out->n_leaves == MASK_MAX_LEAVES) {
        w->failed = true;
        return 0;
    }
    int64_t *axes = out->axes + (int64_t)out->n_leaves * MASK_AXES;
    for (int k = 0; k < MASK_AXES; k++)
        axes[k] = -1;
    for (int i = 0; i < match_type(w->graph, r->value)->rank; i++)
        if (r->axes[i] >= 0)
            axes[r->axes[i]] = i;
    check_fit(w, r);
    out->leaves[out->n_leaves] = r->value;
    return out->n_leaves++;
}

/* ---- operators ---- */

/* Operand `value` of an elementwise node, whose result is `r`. */
static bool operand_request(const struct mask_writer *w, const struct request *r,
                            int32_t value, struct request *made)
{
    if (value < 0 || !is_known_type(w, value))
        return false;
    const int32_t rank = match_type(w->graph, value)->rank,
                  behind = match_type(w->graph, r->value)->rank - rank;
    *made = (struct request){ .value = value };
    for (int32_t i = 0; i < rank && behind >= 0; i++)
        made->axes[i] = r->axes[behind + i];
    return behind >= 0;
}

/* What a node that only moves axes reads. */
static bool moved_request(const struct mask_writer *w, const struct attn_node *node,
                          const struct request *r, struct request *made)
{
    *made = (struct request){ .value = node->in[0] };
    return made->value >= 0 && is_known_type(w, made->value) &&
           attn_mask_moved_axes(w->graph, node, r->axes, made->axes);
}

/* Expand: its dims are those of the mask, or 1. */
static bool expanded_request(struct mask_writer *w, const struct attn_node *node,
                             const struct request *r, struct request *made)
{
    if (!attn_match_expands(w->graph, node) || !operand_request(w, r, node->in[0], made))
        return false;
    check_fit(w, r);
    return true;
}

/* ---- Trilu ---- */

static bool reads_trilu(const struct mask_writer *w, const struct attn_node *node,
                        const struct request *r, int64_t *diagonal)
{
    const attnrun_type *t = match_type(w->graph, r->value);
    double k = 0;
    if (!node_is(node, "Trilu") || t->rank < 2 || r->axes[t->rank - 2] != MASK_QUERY ||
        r->axes[t->rank - 1] != MASK_KEY ||
        !dim_equal(t->dims[t->rank - 2], w->source->dims[MASK_QUERY]) ||
        !dim_equal(t->dims[t->rank - 1], w->source->dims[MASK_KEY]) ||
        (node->pub.n_in > 1 && node->in[1] >= 0 &&
         !attn_value_scalar(w->graph, node->in[1], &k)))
        return false;
    *diagonal = (int64_t)k;
    return fabs(k) < 1e9;
}

static int64_t put_int(struct mask_writer *w, int64_t x, int32_t dtype)
{
    return write_mask_put(w, MASK_INT, x, dtype, 0);
}

static int64_t put_distance(struct mask_writer *w)
{
    const int64_t key = write_mask_put(w, MASK_AT_KEY, 0, 0, 0),
                  query = write_mask_put(w, MASK_AT_QUERY, 0, 0, 0);
    return write_mask_put(w, MASK_SUB, key, query, 0);
}

static int64_t put_trilu(struct mask_writer *w, const struct attn_node *node, int64_t x,
                         int64_t diagonal)
{
    const bool upper = attn_match_int(node, "upper", 1) != 0;
    const int32_t dtype = match_type(w->graph, node->out[0])->dtype;
    const int64_t k = put_int(w, diagonal, ATTNRUN_I64);
    const int64_t kept = write_mask_put(w, upper ? MASK_GREATER_EQUAL : MASK_LESS_EQUAL,
                                        put_distance(w), k, 0);
    const int64_t zero = dtype == ATTNRUN_F32 ? write_mask_put(w, MASK_FLOAT, 0, 0, 0)
                                              : put_int(w, 0, dtype);
    return write_mask_put(w, MASK_WHERE, kept, x, zero);
}

/* ---- constant bands ---- */

/* The constant that Slices cut `r` out of, along axes of queries and keys, with positions of
 * its first element in `at` (queries, keys); -1: none. */
static int32_t uncut(const struct mask_writer *w, const struct request *r, int64_t *at)
{
    int32_t value = r->value;
    at[0] = at[1] = 0;
    for (int k = 0; k < 8 && !match_is_constant(w->graph, value); k++) {
        const struct attn_node *node = attn_graph_producer(w->graph, value);
        double start, axis, step = 1;
        if (!node_is(node, "Slice") || node->pub.n_in < 4 || node->in[3] < 0 ||
            !attn_value_scalar(w->graph, node->in[1], &start) ||
            !attn_value_scalar(w->graph, node->in[3], &axis) || start < 0 ||
            start > 1e12 ||
            (node->pub.n_in > 4 && node->in[4] >= 0 &&
             (!attn_value_scalar(w->graph, node->in[4], &step) || step != 1)))
            return -1;
        const int32_t rank = match_type(w->graph, value)->rank;
        axis += axis < 0 ? rank : 0;
        if (axis < 0 || axis >= rank || r->axes[(int)axis] < MASK_QUERY)
            return -1;
        at[r->axes[(int)axis] - MASK_QUERY] += (int64_t)start;
        value = node->in[0];
        if (value < 0 || match_type(w->graph, value)->rank != rank)
            return -1;
    }
    return match_is_constant(w->graph, value) ? value : -1;
}

/* A dim of as many elements as the mask has, from `start` on of `n`; or fewer where the
 * constant ends, which then is an error. */
static bool is_cut_to(const struct mask_writer *w, attnrun_dim dim, int axis,
                      int64_t start, int64_t n)
{
    struct attn_dims *dims = w->graph->model->dims;
    const attnrun_dim want = w->source->dims[axis];
    if (dim_equal(dim, want))
        return true;
    const attnrun_dim end = attn_dim_combine(dims, DIM_ADD, want, dim_of(start));
    const attnrun_dim cut = attn_dim_combine(dims, DIM_MIN, end, dim_of(n));
    return n - start > 1 &&
           dim_equal(dim, attn_dim_combine(dims, DIM_SUB, cut, dim_of(start)));
}

/* The axes of the constant: one of queries before one of keys, all others 1. */
static bool matrix_axes(const struct request *r, const attnrun_tensor *x, int *row,
                        int *column)
{
    *row = *column = -1;
    for (int i = 0; i < x->rank; i++) {
        if (r->axes[i] == MASK_QUERY)
            *row = i;
        else if (r->axes[i] == MASK_KEY)
            *column = i;
        else if (x->dims[i] != 1)
            return false;
    }
    return *row >= 0 && *column > *row;
}

static int64_t put_band(struct mask_writer *w, const attnrun_tensor *x,
                        const struct attn_mask_band *band, int64_t shift)
{
    int64_t seen = -1;
    if (!band->open_first)
        seen = write_mask_put(w, MASK_GREATER_EQUAL, put_distance(w),
                              put_int(w, band->first - shift, ATTNRUN_I64), 0);
    if (!band->open_last) {
        const int64_t last =
            write_mask_put(w, MASK_LESS_EQUAL, put_distance(w),
                           put_int(w, band->last - shift, ATTNRUN_I64), 0);
        seen = seen < 0 ? last : write_mask_put(w, MASK_AND, seen, last, 0);
    }
    const int64_t inside = put_element(w, x, band->inside);
    return seen < 0 ? inside
                    : write_mask_put(w, MASK_WHERE, seen, inside,
                                     put_element(w, x, band->outside));
}

/* `r` as a band of a constant; *operand: what it is. */
static attn_status read_band(struct mask_writer *w, const struct request *r,
                             int64_t *operand, bool *found)
{
    int64_t at[2];
    int axes[2];
    struct attn_mask_band band;
    const int32_t constant = uncut(w, r, at);
    *found = false;
    if (constant < 0)
        return ATTNRUN_OK;
    const attnrun_tensor *x = &w->graph->values[constant].data;
    if (!matrix_axes(r, x, &axes[0], &axes[1]))
        return ATTNRUN_OK;
    int64_t left[2];
    for (int k = 0; k < 2; k++) {
        left[k] = x->dims[axes[k]] - at[k];
        if (left[k] < 1 || !is_cut_to(w, match_type(w->graph, r->value)->dims[axes[k]],
                                      MASK_QUERY + k, at[k], x->dims[axes[k]]))
            return ATTNRUN_OK;
    }
    TRY(attn_mask_find_band(x, x->dims[axes[0]], x->dims[axes[1]], &band, found));
    if (!*found)
        return ATTNRUN_OK;
    for (int k = 0; k < 2; k++)
        if (w->max[k] < 0 || left[k] < w->max[k])
            w->max[k] = left[k];
    *operand = put_band(w, x, &band, at[1] - at[0]);
    return ATTNRUN_OK;
}

/* ---- positions ---- */

/* The values of a line of queries or keys that counts on from one number. Not in a program that is
 * half full: it has to hold the rest of the mask. */
static bool is_of_positions(const struct mask_writer *w, const struct request *r)
{
    const attnrun_type *t = match_type(w->graph, r->value);
    int axis = -1;
    for (int i = 0; i < t->rank; i++) {
        if (dim_is(t->dims[i], 1))
            continue;
        if (axis >= 0 || r->axes[i] < MASK_QUERY)
            return false;
        axis = r->axes[i];
    }
    return axis >= 0 && w->out->n_code < MASK_MAX_CODE / 2 &&
           attn_mask_is_positions(w->graph, r->value, w->source->dims[axis]);
}

/* A Range from the number `start` on. */
static int64_t put_range(struct mask_writer *w, const struct request *r, int64_t start)
{
    const int32_t dtype = match_type(w->graph, r->value)->dtype;
    int64_t at = write_mask_put(w, r->axes[0] == MASK_QUERY ? MASK_AT_QUERY : MASK_AT_KEY,
                                0, 0, 0);
    if (dtype != ATTNRUN_I64)
        at = write_mask_put(w, MASK_CAST, at, dtype, 0);
    const int64_t zero[MASK_WORDS] = { MASK_INT, 0, dtype, 0 };
    const bool from_zero =
        start >= RESULT &&
        memcmp(w->out->code + (start - RESULT) * MASK_WORDS, zero, sizeof zero) == 0;
    return from_zero ? at : write_mask_put(w, MASK_ADD, at, start, 0);
}

/* ---- the walk ---- */

/* Both a dim of queries and one of keys that may be more than 1. */
static bool is_of_pairs(const struct mask_writer *w, const struct request *r)
{
    const attnrun_type *t = match_type(w->graph, r->value);
    uint32_t axes = 0;
    for (int i = 0; i < t->rank; i++)
        if (!dim_is(t->dims[i], 1) && r->axes[i] >= 0)
            axes |= UINT32_C(1) << r->axes[i];
    return (axes >> MASK_QUERY & 1) != 0 && (axes >> MASK_KEY & 1) != 0;
}

static bool is_number(const struct mask_writer *w, int32_t value, attnrun_tensor *x)
{
    const struct attn_node *node = attn_graph_producer(w->graph, value);
    const struct attn_attr *attr = NULL;
    *x = w->graph->values[value].data;
    if (x->data != NULL)
        return tensor_count(x) == 1;
    if (!node_is(node, "ConstantOfShape"))
        return false;
    attr = attn_node_attr(node, "value");
    *x = attr != NULL && attr->kind == ATTN_ATTR_TENSOR ? attr->tensor : *x;
    return x->data != NULL && tensor_count(x) == 1 &&
           x->dtype == match_type(w->graph, value)->dtype;
}

/* The operands that a request waits for; returns how many, -1: it is a leaf. */
static int32_t mask_operands(struct mask_writer *w, const struct request *r,
                             const struct attn_node *node, int64_t opcode,
                             struct request *operands)
{
    int64_t diagonal;
    if (opcode >= 0) {
        for (int32_t i = 0; i < node->pub.n_in; i++)
            if (!operand_request(w, r, node->in[i], &operands[i]))
                return -1;
        return node->pub.n_in;
    }
    if (node == NULL || node->pub.n_in < 1)
        return -1;
    if (node_is(node, "Range")) {
        operands[0] = (struct request){ .value = node->in[0] };
        return 1;
    }
    if (reads_trilu(w, node, r, &diagonal))
        return operand_request(w, r, node->in[0], operands) ? 1 : -1;
    return moved_request(w, node, r, operands) || expanded_request(w, node, r, operands)
               ? 1
               : -1;
}

static int64_t mask_put_node(struct mask_writer *w, const struct request *r,
                             const struct attn_node *node, int64_t opcode,
                             const int64_t *x)
{
    int64_t diagonal;
    if (opcode == MASK_CAST)
        return write_mask_put(w, opcode, x[0], match_type(w->graph, r->value)->dtype, 0);
    if (opcode == MASK_WHERE)
        return write_mask_put(w, opcode, x[0], x[1], x[2]);
    if (opcode >= 0)
        return write_mask_put(w, opcode, x[0], opcode < MASK_ADD ? 0 : x[1], 0);
    if (node_is(node, "Range"))
        return put_range(w, r, x[0]);
    return reads_trilu(w, node, r, &diagonal) ? put_trilu(w, node, x[0], diagonal) : x[0];
}

/* The request on top of the stack: it gets its operand, or others are put above it. */
static attn_status step(struct mask_writer *w)
{
    const struct request r = w->stack[w->n_stack - 1];
    const struct attn_node *node = attn_graph_producer(w->graph, r.value);
    struct request operands[3];
    attnrun_tensor number;
    int64_t x[3] = { 0 }, operand = 0;
    bool found = find_mask_value(w, &r, &operand);
    if (found) {
        w->n_stack--;
        return ATTNRUN_OK;
    }
    if (is_number(w, r.value, &number)) {
        check_fit(w, &r);
        operand = put_element(w, &number, 0);
        found = true;
    }
    if (!found && is_of_pairs(w, &r))
        TRY(read_band(w, &r, &operand, &found));
    const int64_t opcode = !found && node != NULL ? attn_mask_opcode(w->graph, node) : -1;
    int32_t n = -1;
    if (!found && (is_of_pairs(w, &r) || is_of_positions(w, &r)))
        n = mask_operands(w, &r, node, opcode, operands);
    for (int32_t i = 0; i < n; i++) {
        if (find_mask_value(w, &operands[i], &x[i]))
            continue;
        if (w->n_stack == MAX_STACK) {
            w->failed = true;
            return ATTNRUN_OK;
        }
        w->stack[w->n_stack++] = operands[i];
        return ATTNRUN_OK;
    }
    if (!found)
        operand = n < 0 ? put_leaf(w, &r) : mask_put_node(w, &r, node, opcode, x);
    remember(w, &r, operand);
    w->n_stack--;
    return ATTNRUN_OK;
}

/* The operand of a value that is broadcast to the scores. */
static attn_status write_value(struct mask_writer *w, int32_t value, int64_t *operand)
{
    struct request r = { .value = value };
    *operand = -1;
    if (value < 0)
        return ATTNRUN_OK;
    const int32_t rank = match_type(w->graph, value)->rank;
    if (!is_known_type(w, value) || rank > w->source->rank) {
        w->failed = true;
        return ATTNRUN_OK;
    }
    for (int32_t i = 0; i < rank; i++)
        r.axes[i] = w->source->axes[w->source->rank - rank + i];
    w->stack[w->n_stack++] = r;
    for (int64_t n = 0; w->n_stack > 0 && !w->failed; n++) {
        TRY(attn_poll_work(1024));
        TRY(step(w));
    }
    if (!w->failed && !find_mask_value(w, &r, operand))
        w->failed = true;
    return ATTNRUN_OK;
}

/* Where scores stay, as keep[i] says, too; *own: as it says alone. */
static attn_status write_keep(struct mask_writer *w, int i, int64_t *own, int64_t *keep)
{
    TRY(write_value(w, w->source->keep[i], own));
    if (w->failed || *own < 0)
        return ATTNRUN_OK;
    if (w->source->drops[i])
        *own = write_mask_put(w, MASK_NOT, *own, 0, 0);
    *keep = *keep < 0 ? *own : write_mask_put(w, MASK_AND, *keep, *own, 0);
    return ATTNRUN_OK;
}

/* *add, the sum of what is added to scores, and one more value. */
static attn_status write_added(struct mask_writer *w, int32_t value, int64_t *add)
{
    int64_t own;
    TRY(write_value(w, value, &own));
    if (!w->failed && own >= 0)
        *add = *add < 0 ? own : write_mask_put(w, MASK_ADD, *add, own, 0);
    return ATTNRUN_OK;
}

static int64_t put_float(struct mask_writer *w, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return write_mask_put(w, MASK_FLOAT, bits, 0, 0);
}

/* What is added to scores and to the zeros in the place of others. */
static int64_t put_fills(struct mask_writer *w, const int64_t *own)
{
    int64_t added = put_float(w, 0.0f);
    for (int i = MASK_KEEPS - 1; i >= 0; i--)
        if (own[i] >= 0)
            added = write_mask_put(w, MASK_WHERE, own[i], added,
                                   put_float(w, w->source->fills[i]));
    return added;
}

/* ---- the whole ---- */

/* One tensor of all pairs, added as it is. */
static bool is_trivial(const struct mask_writer *w)
{
    const struct attn_mask_written *out = w->out;
    if (out->n_code > 0 || out->n_leaves != 1 || out->mask[MASK_FACT_KEEP] >= 0)
        return false;
    const int64_t query = out->axes[MASK_QUERY], key = out->axes[MASK_KEY];
    const attnrun_type *t = match_type(w->graph, out->leaves[0]);
    return query >= 0 && key >= 0 && !dim_is(t->dims[query], 1) &&
           !dim_is(t->dims[key], 1);
}

attn_status attn_mask_write(const struct attn_graph *graph,
                            const struct attn_mask_source *source,
                            struct attn_mask_written *out, bool *done)
{
    struct mask_writer w = {
        .graph = graph, .source = source, .out = out, .max = { -1, -1 }, .fits = true
    };
    int64_t keep = -1, own[MASK_KEEPS], add = -1;
    *out = (struct attn_mask_written){ .n_leaves = 0 };
    *done = false;
    for (int i = 0; i < MASK_KEEPS && !w.failed; i++)
        TRY(write_keep(&w, i, &own[i], &keep));
    for (int i = 0; i < MASK_ADDS && !w.failed; i++)
        TRY(write_added(&w, source->add[i], &add));
    if (w.failed)
        return ATTNRUN_OK;
    if (source->causal) {
        const int64_t seen = write_mask_put(&w, MASK_LESS_EQUAL, put_distance(&w),
                                            put_int(&w, 0, ATTNRUN_I64), 0);
        keep = keep < 0 ? seen : write_mask_put(&w, MASK_AND, keep, seen, 0);
    }
    if (source->filled_last && keep >= 0 && add >= 0)
        add = write_mask_put(&w, MASK_WHERE, keep, add, put_float(&w, 0.0f));
    if (source->many_fills)
        add = put_fills(&w, own);
    const float fill = source->many_fills ? 0.0f : source->fill;
    uint32_t bits;
    memcpy(&bits, &fill, sizeof bits);
    out->mask[MASK_FACT_KEEP] = keep;
    out->mask[MASK_FACT_ADD] = add;
    out->mask[MASK_FACT_FILL] = bits;
    out->mask[MASK_FACT_QUERIES] = w.max[0];
    out->mask[MASK_FACT_KEYS] = w.max[1];
    attn_mask_place_results(out);
    out->fits = w.fits;
    out->trivial = is_trivial(&w);
    *done = !w.failed;
    return ATTNRUN_OK;
}
