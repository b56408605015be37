/* fuse_block_attention.c - attention in blocks, where each block of queries sees its own block of
 * keys and some neighbours, becomes LocalAttention or ChunkedLocalAttention of domain attnrun,
 * which read keys in place:
 *
 *   Y = Softmax(scale * Q W(K)' masked) W(V)     Q, Y (…, blocks, chunk, …)
 *
 * Products are MatMul or Einsum. W is unfold or slices of a Pad (block_window.c), or of blocks
 * that wrap around the end (block_wrap.c). Axes are (batch, heads)?, blocks, tokens, dim or
 * batch?, blocks, tokens, heads, dim, the same in all operands, whose dims must be provably equal.
 * Masks are Where and Add, in any number, followed or examined as a whole (block_mask.c): whole
 * blocks, causal, or a band within the window; keys outside must not be seen. The numbers that
 * replace scores must be ATTN_BLOCK_LOST or less, and BoundedScores refuses queries and keys whose
 * scores could come near them.
 * Other masks, also those that are data (paddings) or biases, become a program of
 * FusedBlockAttention (write_mask.h), which reads the keys that Pad gave and needs no such bound.
 * Blocks that wrap become one too, and so do scores whose log of sums is read.
 * If the file computes a chunk from the length, the last axis of its masks gives the chunk. A view
 * of the queries refuses other lengths, as the mask of the file does. */
#include <math.h>

#include "block_window.h"
#include "write_mask.h"

enum { MAX_MASKS = 4 };

struct block_attention_match {
    struct attn_labelled q, k, v, y;     /* in the labels of the scores */
    struct attn_block_window windows[2]; /* of keys, of values */
    struct attn_block_scores scores;
    struct attn_block_mask masks[MAX_MASKS];
    int n_masks;
    struct attn_labelled product; /* scores before masks and scale */
    int32_t sums;                 /* ReduceLogSumExp of the scores; -1: none */
    bool lost;                    /* what masks put in the place of scores is */
    bool adds;                    /* some mask is added */
    double scale;
    char dim, v_dim, blocks, query, key;
    bool by_token; /* heads behind the tokens */
    int n_batch;   /* axes before the blocks */
    struct attn_block_pattern pattern;
};

/* ---- the scores ---- */

static bool has_any_shape(const struct attn_graph *graph, int32_t a, int32_t b)
{
    (void)graph, (void)a, (void)b;
    return true;
}

/* Steps back over a scalar, Where, or Add; false where there is none. */
static bool step_back(const struct attn_graph *graph, int32_t *value,
                      struct block_attention_match *found)
{
    double x;
    const struct attn_node *node = attn_graph_producer(graph, *value);
    if (attn_match_take_scale(graph, value, &found->scale, has_any_shape))
        return true;
    struct attn_block_mask mask = { .value = -1 };
    if (node_is(node, "Where")) {
        mask.drops = attn_value_scalar(graph, node->in[1], &x);
        mask.value = node->in[0];
        if (!mask.drops && !attn_value_scalar(graph, node->in[2], &x))
            return false;
        mask.fill = x;
        found->lost = found->lost && x <= (double)ATTN_BLOCK_LOST;
        *value = node->in[mask.drops ? 2 : 1];
    } else if (node_is(node, "Add")) {
        struct attn_product p;
        const int side = match_is_constant(graph, node->in[0]) ||
                                 attn_product_read(graph, node->in[1], &p)
                             ? 0
                             : 1;
        mask.added = found->adds = true;
        mask.value = node->in[side];
        *value = node->in[1 - side];
    }
    const bool scaled = found->scale != 1; /* so are the fills */
    if (mask.value < 0 || scaled || found->n_masks == MAX_MASKS)
        return false;
    found->masks[found->n_masks++] = mask;
    return true;
}

/* Whether only the softmax reads the scores, or also the log of their sums. */
static bool read_sums(const struct attn_graph *graph, int32_t scores,
                      struct block_attention_match *found)
{
    const struct attn_value *v = &graph->values[scores];
    found->sums = -1;
    for (const struct attn_use *use = v->uses; use; use = use->next)
        if (node_is(use->node, "ReduceLogSumExp") && use->inner == NULL &&
            use->index == 0 && attn_match_reduces_last(graph, use->node))
            found->sums = use->node->out[0];
    return v->n_uses == (found->sums < 0 ? 1 : 2) && !(v->flags & ATTN_VALUE_OUTPUT);
}

