/* block_mask.c - finds which keys the masks of attention in blocks keep. In: the masks, as
 * constants or as expressions of the positions of queries and of keys in their windows. Out: a
 * pattern that holds for every block.
 *
 * An expression becomes a list of entries, where operands come behind the entries that read them.
 * It is computed for each pair (i, j) of a query and a key of the window. The position of the
 * query is P + i. The position of a key is P + j - before chunk, or outside the tensor the number
 * that Pad wrote. P, the first position of the block, is any number from 0 on, so a comparison is
 * true, false or unknown. Where a constant differs between blocks, each block is examined with
 * its own P. Keys outside must not be seen. */
#include "../../runtime/poll.h"
#include "block_window.h"

enum { MAX_ENTRIES = 64, MAX_MASKS = 4 };
enum { NEVER, ALWAYS, OPEN }; /* of what is a bool */
static const int64_t max_number = INT64_C(1) << 40, max_pairs = INT64_C(1) << 28;

enum word {
    NUMBERS,
    QUERIES,
    KEYS,
    PASS,
    NOT,
    AND,
    OR,
    XOR,
    EQUAL,
    LESS,
    GREATER,
    LESS_EQUAL,
    GREATER_EQUAL,
    ADD,
    SUB
};

struct entry {
    int32_t value;
    int8_t axes[ATTNRUN_MAX_RANK]; /* of the scores, by those of the value; -1: none */
    enum word word;
    int arg[2];
    double pad; /* of KEYS */
};

/* a P + b, or a bool in b. */
struct number {
    int64_t a, b;
};

struct block_mask_reader {
    const struct attn_graph *graph;
    const struct attn_block_scores *s;
    struct entry entries[MAX_ENTRIES];
    int n, root[MAX_MASKS];
    bool by_block, by_query;
    const char *why;
};

/* One pair of block w; w -1: any block. */
struct pair {
    int64_t w, i, j;
    int64_t min; /* of P, since the key is there */
    bool outside;
};

/* ---- entries ---- */

static int add_entry(struct block_mask_reader *r, int32_t value, const int8_t *axes)
{
    const attnrun_type *t = match_type(r->graph, value);
    if (r->n == MAX_ENTRIES || t->kind != ATTNRUN_TENSOR || t->rank < 0) {
        r->why = "the expression of its mask is too long";
        return -1;
    }
    struct entry *e = &r->entries[r->n];
    *e = (struct entry){ .value = value, .arg = { -1, -1 } };
    memcpy(e->axes, axes, (size_t)t->rank);
    return r->n++;
}

/* Adds an operand that is broadcast: its axes are the last ones of its reader. */
static int add_operand(struct block_mask_reader *r, const struct entry *e, int32_t value)
{
    const int more =
        match_type(r->graph, e->value)->rank - match_type(r->graph, value)->rank;
    if (match_type(r->graph, value)->rank < 0 || more < 0) {
        r->why = "the rank of a mask is not known";
        return -1;
    }
    return add_entry(r, value, e->axes + more);
}

/* Adds the operand of Reshape, Squeeze or Unsqueeze that only adds or removes axes of
 * 1. */
static int add_moved(struct block_mask_reader *r, const struct entry *e, int32_t value)
{
    int8_t axes[ATTNRUN_MAX_RANK];
    const attnrun_type *to = match_type(r->graph, e->value),
                       *from = match_type(r->graph, value);
    int k = 0;
    for (int i = 0; from->kind == ATTNRUN_TENSOR && i < from->rank; i++) {
        axes[i] = -1;
        if (dim_is(from->dims[i], 1))
            continue;
        while (k < to->rank && dim_is(to->dims[k], 1))
            k++;
        if (k == to->rank || !dim_equal(to->dims[k], from->dims[i]))
            return -1;
        axes[i] = e->axes[k++];
    }
    while (k < to->rank && dim_is(to->dims[k], 1))
        k++;
    return from->rank >= 0 && k == to->rank ? add_entry(r, value, axes) : -1;
}

/* Whether the axes that are not 1 are those of blocks and of `other`. */
static bool is_positions(const struct block_mask_reader *r, const struct entry *e,
                         int other)
{
    int found = 0;
    const attnrun_type *t = match_type(r->graph, e->value);
    for (int i = 0; i < t->rank; i++)
        if (!dim_is(t->dims[i], 1))
            found += e->axes[i] == other ? 2
                     : e->axes[i] == r->s->blocks && dim_equal(t->dims[i], r->s->n_blocks)
                         ? 1
                         : 4;
    return found == 3;
}

