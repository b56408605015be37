/* blocked_layout.h - what the files of the pass blocked_layout share: the state of its
 * walk over the nodes, and the tests of which nodes can use maps in blocks of 16
 * channels. */
#ifndef ATTN_BLOCKED_LAYOUT_H
#define ATTN_BLOCKED_LAYOUT_H

#include "match.h"

enum member {
    MEMBER_NONE,
    MEMBER_CONV,
    MEMBER_MAX_POOL,
    MEMBER_AVERAGE_POOL,
    MEMBER_MEAN,
    MEMBER_GATE,       /* in[0] is the map, in[1] the gate, or the other way round */
    MEMBER_AS_IS,      /* all inputs that are maps become blocked ones */
    MEMBER_CONCAT,     /* axis 1 */
    MEMBER_SLICE,      /* of axis 1 */
    MEMBER_SPLIT,      /* of axis 1: several outputs */
    MEMBER_SPREAD,     /* ConvTranspose (blocked_spread.c) */
    MEMBER_SCALE,      /* Mul by constants, one for each channel */
    MEMBER_RESIZE,     /* of height and width (blocked_resize.c) */
    MEMBER_CBAM,       /* gates of channels and pixels (blocked_cbam.c) */
    MEMBER_BATCH_NORM, /* (blocked_batch_norm.c) */
    /* on maps whose channels are last (blocked_last.c) */
    MEMBER_TO_LAST, /* Transpose of a map, and back: the same blocks */
    MEMBER_TO_FIRST,
    MEMBER_NORM,    /* LayerNormalization of each pixel */
    MEMBER_PRODUCT, /* MatMul by constants: a convolution of one tap */
    /* on bytes, u8 in blocks (blocked_quantized.c) */
    MEMBER_QCONV,
    MEMBER_QADD,
    MEMBER_QMUL,   /* of maps, or of a map and a gate */
    MEMBER_QTABLE, /* a function of one byte */
    MEMBER_QCONCAT,
    MEMBER_QMEAN,
    MEMBER_STOPPED
};
enum { BLOCKED_MAX_ATTRS = 15 };

struct layout {
    struct attn_graph *graph;
    int64_t n_nodes, n_values; /* before any edit */
    uint8_t *member;           /* of each node */
    int32_t *run;     /* of each node: the next node on the way to the run's first */
    int32_t *convs;   /* of a run's first node */
    double *gain;     /* nanoseconds, minus those of borders */
    int32_t *blocked; /* of each value: the blocked one, or -1 */
    uint8_t *last;    /* of each value: a map of a member whose channels are last */
};

static inline const attnrun_type *layout_type(const struct layout *l, int32_t value)
{
    return &l->graph->values[value].type;
}

/* Whether a value is a plain map of known channels. */
static inline bool layout_is_map(const struct layout *l, int32_t value)
{
    if (value < 0 || !attn_match_is_f32(l->graph, value))
        return false;
    const attnrun_type *t = layout_type(l, value);
    return t->rank == 4 && dim_is_const(t->dims[1]) && t->dims[1].value > 0 &&
           !match_is_constant(l->graph, value) &&
           !(value < l->n_values && l->last[value] != 0);
}

/* Whether a value is [N, H, W, C] of a member. */
static inline bool layout_is_last(const struct layout *l, int32_t value)
{
    return value >= 0 && value < l->n_values && l->last[value] != 0;
}

/* Whether a value is a plain map of bytes. */
static inline bool layout_is_bytes(const struct layout *l, int32_t value)
{
    if (value < 0 || match_is_constant(l->graph, value))
        return false;
    const attnrun_type *t = layout_type(l, value);
    return t->kind == ATTNRUN_TENSOR &&
           (t->dtype == ATTNRUN_U8 || t->dtype == ATTNRUN_I8) && t->rank == 4 &&
           dim_is_const(t->dims[1]) && t->dims[1].value > 0;
}

