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
 * In: sizes that are constants, f32. Out: FusedAttention; scores of all pairs do not exist.
 * Cost: 100 ns for each query and moving node, once. Source of the mechanism: Beltagy 2020,
 * arXiv:2004.05150. */
#include <math.h>

#include "../../runtime/poll.h"
#include "sliding_rows.h"
#include "write_mask.h"

enum { HIDDEN = -1, PLAIN = -2 /* a mask adds 0 */ };

/* Queries of all heads: what is kept of each is 32 bytes. */
enum { MAX_PLACES = 1 << 24 };

struct sliding_match {
    struct attn_provenance p;
    struct attn_pool pool;
    struct attn_node *softmax, *user; /* the product of weights and values */
    int64_t batch, heads, tokens, width, left;
    int32_t scores,
        mask_scores; /* what the Softmax reads is the sum; mask_scores -1: none */
    int32_t weights,
        dropped; /* behind the Softmax; the queries that become zeros, or -1 */
    struct attn_sliding_product product, mask, result;
    struct attn_sliding_places q, k, v, m;
    int64_t *key, *mask_key; /* of the row at hand: places in k, in m; HIDDEN, PLAIN */
    int64_t *seen; /* of each weight of a head: the last token that had it, from 1 on */
    int64_t row;   /* batch * tokens + token */
    const char *why;
};

/* ---- sizes and operands ---- */

/* Softmax over the last axis of (batch, tokens, heads, width), all constants. */
static bool read_sizes(const struct attn_graph *graph, struct sliding_match *found)
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

/* Through nodes that keep the order of the elements of the scores. */
static int32_t through_transposes(const struct attn_graph *graph, int32_t value)
{
    const struct attn_node *outer = attn_graph_producer(graph, value);
    while (node_is(outer, "Transpose")) {
        const struct attn_node *inner = attn_match_in(graph, outer, 0, "Transpose");
        if (inner == NULL || !attn_match_same_shape(graph, inner->in[0], outer->out[0]))
            break;
        const struct attn_attr *a = attn_node_attr(outer, "perm"),
                               *b = attn_node_attr(inner, "perm");
        for (int64_t i = 0; a != NULL && b != NULL && i < a->ints.n; i++)
            if (b->ints.v[a->ints.v[i]] != i)
                return value;
        if (a == NULL || b == NULL)
            break;
        value = inner->in[0];
        outer = attn_graph_producer(graph, value);
    }
    return value;
}

/* The value that the first element of a row comes from that is no number. */
static bool take_first(void *user, const struct attn_grid_part *part)
{
    int32_t *value = user;
    if (part->value >= 0 && *value < 0)
        *value = part->value;
    return true;
}

static attn_status find_product(struct sliding_match *found, int32_t scores,
                                int64_t heads, struct attn_sliding_product *product,
                                bool *done)
{
    int32_t value = -1;
    const int64_t middle = found->tokens / 2 * heads * found->width;
    const struct attn_grid row = { middle, { 1, 0 }, { found->width, 1 } };
    found->p.take = take_first;
    found->p.user = &value;
    TRY(attn_provenance_ask(&found->p, scores, &row, done));
    found->p.user = NULL;
    product->value = product->a.value = product->b.value = -1;
    return *done && value >= 0
               ? attn_sliding_read_product(&found->p, value, product, done)
               : ATTNRUN_OK;
}

/* ---- scores ---- */

/* The places of the keys of n scores of head h, from score t on, which are elements from, from +
 * step, … of the product; and a look at their query. */
static bool take_keys(struct sliding_match *f, int64_t h, int64_t t, int64_t n,
                      int64_t from, int64_t step)
{
    const struct attn_sliding_product *p = &f->product;
    const int64_t query =
        (f->row / f->tokens * f->heads + h) * f->tokens + f->row % f->tokens;
    int64_t *key = &f->key[h * f->width + t];
    while (n > 0) {
        const int64_t y = from % p->y, column = attn_sliding_column(p, from);
        const int64_t q = p->a.from[attn_sliding_row(p, from)], *k = &p->b.from[column];
        /* Those of the same query, whose keys are side by side. */
        const int64_t beside = step != 1 ? 1 : n < p->y - y ? n : p->y - y;
        if (q < 0 || !attn_sliding_put(&f->q, query, q))
            return false;
        for (int64_t i = 0; i < beside; i++) {
            if (k[i] < 0)
                return false;
            *key++ = k[i];
        }
        from += beside * step;
        n -= beside;
    }
    return true;
}

