/* stream.h - softmax attention of a block of queries that takes its keys a tile at a
 * time. A tile gives scores by a product with K, the caller's mask, an online softmax,
 * and a product with V that is added to the sums so far. The caller chooses the keys and
 * their order; a key that comes twice counts twice. Nothing here grows with the number of
 * keys.
 *
 *   infer:  bytes = attn_stream_bytes(max, dim, v_dim)      scratch of a worker
 *   run:    attn_stream_begin(&s, kernels, max, dim, v_dim, scratch);
 *           for each block of queries:
 *               attn_stream_reset(&s, n); attn_stream_load(&s, 0, q, q_row, n, scale);
 *               for each tile of keys: attn_stream_tile(&s, &keys, mask, arg);
 *               attn_stream_store(&s, row, y, 0.0f) for each row
 *
 * Tiles without a mask are computed by query tiles, which read keys and values where they
 * lie (ops/kernels/query_tile_f32.c). Other tiles are computed by products of panels.
 *
 * A key that is masked, or outside of the band, has no part in a result: its values may be NaN
 * or infinite, as padding is that nobody wrote. A product would add 0 times these, so that the
 * sums of such a tile are computed again without the keys whose weight is 0. (Tiles that came
 * packed have neither mask nor band.)
 *
 * These softmaxes over keys are computed elsewhere, each for a reason:
 *
 *   doubles.c            Elements are f64, but the kernels of tiles are for f32. It takes
 *                        one query at a time.
 *   luong_local.c        Each query has a window of its own, so there is no tile of
 *                        queries. The weights are an output.
 *   global_rows.c        Few global tokens: scores are products with X, not with keys.
 *                        (Many global tokens go through a stream.)
 *   top_k_attention.c    The softmax follows a choice among all scores of a row.
 *   softmax_pooling.c    There are no keys: the operator computes the scores of a tile
 *                        of tokens.
 *   external_run.c       The softmax is over pixels for each slot, then a sum over slots:
 *                        no row is finished before all pixels were read.
 *   halo_tile.c          Scores are keys x queries with terms of relative positions
 *                        added along both axes. One window fits one tile, so nothing is
 *                        carried on.
 *
 * Cost: 2 n keys (dim + v_dim) FLOPs and n keys exponentials. Source: Milakov 2018,
 * arXiv:1805.02867 (online softmax); Dao 2022, arXiv:2205.14135. */
#ifndef ATTN_STREAM_H
#define ATTN_STREAM_H

#include "../../../runtime/op.h"
#include "../../kernels/kernels.h"

enum {
    ATTN_STREAM_KEYS = ATTN_TILE_KEYS, /* of a tile at most */
    /* From the scores of a row to the next. A power of two would make them share lines of L1. */
    ATTN_STREAM_SCORES = ATTN_STREAM_KEYS + 16,
    ATTN_STREAM_ROWS = 128,                /* queries whose scores exist at one time */
    ATTN_STREAM_MAX = 8 * ATTN_STREAM_ROWS /* worth having in a block */
};

struct attn_stream {
    const struct attn_kernels *kernels;
    int64_t max, dim, v_dim; /* queries of a block, head sizes */
    int64_t n;               /* queries of this block */
    float *q;                /* (n, dim), times the scale */
    float *sums;             /* (n, v_dim) */
    /* max + log(sum) is a row's log-sum-exp; sum is 0 where a row saw no key. */
    struct attn_softmax_row *state;
    float *scores, *gemm;
    float *tile; /* queries tile_row … tile_row + tile_rows - 1 as panels */
    int64_t tile_row, tile_rows;
    float *keys, *values; /* panels of a tile; not used for up to ROWS queries */
    float *before;        /* states and sums of up to ROWS queries, before a tile */
    /* The caller sets these after attn_stream_begin(), where they differ. */
    int64_t k_col;                  /* from one element of a key to the next: 1 */
    struct attn_prefetch *prefetch; /* rows to prefetch for after this block, or NULL */
    float softcap; /* scores s become softcap tanh(s / softcap) before any mask; 0: not */
    bool linear;   /* scores are the weights, without softmax; 0 masks a key: false */
    bool packed;   /* by attn_stream_begin_packed() */
    bool to_pack;  /* the tile under way has no panels yet */
};

