/* fuse_sliding_chunks.c - attention over a window of keys around each query whose scores are cut
 * out of products of overlapping chunks, as transformers' Longformer and LED write it, becomes
 * FusedAttention with a band as its mask, which reads keys in place:
 *
 *   S[b, i, h, t] = Q[b, h, i] K[b, h, j] + mask[b, j],  j = i + t - left,  0 <= t < width
 *                   or minus infinity where there is no key j
 *   Y[b, h, i]    = sum over t of Softmax(S)[b, i, h, t] V[b, h, j]
 *
 * There, chunks of 2 w tokens that overlap by w are multiplied with each other, the diagonals of
 * the products are brought into columns by Pad and Reshape, and slices are put together by
 * ScatterND; the mask goes through the same as a product with ones; the probabilities are padded
 * into chunks for the product with the values. Which nodes do so depends on the exporter, and is
 * not asked: provenance.h says of each score which query and which key it is a product of, and of
 * each probability in front of the values which score it comes from and which value it meets. All
 * of them must be those of the formula; nothing is sampled. What a mask puts on queries behind the
 * Softmax (Where with zeros) is put on the result.
 *
 * A mask of constants may remove keys from all windows by numbers of ATTN_BLOCK_LOST or less;
 * BoundedScores refuses scores that could come near them. Scores of some of these keys may stand
 * in front of the others: all queries see these globals, whose weights multiply their values in a
 * product of their own, which is added. Globals have a place of their own in each sample.
 *
 * In: sizes that are constants, f32. Out: FusedAttention; scores of all pairs do not exist.
 * Cost: 100 ns for each query and moving node, once. Source of the mechanism: Beltagy 2020,
 * arXiv:2004.05150. */
#include <math.h>

#include "sliding_match.h"
#include "write_mask.h"

/* Queries of all heads: what is kept of each is 32 bytes. */
enum { MAX_PLACES = 1 << 24 };

/* ---- sizes and operands ---- */

/* Softmax over the last axis of (batch, tokens, heads, width), all constants. */
static bool read_sizes(const struct attn_graph *graph, struct attn_sliding_match *found)
{
    const struct attn_node *softmax = found->softmax;
    const attnrun_type *t = match_type(graph, softmax->in[0]);
    const int64_t axis =
        attn_match_int(softmax, "axis", softmax->pub.opset < 13 ? 1 : -1);
    if (t->rank != 4 || (axis != 3 && axis != -1) ||
        !attn_provenance_is_static(graph, softmax->in[0]))
        return false;
    found->batch = t->dims[0].value;
    found->tokens = t->dims[1].value;
    found->heads = t->dims[2].value;
    found->width = t->dims[3].value;
    return found->width > 1 && found->width < found->tokens &&
           found->batch * found->heads <= MAX_PLACES / found->tokens;
}

/* *done: all of it is there. f->why: the first condition that failed of what looks like it. */
static attn_status read_sliding_chunks(struct attn_sliding_match *f, bool *done)
{
    attn_sliding_split(f);
    TRY(attn_sliding_read_scores(f, done));
    if (!*done)
        return ATTNRUN_OK;
    f->why = "its weights do not multiply the values of their keys";
    return attn_sliding_read_weights(f, done);
}

/* ---- the new nodes ---- */

/* An operand (batch, heads, tokens, dim) of the elements of `rows`. */
static attn_status add_operand(struct attn_graph *graph,
                               const struct attn_sliding_match *f,
                               const struct attn_sliding_places *places,
                               const struct attn_sliding_rows *rows,
                               struct attn_node *before, int32_t *value)
{
    static const char order[] = "bhtd";
    const int64_t size[4] = { f->batch, f->heads, f->tokens, rows->dim };
    char labels[5] = { 0 };
    int64_t dims[4];
    for (int k = 0; k < 4; k++) {
        dims[k] = size[places->axes[k]];
        labels[k] = order[places->axes[k]];
    }
    *value = rows->value;
    TRY(attn_match_reshape(graph, before, 4, dims, value));
    return attn_labels_transpose(graph, before, labels, order, 4, value);
}

/* A constant b8 (batch, 1, 1, tokens). */
static attn_status add_flags(struct attn_graph *graph, const struct attn_sliding_match *f,
                             const uint8_t *flags, int32_t *value)
{
    const int64_t dims[4] = { f->batch, 1, 1, f->tokens };
    void *data;
    TRY(attn_graph_new_constant(graph, ATTNRUN_BOOL, 4, dims, value, &data));
    memcpy(data, flags, (size_t)(f->batch * f->tokens));
    return ATTNRUN_OK;
}

static int64_t put_leaf(struct attn_mask_written *w, int32_t value)
{
    for (int a = 0; a < MASK_AXES; a++)
        w->axes[w->n_leaves * MASK_AXES + a] = a == MASK_BATCH ? 0
                                               : a == MASK_KEY ? 3
                                                               : -1;
    w->leaves[w->n_leaves] = value;
    return w->n_leaves++;
}