/* Whether a value is Reshape(Range(0, …, 1)) into blocks of `chunk`. */
static bool is_range(const struct block_mask_reader *r, int32_t value)
{
    double first = 1, step = 0;
    const attnrun_type *t = match_type(r->graph, value);
    attnrun_dim chunk = dim_of(1);
    for (int i = 0; i < t->rank; i++)
        if (!dim_is(t->dims[i], 1))
            chunk = t->dims[i];
    const struct attn_node *node = attn_graph_producer(r->graph, value);
    for (int k = 0; k < 4 && (node_is(node, "Reshape") || node_is(node, "Unsqueeze"));
         k++)
        node = attn_graph_producer(r->graph, node->in[0]);
    return node_is(node, "Range") && dim_is(chunk, r->s->chunk) &&
           match_type(r->graph, value)->dtype == ATTNRUN_I64 &&
           attn_value_scalar(r->graph, node->in[0], &first) &&
           attn_value_scalar(r->graph, node->in[2], &step) && first >= 0 && first <= 0 &&
           step >= 1 && step <= 1;
}

/* The value, or its source where axes of 1 were added. */
static int32_t without_ones(const struct block_mask_reader *r, int32_t value)
{
    const struct attn_node *node = attn_graph_producer(r->graph, value);
    return node_is(node, "Unsqueeze") ? node->in[0] : value;
}

static bool is_keys(struct block_mask_reader *r, struct entry *e)
{
    struct attn_block_window w;
    int n = 0;
    if (!is_positions(r, e, r->s->key) ||
        !attn_block_window_read(r->graph, without_ones(r, e->value), &w) ||
        w.before != r->s->before || w.after != r->s->after || !is_range(r, w.source))
        return false;
    const attnrun_type *t = match_type(r->graph, w.source);
    for (int i = 0; i < t->rank; i++)
        n += !dim_is(t->dims[i], 1) && i != w.axis && i != w.axis + 1;
    e->pad = w.pad;
    return n == 0 && w.pad > -1e12 && w.pad < 1e12;
}

/* Checks that a constant has the axes of the scores or 1, and numbers whose sums do not
 * overflow. */
static void check_numbers(struct block_mask_reader *r, const struct entry *e)
{
    const struct attn_block_scores *s = r->s;
    const attnrun_tensor *t = &r->graph->values[e->value].data;
    for (int i = 0; i < t->rank; i++) {
        const int64_t n = e->axes[i] == s->blocks && dim_is_const(s->n_blocks)
                              ? s->n_blocks.value
                          : e->axes[i] == s->query ? s->chunk
                          : e->axes[i] == s->key   ? (s->before + 1 + s->after) * s->chunk
                                                   : 1;
        if (t->dims[i] != 1 && t->dims[i] != n)
            r->why = "its mask differs between samples or heads";
    }
    if (t->dtype == ATTNRUN_BOOL || t->dtype == ATTNRUN_F32)
        return;
    if (t->dtype != ATTNRUN_I64 && t->dtype != ATTNRUN_I32)
        r->why = "its mask is computed from numbers that are not integers";
    for (int64_t i = 0; r->why == NULL && i < tensor_count(t) && !attn_stops_node(i); i++)
        if (tensor_get_int(t, i) > max_number || tensor_get_int(t, i) < -max_number)
            r->why = "its mask is computed from numbers that are too large";
}

static bool read_numbers(struct block_mask_reader *r, struct entry *e)
{
    const attnrun_tensor *t = &r->graph->values[e->value].data;
    if (t->data == NULL)
        return false;
    for (int i = 0; i < t->rank; i++) {
        r->by_block = r->by_block || (t->dims[i] != 1 && e->axes[i] == r->s->blocks);
        r->by_query = r->by_query || (t->dims[i] != 1 && e->axes[i] == r->s->query);
    }
    check_numbers(r, e);
    e->word = NUMBERS;
    return true;
}

