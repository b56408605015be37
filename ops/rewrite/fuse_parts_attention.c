/* fuse_parts_attention.c - attention in blocks whose scores are made in parts becomes
 * FusedPartsAttention, which holds no scores. transformers' BigBird has such parts: first
 * block, neighbours, random blocks, last block.
 *
 *   W = Softmax(Concat over parts p (scale Q K_p' + mask_p))      Y = sum over p
 *                                                                 Slice_p(W) V_p
 *
 * Q is (batch, heads, blocks, tokens, dim). K_p and V_p are (batch, heads, blocks, keys,
 * dim), or (batch, heads, keys, dim) where all blocks see them. Products are MatMul or
 * Einsum; a mask is what is added. If K_p and V_p are slices of the same blocks side by
 * side, each one block further, the operator reads them in place. Sizes must be provably
 * equal, and the slices must be those of the parts, in any order of the sum. */
#include "product.h"

enum { RANK = 5, MAX_PARTS = 16, MAX_WINDOW = 64, BLOCKS = 2 };

struct matched_part {
    int32_t k, v, mask; /* mask -1: none */
    int k_rank, v_rank;
    int64_t window, from, keys; /* from: the first of its scores */
    int32_t context;            /* its term of the sum */
};

struct parts_attention_match {
    int n;
    struct matched_part part[MAX_PARTS];
    int32_t q, result;
    double scale;
};

/* Blocks from … to - 1 of `source`, and the same one block further, `window` times. */
struct band {
    int32_t source;
    int64_t from, to, window;
};

/* ---- bands ---- */

static bool read_band(const struct attn_graph *graph, int32_t value, struct band *band)
{
    const struct attn_node *concat = attn_graph_producer(graph, value);
    const int64_t axis = concat != NULL ? attn_match_int(concat, "axis", 0) : 0;
    if (!node_is(concat, "Concat") || match_type(graph, value)->rank != RANK ||
        (axis != BLOCKS + 1 && axis != BLOCKS + 1 - RANK) || concat->pub.n_in < 2 ||
        concat->pub.n_in > MAX_WINDOW)
        return false;
    band->window = concat->pub.n_in;
    for (int k = 0; k < concat->pub.n_in; k++) {
        int64_t from, to;
        const struct attn_node *slice = attn_graph_producer(graph, concat->in[k]);
        if (!attn_match_slice(graph, slice, BLOCKS, &from, &to))
            return false;
        if (k == 0)
            *band = (struct band){ slice->in[0], from, to, concat->pub.n_in };
        if (slice->in[0] != band->source || from != band->from + k || to != band->to + k)
            return false;
    }
    return match_type(graph, band->source)->rank == RANK;
}

/* ---- products ---- */

/* Whether the labels of x are these, by the names that labels have. */
static bool has_names(const struct attn_labelled *x, const char *names, const char *order)
{
    for (int i = 0; i < x->n; i++)
        if (names[x->labels[i] - 'a'] != order[i] || order[i] == 0)
            return false;
    return order[x->n] == 0;
}

/* Names the axes of a product whose operand or result `x` is (batch, heads, blocks,
 * queries, keys); its other label is the dim. */
static void name_axes(const struct attn_labelled *x, char *names)
{
    memset(names, 'D', 26);
    for (int i = 0; i < RANK; i++)
        names[x->labels[i] - 'a'] = "BHWQK"[i];
}

/* Whether x is keys or values, by block or for all blocks. */
static bool are_keys(const struct attn_labelled *x, const char *names)
{
    return has_names(x, names, "BHWKD") || has_names(x, names, "BHKD");
}

/* Whether the axes before the keys are those of Q. */
static bool fit_queries(const struct attn_graph *graph,
                        const struct parts_attention_match *found, int32_t value)
{
    const attnrun_type *q = match_type(graph, found->q), *t = match_type(graph, value);
    for (int i = 0; i < t->rank - 2; i++)
        if (!dim_equal(q->dims[i], t->dims[i]))
            return false;
    return dim_is_const(t->dims[t->rank - 2]) && dim_is_const(t->dims[t->rank - 1]);
}