static bool take_scores(void *user, const struct attn_grid_part *part)
{
    struct sliding_match *f = user;
    const int64_t n = part->grid.count[0];
    if (part->value < 0 ? !(part->number < 0) || isfinite(part->number)
                        : part->value != f->product.value)
        return false;
    for (int64_t r = 0; r < part->grid.count[1]; r++) {
        const int64_t h = part->at[1] + r;
        if (part->value >= 0 &&
            !take_keys(f, h, part->at[0], n, part->grid.from + r * part->grid.step[1],
                       part->grid.step[0]))
            return false;
        for (int64_t i = 0; part->value < 0 && i < n; i++)
            f->key[h * f->width + part->at[0] + i] = HIDDEN;
    }
    return true;
}

static bool take_mask(void *user, const struct attn_grid_part *part)
{
    struct sliding_match *f = user;
    const struct attn_sliding_product *p = &f->mask;
    for (int64_t i = 0; i < part->grid.count[0]; i++) {
        int64_t *key = &f->mask_key[part->at[0] + i];
        const int64_t at = part->grid.from + i * part->grid.step[0];
        if (part->value < 0) {
            *key = part->number < 0 && isinf(part->number) ? HIDDEN : PLAIN;
            if (*key == PLAIN && !(part->number <= 0 && part->number >= 0))
                return false; /* NaN, too */
            continue;
        }
        if (part->value != p->value)
            return false;
        const int64_t row = attn_sliding_row(p, at), column = attn_sliding_column(p, at);
        *key = p->b.from[column];
        if (*key < 0 && p->b.number[column] <= 0 && p->b.number[column] >= 0)
            *key = PLAIN;
        if (*key == HIDDEN || p->a.from[row] >= 0 || p->a.number[row] < 1 ||
            p->a.number[row] > 1)
            return false;
    }
    return true;
}

/* Whether the scores of a row are those of the keys of its window. */
static bool fits_window(struct sliding_match *f)
{
    const int64_t b = f->row / f->tokens, i = f->row % f->tokens;
    for (int64_t h = 0; h < f->heads; h++)
        for (int64_t t = 0; t < f->width; t++) {
            const int64_t k = f->key[h * f->width + t], j = i + t - f->left;
            const int64_t m = f->mask_scores >= 0 ? f->mask_key[t] : PLAIN;
            const bool hidden = k == HIDDEN || m == HIDDEN;
            if (hidden != (j < 0 || j >= f->tokens))
                return false;
            if (hidden)
                continue;
            if (!attn_sliding_put(&f->k, (b * f->heads + h) * f->tokens + j, k) ||
                (m == PLAIN) != (f->mask.b.value < 0) ||
                (m != PLAIN && !attn_sliding_put(&f->m, b * f->tokens + j, m)))
                return false;
        }
    return true;
}

static attn_status read_scores(struct sliding_match *f, bool *done)
{
    const int64_t scores_row = f->heads * f->width;
    for (f->row = 0; f->row < f->batch * f->tokens && *done; f->row++) {
        const struct attn_grid row = { f->row * scores_row,
                                       { 1, f->width },
                                       { f->width, f->heads } };
        const struct attn_grid mask_row = { f->row * f->width,
                                            { 1, 0 },
                                            { f->width, 1 } };
        f->p.user = f;
        f->p.take = take_scores;
        TRY(attn_provenance_ask(&f->p, f->scores, &row, done));
        f->p.take = take_mask;
        if (*done && f->mask_scores >= 0)
            TRY(attn_provenance_ask(&f->p, f->mask_scores, &mask_row, done));
        if (f->row == 0) /* its first key is its own token */
            for (f->left = 0; f->left < f->width && f->key[f->left] == HIDDEN;)
                f->left++;
        *done = *done && fits_window(f);
        TRY(attn_poll_work(scores_row * 4));
    }
    return ATTNRUN_OK;
}

/* ---- weights and values ---- */

struct weight_reader {
    struct sliding_match *found;
    int64_t token;
    int64_t n; /* weights of the token in all samples and heads so far */
};

/* n weights of one query in front of the values, from column `column` of its chunk on: elements
 * from, from + step, … of the weights, each of which is there once. */
