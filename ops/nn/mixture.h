/* mixture.h - what MoE and QMoE share: a mixture of experts, each of which is two or
 * three matrices. A token goes through the k experts that its router prefers, and their
 * results are added with weights.
 *
 *   input         f32 (tokens, H) or (batch, length, H)
 *   router_probs  (tokens, E): logits
 *   fc1           (E, F I, H): inner = act(x W1' + b1); F = 2: gate and factor are in one
 *                 matrix, alternating (swiglu_fusion 1) or one behind the other (2)
 *   fc3           (E, I, H), optional: the factor; inner = act(x W1' + b1) (x W3' + b3)
 *   fc2           (E, H, I): out = inner W2' + b2
 *   Y             as input: the sum over the chosen experts of weight * out
 *
 * Old files have the last two dims of the weights exchanged; their bytes are the same.
 *
 * weights       softmax of the logits; the k largest are chosen, later experts first
 *               among equals. They are divided by their sum with
 *               normalize_routing_weights (in QMoE always, unless they are
 *               router_weights). Weights that are 0 (in QMoE up to 1e-8) are left out.
 *               use_sparse_mixer (k = 2): see mixture_route.c
 * act           relu, gelu (tanh), silu, identity, relu2 = relu^2; swiglu = G
 *               sigmoid(alpha G) (L + beta) with G = min(g, limit) and L = l within
 *               [-limit, limit], or with swiglu_limit_after_activation min(g
 *               sigmoid(alpha g), limit) (L + beta); geglu = gelu(g) l
 *
 * The phases (behind those of the operator) are: the chosen experts of each token; rows
 * sorted by expert and cut into tiles; inner of a tile and a block of columns; out of it;
 * sums. Shared memory: inner and out of all experts of all tokens. Cost: tokens k times
 * that of one expert. Source: ONNX Runtime contrib operators; compared with onnxruntime
 * 1.32.0. */
#ifndef ATTN_MIXTURE_H
#define ATTN_MIXTURE_H

#include "../../runtime/op.h"
#include "../kernels/kernels.h"

enum { MIXTURE_ROWS = 64, MIXTURE_COLUMNS = 512, MIXTURE_TOKENS = 64 }; /* of a task */
enum { MIXTURE_FC1, MIXTURE_FC2, MIXTURE_FC3, MIXTURE_MATRICES };

struct mixture_args {
    int64_t k, normalize_routing_weights, use_sparse_mixer, swiglu_fusion;
    int64_t swiglu_limit_after_activation;
    int32_t activation_type;
    float activation_alpha, activation_beta, swiglu_limit;
};
enum {
    MIXTURE_RELU,
    MIXTURE_GELU,
    MIXTURE_SILU,
    MIXTURE_IDENTITY,
    MIXTURE_RELU2,
    MIXTURE_SWIGLU,
    MIXTURE_GEGLU
};
#define MIXTURE_ATTR_ROWS                                                                \
    ATTR_INT(struct mixture_args, k, 1),                                                 \
        ATTR_FLAG(struct mixture_args, normalize_routing_weights, 0),                    \
        ATTR_FLAG(struct mixture_args, use_sparse_mixer, 0),                             \
        ATTR_CHOICE(struct mixture_args, swiglu_fusion, "0..2", 0),                      \
        ATTR_FLAG(struct mixture_args, swiglu_limit_after_activation, 0),                \
        ATTR_ENUM(struct mixture_args, activation_type,                                  \
                  "relu|gelu|silu|identity|relu2|swiglu|geglu", MIXTURE_RELU),           \
        ATTR_FLOAT(struct mixture_args, activation_alpha, 1.0f),                         \
        ATTR_FLOAT(struct mixture_args, activation_beta, 0.0f),                          \
        ATTR_FLOAT(struct mixture_args, swiglu_limit, INFINITY)

/* A product of each expert: n columns, which are lines first, first + step … of the k
 * elements that input `weights` has for it. */
struct mixture_matrix {
    int32_t which; /* MIXTURE_FC1 … */
    int32_t weights, bias;
    int64_t k, n, first, step, lines;
    int64_t columns, blocks;         /* of a task; tasks of a tile */
    int64_t packed_at, packed_bytes; /* of expert 0; of each */
};

struct mixture_state {
    int64_t tokens, hidden, inter, experts, k, routes;
    struct mixture_matrix up[2], down;
    int32_t n_up;        /* 2: up[1] is the factor */
    int32_t first_phase; /* of the five */
    int64_t tiles;       /* at most */
    int64_t packed_bytes;
    /* Byte offsets in shared memory: a route is a token's j-th expert; its place is among
     * the rows sorted by expert. */
    int64_t expert_at, weight_at, place_at, token_at, tiles_at, inner_at, outer_at;
    int64_t products_at; /* into the scratch, behind rows and a block of factors */
};

/* m rows of `a` times columns [column, column + n) of a matrix of an expert; `bias` of
 * these columns, or NULL. `rows`: what a product by up[0] has made of these rows in this scratch
 * is there for that by up[1]. */
struct mixture_product {
    const struct mixture_matrix *matrix;
    const float *a, *bias;
    const void *rows;
    float *c;
    void *scratch;
    int64_t expert, m, column, n, a_row, c_row;
};
struct mixture_kind {
    int32_t weights[MIXTURE_MATRICES], biases[MIXTURE_MATRICES]; /* inputs */
    int32_t router_weights;                                      /* -1: none */
    bool normalized; /* softmax is over the chosen experts, whatever the attribute says */
    float min_weight; /* experts with this weight or less are left out */
    attn_status (*multiply)(const attnrun_step *step, const attnrun_work *work,
                            struct mixture_product *product);
};

/* Input and output of the operator. */
attn_status attn_mixture_output(attnrun_step *step);
/* The matrices, from the types of inputs; per: elements of a stored one, of each matrix.
 * False where they are not known, or do not fit: *wrong is the input, -1 where it is another
 * thing, and *text says what it should be. */
bool attn_mixture_matrices(const struct mixture_kind *kind,
                           const struct mixture_args *args, int n_in,
                           const attnrun_type *in, const int64_t *per,
                           struct mixture_state *s, int *wrong, const char **text);
/* infer, concrete: checks what is to be checked, and sets the matrices. */
attn_status attn_mixture_shapes(attnrun_step *step, const struct mixture_kind *kind,
                                const int64_t *per);
/* Then the five phases from first_phase on; product_bytes: scratch of a product; shared
 * memory begins with step->shared_bytes. */
attn_status attn_mixture_tasks(attnrun_step *step, int64_t product_bytes);
attn_status attn_mixture_run(const attnrun_step *step, const attnrun_work *work,
                             const struct mixture_kind *kind);
/* `matrices`: up to three of a mixture; returns how many. */
int attn_mixture_list(const struct mixture_state *s,
                      const struct mixture_matrix *matrices[MIXTURE_MATRICES]);

/* mixture_route.c: experts and weights of tokens [begin, end); a weight of 0: none.
 * `scratch`: attn_mixture_route_bytes(). mix: router_weights, or NULL. */
int64_t attn_mixture_route_bytes(int64_t experts);
void attn_mixture_route(const struct mixture_args *args, const struct mixture_state *s,
                        bool normalized, const float *logits, const float *mix,
                        int64_t begin, int64_t end, int32_t *expert, float *weight,
                        void *scratch);

#endif
