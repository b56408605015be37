/* relative_bias.c - relative positions that are decomposed over the rows and columns of a map
 * (SAM, ViTDet, MViTv2, BoTNet) are added to the scores by FusedAttention itself, so that no
 * tensor of all pairs of queries and keys exists:
 *
 *   scores + Reshape(H + W)     H (…, rows, 1) and W (…, 1, columns): numbers of each query for
 *                               the row and for the column of a key
 *
 * Two passes. relative_scores comes before fuse_attention.c: Reshape(Reshape(scores) + H + W), in
 * any order, becomes the sum above. relative_bias comes behind it: a FusedAttention, or an
 * Attention, whose mask is Reshape(H + W) reads H and W instead, with key_columns. The axes before
 * those of the map are the same in H, W and their sum, which has the shape of the scores, so that
 * all of them are (batch, heads, queries, …) in memory. How the numbers are made does not matter.
 *
 * Results differ at most in their last bits, where (scores + H) + W is added in another order. */
#include "match.h"

#include <math.h>

enum { MAX_VIEWS = 4, KEY_AXES = 2, MASK = 3, LEAVES = 7, MAX_ATTRS = 12 };

/* A term of a sum is the value, transposed where `perm` is not NULL; -1: absent. */
struct relative_term {
    int32_t value;
    const struct attn_attr *perm;
};
struct relative_sum {
    struct relative_term rows, columns, scores;
};

static const char other_readers[] = "other nodes read the sum of its relative positions",
                  other_terms[] = "what is added to its scores is not one number of each "
                                  "query for the key's row and one for its column",
                  other_scores[] =
                      "relative positions are added to something else than a view "
                      "of its scores, or other nodes read these",
                  part_added[] =
                      "its relative positions are added to a part of its scores";

static bool relative_is_view(const struct attn_node *node)
{
    return node_is(node, "Reshape") || node_is(node, "Unsqueeze") ||
           node_is(node, "Squeeze");
}

/* The sum that `value` is a view of, where it has axes of a map: its last node; NULL: none. */
static struct attn_node *viewed_sum(const struct attn_graph *graph, int32_t value,
                                    bool *read_once)
{
    struct attn_node *node = attn_graph_producer(graph, value);
    *read_once = match_read_once(graph, value);
    for (int k = 0; k < MAX_VIEWS && relative_is_view(node); k++) {
        value = node->in[0];
        *read_once = *read_once && match_read_once(graph, value);
        node = attn_graph_producer(graph, value);
    }
    return node_is(node, "Add") && attn_match_is_f32(graph, value) &&
                   match_type(graph, value)->rank > KEY_AXES
               ? node
               : NULL;
}

/* `value`, or what it is made of by an Expand and, behind that, a Transpose. */
static struct relative_term unexpanded(const struct attn_graph *graph, int32_t value)
{
    const struct relative_term as_given = { .value = value };
    struct relative_term term = as_given;
    const struct attn_node *node = attn_graph_producer(graph, value);
    const int rank = match_type(graph, value)->rank;
    if (node_is(node, "Transpose")) {
        term.perm = attn_node_attr(node, "perm");
        if (term.perm == NULL || term.perm->kind != ATTN_ATTR_INTS ||
            term.perm->ints.n != rank)
            return as_given;
        node = attn_graph_producer(graph, node->in[0]);
    }
    if (!attn_match_expands(graph, node) || match_type(graph, node->in[0])->rank != rank)
        return as_given;
    term.value = node->in[0];
    return term;
}

/* Whether a term has the dims of a sum, but for one element along an axis. */
static bool is_of_one(const struct attn_graph *graph, const struct relative_term *term,
                      const attnrun_type *sum, int axis)
{
    const attnrun_type *t = match_type(graph, term->value);
    if (!attn_match_is_f32_of(graph, term->value, sum->rank))
        return false;
    for (int i = 0; i < sum->rank; i++) {
        const attnrun_dim dim = t->dims[term->perm != NULL ? term->perm->ints.v[i] : i];
        if (i == axis ? !dim_is(dim, 1) : !dim_equal(dim, sum->dims[i]))
            return false;
    }
    return true;
}