/* A tile is a struct attn_keys of up to ATTN_STREAM_KEYS keys (kernel_types.h). A mask
 * may change the scores of queries row … row + rows - 1 and keys from … to - 1 of the
 * tile. The scores of two queries are ATTN_STREAM_SCORES floats apart, and key `from`
 * comes first. -INFINITY masks a key. */
typedef void (*attn_stream_mask)(void *arg, float *scores, int64_t row, int64_t rows,
                                 int64_t from, int64_t to);

/* The bytes of scratch, or -1 where they overflow. */
int64_t attn_stream_bytes(int64_t max, int64_t dim, int64_t v_dim);
/* Begins a stream. `scratch` has attn_stream_bytes(), aligned to 64. */
void attn_stream_begin(struct attn_stream *s, const struct attn_kernels *kernels,
                       int64_t max, int64_t dim, int64_t v_dim, void *scratch);
/* The same for tiles that come as panels: k and v are what gemm_pack_f32() makes of
 * (dim, n) and (n, v_dim). Their row strides are ignored, and scratch has no space for
 * panels. */
int64_t attn_stream_packed_bytes(int64_t max, int64_t dim, int64_t v_dim);
void attn_stream_begin_packed(struct attn_stream *s, const struct attn_kernels *kernels,
                              int64_t max, int64_t dim, int64_t v_dim, void *scratch);
/* Begins a new block of n <= max queries, which have seen no key. */
void attn_stream_reset(struct attn_stream *s, int64_t n);
/* Loads queries row … row + rows - 1 from q, q_row elements apart, times `scale`. */
void attn_stream_load(struct attn_stream *s, int64_t row, const float *q, int64_t q_row,
                      int64_t rows, float scale);
/* All queries of the block see this tile, except for the pairs that `mask` (or NULL)
 * masks. */
void attn_stream_tile(struct attn_stream *s, const struct attn_keys *keys,
                      attn_stream_mask mask, void *arg);
/* A block of up to ATTN_STREAM_ROWS queries sees a tile whose keys lie in n <=
 * ATTN_STREAM_SEGMENTS segments, together at most ATTN_STREAM_KEYS. `mask` counts the
 * keys through all segments. */
enum { ATTN_STREAM_SEGMENTS = ATTN_TILE_SEGMENTS };
void attn_stream_segments(struct attn_stream *s, const struct attn_keys *segments, int n,
                          attn_stream_mask mask, void *arg);
/* Computes up to ATTN_TILE_QUERIES queries whose only keys are these segments: y = the
 * results of `rows` queries at q, times `factor`, or 0 where a query sees no key. The
 * state of the stream is lost. */
void attn_stream_once(struct attn_stream *s, const float *q, int64_t q_row, int64_t rows,
                      float factor, const struct attn_keys *segments, int n, float *y,
                      int64_t y_row);
/* The two halves of attn_stream_tile(), for blocks whose queries see different parts of a
 * tile: pack it, then give keys from … to - 1 of it (`from` a multiple of
 * OP_PANEL) to up to ATTN_STREAM_ROWS queries from `row` on. */
void attn_stream_pack(struct attn_stream *s, const struct attn_keys *keys);
void attn_stream_rows(struct attn_stream *s, const struct attn_keys *keys, int64_t row,
                      int64_t rows, int64_t from, int64_t to, attn_stream_mask mask,
                      void *arg);
/* Rows whose weights are NaN become rows that saw no key. */
void attn_stream_clear_nan(struct attn_stream *s, int64_t row, int64_t rows);
/* y[v_dim] = the result of a row, or `empty` where it saw no key.
 * attn_stream_store_rows() stores `rows` rows, y_row elements apart. */
void attn_stream_store_rows(struct attn_stream *s, int64_t row, int64_t rows, float *y,
                            int64_t y_row, float empty);
void attn_stream_store(const struct attn_stream *s, int64_t row, float *y, float empty);

/* Keys may be split among several streams of the same queries. Each stream saves the
 * state of its block, and another stream adds these states in any fixed order, as if it
 * had seen their keys. `floats`: attn_stream_saved_floats(n, v_dim). */
int64_t attn_stream_saved_floats(int64_t n, int64_t v_dim);
void attn_stream_save(const struct attn_stream *s, float *floats);
void attn_stream_add(struct attn_stream *s, const float *floats);

#endif
