/* ragged_pass.c - an encoder that receives a mask of its batch runs only on the tokens that exist.
 *
 *   ids, types (B, S) ──PackTokens──▶ (1, n) ──Gather──▶ (1, n, d) ──▶ norms, products, … ──▶
 *   positions (1, S, d) ──PackTokens──▶ (1, n, d) ─┘      RaggedAttention under the same mask
 *                                                      ──▶ (1, n, d) ──UnpackTokens──▶ (B, S, d)
 *
 * The region grows from each FusedAttention whose mask is made of one input (B, S) to the nodes
 * before and behind it whose rows are tokens (ragged_members.c). These nodes are changed in place.
 * Their inputs are packed where they come from outside of the region, and their outputs are
 * unpacked where something outside reads them. The pass does not follow the meaning of the mask:
 * RaggedAttention evaluates it as before, and also what it gives to tokens that were left out.
 *
 * With ATTNRUN_RAGGED_AUTO every reader of a token outside of the region must be proved to read no
 * token that was left out. Two such readers are known: a Gather of token 0 (each sample then keeps
 * its first token), and a product by the mask, which is 0 there in any case. */
#include <math.h>

#include "ragged_region.h"

#include "../../runtime/poll.h"
#include "../../runtime/ragged.h"
#include "../attention/core/mask_code.h"

enum { TOKENS, SAMPLES };

/* ---- the region ---- */

static bool reads_member(const struct region *r, const struct attn_node *node)
{
    for (int32_t i = 0; i < node->pub.n_in; i++) {
        const int32_t from =
            node->in[i] >= 0 ? r->graph->values[node->in[i]].producer : -1;
        if (from >= 0 && r->member[from] &&
            attn_region_operand(r, node, i) == REGION_PACKED)
            return true;
    }
    return false;
}

static bool is_read_by_member(const struct region *r, const struct attn_node *node)
{
    const struct attn_use *use = r->graph->values[node->out[0]].uses;
    for (; use != NULL; use = use->next) {
        if (use->node == NULL || use->inner != NULL || use->index >= use->node->pub.n_in)
            continue;
        const int32_t reader = r->graph->values[use->node->out[0]].producer;
        if (reader >= 0 && r->member[reader] &&
            attn_region_operand(r, use->node, use->index) == REGION_PACKED)
            return true;
    }
    return false;
}

static bool try_member(struct region *r, int64_t n)
{
    const struct attn_node *node = r->graph->nodes[n];
    if (r->member[n] || !attn_region_takes(r, node) ||
        !(reads_member(r, node) || is_read_by_member(r, node)))
        return false;
    r->member[n] = 1;
    return true;
}

/* How many attentions are in it. */
static attn_status grow(struct region *r, int32_t *attentions)
{
    const int64_t n = r->graph->n_nodes;
    *attentions = 0;
    for (int64_t i = 0; i < n; i++) {
        const struct attn_node *node = r->graph->nodes[i];
        int32_t mask;
        if (!region_is_attention(node) || !attn_region_attends(r, node))
            continue;
        TRY(attn_region_find_mask(r->graph, node, &mask));
        r->member[i] = mask == r->mask;
        *attentions += r->member[i];
    }
    for (bool changed = *attentions > 0; changed;) {
        changed = false;
        for (int64_t i = 0; i < n; i++)
            changed = try_member(r, i) || changed;
        for (int64_t i = n; i-- > 0;)
            changed = try_member(r, i) || changed;
        TRY(attn_poll_work(n * 256));
    }
    return ATTNRUN_OK;
}

/* ---- the readers of a value ---- */

static bool is_shape(const struct attn_node *node)
{
    return node != NULL && (node_is(node, "Shape") || node_is(node, "Size"));
}