/* Takes a term of a sum. */
static bool take_term(const struct attn_graph *graph, int32_t value,
                      const attnrun_type *sum, struct relative_sum *found)
{
    struct relative_term term = unexpanded(graph, value);
    struct relative_term *place = &found->scores;
    if (is_of_one(graph, &term, sum, sum->rank - 1))
        place = &found->rows;
    else if (is_of_one(graph, &term, sum, sum->rank - 2))
        place = &found->columns;
    else
        term = (struct relative_term){ .value = value };
    if (place->value >= 0)
        return false;
    *place = term;
    return true;
}

/* A term as one value, times a number, in front of a node. */
static attn_status relative_value(struct attn_graph *graph, struct attn_node *before,
                                  const struct relative_term *term, double scale,
                                  int32_t *value)
{
    int32_t both[2];
    void *data;
    const float number = (float)scale;
    *value = term->value;
    if (term->perm != NULL)
        TRY(attn_match_add(graph, before, "Transpose", 1, &term->value, 1, term->perm,
                           value));
    if (number == 1.0f)
        return ATTNRUN_OK;
    both[0] = *value;
    TRY(attn_graph_new_constant(graph, ATTNRUN_F32, 0, NULL, &both[1], &data));
    memcpy(data, &number, sizeof number);
    return attn_match_add(graph, before, "Mul", 2, both, 0, NULL, value);
}

/* The terms of a sum of two or three; scores are the one that is left. */
static bool read_relative_sum(const struct attn_graph *graph, const struct attn_node *add,
                              struct relative_sum *found)
{
    const attnrun_type *sum = match_type(graph, add->out[0]);
    *found = (struct relative_sum){ { -1, NULL }, { -1, NULL }, { -1, NULL } };
    for (int i = 1; i <= KEY_AXES; i++) {
        const attnrun_dim keys = sum->dims[sum->rank - i];
        if (!dim_is_const(keys) || keys.value < 2)
            return false;
    }
    for (int i = 0, sums = 0; i < 2; i++) {
        const struct attn_node *inner = attn_match_sole_in(graph, add, i, "Add");
        const bool deep = inner != NULL && sums++ == 0 &&
                          attn_match_same_shape(graph, inner->out[0], add->out[0]);
        for (int k = 0; k < 1 + deep; k++)
            if (!take_term(graph, deep ? inner->in[k] : add->in[i], sum, found))
                return false;
    }
    return found->rows.value >= 0 && found->columns.value >= 0;
}

/* Whether a sum that is not such a one has a term that is: another sum, such as that of Swin's
 * scores and masks of windows, is no candidate. */
static bool is_near(const struct relative_sum *found)
{
    return found->rows.value >= 0 || found->columns.value >= 0;
}

/* ---- before the attention is recognised ---- */

/* The scores, of which `value` is a view with axes of a map, where nothing else reads them; -1:
 * none. */
static int32_t scores_behind(const struct attn_graph *graph, int32_t value, int32_t like)
{
    for (int k = 0; k < MAX_VIEWS && value >= 0 && match_read_once(graph, value); k++) {
        const struct attn_node *node = attn_graph_producer(graph, value);
        if (!relative_is_view(node))
            return -1;
        value = node->in[0];
        if (attn_match_same_shape(graph, value, like))
            return match_read_once(graph, value) ? value : -1;
    }
    return -1;
}

/* The shape of a Reshape, which exporters read off the scores, becomes numbers, of which -1 is one
 * that is not known: FusedAttention has no scores. */
static attn_status pin_shape(struct attn_graph *graph, struct attn_node *reshape,
                             int32_t *applied)
{
    const attnrun_type *t = match_type(graph, reshape->out[0]);
    int64_t numbers[ATTNRUN_MAX_RANK];
    int32_t shape, unknown = 0;
    if (!node_is(reshape, "Reshape") || match_is_constant(graph, reshape->in[1]))
        return ATTNRUN_OK;
    for (int i = 0; i < t->rank; i++) {
        const bool known = dim_is_const(t->dims[i]) && t->dims[i].value > 0;
        numbers[i] = known ? t->dims[i].value : -1;
        unknown += !known;
    }
    if (unknown > 1)
        return ATTNRUN_OK;
    TRY(attn_match_ints(graph, t->rank, numbers, &shape));
    attn_node_set_input(graph, reshape, 1, shape);
    ++*applied;
    return ATTNRUN_OK;
}

