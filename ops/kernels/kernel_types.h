/* kernel_types.h - the structs that kernels take. Operands are pointers; sizes and
 * strides are in elements. Each struct says what its kernel computes. There are no shapes
 * and no nodes here. */
#ifndef ATTN_KERNEL_TYPES_H
#define ATTN_KERNEL_TYPES_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "blocked_types.h"
#include "image_types.h"

/* ---- GEMM ---- */

/* The steps for an element of A B before it is stored to C; a list of them runs in
 * order. */
enum attn_epilogue_kind {
    ATTN_EPI_SCALE, /* x * alpha */
    ATTN_EPI_ADD,   /* x + alpha * data[i * row + j * col] */
    ATTN_EPI_RELU,  /* max(x, 0), NaN stays */
    ATTN_EPI_GELU,  /* by erf */
    ATTN_EPI_GELU_TANH,
    ATTN_EPI_SILU,
    ATTN_EPI_TANH,
    ATTN_EPI_SIGMOID,
    ATTN_EPI_CLIP,       /* min(max(x, alpha), beta), NaN stays */
    ATTN_EPI_LEAKY_RELU, /* x < 0 ? alpha * x : x */
    ATTN_EPI_HARD_SWISH  /* x * clip(x / 6 + 1/2, 0, 1) */
};
struct attn_epilogue {
    int32_t kind;
    float alpha, beta;
    /* ADD: elements between rows and columns of `data`; col is 0 (a value per row) or 1.
     * row 0: a bias per column. May be C itself with C's strides. */
    ptrdiff_t row, col;
    const float *data;
};

/* The step for the part of C that begins at row i and column j. */
static inline struct attn_epilogue attn_epilogue_at(struct attn_epilogue step,
                                                    ptrdiff_t i, ptrdiff_t j)
{
    if (step.kind == ATTN_EPI_ADD)
        step.data += i * step.row + j * step.col;
    return step;
}

/* The float of a rank, see rank_f32(); INFINITY for that of NaN. */
static inline float attn_float_of_rank(int32_t rank)
{
    const int32_t bits = rank < 0 ? rank ^ INT32_MAX : rank;
    float x;
    memcpy(&x, &bits, sizeof x);
    return rank == INT32_MAX ? INFINITY : x;
}

/* Rows to prefetch. A product prefetches a few of their lines with each step, so that
 * they are in L2 when they are read. The CPU's own prefetcher does not recognize rows
 * that are far apart, and a prefetch of all of them at once would stall. */
struct attn_prefetch_rows {
    const float *first;
    ptrdiff_t row;       /* from one to the next */
    int32_t rows, lines; /* lines of a row */
};
enum { ATTN_PREFETCH_MAX = 24 };
struct attn_prefetch {
    struct attn_prefetch_rows list[ATTN_PREFETCH_MAX];
    int32_t n, at, row, line; /* length of the list; the next line */
};

/* Advances by `lines`, into the next row where this one ends. */
static inline void attn_prefetch_pass(struct attn_prefetch *prefetch, int lines)
{
    prefetch->line += lines;
    if (prefetch->line < prefetch->list[prefetch->at].lines)
        return;
    prefetch->line = 0;
    if (++prefetch->row < prefetch->list[prefetch->at].rows)
        return;
    prefetch->row = 0;
    prefetch->at++;
}

/* C[m,n] = epilogue(A[m,k] B[k,n]); all strides in elements. A has stride 1 along k, or
 * along m. K is summed in blocks of at most ATTN_GEMM_KC, in order, whatever m and n
 * are. */
enum {
    ATTN_GEMM_KC = 384,
    ATTN_GEMM_NR_MAX = 32,
    ATTN_GEMM_WIDE = 1024,  /* columns that share a block of A … */
    ATTN_GEMM_FEW_ROWS = 32 /* … where it has more rows than these; else a panel does */
};
/* How B is stored: 16-bit panels become floats on their way into cache.
 * PAIRS: what gemm_pack_bf16 makes, for the table of bf16 products alone.
 * LOOSE: floats at any address, as a file has them; not packed, b_col is 1, and not for the
 * table of bf16 products. */