static bool is_outside(const struct region *r, const struct attn_use *use)
{
    if (use->node == NULL)
        return true;
    const int32_t reader =
        use->node->out[0] >= 0 ? r->graph->values[use->node->out[0]].producer : -1;
    return use->inner != NULL || reader < 0 || !r->member[reader] ||
           use->index >= use->node->pub.n_in ||
           attn_region_operand(r, use->node, use->index) != REGION_PACKED;
}

static bool is_read_outside(const struct region *r, const struct attn_node *node)
{
    const struct attn_use *use = r->graph->values[node->out[0]].uses;
    for (; use != NULL; use = use->next)
        if (is_outside(r, use) && !(use->inner == NULL && is_shape(use->node)))
            return true;
    return false;
}

/* Before the attentions only what the region alone reads is in it: sums over all tokens, such as
 * those that count positions, take part of what is in padding. */
static void leave_shared(struct region *r, uint8_t *behind)
{
    const int64_t n = r->graph->n_nodes;
    for (int64_t i = 0; i < n; i++) {
        const struct attn_node *node = r->graph->nodes[i];
        behind[i] = r->member[i] && region_is_attention(node);
        for (int32_t k = 0; r->member[i] && k < node->pub.n_in; k++) {
            const int32_t from =
                node->in[k] >= 0 ? r->graph->values[node->in[k]].producer : -1;
            behind[i] = behind[i] || (from >= 0 && behind[from]);
        }
    }
    for (int64_t i = n; i-- > 0;) /* readers come first */
        if (r->member[i] && !behind[i] && is_read_outside(r, r->graph->nodes[i]))
            r->member[i] = 0;
}

/* Nothing outside that reads the region comes back into it: rows of padding are 0 there. */
static bool is_left_for_good(const struct region *r, uint8_t *tainted)
{
    for (int64_t i = 0; i < r->graph->n_nodes; i++) {
        const struct attn_node *node = r->graph->nodes[i];
        tainted[i] = 0;
        for (int32_t k = 0; k < node->pub.n_in + node->n_captures; k++) {
            const int32_t from =
                node->in[k] >= 0 ? r->graph->values[node->in[k]].producer : -1;
            if (from < 0 || is_shape(node))
                continue;
            const bool stays = r->member[i] && r->member[from] && k < node->pub.n_in &&
                               attn_region_operand(r, node, k) == REGION_PACKED;
            tainted[i] = tainted[i] || tainted[from] || (r->member[from] && !stays);
        }
        if (r->member[i] && tainted[i])
            return false;
    }
    return true;
}

/* Token 0 of each sample. */
static bool takes_first(const struct region *r, const struct attn_use *use)
{
    double index;
    return use->node != NULL && use->inner == NULL && use->index == 0 &&
           node_is(use->node, "Gather") && attn_match_int(use->node, "axis", 0) == 1 &&
           attn_value_scalar(r->graph, use->node->in[1], &index) && index >= 0 &&
           index <= 0;
}

static bool is_zero_outside(const struct region *r, const struct attn_node *node)
{
    return node_is(node, "Mul") && (attn_region_is_masked(r, node->in[0]) ||
                                    attn_region_is_masked(r, node->in[1]));
}

/* No node outside reads a token that was left out, or the token is 0 in any case. */
static bool is_closed(const struct region *r)
{
    for (int64_t n = 0; n < r->graph->n_nodes; n++) {
        const struct attn_node *node = r->graph->nodes[n];
        if (!r->member[n] || is_zero_outside(r, node))
            continue;
        const struct attn_use *use = r->graph->values[node->out[0]].uses;
        for (; use != NULL; use = use->next)
            if (is_outside(r, use) && !takes_first(r, use) &&
                !(use->inner == NULL && is_shape(use->node)))
                return false;
    }
    return true;
}

/* ---- edits ---- */