static bool take_weights_of(struct weight_reader *r, int64_t bh, int64_t column,
                            int64_t n, int64_t from, int64_t step)
{
    struct sliding_match *f = r->found;
    const struct attn_sliding_rows *v = &f->result.b;
    const int64_t i = r->token, row = bh * f->tokens + i;
    const int64_t first =
        ((bh / f->heads * f->tokens + i) * f->heads + bh % f->heads) * f->width;
    const int64_t *value = &v->from[row / f->result.x * v->rows + column];
    int64_t *seen = &f->seen[bh * f->width];
    for (int64_t k = 0; k < n; k++) {
        const int64_t t = from + k * step - first, j = i + t - f->left;
        if (t < 0 || t >= f->width || seen[t] == i + 1)
            return false;
        seen[t] = i + 1;
        if (j >= 0 && j < f->tokens &&
            (value[k] < 0 || !attn_sliding_put(&f->v, bh * f->tokens + j, value[k])))
            return false;
    }
    r->n += n;
    return true;
}

static bool take_weights(void *user, const struct attn_grid_part *part)
{
    struct weight_reader *r = user;
    if (part->value < 0)
        return !(part->number < 0) && !(part->number > 0) && !isnan(part->number);
    if (part->value != r->found->weights)
        return false;
    for (int64_t k = 0; k < part->grid.count[1]; k++)
        if (!take_weights_of(r, part->at[1] + k, part->at[0], part->grid.count[0],
                             part->grid.from + k * part->grid.step[1],
                             part->grid.step[0]))
            return false;
    return true;
}

/* What reads the weights of a value through moves: the only product with rows of values. */
static struct attn_node *find_user(const struct attn_graph *graph, int32_t value)
{
    for (int k = 0; k < 32; k++) {
        struct attn_node *user = attn_graph_only_user(graph, value);
        if (user == NULL || node_is(user, "Einsum") || node_is(user, "MatMul"))
            return user;
        if (!node_is(user, "Transpose") && !node_is(user, "Reshape") &&
            !node_is(user, "Pad") && !node_is(user, "Slice") &&
            !node_is(user, "Unsqueeze") && !node_is(user, "Squeeze") &&
            !node_is(user, "Gather"))
            return NULL;
        value = user->out[0];
    }
    return NULL;
}

/* Where(drop, 0, weights) behind the Softmax, with a condition for each query. */
static void read_dropped(const struct attn_graph *graph, struct sliding_match *f)
{
    double zero;
    const struct attn_node *where = attn_graph_only_user(graph, f->weights);
    const attnrun_type *t = where != NULL ? match_type(graph, where->in[0]) : NULL;
    f->dropped = -1;
    if (!node_is(where, "Where") || where->in[2] != f->weights ||
        !attn_value_scalar(graph, where->in[1], &zero) || zero < 0 || zero > 0 ||
        t->rank != 4 || !dim_is(t->dims[0], f->batch) || !dim_is(t->dims[1], f->tokens) ||
        !dim_is(t->dims[2], 1) || !dim_is(t->dims[3], 1))
        return;
    f->dropped = where->in[0];
    f->weights = where->out[0];
}

/* The product of weights and values, whose row r is token r % tokens of head and sample r /
 * tokens. */
static attn_status read_result(const struct attn_graph *graph, struct sliding_match *f,
                               bool *done)
{
    struct weight_reader reader = { f, 0, 0 };
    read_dropped(graph, f);
    f->user = find_user(graph, f->weights);
    *done = f->user != NULL;
    if (*done)
        TRY(attn_sliding_read_values(&f->p, f->user->out[0], &f->result, done));
    if (!*done)
        return ATTNRUN_OK;
    const struct attn_sliding_product *o = &f->result;
    const int64_t both = f->batch * f->heads;
    *done =
        o->b.value >= 0 && o->outer * o->x == both * f->tokens && f->tokens % o->x == 0;
    memset(f->seen, 0, (size_t)(both * f->width) * sizeof *f->seen);
    f->p.stop = f->weights;
    f->p.take = take_weights;
    f->p.user = &reader;
    for (; reader.token < f->tokens && *done; reader.token++) {
        const struct attn_grid row = { reader.token * o->b.rows,
                                       { 1, f->tokens * o->b.rows },
                                       { o->b.rows, both } };
        reader.n = 0;
        TRY(attn_provenance_ask(&f->p, o->value, &row, done));
        *done = *done && reader.n == both * f->width;
        TRY(attn_poll_work(both * f->width * 4));
    }
    f->p.user = NULL;
    return ATTNRUN_OK;
}

/* ---- the whole ---- */