enum { ATTN_B_F32 = 0, ATTN_B_F16, ATTN_B_BF16, ATTN_B_PAIRS, ATTN_B_LOOSE };
struct attn_gemm_f32 {
    const float *a;
    ptrdiff_t a_row;
    ptrdiff_t a_col; /* 0: 1. Else A is transposed: a_row must be 1 */
    /* packed: panels as gemm_pack_f32 makes them (the panel of column j begins at k * j);
     * where they were packed for more rows of B, packed_k are all of them and packed_from
     * is the first one to use.
     * Else one of b_row, b_col is 1, or both are anything (slower). */
    const float *b; /* elements of b_type, whatever the pointer says */
    ptrdiff_t b_row, b_col;
    float *c;
    ptrdiff_t c_row;
    size_t m, n, k;
    const struct attn_epilogue *epilogue;
    float *scratch; /* attn_gemm_scratch(m, n, k) floats, 64-byte aligned */
    struct attn_prefetch *prefetch; /* or NULL */
    size_t packed_k, packed_from;
    int32_t n_epilogue, packed;
    int32_t b_type;     /* ATTN_B_F32 … */
    int32_t accumulate; /* C += A B instead, before the epilogue */
    int32_t exact;      /* products of floats also where the table has those of bf16 */
    int32_t half_ahead; /* few rows of A prefetch a packed B of f16 or bf16, too */
    size_t whole_n;     /* columns of the product that this is a part of; 0: n */
};
/* Whether a product is computed by dot products of rows; otherwise it is by outer
 * products of panels. */
static inline bool attn_gemm_by_dots(const struct attn_gemm_f32 *g)
{
    return !g->packed && g->b_type == ATTN_B_F32 && g->b_row == 1 && g->a_col == 0 &&
           (g->m <= 4 || (g->whole_n > 0 ? g->whole_n : g->n) == 1);
}
/* The number of rows of A and of sums in scratch: tiles of 16 are whole. */
static inline size_t attn_gemm_rows(size_t m) { return (m + 15) / 16 * 16; }
/* The floats of scratch: partial sums of the columns that share a block of A (of one
 * panel, where K is one block), a panel of B, and the rows of A of one block of K. */
static inline size_t attn_gemm_scratch(size_t m, size_t n, size_t k)
{
    const size_t panel = ATTN_GEMM_NR_MAX;
    size_t columns = panel;
    if (k > ATTN_GEMM_KC && m > ATTN_GEMM_FEW_ROWS)
        columns = n < ATTN_GEMM_WIDE ? (n + panel - 1) / panel * panel : ATTN_GEMM_WIDE;
    return (columns + ATTN_GEMM_KC + 16) * attn_gemm_rows(m) + ATTN_GEMM_KC * panel;
}

/* C[m,n] = (A[m,k] - a_zero) (B[k,n] - b_zero) of bytes, modulo 2^32; strides in
 * elements. A word of a packed B is 4 rows of a column, the last one filled with zeros;
 * panels are ATTN_GEMM_NR_MAX columns for 64-byte vectors, half and a quarter of it for
 * shorter ones. */
enum { ATTN_GEMM_I8_KC = 1024 };
struct attn_gemm_i8 {
    const void *a;
    ptrdiff_t a_row, a_col; /* a_col 0: 1 */
    /* With `sums` the panels that gemm_pack_i8 makes, beginning with column 0 of C. */
    const void *b;
    const uint32_t *sums;
    ptrdiff_t b_row, b_col;
    const int32_t *a_zero, *b_zero; /* m and n of them, or NULL: 0 */
    uint32_t *c;
    ptrdiff_t c_row;
    size_t m, n, k;
    bool a_signed, b_signed;
    uint32_t *scratch; /* attn_gemm_i8_scratch(m, n) words, 64-byte aligned */
};
/* The number of rows of the copy of a block of A: with many rows, whole tiles of 32 are
 * read. */
static inline size_t attn_gemm_i8_rows(size_t m)
{
    return m > 8 ? (m + 31) / 32 * 32 : m;
}
/* The bytes of scratch: a panel of B, a block of A promoted, what zero points need, and
 * tiles. */
static inline size_t attn_gemm_i8_scratch(size_t m, size_t n)
{
    const size_t panel = ATTN_GEMM_NR_MAX;
    return panel * (ATTN_GEMM_I8_KC / 4) +
           attn_gemm_i8_rows(m) * (ATTN_GEMM_I8_KC / 2 + 16) + 2 * m + 2 * (n + panel) +
           8 * panel + 32 * panel;
}

/* ---- weights of few bits ---- */