/* The tokens of a value alone: packed here where it comes from outside. */
static attn_status pack(struct region *r, struct attn_node *before, int32_t value,
                        int32_t *packed)
{
    struct attn_node *made;
    if (r->packed[value] < 0) {
        const int32_t in[] = { value, r->graph->ragged->values[TOKENS], r->mask };
        TRY(attn_graph_add_value(r->graph, NULL, &r->packed[value]));
        TRY(attn_graph_insert(r->graph, before, "attnrun.fused", "PackTokens", 3, in, 1,
                              &r->packed[value], 0, NULL, &made));
    }
    *packed = r->packed[value];
    return ATTNRUN_OK;
}

static attn_status pack_inputs(struct region *r, struct attn_node *node)
{
    enum region_operand how[REGION_MAX_IN];
    const int32_t n = node->pub.n_in;
    for (int32_t i = 0; i < n; i++)
        how[i] = attn_region_operand(r, node, i);
    for (int32_t i = 0; i < n; i++) {
        int32_t packed;
        if (how[i] != REGION_PACKED)
            continue;
        TRY(pack(r, node, node->in[i], &packed));
        attn_node_set_input(r->graph, node, i, packed);
    }
    return ATTNRUN_OK;
}

/* The dims behind the first two, for packed rows. */
static void dims_of_rows(const attnrun_type *t, int64_t *dims)
{
    dims[0] = 1;
    dims[1] = -1;
    for (int i = 2; i < t->rank; i++)
        dims[i] = t->dims[i].value;
}

static attn_status change_reshape(struct region *r, struct attn_node *node)
{
    const attnrun_type type = *region_type(r, node->out[0]); /* values may move */
    int64_t dims[ATTNRUN_MAX_RANK];
    int32_t shape;
    dims_of_rows(&type, dims);
    TRY(attn_match_ints(r->graph, type.rank, dims, &shape));
    attn_node_set_input(r->graph, node, 1, shape);
    return ATTNRUN_OK;
}

/* A mask that is an operand, as a program of one leaf. */
static attn_status write_mask(struct region *r, const struct attn_node *node,
                              struct attn_attr *attrs)
{
    int64_t *numbers = attn_pool_alloc(
        &r->graph->model->pool, (MASK_CONSTANTS + MASK_AXES) * (int64_t)sizeof *numbers);
    const attnrun_type *t = region_type(r, node->in[REGION_MASK]);
    const bool keep = t->dtype == ATTNRUN_BOOL;
    const float fill = -INFINITY;
    uint32_t bits;
    if (numbers == NULL)
        return ATTNRUN_E_MEMORY;
    memcpy(&bits, &fill, sizeof bits);
    numbers[MASK_FACT_KEEP] = keep ? 0 : -1;
    numbers[MASK_FACT_ADD] = keep ? -1 : 0;
    numbers[MASK_FACT_FILL] = bits;
    numbers[MASK_FACT_QUERIES] = numbers[MASK_FACT_KEYS] = -1;
    for (int32_t a = 0; a < MASK_AXES; a++) {
        const int32_t axis = t->rank - MASK_AXES + a;
        numbers[MASK_CONSTANTS + a] = axis < 0 ? -1 : axis;
    }
    attrs[0] = (struct attn_attr){ .name = "mask",
                                   .kind = ATTN_ATTR_INTS,
                                   .ints = { numbers, MASK_CONSTANTS } };
    attrs[1] = (struct attn_attr){ .name = "axes",
                                   .kind = ATTN_ATTR_INTS,
                                   .ints = { numbers + MASK_CONSTANTS, MASK_AXES } };
    return ATTNRUN_OK;
}

