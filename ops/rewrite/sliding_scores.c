/* sliding_scores.c - which query and which key each score of attention over a window is a product
 * of: see fuse_sliding_chunks.c.
 *
 * In: what a Softmax reads. Out: the places of queries and keys in their values, the tokens that
 * all queries see, and the keys that a mask removes from windows. A mask of constants is read as
 * its numbers, whether loading has computed its scores or not; a mask that is data must be one
 * number a key. */
#include <math.h>

#include "../../runtime/poll.h"
#include "block_window.h"
#include "sliding_match.h"

/* ---- operands ---- */

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

/* Whether a value is (batch, tokens, heads, n) of f32. */
static bool has_scores(const struct attn_sliding_match *f, int32_t value, int64_t heads,
                       int64_t n)
{
    const attnrun_type *t = match_type(f->p.graph, value);
    return t->rank == 4 && attn_provenance_is_static(f->p.graph, value) &&
           dim_is(t->dims[0], f->batch) && dim_is(t->dims[1], f->tokens) &&
           dim_is(t->dims[2], heads) && dim_is(t->dims[3], n);
}

/* Scores of globals in front of those of the window, along the last axis. */
static void split_globals(struct attn_sliding_match *f)
{
    const struct attn_graph *graph = f->p.graph;
    const struct attn_node *concat = attn_graph_producer(graph, f->scores);
    f->global_scores = -1;
    if (!node_is(concat, "Concat") || concat->pub.n_in != 2)
        return;
    const int64_t axis = attn_match_int(concat, "axis", 0);
    const attnrun_type *t = match_type(graph, concat->in[0]);
    if ((axis != 3 && axis != -1) || t->rank != 4 || !dim_is_const(t->dims[3]))
        return;
    const int64_t n = t->dims[3].value;
    if (n < 1 || f->width - n < 2 || !has_scores(f, concat->in[0], f->heads, n) ||
        !has_scores(f, concat->in[1], f->heads, f->width - n))
        return;
    f->global_scores = concat->in[0];
    f->scores = through_transposes(graph, concat->in[1]);
    f->globals = n;
    f->width -= n;
}

void attn_sliding_split(struct attn_sliding_match *f)
{
    const struct attn_graph *graph = f->p.graph;
    f->scores = through_transposes(graph, f->softmax->in[0]);
    f->mask_scores = f->mask.value = f->mask.b.value = -1;
    split_globals(f);
    const struct attn_node *add = attn_graph_producer(graph, f->scores);
    if (!node_is(add, "Add"))
        return;
    for (int side = 0; side < 2; side++)
        if (attn_match_same_shape(graph, add->in[1 - side], add->out[0]) &&
            has_scores(f, add->in[side], 1, f->width)) {
            f->mask_scores = add->in[side];
            f->scores = add->in[1 - side];
            return;
        }
}

/* The value that the first element of a row comes from that is no number. */
static bool take_first(void *user, const struct attn_grid_part *part)
{
    int32_t *value = user;
    if (part->value >= 0 && *value < 0)
        *value = part->value;
    return true;
}

/* The product that scores of `heads` and n keys come from: product->value, -1 where all of them are
 * numbers in the row of the middle token. */
