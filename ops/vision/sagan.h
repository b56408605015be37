/* sagan.h - what infer, pack and run of SAGANAttention share. sagan_attention.c has the
 * formula. */
#ifndef ATTN_SAGAN_H
#define ATTN_SAGAN_H

#include "../attention/core/stream.h"
#include "gated_maps.h"

struct attn_sagan_args {
    int64_t kv_pool;
    float scale;
};

enum { X, WQ, BQ, WK, BK, WV, BV, GAMMA, WO, BO };
enum { KEYS, QUERIES }; /* phases */
enum {
    ROWS = ATTN_STREAM_ROWS, /* queries of a task; rows of a product */
    TILE =
        ATTN_STREAM_KEYS, /* keys of a tile at most; pixels that are pooled at a time */
    POOLED = TILE / 4     /* … and what becomes of them */
};

struct attn_sagan {
    struct attn_map map;
    int64_t d, e;
    int64_t v_dim; /* of what is aggregated: C where that is x itself, else e */
    bool pooled;
    bool raw;    /* x is aggregated */
    bool folded; /* wo wv is packed */
    bool biased; /* bv or bo is there */
    /* Keys are a map of rows x columns (1 x pixels where they are not pooled); a tile is
     * a rectangle of it, whole rows where more than one fits. */
    int64_t rows, columns, tile_rows, tile_columns, column_tiles, tiles;
    int64_t k_slot, v_slot;     /* floats of a tile's panels */
    int64_t block, query_tiles; /* queries of a task */
    int64_t stream_floats, gemm_floats;
};

attn_status attn_sagan_run(const attnrun_step *step, const attnrun_work *work);

#endif