/* Columns of operands of rank 4 are those of heads side by side. */
static attn_status find_columns(struct region *r, const struct attn_node *node,
                                int64_t heads[2], struct attn_attr *attr)
{
    const struct attn_attr *given = attn_node_attr(node, "columns");
    int64_t *columns =
        attn_pool_alloc(&r->graph->model->pool, 5 * (int64_t)sizeof *columns);
    if (columns == NULL)
        return ATTNRUN_E_MEMORY;
    heads[0] = attn_match_int(node, "q_num_heads", 0);
    heads[1] = attn_match_int(node, "kv_num_heads", 0);
    for (int i = 0; i < 3; i++) {
        const attnrun_type *t = region_type(r, node->in[i]);
        if (t->rank == 4)
            heads[i > 0] = t->dims[2].value;
        const int64_t of_head = t->dims[t->rank - 1].value /
                                (t->rank == 4 || heads[i > 0] < 1 ? 1 : heads[i > 0]);
        columns[i] = t->rank == 3 && given != NULL ? given->ints.v[i] : 0;
        columns[i == 2 ? 4 : 3] =
            t->rank == 3 && given != NULL ? given->ints.v[i == 2 ? 4 : 3] : of_head;
    }
    *attr = (struct attn_attr){ .name = "columns",
                                .kind = ATTN_ATTR_INTS,
                                .ints = { columns, 5 } };
    return ATTNRUN_OK;
}

static int32_t copy_attrs(const struct attn_node *node, struct attn_attr *attrs)
{
    static const char *const words[] = { "nan_rows", "scale", "code", "mask", "axes" };
    int32_t n = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const struct attn_attr *attr = attn_node_attr(node, words[i]);
        if (attr != NULL)
            attrs[n++] = *attr;
    }
    return n;
}

/* RaggedAttention in the place of FusedAttention; its packed result. */
static attn_status change_attention(struct region *r, struct attn_node *node,
                                    int32_t packed)
{
    enum { Q, K, V, OF_SAMPLES, SHAPE_LIKE, LEAVES };
    const attnrun_type y = *region_type(r, node->out[0]); /* values may move */
    const bool program = attn_node_attr(node, "mask") != NULL, flat = y.rank == 3;
    struct attn_attr attrs[12];
    int64_t heads[2], dims[ATTNRUN_MAX_RANK];
    int32_t in[LEAVES + MASK_MAX_LEAVES], n_in = LEAVES, n = copy_attrs(node, attrs);
    TRY(find_columns(r, node, heads, &attrs[n++]));
    attrs[n++] = (struct attn_attr)MATCH_INT("q_num_heads", heads[0]);
    attrs[n++] = (struct attn_attr)MATCH_INT("kv_num_heads", heads[1]);
    if (!program) {
        TRY(write_mask(r, node, attrs + n));
        n += 2;
        in[n_in++] = node->in[REGION_MASK];
    }
    for (int32_t i = REGION_LEAVES; program && i < node->pub.n_in; i++)
        in[n_in++] = node->in[i];
    for (int i = Q; i <= V; i++) {
        const attnrun_type t = *region_type(r, node->in[i]);
        const int64_t joined[] = { 1, -1, t.dims[2].value * t.dims[3].value };
        TRY(pack(r, node, node->in[i], &in[i]));
        if (t.rank == 4)
            TRY(attn_match_reshape(r->graph, node, 3, joined, &in[i]));
    }
    in[OF_SAMPLES] = r->graph->ragged->values[SAMPLES];
    in[SHAPE_LIKE] = r->mask;
    int32_t out = packed;
    struct attn_node *made;
    if (!flat)
        TRY(attn_graph_add_value(r->graph, NULL, &out));
    TRY(attn_graph_insert(r->graph, node, "attnrun.fused", "RaggedAttention", n_in, in, 1,
                          &out, n, attrs, &made));
    if (flat)
        return ATTNRUN_OK;
    dims_of_rows(&y, dims);
    int32_t shape;
    TRY(attn_match_ints(r->graph, y.rank, dims, &shape));
    const int32_t reshaped[] = { out, shape };
    return attn_graph_insert(r->graph, node, "", "Reshape", 2, reshaped, 1, &packed, 0,
                             NULL, &made);
}