static const struct {
    const char *op_type;
    enum word word;
    int n;
} words[] = {
    { "Not", NOT, 1 },
    { "And", AND, 2 },
    { "Or", OR, 2 },
    { "Xor", XOR, 2 },
    { "Equal", EQUAL, 2 },
    { "Less", LESS, 2 },
    { "Greater", GREATER, 2 },
    { "LessOrEqual", LESS_EQUAL, 2 },
    { "GreaterOrEqual", GREATER_EQUAL, 2 },
    { "Add", ADD, 2 },
    { "Sub", SUB, 2 },
};

/* Reads entry k; its operands are added. */
static void read_entry(struct block_mask_reader *r, int k)
{
    struct entry *e = &r->entries[k];
    const struct attn_node *node = attn_graph_producer(r->graph, e->value);
    if (read_numbers(r, e))
        return;
    if (is_keys(r, e)) {
        e->word = KEYS;
        return;
    }
    if (is_positions(r, e, r->s->query) && is_range(r, e->value)) {
        e->word = QUERIES;
        r->by_query = true;
        return;
    }
    for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
        if (!node_is(node, words[w].op_type))
            continue;
        e->word = words[w].word;
        for (int i = 0; i < words[w].n && r->why == NULL; i++) {
            const int32_t dtype = words[w].word <= XOR ? ATTNRUN_BOOL : ATTNRUN_I64;
            if (match_type(r->graph, node->in[i])->dtype != dtype)
                r->why = "its mask compares values that are not positions";
            else
                e->arg[i] = add_operand(r, e, node->in[i]);
        }
        return;
    }
    e->word = PASS;
    if (attn_match_expands(r->graph, node))
        e->arg[0] = add_operand(r, e, node->in[0]);
    else if (node_is(node, "Reshape") || node_is(node, "Squeeze") ||
             node_is(node, "Unsqueeze"))
        e->arg[0] = add_moved(r, e, node->in[0]);
    if (e->arg[0] < 0 && r->why == NULL)
        r->why = "its mask is computed from data, or by nodes in no known form";
}

/* ---- their values ---- */

static int64_t element_at(const struct block_mask_reader *r, const struct entry *e,
                          const struct pair *p)
{
    const attnrun_tensor *t = &r->graph->values[e->value].data;
    int64_t at = 0;
    for (int i = 0; i < t->rank; i++) {
        const int64_t x = e->axes[i] == r->s->blocks  ? p->w
                          : e->axes[i] == r->s->query ? p->i
                                                      : p->j;
        at = at * t->dims[i] + (t->dims[i] == 1 ? 0 : x);
    }
    return at;
}

static struct number position(const struct block_mask_reader *r, const struct pair *p,
                              int64_t at)
{
    return p->w < 0 ? (struct number){ 1, at }
                    : (struct number){ 0, p->w * r->s->chunk + at };
}

/* Compares x - y with 0: -1, 0, 1, or 2 where it depends on P, which is `min` or more. */
static int order_of(struct number x, struct number y, int64_t min)
{
    const int64_t a = x.a - y.a, b = x.b - y.b;
    if (a == 0)
        return b < 0 ? -1 : b > 0;
    if (a == 1 && b + min > 0)
        return 1;
    return a == -1 && b - min < 0 ? -1 : 2;
}

static struct number block_mask_compare(enum word word, struct number x, struct number y,
                                        int64_t min)
{
    const int order = order_of(x, y, min);
    if (order == 2)
        return (struct number){ 0, OPEN };
    const bool holds = word == EQUAL        ? order == 0
                       : word == LESS       ? order < 0
                       : word == GREATER    ? order > 0
                       : word == LESS_EQUAL ? order <= 0
                                            : order >= 0;
    return (struct number){ 0, holds };
}

static struct number block_mask_join(enum word word, int64_t x, int64_t y)
{
    int64_t z = OPEN;
    if (word == NOT)
        z = x == OPEN ? OPEN : !x;
    else if (word == AND)
        z = x == NEVER || y == NEVER ? NEVER : x == ALWAYS && y == ALWAYS ? ALWAYS : OPEN;
    else if (word == OR)
        z = x == ALWAYS || y == ALWAYS ? ALWAYS : x == NEVER && y == NEVER ? NEVER : OPEN;
    else if (x != OPEN && y != OPEN)
        z = x != y;
    return (struct number){ 0, z };
}