/* B[k,n] in panels of 2 vectors of columns, the last one filled up. A word of 4 bytes is 32 / bits
 * rows of a column, the first in its low bits; a row of a panel is a word of each column. Unless
 * `group` is set, blocks begin with words. An element is (q - zero) * scale, or table[q] * scale;
 * those of `block` rows share scale and zero point, which lie in panels, too: (blocks, columns
 * of a panel). */
struct attn_nbits {
    const uint8_t *q;
    const float *scale;
    const uint8_t *zero_u8; /* or */
    const float *zero_f32;  /* or neither: */
    float zero;
    const float *table;   /* 16 values (4 bits), or NULL */
    const int32_t *group; /* the block of each row, NULL: row / block */
    size_t k, block, blocks;
    int32_t bits;  /* 2, 4, 8 */
    int32_t ahead; /* bytes between the words in use and those that few rows prefetch */
};
enum { ATTN_NBITS_ROWS = 8 };

/* The bytes of a panel of `width` columns. */
static inline size_t attn_nbits_panel(const struct attn_nbits *b, size_t width)
{
    const size_t per = 32 / (size_t)b->bits;
    return (b->k + per - 1) / per * width * 4;
}

/* c[i][j] = sum over k of A[i][k] B[k][j] + bias[j] for the first n columns of a panel of B;
 * `rows`: what nbits_round() made of m rows of A. bias may be NULL. */
enum { ATTN_NBITS_PART = 512 };
struct attn_nbits_product {
    const struct attn_nbits *b; /* as nbits_round() had it */
    const void *rows;
    const float *bias;
    float *c;
    ptrdiff_t c_row;
    size_t m, panel, n;
    void *scratch; /* ATTN_NBITS_PART * ATTN_GEMM_NR_MAX bytes, 64-byte aligned */
};

/* ---- attention ---- */

/* A row of an online softmax. Starts as { -INFINITY }. */
struct attn_softmax_row {
    float max, sum; /* at most 8 below the scores so far; of exp(score - max) */
    float shift;    /* what takes the place of max in the exponent */
    float factor;   /* by softmax_rows_f32: what earlier terms are to be multiplied by */
};

/* Keys and values that lie in one segment: (n, dim) and (n, v_dim), rows that are k_row and
 * v_row elements apart, so that every step-th token needs no copy. With `band` query l of a
 * tile sees those keys j of the segment for which first <= j - l <= last, else all of them.
 * With `scaled` they stand for keys and values times a factor, and `bias` is added to the
 * scores. With `own` query l and key l + own_at are one token, whose score is own_score. */
struct attn_keys {
    const float *k, *v;
    int64_t k_row, v_row, n;
    bool band, scaled, own;
    float k_factor, v_factor, bias, own_score;
    int64_t first, last, own_at;
};
/* Queries and the keys that they see: more terms of their online softmax. */
enum {
    ATTN_TILE_QUERIES = 64,
    /* With tiles of bf16, keys of up to ATTN_TILE_SQUARES_DIM elements, and no band. */
    ATTN_TILE_QUERIES_SQUARES = 128,
    ATTN_TILE_SQUARES_DIM = 128,
    ATTN_TILE_KEYS = 256,     /* of all runs, at most … */
    ATTN_TILE_SEGMENTS = 16,  /* … and these themselves */
    ATTN_TILE_PAIRS_DIM = 512 /* longer keys are multiplied as floats */
};
/* Queries with tiles of bf16 are squares of 16 words, half as many as elements. */
static inline size_t attn_tile_floats(size_t dim)
{
    return ATTN_TILE_QUERIES * ((dim + 31) / 32 * 32);
}
struct attn_query_tile_f32 {
    const float *q; /* as query_tile_pack_f32() makes it: attn_tile_floats(dim) at most */
    size_t queries, dim, v_dim; /* queries <= ATTN_TILE_QUERIES, or …_SQUARES */
    const struct attn_keys *keys;
    size_t n_keys;                  /* runs */
    float *scores;                  /* scratch: (keys of all runs, up to a multiple of 32,
                    * ATTN_TILE_QUERIES), 64-byte aligned */
    struct attn_softmax_row *state; /* of each query */
    float *sums;                    /* (queries, v_dim): of terms times values */
    /* If these are all keys that the queries see, y gets the results, y_row apart, and
     * state and sums are not used. The result is 0 where a query saw no key. */
    float *y;
    ptrdiff_t y_row;
    float min;                      /* power of 2 below which terms are 0; -126 or more */
    struct attn_prefetch *prefetch; /* or NULL */
};