static attn_status change_node(struct region *r, struct attn_node *node)
{
    const int32_t value = node->out[0];
    int32_t packed, nobody;
    TRY(attn_graph_add_value(r->graph, NULL, &packed));
    if (region_is_attention(node)) {
        TRY(change_attention(r, node, packed));
        TRY(attn_graph_add_value(r->graph, NULL, &nobody));
        attn_node_set_output(r->graph, node, 0, nobody);
        attn_graph_remove(r->graph, node);
    } else {
        if (node_is(node, "Reshape"))
            TRY(change_reshape(r, node));
        TRY(pack_inputs(r, node));
        attn_node_set_output(r->graph, node, 0, packed);
    }
    r->packed[value] = packed;
    return ATTNRUN_OK;
}

/* The dims of a value (batch, tokens, constants …), made of those of the mask. */
static attn_status write_shape(struct region *r, struct attn_node *before,
                               const attnrun_type *type, int32_t *shape)
{
    const int64_t n = type->rank - 2;
    const struct attn_attr axis = MATCH_INT("axis", 0);
    int32_t in[2];
    struct attn_node *made;
    void *data;
    TRY(attn_graph_new_constant(r->graph, ATTNRUN_I64, 1, &n, &in[1], &data));
    for (int64_t i = 0; i < n; i++)
        ((int64_t *)data)[i] = type->dims[2 + i].value;
    TRY(attn_graph_add_value(r->graph, NULL, &in[0]));
    TRY(attn_graph_insert(r->graph, before, "", "Shape", 1, &r->mask, 1, &in[0], 0, NULL,
                          &made));
    TRY(attn_graph_add_value(r->graph, NULL, shape));
    return attn_graph_insert(r->graph, before, "", "Concat", 2, in, 1, shape, 1, &axis,
                             &made);
}

/* Shapes are read of the mask: its dims are the first two. */
static attn_status move_shapes(struct region *r, int32_t value)
{
    const attnrun_type type = *region_type(r, value); /* values may move */
    struct attn_use *use = r->graph->values[value].uses, *next;
    bool constants = type.rank > 2;
    for (int i = 2; i < type.rank; i++)
        constants = constants && dim_is_const(type.dims[i]);
    for (; use != NULL; use = next) {
        next = use->next;
        if (use->node == NULL || use->inner != NULL || !node_is(use->node, "Shape"))
            continue;
        struct attn_node *node = use->node;
        const int64_t start = attn_match_int(node, "start", 0);
        const int64_t end = attn_match_int(node, "end", INT64_MAX);
        if (start >= 0 && end >= start && end <= 2) {
            attn_node_set_input(r->graph, node, 0, r->mask);
        } else if (constants && start == 0 && end >= type.rank) {
            int32_t shape;
            TRY(write_shape(r, node, &type, &shape));
            attn_graph_replace(r->graph, node->out[0], shape);
            attn_graph_remove(r->graph, node);
        }
    }
    return ATTNRUN_OK;
}

static attn_status unpack(struct region *r, struct attn_node *before, int32_t value)
{
    struct attn_node *made;
    TRY(move_shapes(r, value));
    if (r->graph->values[value].n_uses == 0)
        return ATTNRUN_OK;
    const int32_t in[] = { r->packed[value], r->graph->ragged->values[SAMPLES], r->mask };
    return attn_graph_insert(r->graph, before, "attnrun.fused", "UnpackTokens", 3, in, 1,
                             &value, 0, NULL, &made);
}

static attn_status change(struct region *r, int64_t n_nodes)
{
    struct attn_graph *graph = r->graph;
    const bool automatic = graph->model->ragged == ATTNRUN_RAGGED_AUTO;
    struct attn_node *last = NULL;
    int32_t mask = 0;
    while (graph->inputs[mask] != r->mask)
        mask++;
    TRY(attn_ragged_create(graph, mask, automatic));
    int64_t n_members = 0;
    int32_t *values =
        attn_pool_alloc(&graph->model->pool, (n_nodes + 1) * (int64_t)sizeof *values);
    struct attn_node **members =
        attn_pool_alloc(&graph->model->pool, (n_nodes + 1) * (int64_t)sizeof *members);
    if (values == NULL || members == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t n = 0; n < n_nodes; n++)
        if (r->member[n]) {
            values[n_members] = graph->nodes[n]->out[0];
            members[n_members++] = graph->nodes[n];
        }
    for (int64_t n = 0; n < n_nodes; n++)
        last = graph->nodes[n] != NULL ? graph->nodes[n] : last;
    for (int64_t k = 0; k < n_members; k++)
        TRY(change_node(r, members[k]));
    for (int64_t k = 0; k < n_members; k++)
        TRY(unpack(r, last, values[k]));
    return ATTNRUN_OK;
}