static int64_t put_code(struct attn_mask_written *w, int64_t opcode, int64_t a, int64_t b)
{
    int64_t *word = &w->code[w->n_code * MASK_WORDS];
    word[0] = opcode;
    word[1] = a;
    word[2] = b;
    word[3] = 0;
    return MASK_RESULT + w->n_code++;
}

/* -left <= key - query <= right */
static int64_t put_band(struct attn_mask_written *w, int64_t left, int64_t right)
{
    const int64_t offset = put_code(w, MASK_SUB, put_code(w, MASK_AT_KEY, 0, 0),
                                    put_code(w, MASK_AT_QUERY, 0, 0));
    const int64_t first = put_code(w, MASK_INT, -left, ATTNRUN_I64),
                  last = put_code(w, MASK_INT, right, ATTNRUN_I64);
    return put_code(w, MASK_AND, put_code(w, MASK_GREATER_EQUAL, offset, first),
                    put_code(w, MASK_LESS_EQUAL, offset, last));
}

/* The program: where((band or global) and shown, score, -infinity) + mask, of which `mask`, -1 or a
 * value, and the constants are leaves. */
static attn_status write_program(struct attn_graph *graph,
                                 const struct attn_sliding_match *f, int32_t mask,
                                 struct attn_mask_written *w)
{
    const float fill = -INFINITY;
    uint32_t bits;
    int32_t flags;
    bool any_global = false, any_hidden = false;
    memcpy(&bits, &fill, sizeof bits);
    *w = (struct attn_mask_written){ 0 };
    w->mask[MASK_FACT_ADD] = mask >= 0 ? put_leaf(w, mask) : -1;
    int64_t keep = put_band(w, f->left, f->width - 1 - f->left);
    for (int64_t i = 0; i < f->batch * f->tokens; i++) {
        any_global = any_global || f->is_global[i];
        any_hidden = any_hidden || (f->removed[i] && !f->is_global[i]);
        f->removed[i] = !f->removed[i] || f->is_global[i];
    }
    if (any_global) {
        TRY(add_flags(graph, f, f->is_global, &flags));
        keep = put_code(w, MASK_OR, keep, put_leaf(w, flags));
    }
    if (any_hidden) {
        TRY(add_flags(graph, f, f->removed, &flags));
        keep = put_code(w, MASK_AND, keep, put_leaf(w, flags));
    }
    w->mask[MASK_FACT_KEEP] = keep;
    w->mask[MASK_FACT_FILL] = bits;
    w->mask[MASK_FACT_QUERIES] = w->mask[MASK_FACT_KEYS] = -1;
    attn_mask_place_results(w);
    return ATTNRUN_OK;
}

static bool any_removed(const struct attn_sliding_match *f)
{
    for (int64_t i = 0; i < f->batch * f->tokens; i++)
        if (f->removed[i])
            return true;
    return false;
}

/* Keys that a mask removes by numbers: *q unchanged, if no score could come near them. Its rows
 * are those of `dim` elements of the values, whatever the order of the axes in front of it. */
static attn_status bound_scores(struct attn_graph *graph,
                                const struct attn_sliding_match *f,
                                struct attn_node *before, struct attn_sliding_rows *q)
{
    const struct attn_attr attrs[] = { MATCH_INT("dim", q->dim) };
    const int32_t in[2] = { q->value, f->product.b.value };
    if (!any_removed(f))
        return ATTNRUN_OK;
    TRY(attn_graph_add_value(graph, NULL, &q->value));
    struct attn_node *made;
    return attn_graph_insert(graph, before, "attnrun.fused", "BoundedScores", 2, in, 1,
                             &q->value, 1, attrs, &made);
}