/* *value: the terms of a sum, times a number, added, in the shape `like` as a Reshape has it. */
static attn_status add_terms(struct attn_graph *graph, struct attn_node *softmax,
                             const struct relative_sum *found, double scale,
                             const struct attn_node *join, int32_t like, int32_t *value)
{
    int32_t in[2];
    struct attn_node *made;
    TRY(relative_value(graph, softmax, &found->rows, scale, &in[0]));
    TRY(relative_value(graph, softmax, &found->columns, scale, &in[1]));
    TRY(attn_match_make(graph, softmax, "", "Add", 2, in, join->in[0], 0, NULL, &made));
    in[0] = made->out[0];
    in[1] = join->in[1];
    TRY(attn_match_make(graph, softmax, "", "Reshape", 2, in, like, join->n_attrs,
                        join->attrs, &made));
    *value = made->out[0];
    return ATTNRUN_OK;
}

/* The sum is added to scores already, perhaps times a number. */
static attn_status try_added(struct attn_graph *graph, struct attn_node *softmax,
                             struct attn_node *scores, int32_t *applied)
{
    struct relative_sum found;
    bool sole;
    for (int side = 0; side < 2 && node_is(scores, "Add"); side++) {
        const int32_t added = scores->in[side];
        double scale = 1;
        int32_t value = attn_match_strip_scale(graph, added, &scale);
        struct attn_node *join = attn_graph_producer(graph, value);
        const struct attn_node *add = viewed_sum(graph, value, &sole);
        if (add == NULL || !sole || !node_is(join, "Reshape") ||
            !read_relative_sum(graph, add, &found) || found.scores.value >= 0)
            continue;
        TRY(pin_shape(graph, join, applied));
        if (value == added || join->in[0] != add->out[0])
            return ATTNRUN_OK;
        TRY(add_terms(graph, softmax, &found, scale, join, added, &value));
        attn_node_set_input(graph, scores, side, value);
        ++*applied;
        return ATTNRUN_OK;
    }
    return ATTNRUN_OK;
}

/* Whether `value` is scores to a part of which relative positions are added, as MViTv2 with a class
 * token has them. */
static bool is_part_added(const struct attn_graph *graph, int32_t value)
{
    struct relative_sum found;
    const struct attn_node *node = attn_graph_producer(graph, value);
    bool part = false;
    for (int k = 0; k < 3 * MAX_VIEWS; k++) {
        const bool scatters = node_is(node, "ScatterND");
        if (!scatters && !relative_is_view(node) && !node_is(node, "Transpose") &&
            !node_is(node, "Expand"))
            break;
        part = part || scatters;
        node = attn_graph_producer(graph, node->in[scatters ? 2 : 0]);
    }
    return part && node_is(node, "Add") &&
           match_type(graph, node->out[0])->rank > KEY_AXES &&
           read_relative_sum(graph, node, &found) && found.scores.value >= 0;
}

