/* sagan_attention.c - SAGANAttention: each pixel attends to all pixels of its map, or to
 * a quarter of their number.
 *
 *   q = wq x + bq            k = pool(wk x + bk), v = pool(wv x + bv)
 *   o_i = sum_j softmax_j(scale q_i . k_j) v_j        Y = gamma (wo o + bo) + x
 *
 * x, Y       f32 (batch, C, h, w)
 * wq, wk     (d, C); wv (e, C); wo (C, e), optional: without it wo o is o, and e is C
 * bq, bk (d), bv (e), bo (C) optional;  gamma () or (1)
 * kv_pool    1; 2: the largest of 2 x 2 pixels of each channel, after the projection
 * scale      1 by default, not 1 / sqrt(d)
 *
 * bk adds one number to all scores of a query and is not read. The rows of the softmax
 * add up to 1, so bv is added after it. wv may be multiplied there too, by sums of x.
 * This is done where x has no more channels than v (kv_pool 1) and wv is last or wo wv
 * could be multiplied at load. It saves n n' (e - C) products, and n e C where there is
 * wo (n queries, n' keys).
 *
 * Phase 0 makes tiles of 256 keys and values as panels, and gamma (wo bv + bo). In phase
 * 1 a task is 128 queries: they are projected, see all tiles by attn_stream, and are
 * projected back, with gamma and x in the epilogue.
 *
 * A NaN in a pixel makes all of its sample NaN, an infinity most of it.
 * Refused: other ranks and sizes, kv_pool 2 with odd h or w, e != C without wo, bo
 * without wo. Cost: 2 n n' (d + v) FLOPs and n n' exponentials a sample, where v is e or,
 * where x is summed, C. Memory: n' (d + v) floats a sample. Source: Zhang 2018,
 * arXiv:1805.08318. Compared with heykeetae/Self-Attention-GAN 8714a54 Self_Attn (kv_pool
 * 1, no wo; its second output, the weights, is not offered) and ajbrock/BigGAN-PyTorch
 * 9845943 Attention (kv_pool 2, wo, no biases, weights after spectral norm), which are
 * the same. */
#include "../attention/core/heads.h"
#include "sagan.h"
#include "../tile.h"

static const attnrun_attr_def sagan_attrs[] = {
    ATTR_INT(struct attn_sagan_args, kv_pool, 1),
    ATTR_FLOAT(struct attn_sagan_args, scale, 1.0f),
    ATTR_END,
};

enum { SMALL = 4095 }; /* pixels of all samples */

/* ---- infer ---- */

static attn_status sagan_check_map(const attnrun_step *step)
{
    const struct attn_sagan_args *args = step->args;
    TRY(attn_need_int(step, "kv_pool", args->kv_pool, 1, 2));
    TRY(attn_need_finite(step, "scale", args->scale, false));
    TRY(attn_map_check(step, X));
    for (int i = 2; args->kv_pool == 2 && op_rank_known(step, X) && i < 4; i++) {
        const attnrun_dim dim = step->in[X].dims[i];
        if (dim_is_const(dim) && dim.value % 2 != 0)
            return op_fail_input(step, X, ATTNRUN_E_SHAPE,
                                 "expected an even dim %d for kv_pool 2", i);
    }
    return ATTNRUN_OK;
}

/* Checks matrix `in` (rows, channels), and its bias. */
static attn_status check_projection(const attnrun_step *step, int in, attnrun_dim rows)
{
    const attnrun_dim channels = attn_map_channels(step, X);
    TRY(attn_map_check_matrix(step, in, rows, channels, "d of wq, or C of x"));
    if (op_rank_known(step, in) && dim_is(step->in[in].dims[0], 0))
        return op_fail_input(step, in, ATTNRUN_E_SHAPE, "dim 0 is 0, expected rows");
    return op_need_vector(step, in + 1,
                          op_rank_known(step, in) ? step->in[in].dims[0]
                                                  : attnrun_dim_unknown(step),
                          "the rows of its matrix");
}

static attn_status check_gamma(const attnrun_step *step)
{
    TRY(op_need_rank_between(step, GAMMA, 0, 1));
    return op_need_dim(step, GAMMA, 0, dim_of(1), "one number");
}