/* The member that gives a value, or -1. */
static inline int32_t layout_giver(const struct layout *l, int32_t value)
{
    const struct attn_node *node =
        value >= 0 && value < l->n_values ? attn_graph_producer(l->graph, value) : NULL;
    if (node == NULL || node->pub.index >= l->n_nodes ||
        l->member[node->pub.index] == MEMBER_NONE ||
        l->member[node->pub.index] == MEMBER_STOPPED)
        return -1;
    const bool any = l->member[node->pub.index] == MEMBER_SPLIT;
    return any || node->out[0] == value ? node->pub.index : -1;
}

static inline bool layout_is_member_map(const struct layout *l, int32_t value)
{
    return layout_is_map(l, value) && layout_giver(l, value) >= 0;
}

static inline int64_t layout_channels(const struct layout *l, int32_t value)
{
    return layout_type(l, value)->dims[layout_is_last(l, value) ? 3 : 1].value;
}

static inline bool layout_is_member_bytes(const struct layout *l, int32_t value)
{
    return layout_is_bytes(l, value) && layout_giver(l, value) >= 0;
}

/* The blocked form of a map: that of a member, or a copy before `node`. */
attn_status attn_layout_blocked(struct layout *l, struct attn_node *node, int32_t value,
                                int32_t *blocked);
/* Inserts a node of domain attnrun.fused before `node`. */
attn_status attn_layout_insert(struct layout *l, struct attn_node *node,
                               const char *op_type, int32_t n_in, const int32_t *in,
                               int32_t out, int32_t n_attrs,
                               const struct attn_attr *attrs);
/* Whether BlockedConv takes these groups of channels. */
bool attn_blocked_groups(const attnrun_tensor *w, int64_t group, int64_t channels,
                         bool *by_itself);
bool attn_blocked_pool(const struct attn_node *node);

/* Members whose channels are last: what a node can be, and the node that replaces it and
 * gives `out`. MEMBER_SCALE is of either kind of maps. */
enum member attn_last_member(const struct layout *l, const struct attn_node *node);
attn_status attn_last_rewrite(struct layout *l, struct attn_node *node, enum member kind,
                              int32_t out);

/* Whether a node is a ConvTranspose whose tiles of outputs do not overlap, and the node
 * that replaces it. */
bool attn_spread_is(const struct layout *l, const struct attn_node *node);
attn_status attn_spread_rewrite(struct layout *l, struct attn_node *node, int32_t out);

/* Whether a node is a Resize or Upsample of height and width, and the node that replaces
 * it. */
bool attn_resize_is(const struct layout *l, const struct attn_node *node);
attn_status attn_resize_rewrite(struct layout *l, struct attn_node *node, int32_t out);

/* Whether a node is a CBAM or SqueezeExcite of the known forms, and the node that
 * replaces it. */
bool attn_blocked_is_cbam(const struct layout *l, const struct attn_node *node);
attn_status attn_cbam_rewrite(struct layout *l, struct attn_node *node, int32_t out);

/* Whether a node is a BatchNormalization of a member, and the node that replaces it. */
bool attn_blocked_is_batch_norm(const struct layout *l, const struct attn_node *node);
attn_status attn_batch_norm_rewrite(struct layout *l, struct attn_node *node,
                                    int32_t out);

bool attn_quantized_is_conv(const struct attn_node *node);
/* Whether a member's groups have so few channels that plain products take far longer. */
bool attn_quantized_is_narrow(const struct layout *l, const struct attn_node *node);
/* Members on bytes: what a node can be, and the node that replaces it and gives `out`. */
enum member attn_quantized_member(const struct layout *l, const struct attn_node *node);
attn_status attn_quantized_rewrite(struct layout *l, struct attn_node *node,
                                   enum member kind, int32_t out);

/* Whether `gate` is [N, C, 1, 1] for a map [N, C, H, W]. */
bool attn_blocked_is_gate(const struct layout *l, int32_t gate, int32_t map);
/* Whether a Slice takes whole blocks [*from, *to) of the channels. */
bool attn_blocked_slice(const struct layout *l, const struct attn_node *node,
                        int64_t *from, int64_t *to);
bool attn_blocked_is_conv(const struct attn_node *node);
/* What a node can be, if the members before it are known. */
enum member attn_blocked_member(const struct layout *l, const struct attn_node *node);

#endif
