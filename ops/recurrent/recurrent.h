/* recurrent.h - what RNN, GRU and LSTM share: shapes, activations, packed weights, the
 * input projection, and the loop along the sequence.
 *
 * T steps, B sequences, I inputs, H hidden, D directions (1 or 2), G gates (1, 3, 4)
 *
 *   X                      [T, B, I]
 *   W, R, B                [D, G H, I], [D, G H, H], [D, 2 G H]
 *   initial_h, initial_c   [D, B, H]
 *   P                      [D, 3 H]
 *   Y                      [T, D, B, H]
 *   Y_h, Y_c               [D, B, H]
 *
 * All tensors are f32 (or f64: recurrent_f64.c). Constant W and R may be stored as f16 or
 * bf16; they stay so when packed and become floats in the products. With layout 1: X [B,
 * T, I], Y [B, T, D, H], states [B, D, H].
 *
 * Phase 0 computes bias sums, and packs weights that are not constants. project_phase
 * computes X W' + bias for all steps. Then come the steps, one task per direction and
 * block of sequences. With weights of bytes (recurrent_i8.c) X is quantized in three
 * phases before project_phase.
 * Cost: 2 T B D G H (I + H) FLOPs. Shared memory: the projection, T B D G H floats. */
#ifndef ATTN_OPS_RECURRENT_H
#define ATTN_OPS_RECURRENT_H

#include "../../runtime/op.h"
#include "../kernels/kernels.h"

enum {
    RECURRENT_X,
    RECURRENT_W,
    RECURRENT_R,
    RECURRENT_B,
    RECURRENT_LENGTHS,
    RECURRENT_H0,
    RECURRENT_C0,
    RECURRENT_P,
    /* Of DynamicQuantizeLSTM: */
    RECURRENT_W_SCALE,
    RECURRENT_W_ZERO,
    RECURRENT_R_SCALE,
    RECURRENT_R_ZERO
};
enum { RECURRENT_FORWARD, RECURRENT_REVERSE, RECURRENT_BIDIRECTIONAL };
enum { RECURRENT_BLOCK = 8, RECURRENT_FUNCTIONS = 3 };
enum { RECURRENT_PROJECT_ROWS = 64, RECURRENT_PROJECT_COLUMNS = 512 }; /* of a task */

struct recurrent_args {
    attnrun_strings activations;
    attnrun_floats activation_alpha, activation_beta;
    float clip;
    int32_t direction;
    int64_t hidden_size, layout, linear_before_reset, input_forget;
};

#define RECURRENT_ATTR_ROWS                                                              \
    RECURRENT_TIME_FIRST_ROWS, ATTR_FLAG(struct recurrent_args, layout, 0)
#define RECURRENT_TIME_FIRST_ROWS                                                        \
    ATTR_STRINGS(struct recurrent_args, activations),                                    \
        ATTR_FLOATS(struct recurrent_args, activation_alpha),                            \
        ATTR_FLOATS(struct recurrent_args, activation_beta),                             \
        ATTR_FLOAT(struct recurrent_args, clip, 0.0f),                                   \
        ATTR_ENUM(struct recurrent_args, direction, "forward|reverse|bidirectional", 0), \
        ATTR_INT(struct recurrent_args, hidden_size, OP_INT_ABSENT),                     \
        ATTR_IGNORED("output_sequence")

struct recurrent_function {
    int32_t kind;
    float p[2]; /* alpha, beta */
};

struct recurrent_state {
    int64_t steps, batch, inputs, hidden, gates; /* T B I H G */
    int32_t directions;
    int32_t pack_in_run;
    int32_t w_dtype, r_dtype; /* of the weights: f32, or what they are stored as */
    struct recurrent_function functions[2][RECURRENT_FUNCTIONS];
    int64_t split;                      /* columns of R in its first packed part */
    int64_t w_bytes, r_bytes, r2_bytes; /* packed, per direction */
    int64_t bias_at, gates_at;          /* float offsets in shared memory */
    int64_t range_at, bytes_at;         /* byte offsets of X's range and of X as bytes */
    int32_t project_phase;
    int64_t row_blocks, column_blocks, blocks;
    int64_t gemm_floats; /* of scratch; then h, c, gates, extra of a block */
};

/* Of one direction's walk: what the cell gets. All arrays are [rows][…]. */
struct recurrent_cell {
    const attnrun_step *step;
    const struct recurrent_state *state;
    const void *r;       /* packed R: the first `split` columns */
    const void *r2;      /* packed R: the other columns */
    const float *bias_r; /* R's half of B of this direction, or NULL */
    const float *peephole;
    float *h, *c, *gates, *extra, *scratch;
    int64_t rows;
    int32_t direction;
};
/* gates holds X W' + bias of this step; the cell makes the new h (and c) of all rows. */
typedef void (*recurrent_cell_fn)(const struct recurrent_cell *cell);