/* Reads scores that are masked and then scaled: each fill is as good when scaled. */
static const char *read_scores(const struct attn_graph *graph, int32_t value,
                               struct attn_product *p,
                               struct block_attention_match *found)
{
    const int32_t scores = value;
    found->lost = true;
    found->scale = 1;
    if (!read_sums(graph, scores, found))
        return "other nodes read its scores";
    while (!attn_product_read(graph, value, p) || p->n_in != 2) {
        if (value != scores && !match_read_once(graph, value))
            return "other nodes read its scores";
        if (!step_back(graph, &value, found))
            return "its scores are not a product that is masked and scaled";
    }
    if (value != scores && !match_read_once(graph, value))
        return "other nodes read its scores";
    found->product = p->out;
    return NULL;
}

/* ---- labels ---- */

/* Finds Q, K and the labels of their product. */
static bool read_roles(const struct attn_product *p, struct block_attention_match *found)
{
    found->key = p->out.labels[p->out.n - 1];
    for (int side = 0; side < 2; side++)
        if (attn_labelled_has(&p->in[side], found->key) &&
            !attn_labelled_has(&p->in[1 - side], found->key)) {
            found->k = p->in[side];
            found->q = p->in[1 - side];
            found->query = attn_labelled_own(&found->q, &found->k);
            found->dim = attn_labelled_own(&found->k, &p->out);
            return found->query != 0 && found->dim != 0 &&
                   found->dim == attn_labelled_own(&found->q, &p->out) &&
                   attn_labelled_own(&found->k, &found->q) == found->key &&
                   p->out.n == found->q.n && p->out.n == found->k.n &&
                   attn_labelled_has(&p->out, found->query);
        }
    return false;
}

/* Finds V and Y of the product of the weights, in the labels of the scores. */
static bool read_weighted(const struct attn_graph *graph, const struct attn_node *softmax,
                          const struct attn_labelled *scores, struct attn_node *user,
                          struct block_attention_match *found)
{
    struct attn_product p;
    char to[26] = { 0 };
    if (user == NULL || !attn_product_read(graph, user->out[0], &p) || p.n_in != 2)
        return false;
    const int side = p.in[0].value == softmax->out[0] ? 0 : 1;
    const struct attn_labelled weights = p.in[side];
    if (weights.value != softmax->out[0] || weights.n != scores->n)
        return false;
    for (int i = 0; i < scores->n; i++)
        to[weights.labels[i] - 'a'] = scores->labels[i];
    found->v = p.in[1 - side];
    found->y = p.out;
    const char own = attn_labelled_own(&p.in[1 - side], &weights);
    if (own == 0 || found->y.n != scores->n || found->v.n != scores->n)
        return false;
    found->v_dim = '#'; /* no label of the scores */
    to[own - 'a'] = found->v_dim;
    for (int i = 0; i < scores->n; i++) {
        found->v.labels[i] = to[found->v.labels[i] - 'a'];
        found->y.labels[i] = to[found->y.labels[i] - 'a'];
    }
    return attn_labelled_has(&found->v, found->key) &&
           !attn_labelled_has(&found->y, found->key) &&
           !attn_labelled_has(&found->v, found->query) &&
           attn_labelled_has(&found->y, found->query);
}

/* Takes scalars of the queries as scalars of the scores. */
static void take_scalars(const struct attn_graph *graph,
                         struct block_attention_match *found)
{
    for (int k = 0; k < 4 && attn_match_take_scale(graph, &found->q.value, &found->scale,
                                                   attn_match_same_shape);
         k++)
        ;
}

/* Keys or values as windows over blocks: the labels are those of the blocks then. */
static bool read_window(const struct attn_graph *graph,
                        struct block_attention_match *found, struct attn_labelled *x,
                        struct attn_block_window *window)
{
    attn_labelled_untranspose(graph, x);
    if ((!attn_block_window_read(graph, x->value, window) &&
         !attn_block_wrap_read(graph, x->value, window)) ||
        window->axis + 1 >= x->n || x->labels[window->axis + 1] != found->key ||
        !(window->pad > -1e30 && window->pad < 1e30))
        return false;
    x->value = window->source;
    return attn_match_is_f32(graph, x->value) &&
           graph->values[x->value].type.rank == x->n;
}

/* ---- axes ---- */