/* ---- the pass ---- */

static attn_status find_region(struct region *r, struct attn_pool *pool, const char **why)
{
    struct attn_graph *graph = r->graph;
    int32_t attentions = 0;
    *why =
        "no attention over rows of tokens takes its mask from one input (batch, tokens)";
    for (int64_t n = 0; n < graph->n_nodes && attentions == 0; n++) {
        if (!region_is_attention(graph->nodes[n]))
            continue;
        TRY(attn_region_find_mask(graph, graph->nodes[n], &r->mask));
        if (r->mask < 0)
            continue;
        r->batch = graph->values[r->mask].type.dims[0];
        r->tokens = graph->values[r->mask].type.dims[1];
        TRY(grow(r, &attentions));
        if (attentions == 0)
            *why = "its attention has an axis of heads, has a past, or is causal";
    }
    if (attentions == 0)
        return ATTNRUN_OK;
    const bool automatic = graph->model->ragged == ATTNRUN_RAGGED_AUTO;
    uint8_t *marks = attn_pool_alloc(pool, graph->n_nodes + 1);
    if (marks == NULL)
        return ATTNRUN_E_MEMORY;
    leave_shared(r, marks);
    if (!is_left_for_good(r, marks)) {
        *why = "nodes between its layers do not work on tokens one by one";
        return ATTNRUN_OK;
    }
    *why =
        automatic && !is_closed(r) ? "outputs or other nodes read rows of padding" : NULL;
    return ATTNRUN_OK;
}

/* `inspect` prints it at the first attention. */
static attn_status note_first(struct attn_graph *graph, const char *why)
{
    for (int64_t n = 0; n < graph->n_nodes; n++)
        if (region_is_attention(graph->nodes[n]))
            return attn_graph_note(graph, graph->nodes[n], "ragged", why);
    return ATTNRUN_OK;
}

static attn_status run_ragged(struct attn_graph *graph, int32_t *applied)
{
    struct region r = { .graph = graph, .mask = -1 };
    struct attn_pool pool;
    /* Values that edits add come behind these, and are never looked up. */
    const int64_t n_values = graph->n_values, n_nodes = graph->n_nodes;
    const char *why = NULL;
    if (graph->model->ragged == ATTNRUN_RAGGED_OFF || graph->outer != NULL ||
        graph->ragged != NULL)
        return ATTNRUN_OK;
    attn_pool_init(&pool, graph->model->pool.memory, ATTN_MEM_MODEL);
    r.member = attn_pool_alloc(&pool, n_nodes + 1);
    r.packed = attn_pool_alloc(&pool, (n_values + 1) * (int64_t)sizeof *r.packed);
    attn_status status = ATTNRUN_E_MEMORY;
    if (r.member != NULL && r.packed != NULL) {
        memset(r.packed, -1, (size_t)n_values * sizeof *r.packed);
        status = find_region(&r, &pool, &why);
    }
    graph->model->ragged_why = why;
    if (status == ATTNRUN_OK)
        status = note_first(graph, why);
    if (status == ATTNRUN_OK && why == NULL) {
        status = change(&r, n_nodes);
        ++*applied;
    }
    attn_pool_free(&pool);
    return status;
}

const struct attn_pass attn_pass_ragged = { .name = "ragged",
                                            .run = run_ragged,
                                            .last = true };