struct recurrent_kind {
    int gates, functions;
    const char *activations[RECURRENT_FUNCTIONS]; /* defaults */
    bool cell_state;                              /* has Y_c */
    bool split_last;                              /* the last gate of R is packed apart */
    bool keep_bias_r; /* R's bias of the last gate is not added to X W' */
    bool quantized;   /* W [D,I,G H] and R [D,H,G H] are bytes with scales */
    recurrent_cell_fn cell;
};

attn_status attn_recurrent_infer(attnrun_step *step, const struct recurrent_kind *kind);
attn_status attn_recurrent_pack(attnrun_pack *pack, const struct recurrent_kind *kind,
                                int64_t *bytes, void *packed);
/* check_packed() of the kind of bytes. */
attn_status attn_recurrent_check_packed_i8(const attnrun_pack *pack,
                                           const struct recurrent_kind *kind,
                                           const void *packed);
attn_status attn_recurrent_run(const attnrun_step *step, const attnrun_work *work,
                               const struct recurrent_kind *kind);

/* Rows of [H] in X and the projections, in Y, and in the states; steps of sequence b. */
int64_t attn_recurrent_time_row(const attnrun_step *step, int64_t t, int64_t b);
int64_t attn_recurrent_y_row(const attnrun_step *step, int64_t t, int64_t b, int64_t d);
int64_t attn_recurrent_state_row(const attnrun_step *step, int64_t b, int64_t d);
int64_t attn_recurrent_length(const attnrun_step *step, int64_t b);

/* recurrent_f64.c */
void attn_recurrent_plan_f64(attnrun_step *step);
attn_status attn_recurrent_run_f64(const attnrun_step *step, const attnrun_work *work);

/* activation.c */
double attn_recurrent_function_f64(const struct recurrent_function *f, double x);
attn_status attn_recurrent_functions(const attnrun_step *step,
                                     const struct recurrent_kind *kind,
                                     struct recurrent_state *state);
/* y = f(x), in place allowed. */
void attn_recurrent_apply(const struct attn_kernels *kernels,
                          const struct recurrent_function *f, float *y, const float *x,
                          int64_t n);
/* Clips gates to [-clip, clip] where the attribute is given. */
void attn_recurrent_clip(const struct recurrent_cell *cell, float *x, int64_t n);
/* What the rows of ai.onnx have in common. */
#define RECURRENT_ROW                                                                    \
    OP_ROW, .since = 1, .args_bytes = sizeof(struct recurrent_args),                     \
        .state_bytes = sizeof(struct recurrent_state), .types = "T=f32,f64",             \
        .storage_in = 1u << RECURRENT_W | 1u << RECURRENT_R,                             \
        .check_packed = op_packed_is_data, .cost = "O(T B H (I + H))"
/* out[rows][n] (row stride `out_row`) += h[rows][H] times packed columns of R. */
void attn_recurrent_product(const struct recurrent_cell *cell, const float *h,
                            const void *packed, int64_t n, float *out, int64_t out_row,
                            bool add);
/* Direction d of the packed weights: W, R, the rest of R. */
const void *attn_recurrent_packed(const attnrun_step *step, const attnrun_work *work,
                                  int64_t d);

/* recurrent_i8.c: the same for weights of bytes; rows of X and h are quantized to u8, X by
 * the range of all its steps, h by that of each row. */
attn_status attn_recurrent_check_i8(const attnrun_step *step, attnrun_dim directions,
                                    attnrun_dim inputs, attnrun_dim hidden,
                                    attnrun_dim gates);
bool attn_recurrent_sizes_i8(const struct attn_kernels *kernels,
                             struct recurrent_state *s);
/* Shared memory from step->shared_bytes on, phases 1 to 3; returns the bytes of scratch
 * that products take, -1 where that overflows. */
int64_t attn_recurrent_plan_i8(attnrun_step *step);
void attn_recurrent_pack_i8(const struct attn_kernels *kernels,
                            const struct recurrent_state *s, const attnrun_tensor *w,
                            const attnrun_tensor *r, int64_t d, void *to);
/* Phase 0, once: which elements of X have a share in its range. */
void attn_recurrent_count_i8(const attnrun_step *step, const attnrun_work *work);
attn_status attn_recurrent_quantize_i8(const attnrun_step *step,
                                       const attnrun_work *work);
/* Rows [row, row + m) of X times columns [column, column + n) of W, with the bias. */
void attn_recurrent_project_i8(const attnrun_step *step, const attnrun_work *work,
                               int64_t d, int64_t row, int64_t m, int64_t column,
                               int64_t n);
/* gates += h R */
void attn_recurrent_gates_i8(const struct recurrent_cell *cell);

#endif