/* softmax_rows_f32 writes 0 for terms below 2 to this power. Beside a largest term of
 * about 1 they have no weight, but sums of denormal products take 20 times as long. Where
 * terms are divided by something other than their own sum, all of them are needed. */
#define ATTN_TERMS_THAT_COUNT (-100.0f)
#define ATTN_TERMS_ALL        (-152.0f)

/* The function of x that a feature is. */
enum attn_feature_map {
    ATTN_MAP_IDENTITY,
    ATTN_MAP_RELU,
    ATTN_MAP_ELU1, /* x + 1 where x > 0, else exp(x) */
    ATTN_MAP_EXP,
    ATTN_MAP_EXP2, /* 2^x for x < 127; 0 below -151 */
    ATTN_MAP_REQU, /* relu squared */
    ATTN_MAP_SIGMOID,
    ATTN_MAP_TANH,
    ATTN_MAP_GELU, /* by erf */
    ATTN_MAP_ABS,
    ATTN_MAP_COS,
    ATTN_MAP_SIN
};
/* y[r][i] = (f(scale x[r][i] - row_shift[r] - column_shift[i]) + add)
 *           * row_factor[r] * column_factor[i]
 * for r < rows, i < n; vectors that are NULL have no part. A factor of 0 makes 0 of
 * anything. y may be x. */
struct attn_features {
    const float *x;
    float *y;
    ptrdiff_t x_row, y_row;
    size_t rows, n;
    int32_t map;
    float scale, add;
    const float *row_shift, *column_shift, *row_factor, *column_factor;
    const float *weights; /* with dots: dots[r] = sum over i of y[r][i] weights[i] */
    float *dots;
    float *row_sums;    /* [r] += sum over i of y[r][i] */
    float *column_sums; /* [i] += sum over r of y[r][i] */
};

/* One or two tokens of a recurrence over S, (rows, n), in rows of whole vectors (16
 * floats): S = decay_t S + k_t u_t', o_t = scale S' q_t for t < tokens;  r_t = S' next_t
 * for t < n_next. u_t = v_t; or, where r is not NULL and as r was before,
 * u_0 = beta_0 (v_0 - r_0), u_1 = beta_1 (v_1 - r_1 - cross u_0). */
struct attn_recurrence {
    const float *from; /* S before */
    float *to;         /* S after: NULL (S is only read), `from`, or elsewhere */
    ptrdiff_t from_row, to_row;
    size_t rows, n;
    int32_t tokens, n_next;                     /* 0 … 2 */
    const float *decay[2], *k[2], *q[2], *v[2]; /* decay NULL: 1 */
    const float *next[2];
    float *o[2], *r[2];
    float beta[2], cross, scale;
};

/* A pass of an FFT of `length` over ATTN_FFT_LANES transforms at once: element i is their
 * real parts from float i * row on, and their imaginary parts `im` floats later (side by
 * side: 2 * ATTN_FFT_LANES and ATTN_FFT_LANES). Blocks of radix * m elements become
 * `radix` blocks of m; `s`: product of the radices before. length = s * radix * m. */
enum { ATTN_FFT_LANES = 16, ATTN_FFT_RADIX_MAX = 31 };
struct attn_fft_pass {
    const float *table; /* e^(-2 pi i t / length): cos, then -sin, for t < length */
    int64_t length, m, s;
    ptrdiff_t x_row, x_im, y_row, y_im;
    int32_t radix; /* 2 … ATTN_FFT_RADIX_MAX */
};

/* Columns of a matrix that are lanes: row[l] is the real part of lane l < lanes, and
 * mirror[-l] belongs to the imaginary part of lanes im_begin … im_end - 1. */
struct attn_fft_columns {
    float *row, *mirror;
    ptrdiff_t step; /* from a row to the next */
    int32_t lanes, im_begin, im_end;
};

/* For each column the max and the min, and the numbers of their rows. */
struct attn_extremes {
    float *max, *min; /* at first -INFINITY and INFINITY */
    int32_t *at_max, *at_min;
};

/* The rule for the score of a query and a key: it becomes `self` where both have the same
 * number (`key` NULL: nowhere), else -INFINITY where key_limit > query_limit, or where
 * their groups differ (`key_group` NULL: nowhere). */
struct attn_pairs {
    const int32_t *query, *query_limit, *query_group;
    const int32_t *key, *key_limit, *key_group;
    float self;
};

#endif