static bool has_order(const struct attn_labelled *x, const char *order, char token,
                      char dim)
{
    for (int i = 0; i < x->n; i++) {
        const char label = order[i] == 't' ? token : order[i] == 'd' ? dim : 0;
        if (label != 0 && x->labels[i] != label)
            return false;
    }
    return true;
}

/* Whether all operands have the same labels in the same places. */
static bool read_order(struct block_attention_match *found)
{
    struct attn_labelled *const x[] = { &found->q, &found->k, &found->v, &found->y };
    const int n = found->q.n, at = attn_labelled_place(&found->q, found->blocks);
    const char token[] = { found->query, found->key, found->key, found->query };
    const char dim[] = { found->dim, found->dim, found->v_dim, found->v_dim };
    char order[PRODUCT_RANK + 1] = "......";
    found->by_token = at + 3 < n;
    found->n_batch = at;
    if (at + 3 + found->by_token != n || at > 2 - found->by_token)
        return false;
    order[at + 1] = 't';
    order[n - 1] = 'd';
    for (int o = 0; o < 4; o++) {
        if (!has_order(x[o], order, token[o], dim[o]))
            return false;
        for (int i = 0; i < n; i++)
            if (order[i] == '.' && x[o]->labels[i] != found->q.labels[i])
                return false;
    }
    return true;
}

static bool equal_at(const struct attn_graph *graph, const struct attn_labelled *x,
                     char label, const struct attn_labelled *y, char other)
{
    return dim_equal(attn_labelled_dim(graph, x, label),
                     attn_labelled_dim(graph, y, other));
}

/* Whether nothing is broadcast or known to be empty, and all operands have the same chunk. */
static bool dims_fit(const struct attn_graph *graph,
                     const struct block_attention_match *found)
{
    const struct attn_labelled *const others[] = { &found->k, &found->v, &found->y };
    for (int i = 0; i < found->q.n; i++) {
        const char label = found->q.labels[i];
        if (dim_is(attn_labelled_dim(graph, &found->q, label), 0))
            return false;
        for (int o = 0; o < 3 && label != found->dim && label != found->query; o++)
            if (!equal_at(graph, &found->q, label, others[o], label))
                return false;
    }
    return equal_at(graph, &found->q, found->query, &found->k, found->key) &&
           equal_at(graph, &found->q, found->query, &found->v, found->key) &&
           equal_at(graph, &found->q, found->dim, &found->k, found->dim) &&
           dim_is_const(attn_labelled_dim(graph, &found->q, found->dim)) &&
           dim_is_const(attn_labelled_dim(graph, &found->v, found->v_dim)) &&
           (!found->by_token || dim_is_const(attn_labelled_dim(
                                    graph, &found->q, found->q.labels[found->q.n - 2])));
}

/* Reads the tokens of a block: a number, or the last axis of the masks. A mask may have more
 * queries than a block of one, which then is not what the result has. */
static bool read_chunk(const struct attn_graph *graph, int32_t masked,
                       struct block_attention_match *found)
{
    struct attn_block_scores *s = &found->scores;
    const attnrun_dim own = attn_labelled_dim(graph, &found->q, found->query),
                      rows = attn_labelled_dim(graph, &found->y, found->query);
    const attnrun_type *t = &graph->values[masked].type;
    const int64_t n = s->before + 1 + s->after;
    s->n_blocks = attn_labelled_dim(graph, &found->q, found->blocks);
    if (dim_is_const(own)) {
        s->chunk = own.value;
        return s->chunk > 0 && dim_equal(rows, own);
    }
    if (t->rank < 1 || !dim_is_const(t->dims[t->rank - 1]) ||
        t->dims[t->rank - 1].value % n != 0)
        return false;
    s->chunk = t->dims[t->rank - 1].value / n;
    return s->chunk > 1 || (s->chunk == 1 && n > 1);
}

/* ---- the whole ---- */