static attn_status make_places(struct sliding_match *f,
                               struct attn_sliding_places *places, int64_t heads)
{
    *places = (struct attn_sliding_places){ .heads = heads,
                                            .tokens = f->tokens,
                                            .n = f->batch * heads * f->tokens };
    places->at = attn_pool_alloc(&f->pool, places->n * (int64_t)sizeof *places->at);
    for (int64_t i = 0; places->at != NULL && i < places->n; i++)
        places->at[i] = -1;
    return places->at != NULL ? ATTNRUN_OK : ATTNRUN_E_MEMORY;
}

static attn_status make_node_room(struct sliding_match *f)
{
    const int64_t row = f->width * (int64_t)sizeof(int64_t);
    TRY(make_places(f, &f->q, f->heads));
    TRY(make_places(f, &f->k, f->heads));
    TRY(make_places(f, &f->v, f->heads));
    TRY(make_places(f, &f->m, 1));
    f->key = attn_pool_alloc(&f->pool, f->heads * row);
    f->mask_key = attn_pool_alloc(&f->pool, row);
    f->seen = attn_pool_alloc(&f->pool, f->batch * f->heads * row);
    return f->key != NULL && f->mask_key != NULL && f->seen != NULL ? ATTNRUN_OK
                                                                    : ATTNRUN_E_MEMORY;
}

/* Splits what the Softmax reads into scores and a mask's scores, which all heads share. */
static void split_scores(const struct attn_graph *graph, struct sliding_match *f)
{
    f->scores = through_transposes(graph, f->softmax->in[0]);
    f->mask_scores = f->mask.b.value = -1;
    const struct attn_node *add = attn_graph_producer(graph, f->scores);
    if (!node_is(add, "Add"))
        return;
    for (int side = 0; side < 2; side++) {
        const attnrun_type *t = match_type(graph, add->in[side]);
        if (t->rank == 4 && dim_is(t->dims[2], 1) &&
            attn_match_same_shape(graph, add->in[1 - side], add->out[0]) &&
            attn_provenance_is_static(graph, add->in[side]) &&
            dim_is(t->dims[0], f->batch) && dim_is(t->dims[1], f->tokens) &&
            dim_is(t->dims[3], f->width)) {
            f->mask_scores = add->in[side];
            f->scores = add->in[1 - side];
            return;
        }
    }
}

/* *done: all of it is there. f->why: the first condition that failed of what looks like it. */
static attn_status read_sliding_chunks(const struct attn_graph *graph,
                                       struct sliding_match *f, bool *done)
{
    split_scores(graph, f);
    TRY(find_product(f, f->scores, f->heads, &f->product, done));
    *done = *done && f->product.value >= 0 && f->product.a.value >= 0 &&
            f->product.b.value >= 0;
    if (!*done)
        return ATTNRUN_OK;
    f->why = "its mask is not the product of ones and a mask of keys";
    if (f->mask_scores >= 0)
        TRY(find_product(f, f->mask_scores, 1, &f->mask, done));
    if (!*done)
        return ATTNRUN_OK;
    f->why = "its scores are not those of one window around each query";
    TRY(make_node_room(f));
    TRY(read_scores(f, done));
    if (!*done)
        return ATTNRUN_OK;
    f->why = "its weights do not multiply the values of their keys";
    TRY(read_result(graph, f, done));
    return ATTNRUN_OK;
}

/* ---- the new nodes ---- */