/* Whether only the node that scales a value reads it. */
static bool is_own_scaled(const struct attn_graph *graph, int32_t value, int32_t scaled)
{
    return match_read_once(graph, value) && attn_match_same_shape(graph, value, scaled);
}

/* Reads a product of Q and K_p that is scaled. */
static bool read_product(const struct attn_graph *graph, int32_t value,
                         struct parts_attention_match *found, struct matched_part *part)
{
    double scale = 1;
    struct attn_product p;
    char names[26];
    for (int k = 0; k < 4 && attn_match_take_scale(graph, &value, &scale, is_own_scaled);
         k++)
        ;
    if (!attn_product_read(graph, value, &p) || p.n_in != 2 || p.out.n != RANK)
        return false;
    name_axes(&p.out, names);
    for (int side = 0; side < 2; side++) {
        struct attn_labelled q = p.in[side], k = p.in[1 - side];
        attn_labelled_untranspose(graph, &q);
        attn_labelled_untranspose(graph, &k);
        if (!has_names(&q, names, "BHWQD") || !are_keys(&k, names) ||
            q.labels[RANK - 1] != k.labels[k.n - 1])
            continue;
        const bool first = found->q < 0;
        found->q = first ? q.value : found->q;
        found->scale = first ? scale : found->scale;
        part->k = k.value;
        part->k_rank = k.n;
        const attnrun_type *t = match_type(graph, k.value);
        part->keys = t->dims[k.n - 2].value;
        return found->q == q.value && !(scale < found->scale) &&
               !(scale > found->scale) && fit_queries(graph, found, k.value) &&
               dim_equal(t->dims[k.n - 1], match_type(graph, q.value)->dims[RANK - 1]);
    }
    return false;
}

/* Reads the scores of a part: a product, to which a mask may be added. */
static bool read_part(const struct attn_graph *graph, int32_t value,
                      struct parts_attention_match *found, struct matched_part *part)
{
    part->mask = -1;
    if (!match_read_once(graph, value) || match_type(graph, value)->rank != RANK)
        return false;
    if (read_product(graph, value, found, part))
        return true;
    const struct attn_node *add = attn_graph_producer(graph, value);
    for (int side = 0; node_is(add, "Add") && side < 2; side++) {
        part->mask = add->in[1 - side];
        if (match_read_once(graph, add->in[side]) &&
            attn_match_same_shape(graph, add->in[side], value) &&
            attn_match_is_f32(graph, part->mask) &&
            match_type(graph, part->mask)->rank >= 0 &&
            read_product(graph, add->in[side], found, part))
            return true;
    }
    return false;
}

/* ---- the sum ---- */

/* Reads V_p of the product of a slice of the weights. */
static bool read_context(const struct attn_graph *graph, const struct attn_node *slice,
                         const struct parts_attention_match *found,
                         struct matched_part *part)
{
    struct attn_product p;
    char names[26];
    const struct attn_node *user = attn_graph_only_user(graph, slice->out[0]);
    if (user == NULL || !attn_product_read(graph, user->out[0], &p) || p.n_in != 2)
        return false;
    const int side = p.in[0].value == slice->out[0] ? 0 : 1;
    struct attn_labelled v = p.in[1 - side];
    if (p.in[side].value != slice->out[0] || p.in[side].n != RANK)
        return false;
    name_axes(&p.in[side], names);
    attn_labelled_untranspose(graph, &v);
    part->v = v.value;
    part->v_rank = v.n;
    part->context = user->out[0];
    return are_keys(&v, names) && has_names(&p.out, names, "BHWQD") &&
           fit_queries(graph, found, v.value) &&
           dim_is(match_type(graph, v.value)->dims[v.n - 2], part->keys);
}