static attn_status try_scores(struct attn_graph *graph, struct attn_node *softmax,
                              int32_t *applied)
{
    struct relative_sum found;
    bool sole;
    const int32_t like = softmax->in[0];
    struct attn_node *join = attn_graph_producer(graph, like), *made;
    const struct attn_node *add = viewed_sum(graph, like, &sole);
    if (add == NULL || !node_is(join, "Reshape") || join->in[0] != add->out[0] ||
        !attn_match_is_f32(graph, like) || match_type(graph, add->out[0])->rank < 5)
        return is_part_added(graph, like)
                   ? attn_graph_note(graph, softmax, "relative_scores", part_added)
                   : try_added(graph, softmax, join, applied);
    const bool known = read_relative_sum(graph, add, &found);
    int32_t in[2] = { known ? scores_behind(graph, found.scores.value, like) : -1, -1 };
    if (!known && !is_near(&found))
        return ATTNRUN_OK;
    if (in[0] < 0 || !sole)
        return attn_graph_note(graph, softmax, "relative_scores",
                               !known ? other_terms
                               : sole ? other_scores
                                      : other_readers);
    TRY(pin_shape(graph, join, applied));
    TRY(add_terms(graph, softmax, &found, 1, join, like, &in[1]));
    TRY(attn_match_make(graph, softmax, "", "Add", 2, in, like, 0, NULL, &made));
    attn_node_set_input(graph, softmax, 0, made->out[0]);
    ++*applied;
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_relative_scores = { .name = "relative_scores",
                                                     .op_type = "Softmax",
                                                     .try_node = try_scores };

/* ---- behind it ---- */

/* Whether a mask has the shape of the scores: nothing is broadcast. */
static bool is_of_all_pairs(const struct attn_graph *graph, const struct attn_node *node,
                            int64_t keys)
{
    const attnrun_type *mask = match_type(graph, node->in[MASK]),
                       *q = match_type(graph, node->in[0]),
                       *k = match_type(graph, node->in[1]);
    if (q->rank != 4 || k->rank != 4 || mask->rank < 1 || mask->rank > 4)
        return false;
    for (int axis = 0; axis < 3; axis++) {
        const int at = axis - 4 + mask->rank;
        if (!dim_equal(q->dims[axis], at < 0 ? dim_of(1) : mask->dims[at]))
            return false;
    }
    return dim_is(k->dims[2], keys) && dim_is(mask->dims[mask->rank - 1], keys);
}

/* Whether an Attention of ai.onnx does no more than FusedAttention with a mask and a scale. */
static bool is_plain_attention(const struct attn_graph *graph,
                               const struct attn_node *node)
{
    for (int32_t i = 1; i < node->pub.n_out; i++)
        if (node->out[i] >= 0)
            return false;
    return node_is(node, "Attention") && attn_match_is_f32_of(graph, node->in[0], 4) &&
           dim_is_const(match_type(graph, node->in[0])->dims[3]) &&
           attn_match_int(node, "is_causal", 0) == 0 &&
           attn_match_int(node, "left_window_size", -1) < 0 &&
           attn_match_int(node, "right_window_size", -1) < 0 &&
           !(attn_match_float(node, "softcap", 0) > 0);
}

/* The attributes of the new node, of which there are fewer than MAX_ATTRS; returns how many. */
static int32_t bias_attrs(const struct attn_graph *graph, const struct attn_node *node,
                          int64_t columns, struct attn_attr *attrs)
{
    int32_t n = 0;
    if (node_is(node, "Attention")) {
        const double dim = (double)match_type(graph, node->in[0])->dims[3].value;
        const float scale = attn_match_float(node, "scale", (float)(1.0 / sqrt(dim)));
        attrs[n++] = (struct attn_attr)MATCH_FLOAT("scale", scale);
    } else {
        for (; n < node->n_attrs; n++)
            attrs[n] = node->attrs[n];
    }
    attrs[n++] = (struct attn_attr)MATCH_INT("key_columns", columns);
    return n;
}

static attn_status try_bias(struct attn_graph *graph, struct attn_node *node,
                            int32_t *applied)
{
    struct relative_sum found;
    bool sole;
    if ((!node_is_of(node, "attnrun.fused", "FusedAttention") &&
         !is_plain_attention(graph, node)) ||
        node->pub.n_in != MASK + 1 || node->n_attrs >= MAX_ATTRS ||
        attn_node_attr(node, "layouts") != NULL)
        return ATTNRUN_OK;
    const struct attn_node *add = viewed_sum(graph, node->in[MASK], &sole);
    if (add == NULL)
        return ATTNRUN_OK;
    const attnrun_type *sum = match_type(graph, add->out[0]);
    const attnrun_dim *map = sum->dims + sum->rank - KEY_AXES;
    int64_t keys;
    if (!read_relative_sum(graph, add, &found) || found.scores.value >= 0 ||
        !ck_mul(map[0].value, map[1].value, &keys) || !is_of_all_pairs(graph, node, keys))
        return sum->rank < 5 || !is_near(&found)
                   ? ATTNRUN_OK
                   : attn_graph_note(graph, node, "relative_bias", other_terms);
    if (!sole)
        return attn_graph_note(graph, node, "relative_bias", other_readers);
    int32_t in[LEAVES + 2] = { node->in[0], node->in[1], node->in[2], -1, -1, -1, -1 };
    TRY(relative_value(graph, node, &found.rows, 1, &in[LEAVES]));
    TRY(relative_value(graph, node, &found.columns, 1, &in[LEAVES + 1]));
    struct attn_attr attrs[MAX_ATTRS];
    const int32_t n = bias_attrs(graph, node, map[1].value, attrs);
    struct attn_node *made;
    TRY(attn_match_make(graph, node, "attnrun.fused", "FusedAttention", LEAVES + 2, in,
                        node->out[0], n, attrs, &made));
    attn_match_replace(graph, node->out[0], made);
    ++*applied;
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_relative_bias = { .name = "relative_bias",
                                                   .try_node = try_bias };