/* FusedAttention, and zeros for the queries that are dropped: y (batch, heads, tokens, dim). */
static attn_status add_attention(struct attn_graph *graph, struct attn_sliding_match *f,
                                 struct attn_node *before, int32_t *y)
{
    const int64_t mask_dims[4] = { f->batch, 1, 1, f->tokens },
                  drop_dims[4] = { f->batch, 1, f->tokens, 1 };
    int32_t in[MASK_LEAF + MASK_MAX_LEAVES], mask = f->mask.b.value;
    struct attn_mask_written program;
    struct attn_attr attrs[2 + MASK_ATTRS] = { MATCH_FLOAT("scale", 1.0f),
                                               MATCH_INT("nan_rows", 1) };
    struct attn_node *made;
    struct attn_sliding_rows q = f->product.a;
    TRY(bound_scores(graph, f, before, &q));
    TRY(add_operand(graph, f, &f->q, &q, before, &in[0]));
    TRY(add_operand(graph, f, &f->k, &f->product.b, before, &in[1]));
    TRY(add_operand(graph, f, &f->v, &f->result.b, before, &in[2]));
    if (mask >= 0)
        TRY(attn_match_reshape(graph, before, 4, mask_dims, &mask));
    TRY(write_program(graph, f, mask, &program));
    TRY(attn_mask_attrs(graph, &program, attrs + 2));
    const int32_t n_in = attn_mask_inputs(&program, in);
    TRY(attn_graph_add_value(graph, NULL, y));
    TRY(attn_graph_insert(graph, before, "attnrun.fused", "FusedAttention", n_in, in, 1,
                          y, 2 + MASK_ATTRS, attrs, &made));
    if (f->dropped < 0)
        return ATTNRUN_OK;
    int32_t zero, drop = f->dropped;
    void *data;
    TRY(attn_match_reshape(graph, before, 4, drop_dims, &drop));
    TRY(attn_graph_new_constant(graph, ATTNRUN_F32, 0, NULL, &zero, &data));
    const int32_t where[3] = { drop, zero, *y };
    return attn_match_add(graph, before, "Where", 3, where, 0, NULL, y);
}

/* Puts y in the place of the product of weights and values; or of the sum of two, which is
 * (batch, tokens, heads, dim). */
static attn_status replace(struct attn_graph *graph, struct attn_sliding_match *f)
{
    struct attn_node *last = f->sum != NULL ? f->sum : f->user, *made;
    const attnrun_type *result = match_type(graph, last->out[0]);
    int64_t dims[ATTNRUN_MAX_RANK];
    int32_t y, shape;
    for (int a = 0; a < result->rank; a++)
        dims[a] = result->dims[a].value;
    const int rank = result->rank;
    TRY(add_attention(graph, f, last, &y));
    if (f->sum != NULL)
        TRY(attn_labels_transpose(graph, last, "bhtd", "bthd", 4, &y));
    TRY(attn_match_ints(graph, rank, dims, &shape));
    const int32_t both[2] = { y, shape };
    TRY(attn_match_make(graph, last, "", "Reshape", 2, both, last->out[0], 0, NULL,
                        &made));
    attn_match_replace(graph, last->out[0], made);
    return ATTNRUN_OK;
}

/* Whether the operands can be read as (batch, heads, tokens, dim). */
static bool are_dense(const struct attn_graph *graph, struct attn_sliding_match *f)
{
    struct attn_sliding_places *const places[] = { &f->q, &f->k, &f->v, &f->m };
    const struct attn_sliding_rows *const rows[] = { &f->product.a, &f->product.b,
                                                     &f->result.b, &f->mask.b };
    for (int i = 0; i < (f->mask.b.value >= 0 ? 4 : 3); i++) {
        int64_t n = 1;
        if (!attn_provenance_is_static(graph, rows[i]->value))
            return false;
        const attnrun_type *t = match_type(graph, rows[i]->value);
        for (int a = 0; a < t->rank; a++)
            n *= t->dims[a].value;
        if (!attn_sliding_is_dense(places[i], rows[i]->dim, rows[i]->step, n))
            return false;
        if (i < 2 && rows[i]->step != 1 && rows[i]->dim > 1 && any_removed(f))
            return false; /* BoundedScores reads rows */
    }
    for (int64_t i = 0; f->mask.b.value >= 0 && i < f->m.n; i++)
        if (f->m.at[i] != i)
            return false;
    return true;
}

static attn_status try_sliding_chunks(struct attn_graph *graph, struct attn_node *softmax,
                                      int32_t *applied)
{
    struct attn_sliding_match found = { .softmax = softmax, .weights = softmax->out[0] };
    bool done = false;
    if (!read_sizes(graph, &found))
        return ATTNRUN_OK;
    attn_pool_init(&found.pool, graph->model->pool.memory, ATTN_MEM_MODEL);
    /* 12 heads, 4,096 tokens and windows of 513 take 22 million, which is 0.4 s. */
    found.p = (struct attn_provenance){
        .graph = graph, .pool = &found.pool, .stop = -1, .left = INT64_C(1) << 28
    };
    attn_status status = read_sliding_chunks(&found, &done);
    if (status == ATTNRUN_OK && done && !are_dense(graph, &found)) {
        found.why = "its queries, keys or values are not whole tensors";
        done = false;
    }
    if (status == ATTNRUN_OK && done)
        status = replace(graph, &found);
    *applied += done;
    attn_pool_free(&found.pool);
    TRY(status);
    return done || found.why != NULL ? attn_graph_note(graph, softmax, "sliding_chunks",
                                                       done ? NULL : found.why)
                                     : ATTNRUN_OK;
}

const struct attn_pass attn_pass_sliding_chunks = { .name = "sliding_chunks",
                                                    .op_type = "Softmax",
                                                    .try_node = try_sliding_chunks };