static const char *block_read_all(const struct attn_graph *graph,
                                  const struct attn_node *softmax, struct attn_node *user,
                                  struct block_attention_match *found)
{
    struct attn_product p;
    struct attn_block_scores *s = &found->scores;
    const char *why = read_scores(graph, softmax->in[0], &p, found);
    if (why != NULL)
        return why;
    if (!read_roles(&p, found) || !read_weighted(graph, softmax, &p.out, user, found))
        return "its products are not those of attention";
    if (!read_window(graph, found, &found->k, &found->windows[0]) ||
        !read_window(graph, found, &found->v, &found->windows[1]))
        return "its keys and values are not blocks with their neighbours";
    /* BoundedScores does not see the number of a Pad, and Reshape takes 0 for another dim. */
    found->lost = found->lost && (!found->adds || found->windows[0].pad == 0) &&
                  !dim_is(attn_labelled_dim(graph, &found->v, found->v_dim), 0);
    s->before = found->windows[0].before;
    s->after = found->windows[0].after;
    found->blocks = found->k.labels[found->windows[0].axis];
    if (!attn_block_window_same(&found->windows[0], &found->windows[1]) ||
        found->v.labels[found->windows[1].axis] != found->blocks ||
        !attn_labelled_has(&found->q, found->blocks))
        return "its keys and values do not have the same windows";
    take_scalars(graph, found);
    attn_labelled_untranspose(graph, &found->q);
    take_scalars(graph, found);
    if (!read_order(found))
        return "the axes of its operands are in different orders";
    if (!dims_fit(graph, found))
        return "the sizes of its operands are not known to be equal, or 0";
    s->rank = p.out.n;
    s->blocks = attn_labelled_place(&p.out, found->blocks);
    s->query = attn_labelled_place(&p.out, found->query);
    s->key = s->rank - 1;
    if (s->blocks > s->query)
        return "the axis of its blocks comes after that of its queries";
    if (found->sums >= 0 &&
        memcmp(p.out.labels, found->q.labels, (size_t)found->q.n - 1) != 0)
        return "its log-sum-exp has the axes in a different order";
    return read_chunk(graph, softmax->in[0], found)
               ? NULL
               : "the size of its blocks is not known";
}

static int64_t heads_of(const struct attn_graph *graph,
                        const struct block_attention_match *found)
{
    return attn_labelled_dim(graph, &found->q, found->q.labels[found->q.n - 2]).value;
}

/* Joins (…, blocks, chunk, …) to tokens. */
static attn_status join_tokens(struct attn_graph *graph, struct attn_node *before,
                               const struct block_attention_match *found, int64_t dim,
                               int32_t *value)
{
    const int64_t one_batch = found->n_batch > 0 ? 0 : 1;
    if (found->by_token) {
        const int64_t dims[3] = { one_batch, -1, heads_of(graph, found) * dim };
        return attn_match_reshape(graph, before, 3, dims, value);
    }
    const int64_t dims[4] = { one_batch, found->n_batch > 1 ? 0 : 1, -1, dim };
    return attn_match_reshape(graph, before, 4, dims, value);
}

/* Splits tokens into blocks, as Y had them; fails where Q has other blocks. */
static attn_status split_tokens(struct attn_graph *graph, struct attn_node *before,
                                const struct block_attention_match *found, int64_t blocks,
                                int64_t dim, int32_t *value)
{
    int64_t dims[PRODUCT_RANK] = { 0 };
    int n = found->n_batch;
    dims[n++] = blocks;
    dims[n++] = found->scores.chunk;
    if (found->by_token)
        dims[n++] = heads_of(graph, found);
    dims[n++] = dim;
    return attn_match_reshape(graph, before, n, dims, value);
}

/* Leaves in[0] unchanged, if no score is so far from 0 that the numbers of the masks
 * could count beside it. */
static attn_status bound_scores(struct attn_graph *graph, struct attn_node *before,
                                const struct block_attention_match *found, int64_t dim,
                                int32_t in[3])
{
    const struct attn_attr attrs[] = { MATCH_INT("dim", dim),
                                       MATCH_FLOAT("scale", (float)found->scale) };
    int32_t q;
    struct attn_node *made;
    TRY(attn_graph_add_value(graph, NULL, &q));
    TRY(attn_graph_insert(graph, before, "attnrun.fused", "BoundedScores", 2, in, 1, &q,
                          2, attrs, &made));
    in[0] = q;
    return ATTNRUN_OK;
}