/* Checks that each slice of the weights is a part, and each part has one. */
static bool read_slices(const struct attn_graph *graph, int32_t weights,
                        struct parts_attention_match *found)
{
    uint32_t seen = 0;
    const struct attn_value *w = &graph->values[weights];
    if (w->n_uses != found->n || (w->flags & ATTN_VALUE_OUTPUT))
        return false;
    for (const struct attn_use *use = w->uses; use; use = use->next) {
        int64_t from, to;
        if (use->node == NULL || use->inner != NULL || use->index != 0 ||
            !attn_match_slice(graph, use->node, RANK - 1, &from, &to))
            return false;
        int i = 0;
        while (i < found->n && found->part[i].from != from)
            i++;
        if (i == found->n || (seen >> i & 1) != 0 || to != from + found->part[i].keys ||
            !read_context(graph, use->node, found, &found->part[i]))
            return false;
        seen |= UINT32_C(1) << i;
    }
    return seen == (UINT32_C(1) << found->n) - 1;
}

/* Whether `value` is the sum of the terms of all parts and of nothing else. */
static bool sums_all(const struct attn_graph *graph,
                     const struct parts_attention_match *found, int32_t value)
{
    int32_t waiting[2 * MAX_PARTS] = { value }, n = 1;
    uint32_t seen = 0;
    for (int steps = 0; n > 0 && steps < 2 * MAX_PARTS; steps++) {
        const int32_t one = waiting[--n];
        int i = 0;
        while (i < found->n && found->part[i].context != one)
            i++;
        if (one != value && !match_read_once(graph, one))
            return false;
        if (i < found->n) {
            if ((seen >> i & 1) != 0)
                return false;
            seen |= UINT32_C(1) << i;
            continue;
        }
        const struct attn_node *add = attn_graph_producer(graph, one);
        if (!node_is(add, "Add") || n + 2 > 2 * MAX_PARTS ||
            !attn_match_same_shape(graph, one, found->part[0].context))
            return false;
        waiting[n++] = add->in[0];
        waiting[n++] = add->in[1];
    }
    return n == 0 && seen == (UINT32_C(1) << found->n) - 1;
}

static bool read_sum(const struct attn_graph *graph, struct parts_attention_match *found)
{
    found->result = found->part[0].context;
    for (int i = 1; i < found->n; i++) {
        const struct attn_node *add = attn_graph_only_user(graph, found->result);
        if (!node_is(add, "Add"))
            return false;
        found->result = add->out[0];
        if (sums_all(graph, found, found->result))
            return true;
    }
    return false;
}

/* ---- the whole ---- */

static const char *parts_attention_read_all(const struct attn_graph *graph,
                                            const struct attn_node *softmax,
                                            const struct attn_node *concat,
                                            struct parts_attention_match *found)
{
    int64_t keys = 0;
    found->n = concat->pub.n_in;
    found->q = -1;
    for (int i = 0; i < found->n; i++) {
        struct matched_part *part = &found->part[i];
        *part = (struct matched_part){ .window = 1, .from = keys };
        if (!read_part(graph, concat->in[i], found, part))
            return "a part of its scores is not a product of the same queries, "
                   "scaled alike and masked";
        if (!ck_add(keys, part->keys, &keys))
            return "its parts are too large";
    }
    if (!read_slices(graph, softmax->out[0], found))
        return "other nodes read its weights, or the weights are not multiplied part by "
               "part";
    for (int i = 1; i < found->n; i++) {
        const struct matched_part *a = &found->part[0], *b = &found->part[i];
        if (!dim_equal(match_type(graph, a->v)->dims[a->v_rank - 1],
                       match_type(graph, b->v)->dims[b->v_rank - 1]))
            return "its values are of different sizes";
    }
    return read_sum(graph, found) ? NULL : "its parts are not summed";
}