static attn_status check_last(const attnrun_step *step)
{
    const attnrun_dim channels = attn_map_channels(step, X);
    const attnrun_dim e =
        op_rank_known(step, WV) ? step->in[WV].dims[0] : attnrun_dim_unknown(step);
    if (op_has_in(step, WO))
        TRY(attn_map_check_matrix(step, WO, channels, e, "C of x, or the rows of wv"));
    else if (op_has_in(step, BO))
        return op_fail_input(step, BO, ATTNRUN_E_SHAPE, "it is allowed only with wo");
    else if (!dim_may_equal(e, channels))
        return op_fail_input(step, WV, ATTNRUN_E_SHAPE,
                             "expected %s, as x has channels, where wo is absent",
                             attn_plural(channels.value, "row"));
    return op_need_vector(step, BO, channels, "the channels of x");
}

/* Plans the map of keys and its tiles. */
static void plan_keys(struct attn_sagan *s)
{
    s->rows = s->pooled ? s->map.height / 2 : 1;
    s->columns = s->pooled ? s->map.width / 2 : s->map.pixels;
    s->tile_columns = min64(s->columns, TILE);
    s->tile_rows = min64(s->rows, TILE / s->tile_columns);
    s->column_tiles = ceil_div(s->columns, TILE);
    s->tiles = ceil_div(s->rows, s->tile_rows) * s->column_tiles;
    s->k_slot = s->d * round_up(s->tile_rows * s->tile_columns, 16);
    s->v_slot = s->tile_rows * s->tile_columns * round_up(s->v_dim, 16);
}

/* The floats of the largest product of either phase. */
static int64_t sagan_gemm_floats(const struct attn_sagan *s)
{
    const size_t c = (size_t)s->map.channels, e = (size_t)s->v_dim;
    const size_t x = attn_gemm_scratch(ROWS, TILE, c),
                 y = attn_gemm_scratch(ROWS, TILE, e);
    return round_up((int64_t)(x > y ? x : y), 16);
}

static void sagan_costs(attnrun_step *step, const struct attn_sagan *s)
{
    const double keys = (double)s->rows * (double)s->columns;
    const double rows = (double)(s->d + (s->raw ? 0 : s->e)), c = (double)s->map.channels;
    const double tile = (2.0 * rows * c / 150.0 + (double)s->v_dim * 0.3) * TILE;
    const double queries =
        (double)s->block * (2.0 * (double)(s->d + s->v_dim) * keys / 150.0 + keys * 0.3 +
                            2.0 * c * (double)(s->v_dim + s->d) / 150.0);
    op_tasks(step, KEYS, s->map.batch * s->tiles + s->biased, op_ns(tile + 200));
    op_tasks(step, QUERIES, s->map.batch * s->query_tiles, op_ns(queries + 200));
}

static attn_status sagan_plan_memory(attnrun_step *step, struct attn_sagan *s)
{
    int64_t floats, tasks;
    const int64_t stream = attn_stream_packed_bytes(s->block, s->d, s->v_dim);
    const int64_t limit = INT64_C(1) << 32; /* elements of a row: products below fit */
    if (stream < 0 || s->d > limit || s->v_dim > limit ||
        !ck_mul(s->k_slot + s->v_slot, s->tiles, &floats) ||
        !ck_mul(floats, s->map.batch, &floats) ||
        !ck_add(floats, s->map.channels, &floats) || floats > INT64_MAX / 64 ||
        !ck_mul(s->map.batch, s->tiles + s->query_tiles, &tasks))
        return op_fail_size(step,
                            "a row of the keys or of the values would have more than "
                            "2^32 elements, or the memory of all of them",
                            "2^57 floats");
    step->shared_bytes = floats * (int64_t)sizeof(float);
    s->stream_floats = round_up(stream / (int64_t)sizeof(float), 16);
    s->gemm_floats = sagan_gemm_floats(s);
    /* Phase 0: a projection of a tile, and pixels before and behind a transposition. */
    floats = max64(s->d, ROWS) * TILE + (s->pooled ? 2 * ROWS * TILE : 0);
    step->scratch_bytes =
        (s->gemm_floats + max64(s->stream_floats, floats)) * (int64_t)sizeof(float);
    return ATTNRUN_OK;
}