static attn_status find_product(struct attn_sliding_match *found, int32_t scores,
                                int64_t heads, int64_t n,
                                struct attn_sliding_product *product, bool *done)
{
    int32_t value = -1;
    const int64_t middle = found->tokens / 2 * heads * n;
    const struct attn_grid row = { middle, { 1, 0 }, { n, 1 } };
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
static bool take_keys(struct attn_sliding_match *f, const struct attn_sliding_product *p,
                      int64_t *key, int64_t h, int64_t n, int64_t from, int64_t step)
{
    const int64_t query =
        (f->row / f->tokens * f->heads + h) * f->tokens + f->row % f->tokens;
    while (n > 0) {
        int64_t row, column;
        attn_sliding_pair(p, from, &row, &column);
        const int64_t y = from % p->y, q = p->a.from[row], *k = &p->b.from[column];
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

/* A number in the place of scores: minus infinity, or one that masks beside global keys. */
static bool is_hidden(const struct attn_sliding_match *f, double number)
{
    return number < 0 &&
           (isinf(number) || (f->globals > 0 && number <= (double)ATTN_BLOCK_LOST));
}

/* Keys of the row at hand, `width` a head, from product p. */
static bool take_part(struct attn_sliding_match *f, const struct attn_grid_part *part,
                      const struct attn_sliding_product *p, int64_t width)
{
    const int64_t n = part->grid.count[0];
    if (part->value < 0 ? !is_hidden(f, part->number) : part->value != p->value)
        return false;
    for (int64_t r = 0; r < part->grid.count[1]; r++) {
        const int64_t h = part->at[1] + r;
        int64_t *key = &f->key[h * width + part->at[0]];
        if (part->value >= 0 &&
            !take_keys(f, p, key, h, n, part->grid.from + r * part->grid.step[1],
                       part->grid.step[0]))
            return false;
        for (int64_t i = 0; part->value < 0 && i < n; i++)
            key[i] = SLIDING_HIDDEN;
    }
    return true;
}

static bool take_scores(void *user, const struct attn_grid_part *part)
{
    struct attn_sliding_match *f = user;
    return take_part(f, part, &f->product, f->width);
}

static bool take_globals(void *user, const struct attn_grid_part *part)
{
    struct attn_sliding_match *f = user;
    return take_part(f, part, &f->global, f->globals);
}

/* What a mask does by adding a number that is constant; false: neither of both. */
static bool read_number(double number, int64_t *key)
{
    *key = !(number < 0)                       ? SLIDING_PLAIN
           : isinf(number)                     ? SLIDING_HIDDEN
           : number <= (double)ATTN_BLOCK_LOST ? SLIDING_REMOVED
                                               : 0;
    return *key < 0 && (*key != SLIDING_PLAIN || number <= 0); /* NaN is none, too */
}

static bool take_mask(void *user, const struct attn_grid_part *part)
{
    struct attn_sliding_match *f = user;
    const struct attn_sliding_product *p = &f->mask;
    for (int64_t i = 0; i < part->grid.count[0]; i++) {
        int64_t row, column, *key = &f->mask_key[part->at[0] + i];
        if (part->value < 0) {
            if (!read_number(part->number, key))
                return false;
            continue;
        }
        if (part->value != p->value)
            return false;
        attn_sliding_pair(p, part->grid.from + i * part->grid.step[0], &row, &column);
        *key = p->b.from[column];
        if (p->a.from[row] >= 0 || p->a.number[row] < 1 || p->a.number[row] > 1 ||
            (*key < 0 &&
             (!read_number(p->b.number[column], key) || *key == SLIDING_HIDDEN)))
            return false;
    }
    return true;
}

/* ---- a row ---- */

/* Notes of key j of sample b what the mask of the file does with it; false where it does something
 * else elsewhere. */
static bool put_mask(struct attn_sliding_match *f, int64_t b, int64_t j, int64_t m,
                     bool first)
{
    uint8_t *removed = &f->removed[b * f->tokens + j];
    if (m >= 0 || f->mask.b.value >= 0)
        return m >= 0 && f->mask.b.value >= 0 &&
               attn_sliding_put(&f->m, b * f->tokens + j, m);
    if (first)
        *removed = m == SLIDING_REMOVED;
    return *removed == (m == SLIDING_REMOVED);
}

/* Whether the scores of a row are those of the keys of its window. */
static bool fits_window(struct attn_sliding_match *f)
{
    const int64_t b = f->row / f->tokens, i = f->row % f->tokens;
    bool alone = true;
    for (int64_t h = 0; h < f->heads; h++)
        for (int64_t t = 0; t < f->width; t++) {
            const int64_t k = f->key[h * f->width + t], j = i + t - f->left;
            const int64_t m = f->mask_scores >= 0 ? f->mask_key[t] : SLIDING_PLAIN;
            const bool hidden = k == SLIDING_HIDDEN || m == SLIDING_HIDDEN;
            if (hidden != (j < 0 || j >= f->tokens))
                return false;
            if (hidden)
                continue;
            const int64_t from = j - f->width + 1 + f->left; /* the first that sees it */
            if (!attn_sliding_put(&f->k, (b * f->heads + h) * f->tokens + j, k) ||
                !put_mask(f, b, j, m, h == 0 && i == (from > 0 ? from : 0)))
                return false;
            alone = alone && m == SLIDING_REMOVED;
        }
    f->alone[f->row] = alone;
    return true;
}

/* The token whose key has this place; -1: none. */
static int64_t token_of(const struct attn_sliding_places *k, int64_t bh, int64_t place)
{
    const int64_t *at = &k->at[bh * k->tokens];
    const int64_t step = at[1] - at[0], j = step > 0 ? (place - at[0]) / step : -1;
    return j >= 0 && j < k->tokens && at[j] == place ? j : -1;
}

/* Whether the scores of a row with globals are those of the same tokens as in other rows. */
static bool fits_globals(struct attn_sliding_match *f)
{
    const int64_t b = f->row / f->tokens, i = f->row % f->tokens;
    uint8_t *is_global = &f->is_global[b * f->tokens];
    for (int64_t h = 0; h < f->heads; h++)
        for (int64_t t = 0; t < f->globals; t++) {
            const int64_t k = f->key[h * f->globals + t];
            const int64_t j =
                k == SLIDING_HIDDEN ? -1 : token_of(&f->k, b * f->heads + h, k);
            int64_t *global = &f->global_key[b * f->globals + t];
            if (k != SLIDING_HIDDEN && j < 0)
                return false;
            if (h > 0 || i > 0) {
                if (*global != j)
                    return false;
                continue;
            }
            /* Windows must not have it a second time. */
            if (j >= 0 && (is_global[j] || !f->removed[b * f->tokens + j]))
                return false;
            *global = j;
            if (j >= 0)
                is_global[j] = 1;
        }
    for (int64_t t = 0; t < f->globals; t++)
        if (f->global_key[b * f->globals + t] >= 0)
            f->alone[f->row] = 0;
    return true;
}

static attn_status read_windows(struct attn_sliding_match *f, bool *done)
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
            for (f->left = 0; f->left < f->width && f->key[f->left] == SLIDING_HIDDEN;)
                f->left++;
        *done = *done && fits_window(f);
        TRY(attn_poll_work(scores_row * 4));
    }
    return ATTNRUN_OK;
}

static attn_status read_globals(struct attn_sliding_match *f, bool *done)
{
    const int64_t scores_row = f->heads * f->globals;
    TRY(find_product(f, f->global_scores, f->heads, f->globals, &f->global, done));
    *done = *done && f->global.value >= 0 && f->global.a.value == f->product.a.value &&
            f->global.b.value == f->product.b.value &&
            f->global.a.step == f->product.a.step &&
            f->global.b.step == f->product.b.step && f->global.a.dim == f->product.a.dim;
    for (f->row = 0; f->row < f->batch * f->tokens && *done; f->row++) {
        const struct attn_grid row = { f->row * scores_row,
                                       { 1, f->globals },
                                       { f->globals, f->heads } };
        f->p.user = f;
        f->p.take = take_globals;
        TRY(attn_provenance_ask(&f->p, f->global_scores, &row, done));
        *done = *done && fits_globals(f);
        TRY(attn_poll_work(scores_row * 4));
    }
    return ATTNRUN_OK;
}

/* ---- the whole ---- */

static attn_status make_places(struct attn_sliding_match *f,
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

static attn_status make_room(struct attn_sliding_match *f)
{
    const int64_t row = (f->width + f->globals) * (int64_t)sizeof(int64_t);
    TRY(make_places(f, &f->q, f->heads));
    TRY(make_places(f, &f->k, f->heads));
    TRY(make_places(f, &f->v, f->heads));
    TRY(make_places(f, &f->m, 1));
    f->is_global = attn_pool_alloc(&f->pool, f->batch * f->tokens);
    f->removed = attn_pool_alloc(&f->pool, f->batch * f->tokens);
    f->alone = attn_pool_alloc(&f->pool, f->batch * f->tokens);
    f->key = attn_pool_alloc(&f->pool, f->heads * row);
    f->mask_key = attn_pool_alloc(&f->pool, row);
    f->seen = attn_pool_alloc(&f->pool, f->batch * f->heads * row);
    f->global_key = attn_pool_alloc(&f->pool, f->batch * row);
    return f->key != NULL && f->mask_key != NULL && f->seen != NULL &&
                   f->global_key != NULL && f->is_global != NULL && f->removed != NULL &&
                   f->alone != NULL
               ? ATTNRUN_OK
               : ATTNRUN_E_MEMORY;
}

attn_status attn_sliding_read_scores(struct attn_sliding_match *f, bool *done)
{
    TRY(find_product(f, f->scores, f->heads, f->width, &f->product, done));
    *done = *done && f->product.value >= 0 && f->product.a.value >= 0 &&
            f->product.b.value >= 0;
    if (!*done)
        return ATTNRUN_OK;
    f->why = "its mask is not the product of ones and a mask of keys";
    if (f->mask_scores >= 0)
        TRY(find_product(f, f->mask_scores, 1, f->width, &f->mask, done));
    *done = *done && (f->mask.value < 0 || f->mask.b.dim == 1); /* one number a key */
    if (!*done)
        return ATTNRUN_OK;
    f->why = "its scores are not those of one window around each query";
    TRY(make_room(f));
    TRY(read_windows(f, done));
    if (!*done || f->global_scores < 0)
        return ATTNRUN_OK;
    f->why = "its first scores are not those of tokens that no window has";
    return read_globals(f, done);
}