/* An operand (batch, heads, tokens, dim) of the elements of `rows`. */
static attn_status add_operand(struct attn_graph *graph, const struct sliding_match *f,
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

/* The program of the band: where(-left <= key - query <= right, score, -infinity) + mask. */
static void write_band(const struct sliding_match *f, int32_t mask,
                       struct attn_mask_written *w)
{
    const float fill = -INFINITY;
    const int64_t n = mask >= 0, right = f->width - 1 - f->left;
    const int64_t code[][MASK_WORDS] = {
        { MASK_AT_KEY },
        { MASK_AT_QUERY },
        { MASK_SUB, n, n + 1 },
        { MASK_INT, -f->left, ATTNRUN_I64 },
        { MASK_GREATER_EQUAL, n + 2, n + 3 },
        { MASK_INT, right, ATTNRUN_I64 },
        { MASK_LESS_EQUAL, n + 2, n + 5 },
        { MASK_AND, n + 4, n + 6 },
    };
    uint32_t bits;
    memcpy(&bits, &fill, sizeof bits);
    *w = (struct attn_mask_written){ .n_code = sizeof code / sizeof code[0],
                                     .n_leaves = (int32_t)n };
    memcpy(w->code, code, sizeof code);
    w->mask[MASK_FACT_KEEP] = n + 7;
    w->mask[MASK_FACT_ADD] = mask >= 0 ? 0 : -1;
    w->mask[MASK_FACT_FILL] = bits;
    w->mask[MASK_FACT_QUERIES] = w->mask[MASK_FACT_KEYS] = -1;
    w->leaves[0] = mask;
    for (int a = 0; a < MASK_AXES; a++)
        w->axes[a] = a == MASK_BATCH ? 0 : a == MASK_KEY ? 3 : -1;
}

static attn_status replace(struct attn_graph *graph, const struct sliding_match *f)
{
    struct attn_node *user = f->user;
    const attnrun_type *result = match_type(graph, user->out[0]);
    const int64_t mask_dims[4] = { f->batch, 1, 1, f->tokens },
                  drop_dims[4] = { f->batch, 1, f->tokens, 1 };
    int32_t in[MASK_LEAF + MASK_MAX_LEAVES], mask = -1, y, shape;
    int64_t dims[ATTNRUN_MAX_RANK];
    struct attn_mask_written program;
    struct attn_attr attrs[2 + MASK_ATTRS] = { MATCH_FLOAT("scale", 1.0f),
                                               MATCH_INT("nan_rows", 1) };
    struct attn_node *made;
    TRY(add_operand(graph, f, &f->q, &f->product.a, user, &in[0]));
    TRY(add_operand(graph, f, &f->k, &f->product.b, user, &in[1]));
    TRY(add_operand(graph, f, &f->v, &f->result.b, user, &in[2]));
    if (f->mask.b.value >= 0) {
        mask = f->mask.b.value;
        TRY(attn_match_reshape(graph, user, 4, mask_dims, &mask));
    }
    write_band(f, mask, &program);
    TRY(attn_mask_attrs(graph, &program, attrs + 2));
    const int32_t n_in = attn_mask_inputs(&program, in);
    TRY(attn_graph_add_value(graph, NULL, &y));
    TRY(attn_graph_insert(graph, user, "attnrun.fused", "FusedAttention", n_in, in, 1, &y,
                          2 + MASK_ATTRS, attrs, &made));
    if (f->dropped >= 0) {
        int32_t zero, drop = f->dropped;
        void *data;
        TRY(attn_match_reshape(graph, user, 4, drop_dims, &drop));
        TRY(attn_graph_new_constant(graph, ATTNRUN_F32, 0, NULL, &zero, &data));
        const int32_t where[3] = { drop, zero, y };
        TRY(attn_match_add(graph, user, "Where", 3, where, 0, NULL, &y));
    }
    for (int a = 0; a < result->rank; a++)
        dims[a] = result->dims[a].value;
    TRY(attn_match_ints(graph, result->rank, dims, &shape));
    const int32_t both[2] = { y, shape };
    TRY(attn_match_make(graph, user, "", "Reshape", 2, both, user->out[0], 0, NULL,
                        &made));
    attn_match_replace(graph, user->out[0], made);
    return ATTNRUN_OK;
}

/* Whether the operands can be read as (batch, heads, tokens, dim). */
static bool are_dense(const struct attn_graph *graph, struct sliding_match *f)
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
    }
    for (int64_t i = 0; f->mask.b.value >= 0 && i < f->m.n; i++)
        if (f->m.at[i] != i)
            return false;
    return true;
}

static attn_status try_sliding_chunks(struct attn_graph *graph, struct attn_node *softmax,
                                      int32_t *applied)
{
    struct sliding_match found = { .softmax = softmax, .weights = softmax->out[0] };
    bool done = false;
    if (!read_sizes(graph, &found))
        return ATTNRUN_OK;
    attn_pool_init(&found.pool, graph->model->pool.memory, ATTN_MEM_MODEL);
    /* 12 heads, 4,096 tokens and windows of 513 take 22 million, which is 0.4 s. */
    found.p = (struct attn_provenance){
        .graph = graph, .pool = &found.pool, .stop = -1, .left = INT64_C(1) << 28
    };
    attn_status status = read_sliding_chunks(graph, &found, &done);
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

static attn_status run_sliding_chunks(struct attn_graph *graph, int32_t *applied)
{
    return attn_match_each(graph, "Softmax", try_sliding_chunks, applied);
}

const struct attn_pass attn_pass_sliding_chunks = { .name = "sliding_chunks",
                                                    .run = run_sliding_chunks };