static attn_status sagan_plan(attnrun_step *step)
{
    const struct attn_sagan_args *args = step->args;
    struct attn_sagan *s = step->state;
    *s = (struct attn_sagan){ .d = step->in[WQ].dims[0].value,
                              .e = step->in[WV].dims[0].value,
                              .pooled = args->kv_pool == 2,
                              .folded = step->node->packed != NULL,
                              .biased = op_has_in(step, BV) || op_has_in(step, BO) };
    TRY(attn_map_sizes(step, X, &s->map));
    if (s->map.batch == 0)
        return ATTNRUN_OK;
    s->raw = !s->pooled && s->map.channels <= s->e && (s->folded || !op_has_in(step, WO));
    s->v_dim = s->raw ? s->map.channels : s->e;
    /* With more queries a key is read less often; fewer are enough tasks for a small
     * map. */
    s->block = s->map.batch > SMALL / s->map.pixels ? 2 * ROWS : ROWS;
    s->query_tiles = ceil_div(s->map.pixels, s->block);
    plan_keys(s);
    TRY(sagan_plan_memory(step, s));
    sagan_costs(step, s);
    /* Once the keys are stored, only its own task reads a query's pixel. */
    attnrun_step_inplace(step, 0, X);
    return ATTNRUN_OK;
}

static attn_status sagan_infer(attnrun_step *step)
{
    const attnrun_dim unknown = attnrun_dim_unknown(step);
    TRY(sagan_check_map(step));
    TRY(check_projection(step, WQ, unknown));
    TRY(check_projection(step, WK,
                         op_rank_known(step, WQ) ? step->in[WQ].dims[0] : unknown));
    TRY(check_projection(step, WV, unknown));
    TRY(check_gamma(step));
    TRY(check_last(step));
    TRY(op_out_like(step, 0, X));
    return step->concrete ? sagan_plan(step) : ATTNRUN_OK;
}

/* ---- pack: wo wv, where it is applied to sums of x ---- */

enum { PACK_ROWS = 32 };

static bool is_matrix(const attnrun_tensor *x)
{
    return x->data != NULL && x->rank == 2 && x->dtype == ATTNRUN_F32;
}

static attn_status sagan_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    const struct attn_sagan_args *args = pack->args;
    *bytes = 0;
    if (args->kv_pool != 1 || pack->n_in <= WO || !is_matrix(&pack->x[WO]) ||
        !is_matrix(&pack->x[WV]))
        return ATTNRUN_OK;
    const int64_t c = pack->x[WO].dims[0], e = pack->x[WO].dims[1];
    if (c < 1 || c > e || e > INT32_MAX || pack->x[WV].dims[0] != e ||
        pack->x[WV].dims[1] != c)
        return ATTNRUN_OK;
    const int64_t floats = round_up(c * c, 16);
    *bytes = (floats + (int64_t)attn_gemm_scratch(PACK_ROWS, (size_t)c, (size_t)e)) *
             (int64_t)sizeof(float);
    pack->replaces |= UINT32_C(1) << WV;
    if (pack->in[BV].kind == ATTNRUN_ABSENT) /* else wo bv is computed at run */
        pack->replaces |= UINT32_C(1) << WO;
    if (packed == NULL)
        return ATTNRUN_OK;
    struct attn_gemm_f32 g = { .b = pack->x[WV].data,
                               .b_row = c,
                               .b_col = 1,
                               .a_row = e,
                               .c_row = c,
                               .n = (size_t)c,
                               .k = (size_t)e,
                               .scratch = (float *)packed + floats };
    for (int64_t i = 0; i < c; i += PACK_ROWS) {
        g.m = (size_t)min64(PACK_ROWS, c - i);
        g.a = (const float *)pack->x[WO].data + i * e;
        g.c = (float *)packed + i * c;
        pack->kernels->gemm_f32(&g);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_sagan_attention_1 = {
    OP_ROW_OF("attnrun"),
    .name = "SAGANAttention",
    .since = 1,
    .inputs = "x:T wq:T bq:T? wk:T bk:T? wv:T bv:T? gamma:T wo:T? bo:T?",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct attn_sagan_args),
    .state_bytes = sizeof(struct attn_sagan),
    .attrs = sagan_attrs,
    .infer = sagan_infer,
    .pack = sagan_pack,
    .check_packed = op_packed_is_data,
    .run = attn_sagan_run,
    .cost = "O(n n' (d + e))",
    .source = "Zhang 2018, arXiv:1805.08318",
};
