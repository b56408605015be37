/* sliding_weights.c - which value each weight of attention over a window multiplies: see
 * fuse_sliding_chunks.c.
 *
 * In: what a Softmax gives. Out: the places of values, the products of weights and values, and
 * their sum where tokens that all queries see have a product of their own. Each weight must be
 * there once, in front of the value of its key. */
#include <math.h>

#include "../../runtime/poll.h"
#include "sliding_match.h"

struct weight_reader {
    struct attn_sliding_match *found;
    const struct attn_sliding_product *product;
    int64_t token;
    int64_t n; /* weights of the token in all samples and heads so far */
};

/* The key of weight t of token i; -1: none. */
static int64_t key_of(const struct attn_sliding_match *f, int64_t b, int64_t i, int64_t t)
{
    if (t < f->globals)
        return f->global_key[b * f->globals + t];
    const int64_t j = i + t - f->globals - f->left;
    return j < f->tokens ? j : -1;
}

/* n weights of one query in front of the values, from column `column` of its chunk on: elements
 * from, from + step, … of the weights, each of which is there once. */
static bool take_weights_of(struct weight_reader *r, int64_t bh, int64_t column,
                            int64_t n, int64_t from, int64_t step)
{
    struct attn_sliding_match *f = r->found;
    const struct attn_sliding_rows *v = &r->product->b;
    const int64_t i = r->token, row = bh * f->tokens + i, width = f->globals + f->width;
    const int64_t first =
        ((bh / f->heads * f->tokens + i) * f->heads + bh % f->heads) * width;
    const int64_t *value = &v->from[row / r->product->x * v->rows + column];
    int64_t *seen = &f->seen[bh * width];
    for (int64_t k = 0; k < n; k++) {
        const int64_t t = from + k * step - first;
        if (t < 0 || t >= width || seen[t] == i + 1)
            return false;
        seen[t] = i + 1;
        const int64_t j = key_of(f, bh / f->heads, i, t);
        if (j >= 0 &&
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

/* ---- nodes ---- */

static bool only_moves(const struct attn_node *node)
{
    static const char *const moves[] = { "Transpose", "Reshape",   "Pad",    "Slice",
                                         "Squeeze",   "Unsqueeze", "Gather", "Expand" };
    for (size_t i = 0; i < sizeof moves / sizeof moves[0]; i++)
        if (node_is(node, moves[i]))
            return true;
    return false;
}

/* What reads a node's result through moves: the only node that does more; NULL where there are
 * several. */
static struct attn_node *find_reader(const struct attn_graph *graph,
                                     struct attn_node *user)
{
    for (int k = 0; k < 32 && user != NULL; k++) {
        if (!only_moves(user))
            return user;
        user = attn_graph_only_user(graph, user->out[0]);
    }
    return NULL;
}

/* Where(drop, 0, weights) behind the Softmax, with a condition for each query. */
static void read_dropped(const struct attn_graph *graph, struct attn_sliding_match *f)
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

/* Queries without a key must become zeros: what the file gives for them is not what the operator
 * does. */
static bool drops_those_alone(const struct attn_graph *graph,
                              const struct attn_sliding_match *f)
{
    const uint8_t *drop = f->dropped >= 0 ? graph->values[f->dropped].data.data : NULL;
    for (int64_t row = 0; row < f->batch * f->tokens; row++)
        if (f->alone[row] && (drop == NULL || drop[row] == 0))
            return false;
    return true;
}

/* ---- products ---- */

/* The product of weights and values, whose row r is token r % tokens of head and sample r /
 * tokens. */
static attn_status read_weighted(struct attn_sliding_match *f,
                                 const struct attn_node *user,
                                 struct attn_sliding_product *o, bool *done)
{
    *done = user != NULL;
    if (*done)
        TRY(attn_sliding_read_values(&f->p, user->out[0], o, done));
    *done = *done && o->b.value >= 0 &&
            o->outer * o->x == f->batch * f->heads * f->tokens && f->tokens % o->x == 0;
    return ATTNRUN_OK;
}

/* The weights of a token in front of the values of a product. */
static attn_status ask_weights(struct weight_reader *r,
                               const struct attn_sliding_product *o, bool *done)
{
    struct attn_sliding_match *f = r->found;
    const struct attn_grid row = { r->token * o->b.rows,
                                   { 1, f->tokens * o->b.rows },
                                   { o->b.rows, f->batch * f->heads } };
    r->product = o;
    f->p.stop = f->weights;
    f->p.take = take_weights;
    f->p.user = r;
    return attn_provenance_ask(&f->p, o->value, &row, done);
}

static attn_status ask_all_weights(struct attn_sliding_match *f, bool *done)
{
    struct weight_reader reader = { .found = f };
    const int64_t all = f->batch * f->heads * (f->globals + f->width);
    memset(f->seen, 0, (size_t)all * sizeof *f->seen);
    for (; reader.token < f->tokens && *done; reader.token++) {
        reader.n = 0;
        TRY(ask_weights(&reader, &f->result, done));
        if (*done && f->globals > 0)
            TRY(ask_weights(&reader, &f->global_result, done));
        *done = *done && reader.n == all;
        TRY(attn_poll_work(all * 4));
    }
    f->p.user = NULL;
    return ATTNRUN_OK;
}

/* ---- the sum of two products ---- */

struct sum_reader {
    const struct attn_sliding_match *found;
    int32_t product;
    int64_t row; /* batch * tokens + token */
};

/* Heads of a token in the sum, which must be those of the product (batch, heads, tokens, dim). */
static bool take_sum(void *user, const struct attn_grid_part *part)
{
    const struct sum_reader *r = user;
    const struct attn_sliding_match *f = r->found;
    const int64_t dim = f->result.b.dim, b = r->row / f->tokens, i = r->row % f->tokens;
    const struct attn_grid *g = &part->grid;
    return part->value == r->product && (g->count[0] == 1 || g->step[0] == 1) &&
           (g->count[1] == 1 || g->step[1] == f->tokens * dim) &&
           g->from == ((b * f->heads + part->at[1]) * f->tokens + i) * dim + part->at[0];
}

/* Whether the Add sums both products, as (batch, tokens, heads, dim). */
static attn_status read_added(const struct attn_graph *graph,
                              struct attn_sliding_match *f,
                              const struct attn_node *globals, bool *done)
{
    struct attn_node *sum =
        find_reader(graph, attn_graph_only_user(graph, f->user->out[0]));
    const int64_t dim = f->result.b.dim;
    *done = node_is(sum, "Add") &&
            find_reader(graph, attn_graph_only_user(graph, globals->out[0])) == sum;
    if (!*done)
        return ATTNRUN_OK;
    const attnrun_type *t = match_type(graph, sum->out[0]);
    *done = t->rank == 4 && dim_is(t->dims[0], f->batch) &&
            dim_is(t->dims[1], f->tokens) && dim_is(t->dims[2], f->heads) &&
            dim_is(t->dims[3], dim) &&
            attn_match_same_shape(graph, sum->in[0], sum->out[0]) &&
            attn_match_same_shape(graph, sum->in[1], sum->out[0]);
    bool used[2] = { false, false };
    for (int side = 0; side < 2 && *done; side++) {
        struct sum_reader reader = { f, -1, 0 };
        const struct attn_node *node = attn_graph_producer(graph, sum->in[side]);
        while (node != NULL && only_moves(node))
            node = attn_graph_producer(graph, node->in[0]);
        const int which = node == globals;
        *done = (node == globals || node == f->user) && !used[which];
        used[which] = true;
        reader.product = *done ? node->out[0] : -1;
        f->p.stop = reader.product;
        f->p.take = take_sum;
        f->p.user = &reader;
        for (; reader.row < f->batch * f->tokens && *done; reader.row++) {
            const struct attn_grid row = { reader.row * f->heads * dim,
                                           { 1, dim },
                                           { dim, f->heads } };
            TRY(attn_provenance_ask(&f->p, sum->in[side], &row, done));
        }
    }
    f->p.user = NULL;
    f->sum = sum;
    return ATTNRUN_OK;
}

/* Finds the products with the values of windows and of globals. */
static attn_status find_both(const struct attn_graph *graph, struct attn_sliding_match *f,
                             struct attn_node **globals, bool *done)
{
    const struct attn_value *weights = &graph->values[f->weights];
    const struct attn_use *first = weights->uses;
    *done = weights->n_uses == 2 && !(weights->flags & ATTN_VALUE_OUTPUT) &&
            first->node != NULL && first->next != NULL && first->next->node != NULL &&
            first->next->next == NULL;
    if (!*done)
        return ATTNRUN_OK;
    struct attn_node *users[2] = { find_reader(graph, first->node),
                                   find_reader(graph, first->next->node) };
    for (int i = 0; i < 2 && *done; i++) {
        struct attn_sliding_product o;
        TRY(read_weighted(f, users[i], &o, done));
        const bool is_globals = *done && o.x == f->tokens && o.b.rows == f->globals;
        if (*done)
            *(is_globals ? &f->global_result : &f->result) = o;
        *(is_globals ? globals : &f->user) = users[i];
    }
    *done = *done && *globals != NULL && f->user != NULL &&
            f->result.b.value == f->global_result.b.value &&
            f->result.b.step == f->global_result.b.step &&
            f->result.b.dim == f->global_result.b.dim;
    return ATTNRUN_OK;
}

attn_status attn_sliding_read_weights(struct attn_sliding_match *f, bool *done)
{
    const struct attn_graph *graph = f->p.graph;
    struct attn_node *globals = NULL;
    read_dropped(graph, f);
    *done = drops_those_alone(graph, f);
    if (!*done)
        return ATTNRUN_OK;
    if (f->global_scores >= 0) {
        TRY(find_both(graph, f, &globals, done));
        if (*done)
            TRY(read_added(graph, f, globals, done));
    } else {
        f->user = find_reader(graph, attn_graph_only_user(graph, f->weights));
        TRY(read_weighted(f, f->user, &f->result, done));
    }
    return *done ? ask_all_weights(f, done) : ATTNRUN_OK;
}