/* Keys or values of rank 5; of a band, its blocks where they are. */
static attn_status make_operand(struct attn_graph *graph, struct attn_node *before,
                                const struct band *band, int32_t *value)
{
    static const int64_t blocks = BLOCKS;
    const int rank = match_type(graph, *value)->rank;
    int32_t in[4] = { *value }, out;
    struct attn_node *made;
    if (rank == RANK && band->window == 1)
        return ATTNRUN_OK;
    TRY(attn_graph_add_value(graph, NULL, &out));
    *value = out;
    if (rank != RANK) {
        TRY(attn_match_ints(graph, 1, &blocks, &in[1]));
        return attn_graph_insert(graph, before, "", "Unsqueeze", 2, in, 1, &out, 0, NULL,
                                 &made);
    }
    in[0] = band->source;
    TRY(attn_match_ints(graph, 1, &band->from, &in[1]));
    TRY(attn_match_ints(graph, 1, &(int64_t){ band->to + band->window - 1 }, &in[2]));
    TRY(attn_match_ints(graph, 1, &blocks, &in[3]));
    return attn_graph_insert(graph, before, "", "Slice", 4, in, 1, &out, 0, NULL, &made);
}

static attn_status make_part(struct attn_graph *graph, struct attn_node *before,
                             const struct matched_part *part, int32_t *in, int32_t *n_in,
                             int64_t *word)
{
    struct band k = { .window = 1 }, v = k;
    if (!read_band(graph, part->k, &k) || !read_band(graph, part->v, &v) ||
        k.window != v.window)
        k.window = v.window = 1;
    word[0] = k.window;
    word[1] = part->mask >= 0;
    in[*n_in] = part->k;
    in[*n_in + 1] = part->v;
    TRY(make_operand(graph, before, &k, &in[*n_in]));
    TRY(make_operand(graph, before, &v, &in[*n_in + 1]));
    *n_in += 2;
    if (part->mask >= 0)
        in[(*n_in)++] = part->mask;
    return ATTNRUN_OK;
}

static attn_status parts_attention_replace(struct attn_graph *graph,
                                           struct attn_node *softmax,
                                           const struct parts_attention_match *found)
{
    int32_t in[1 + 3 * MAX_PARTS] = { found->q }, n_in = 1;
    int64_t *parts =
        attn_pool_alloc(&graph->model->pool, 2 * found->n * (int64_t)sizeof *parts);
    struct attn_node *made;
    if (parts == NULL)
        return ATTNRUN_E_MEMORY;
    for (int i = 0; i < found->n; i++)
        TRY(make_part(graph, softmax, &found->part[i], in, &n_in, parts + 2 * i));
    const struct attn_attr attrs[] = {
        MATCH_FLOAT("scale", (float)found->scale),
        { .name = "parts", .kind = ATTN_ATTR_INTS, .ints = { parts, 2 * found->n } }
    };
    TRY(attn_match_make(graph, softmax, "attnrun.fused", "FusedPartsAttention", n_in, in,
                        found->result, 2, attrs, &made));
    attn_match_replace(graph, found->result, made);
    return ATTNRUN_OK;
}

static attn_status parts_attention_try_softmax(struct attn_graph *graph,
                                               struct attn_node *softmax,
                                               int32_t *applied)
{
    const int64_t axis =
        attn_match_int(softmax, "axis", softmax->pub.opset < 13 ? 1 : -1);
    const struct attn_node *concat = attn_match_in(graph, softmax, 0, "Concat");
    struct parts_attention_match found = { .n = 0 };
    if (concat == NULL || concat->pub.n_in < 2 || concat->pub.n_in > MAX_PARTS ||
        !attn_match_is_f32_of(graph, softmax->in[0], RANK) ||
        (axis != -1 && axis != RANK - 1) || !match_read_once(graph, softmax->in[0]))
        return ATTNRUN_OK;
    const int64_t joined = attn_match_int(concat, "axis", 0);
    if (joined != -1 && joined != RANK - 1)
        return ATTNRUN_OK;
    const char *why = parts_attention_read_all(graph, softmax, concat, &found);
    TRY(attn_graph_note(graph, softmax, "parts_attention", why));
    if (why != NULL)
        return ATTNRUN_OK;
    TRY(parts_attention_replace(graph, softmax, &found));
    ++*applied;
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_parts_attention = { .name = "parts_attention",
                                                     .op_type = "Softmax",
                                                     .try_node =
                                                         parts_attention_try_softmax };