static attn_status block_replace(struct attn_graph *graph, struct attn_node *softmax,
                                 const struct block_attention_match *found)
{
    const struct attn_block_scores *s = &found->scores;
    const struct attn_block_pattern *pattern = &found->pattern;
    const int64_t dim = attn_labelled_dim(graph, &found->q, found->dim).value,
                  v_dim = attn_labelled_dim(graph, &found->v, found->v_dim).value;
    const bool band = pattern->kind == BLOCK_BAND;
    const int64_t left = band ? -pattern->first : 0, right = band ? pattern->last : 0,
                  after = pattern->kind == BLOCK_CAUSAL ? 0 : s->after;
    int64_t *window = attn_pool_alloc(&graph->model->pool, 2 * (int64_t)sizeof *window);
    int32_t in[3] = { found->q.value, found->k.value, found->v.value }, y;
    struct attn_node *made;
    if (window == NULL)
        return ATTNRUN_E_MEMORY;
    window[0] = left;
    window[1] = right;
    if (!dim_is_const(attn_labelled_dim(graph, &found->q, found->query)))
        TRY(split_tokens(graph, softmax, found, 0, dim, &in[0]));
    for (int i = 0; i < 3; i++)
        TRY(join_tokens(graph, softmax, found, i == 2 ? v_dim : dim, &in[i]));
    TRY(bound_scores(graph, softmax, found, dim, in));
    struct attn_attr attrs[6] = { MATCH_FLOAT("scale", (float)found->scale) };
    int n = 1;
    if (found->by_token)
        attrs[n++] = (struct attn_attr)MATCH_INT("q_num_heads", heads_of(graph, found));
    if (band) {
        for (int side = 0; side < 2; side++)
            attrs[n++] =
                (struct attn_attr){ .name = side == 0 ? "left_window" : "right_window",
                                    .kind = ATTN_ATTR_INTS,
                                    .ints = { window + side, 1 } };
    } else {
        attrs[n++] = (struct attn_attr)MATCH_INT("chunk_size", s->chunk);
        attrs[n++] = (struct attn_attr)MATCH_INT("chunks_before", s->before);
        attrs[n++] = (struct attn_attr)MATCH_INT("chunks_after", after);
        attrs[n++] =
            (struct attn_attr)MATCH_INT("is_causal", pattern->kind == BLOCK_CAUSAL);
    }
    TRY(attn_graph_add_value(graph, NULL, &y));
    TRY(attn_graph_insert(graph, softmax, "attnrun",
                          band ? "LocalAttention" : "ChunkedLocalAttention", 3, in, 1, &y,
                          n, attrs, &made));
    TRY(split_tokens(graph, softmax, found, -1, v_dim, &y));
    attn_match_replace(graph, found->y.value, attn_graph_producer(graph, y));
    return ATTNRUN_OK;
}

/* ---- masks that are no pattern ---- */

/* Finds the axis of pairs that each axis of the scores is. */
static void read_axes(const struct block_attention_match *found, int8_t *axes)
{
    const struct attn_labelled *q = &found->q;
    for (int i = 0; i < found->product.n; i++) {
        const char label = found->product.labels[i];
        axes[i] = i == found->scores.blocks  ? MASK_BLOCK
                  : i == found->scores.query ? MASK_QUERY
                  : i == found->scores.key   ? MASK_KEY
                  : label == q->labels[0]    ? MASK_BATCH
                                             : MASK_HEAD;
    }
}

/* Writes the program. *done: masks are one, and scores are only those of the product. */
static attn_status write_program(const struct attn_graph *graph,
                                 const struct attn_node *softmax,
                                 const struct block_attention_match *found,
                                 struct attn_mask_written *program, bool *done)
{
    int8_t axes[PRODUCT_RANK];
    const struct attn_block_scores *s = &found->scores;
    const attnrun_dim *q = graph->values[found->q.value].type.dims;
    const int64_t keys = s->before + 1 + s->after;
    struct attn_mask_source source = { .axes = axes,
                                       .rank = found->product.n,
                                       .dims = { [MASK_BLOCK] = s->n_blocks,
                                                 [MASK_BATCH] = q[0],
                                                 [MASK_HEAD] =
                                                     found->by_token ? q[found->q.n - 2]
                                                     : found->n_batch > 1 ? q[1]
                                                                          : dim_of(1),
                                                 [MASK_QUERY] = dim_of(s->chunk),
                                                 [MASK_KEY] = dim_of(keys * s->chunk) } };
    *done = false;
    if (found->n_batch < 1 || keys > (1 << 12) || s->chunk > (1 << 20) ||
        !attn_block_masks_order(found->masks, found->n_masks, &source))
        return ATTNRUN_OK;
    read_axes(found, axes);
    TRY(attn_mask_write(graph, &source, program, done));
    *done = *done &&
            (program->fits ||
             attn_match_same_shape(graph, found->product.value, softmax->in[0])) &&
            attn_block_wrap_serves(graph, &found->windows[0], program, s->chunk);
    return ATTNRUN_OK;
}