static struct number value_of(const struct block_mask_reader *r, const struct entry *e,
                              const struct number *v, const struct pair *p)
{
    const struct number none = { 0, 0 };
    const struct number x = e->arg[0] >= 0 ? v[e->arg[0]] : none,
                        y = e->arg[1] >= 0 ? v[e->arg[1]] : none;
    switch (e->word) {
    case NUMBERS:
        return (struct number){ 0, tensor_get_int(&r->graph->values[e->value].data,
                                                  element_at(r, e, p)) };
    case QUERIES:
        return position(r, p, p->i);
    case KEYS:
        return p->outside ? (struct number){ 0, (int64_t)e->pad }
                          : position(r, p, p->j - r->s->before * r->s->chunk);
    case PASS:
        return x;
    case NOT:
    case AND:
    case OR:
    case XOR:
        return block_mask_join(e->word, x.b, y.b);
    case ADD:
        return (struct number){ x.a + y.a, x.b + y.b };
    case SUB:
        return (struct number){ x.a - y.a, x.b - y.b };
    default:
        return block_mask_compare(e->word, x, y, p->min);
    }
}

/* Whether a mask of floats leaves the score unchanged (0) or masks it. */
static int added_at(const struct block_mask_reader *r, const struct entry *e,
                    const struct pair *p)
{
    const attnrun_tensor *t = &r->graph->values[e->value].data;
    const float x = match_f32_at(t, element_at(r, e, p));
    return x >= 0 && x <= 0 ? NEVER : x <= ATTN_BLOCK_LOST ? ALWAYS : OPEN;
}

/* Whether some mask masks the pair: NEVER, ALWAYS, OPEN. */
static int hidden_at(const struct block_mask_reader *r,
                     const struct attn_block_mask *masks, int n, const struct pair *p)
{
    struct number v[MAX_ENTRIES] = { { 0, 0 } };
    int hidden = NEVER;
    for (int k = r->n - 1; k >= 0; k--)
        if (match_type(r->graph, r->entries[k].value)->dtype != ATTNRUN_F32)
            v[k] = value_of(r, &r->entries[k], v, p);
    for (int m = 0; m < n; m++) {
        int one = masks[m].added ? added_at(r, &r->entries[r->root[m]], p)
                                 : (int)v[r->root[m]].b;
        if (!masks[m].added && !masks[m].drops && one != OPEN)
            one = !one;
        if (one != NEVER && hidden != ALWAYS)
            hidden = one;
    }
    return hidden;
}

/* ---- patterns ---- */

struct block_mask_match {
    int64_t first, last; /* smallest and largest key - query that is seen */
    bool all;            /* nothing that there is is hidden */
};

static bool sees(const struct attn_block_pattern *pattern, int64_t distance)
{
    return pattern->kind == BLOCK_ALL ||
           (distance >= pattern->first && distance <= pattern->last);
}

static void look(struct block_mask_reader *r, const struct attn_block_mask *masks, int n,
                 const struct pair *p, const struct attn_block_pattern *pattern,
                 struct block_mask_match *found)
{
    const int hidden = hidden_at(r, masks, n, p);
    const int64_t distance = p->j - r->s->before * r->s->chunk - p->i;
    if (hidden == OPEN)
        r->why = "its mask is not known for all lengths, or does not mask scores";
    else if (p->outside && hidden != ALWAYS)
        r->why = "its queries see blocks beyond the ends";
    else if (!p->outside && pattern != NULL &&
             sees(pattern, distance) != (hidden == NEVER))
        r->why = "its mask is neither a band nor causal nor whole blocks";
    else if (!p->outside && hidden == NEVER) {
        found->first = distance < found->first ? distance : found->first;
        found->last = distance > found->last ? distance : found->last;
    } else if (!p->outside)
        found->all = false;
}