static attn_status replace_by_program(struct attn_graph *graph, struct attn_node *softmax,
                                      struct block_attention_match *found,
                                      struct attn_mask_written *program)
{
    const int64_t dim = attn_labelled_dim(graph, &found->q, found->dim).value;
    const int32_t old[2] = { found->y.value, found->sums };
    TRY(attn_block_wrap_make(graph, softmax, found->windows, program,
                             found->scores.chunk));
    int32_t out[2], in[3 + MASK_MAX_LEAVES] = { found->q.value, found->windows[0].padded,
                                                found->windows[1].padded };
    struct attn_attr attrs[3 + MASK_ATTRS] = {
        MATCH_FLOAT("scale", (float)found->scale),
        MATCH_INT("window", found->scores.before + 1 + found->scores.after),
        MATCH_INT("by_token", found->by_token),
    };
    struct attn_node *made;
    TRY(attn_mask_attrs(graph, program, attrs + 3));
    if (!dim_is_const(attn_labelled_dim(graph, &found->q, found->query)))
        TRY(split_tokens(graph, softmax, found, 0, dim, &in[0]));
    memcpy(in + 3, program->leaves, (size_t)program->n_leaves * sizeof *in);
    const int32_t n_out = found->sums >= 0 ? 2 : 1;
    for (int32_t i = 0; i < n_out; i++) {
        TRY(attn_graph_add_value(graph, NULL, &out[i]));
        graph->values[out[i]].type = graph->values[old[i]].type;
    }
    TRY(attn_graph_insert(graph, softmax, "attnrun.fused", "FusedBlockAttention",
                          3 + program->n_leaves, in, n_out, out, 3 + MASK_ATTRS, attrs,
                          &made));
    attn_match_replace(graph, old[0], made);
    if (n_out > 1)
        attn_graph_replace(graph, old[1], out[1]);
    return ATTNRUN_OK;
}

/* Whether a softmax is a candidate: its product has keys with their neighbours. */
static bool is_candidate(const struct attn_graph *graph, const struct attn_node *user)
{
    struct attn_product p;
    struct attn_block_window window;
    if (user == NULL || !attn_product_read(graph, user->out[0], &p) || p.n_in != 2)
        return false;
    for (int side = 0; side < 2; side++) {
        attn_labelled_untranspose(graph, &p.in[side]);
        if (attn_block_window_read(graph, p.in[side].value, &window) ||
            attn_block_wrap_read(graph, p.in[side].value, &window))
            return true;
    }
    return false;
}

static attn_status block_try_softmax(struct attn_graph *graph, struct attn_node *softmax,
                                     int32_t *applied)
{
    const int rank = graph->values[softmax->in[0]].type.rank;
    const int64_t axis =
        attn_match_int(softmax, "axis", softmax->pub.opset < 13 ? 1 : -1);
    struct attn_node *user = attn_graph_only_user(graph, softmax->out[0]);
    struct block_attention_match found = { .n_masks = 0 };
    struct attn_mask_written program;
    bool done = false;
    const char *why;
    if (rank < 3 || rank > PRODUCT_RANK || (axis != -1 && axis != rank - 1) ||
        !is_candidate(graph, user))
        return ATTNRUN_OK;
    why = block_read_all(graph, softmax, user, &found);
    if (why != NULL)
        return attn_graph_note(graph, softmax, "block_attention", why);
    if (found.windows[0].wraps)
        why = "its blocks wrap around the end, and its mask has no known form";
    else if (found.sums >= 0)
        why = "other nodes read its scores";
    else if (!found.lost)
        why = "its mask values may be too large to mask scores";
    else
        TRY(attn_block_mask_read(graph, &found.scores, found.masks, found.n_masks,
                                 &found.pattern, &why));
    if (why != NULL)
        TRY(write_program(graph, softmax, &found, &program, &done));
    if (why != NULL && !done)
        return attn_graph_note(graph, softmax, "block_attention", why);
    TRY(attn_graph_note(graph, softmax, "block_attention", NULL));
    TRY(done ? replace_by_program(graph, softmax, &found, &program)
             : block_replace(graph, softmax, &found));
    ++*applied;
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_block_attention = { .name = "block_attention",
                                                     .op_type = "Softmax",
                                                     .try_node = block_try_softmax };