/* Examines all queries and keys of block w, or of any block. */
static attn_status look_at_block(struct block_mask_reader *r,
                                 const struct attn_block_mask *masks, int n, int64_t w,
                                 const struct attn_block_pattern *pattern,
                                 struct block_mask_match *found)
{
    const struct attn_block_scores *s = r->s;
    const int64_t keys = (s->before + 1 + s->after) * s->chunk;
    const int64_t queries = r->by_query ? s->chunk : 1;
    for (struct pair p = { .w = w }; p.i < queries && r->why == NULL; p.i++) {
        TRY(attn_poll_work(keys * 16 * (r->n + 1)));
        for (p.j = 0; p.j < keys && r->why == NULL; p.j++) {
            const int64_t block = p.j / s->chunk - s->before;
            p.outside = w >= 0 && (w + block < 0 || w + block >= s->n_blocks.value);
            p.min = block < 0 ? -block * s->chunk : 0;
            look(r, masks, n, &p, pattern, found);
            if (w >= 0 || block == 0)
                continue;
            p.outside = true;
            p.min = 0;
            if (r->why == NULL)
                look(r, masks, n, &p, pattern, found);
        }
    }
    return ATTNRUN_OK;
}

static attn_status look_at_all(struct block_mask_reader *r,
                               const struct attn_block_mask *masks, int n,
                               const struct attn_block_pattern *pattern,
                               struct block_mask_match *found)
{
    const int64_t keys = r->s->before + 1 + r->s->after, c = r->s->chunk;
    if (c > (1 << 16) || keys * c * c > max_pairs ||
        (r->by_block && dim_is_const(r->s->n_blocks) &&
         r->s->n_blocks.value > max_pairs / (keys * c * c))) {
        r->why = "its blocks are too large to evaluate the whole mask";
        return ATTNRUN_OK;
    }
    if (!r->by_block)
        return look_at_block(r, masks, n, -1, pattern, found);
    if (!dim_is_const(r->s->n_blocks)) {
        r->why = "its mask has a different number of blocks";
        return ATTNRUN_OK;
    }
    for (int64_t w = 0; w < r->s->n_blocks.value && r->why == NULL; w++)
        TRY(look_at_block(r, masks, n, w, pattern, found));
    return ATTNRUN_OK;
}

/* Chooses the only pattern that agrees with the examined pairs. */
static bool block_mask_choose(const struct block_mask_reader *r,
                              const struct block_mask_match *found,
                              struct attn_block_pattern *pattern)
{
    const struct attn_block_scores *s = r->s;
    *pattern = (struct attn_block_pattern){ .kind = BLOCK_ALL };
    if (found->all)
        return true;
    *pattern = (struct attn_block_pattern){ .kind = BLOCK_BAND,
                                            .first = found->first,
                                            .last = found->last };
    if (!r->by_query || found->first > 0 || found->last < 0)
        return false;
    if (found->first >= -s->before * s->chunk && found->last <= s->after * s->chunk)
        return true;
    pattern->kind = BLOCK_CAUSAL;
    pattern->first = INT64_MIN;
    return found->last == 0;
}

attn_status attn_block_mask_read(const struct attn_graph *graph,
                                 const struct attn_block_scores *scores,
                                 const struct attn_block_mask *masks, int n_masks,
                                 struct attn_block_pattern *pattern, const char **why)
{
    struct block_mask_reader r = { .graph = graph, .s = scores };
    struct block_mask_match found = { .first = INT64_MAX,
                                      .last = INT64_MIN,
                                      .all = true };
    for (int m = 0; m < n_masks && r.why == NULL; m++) {
        const int32_t rank = graph->values[masks[m].value].type.rank;
        int8_t axes[ATTNRUN_MAX_RANK] = { 0 };
        for (int i = 0; i < rank && rank <= scores->rank; i++)
            axes[i] = (int8_t)(scores->rank - rank + i);
        if (n_masks > MAX_MASKS || rank > scores->rank ||
            (masks[m].added && (!match_is_constant(graph, masks[m].value) ||
                                !attn_match_is_f32(graph, masks[m].value))))
            r.why = "its mask has no known form";
        else
            r.root[m] = add_entry(&r, masks[m].value, axes);
        for (int k = r.root[m]; k < r.n && r.why == NULL; k++)
            read_entry(&r, k);
    }
    if (r.why == NULL)
        TRY(look_at_all(&r, masks, n_masks, NULL, &found));
    if (r.why == NULL && !block_mask_choose(&r, &found, pattern))
        r.why = "its mask is neither a band nor causal nor whole blocks";
    if (r.why == NULL && pattern->kind != BLOCK_ALL)
        TRY(look_at_all(&r, masks, n_masks, pattern, &found));
    *why = r.why;
    return ATTNRUN_OK;
}
