/* bam.c - BAM: each element is multiplied by one plus a sigmoid, whose argument combines
 * a number of its channel and a number of its pixel.
 *
 *   c   = cw1 relu(… relu(cw0 mean_p x + cb0) …) + cb1                    (C)
 *   t0  = relu(sw0 x + sb0)     ti = relu(conv3x3(t_i-1, swm_i) + sbm_i)   (R, h, w)
 *   s   = sw1 t_m + sb1                                                   (h, w)
 *   Y[c,p] = post(x[c,p] (1 + sigmoid(c_c s_p)) + identity[c,p]), or of c_c + s_p
 *
 * x, identity, Y   f32 (batch, C, h, w); identity is optional, and may be x
 * cw0, cb0         (R, C), (R);  cw1, cb1 (C, R), (C)
 * cwm, cbm         (k, R, R), (k, R): k more layers between them, each with relu
 * sw0, sb0         (R, C), (R);  sw1, sb1 (1, R), (1)
 * swm, sbm         (m, R, R, 3, 3), (m, R): convolutions with this dilation and zeros
 *                  around; all biases are optional
 * combine          mul, as published code has it, or add, as the paper has it
 * dilation         4 by default;  post_activation  none | relu
 *
 * The phases are: t0 and the sums of x, by tiles of rows; each convolution; s and Y. The
 * planes t_i have zeros around them, so that a convolution is nine products of R x R with
 * whole tiles. With four images or more, or with more than seven convolutions, an image
 * is a task.
 *
 * Refused: sizes that disagree, R = 0, dilation < 1, a bias without its weights.
 * Cost: reads the map twice and writes it once; 4 C R n + 18 m R^2 n FLOPs for n pixels.
 * Memory: two times R padded planes and sums an image; with more than three images each
 * worker holds those of one image.
 * Source: Park 2018, arXiv:1807.06514. Compared with the class BAM of
 * Jongchan/attention-module 459efad. */
#include "bam.h"

enum { FEW_IMAGES = 3, MAX_CONVOLUTIONS = ATTNRUN_MAX_PHASES - 3, TILE_PIXELS = 1024 };

static const attnrun_attr_def bam_attrs[] = {
    ATTR_ENUM(struct bam_args, combine, "mul|add", BAM_MUL),
    ATTR_INT(struct bam_args, dilation, 4),
    ATTR_ENUM(struct bam_args, post_activation, ATTN_MAP_TAILS, 0),
    ATTR_END,
};

/* ---- infer ---- */

/* Checks input `w` (n, R, R, …) of `rank` and its bias (n, R); both are given, or only
 * `w`. */
static attn_status check_stack(const attnrun_step *step, int w, int rank,
                               attnrun_dim hidden)
{
    if (!op_has_in(step, w))
        return op_has_in(step, w + 1)
                   ? op_fail_input(step, w + 1, ATTNRUN_E_INPUT,
                                   "it also needs the weights of its layers")
                   : ATTNRUN_OK;
    TRY(op_need_rank(step, w, rank));
    for (int i = 1; i < rank; i++)
        TRY(op_need_dim(step, w, i, i < 3 ? hidden : dim_of(3),
                        i < 3 ? "the rows of sw0 or cw0" : "a 3 x 3 kernel"));
    if (!op_has_in(step, w + 1))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, w + 1, 2));
    if (op_rank_known(step, w))
        TRY(op_need_dim(step, w + 1, 0, step->in[w].dims[0], "the layers"));
    return op_need_dim(step, w + 1, 1, hidden, "the rows of sw0 or cw0");
}

static attn_status bam_check_weights(const attnrun_step *step)
{
    const attnrun_dim channels = attn_map_channels(step, BAM_X);
    TRY(attn_map_check_mlp(step, BAM_CW0, channels));
    attnrun_dim middle = attnrun_dim_unknown(step), hidden = middle;
    if (op_rank_known(step, BAM_CW0))
        middle = step->in[BAM_CW0].dims[0];
    TRY(check_stack(step, BAM_CWM, 3, middle));
    TRY(op_need_rank(step, BAM_SW0, 2));
    TRY(op_need_dim(step, BAM_SW0, 1, channels, "the channels"));
    if (op_rank_known(step, BAM_SW0))
        hidden = step->in[BAM_SW0].dims[0];
    if (dim_is_const(hidden) && hidden.value == 0)
        return op_fail_input(step, BAM_SW0, ATTNRUN_E_SHAPE, "dim 0 is 0, expected rows");
    TRY(op_need_vector(step, BAM_SB0, hidden, "the rows of sw0"));
    TRY(check_stack(step, BAM_SWM, 5, hidden));
    TRY(attn_map_check_matrix(step, BAM_SW1, dim_of(1), hidden, "1 by the rows of sw0"));
    return op_need_vector(step, BAM_SB1, dim_of(1), "one number");
}

/* Plans the rows of a tile, and all sizes that depend on it. */
static bool plan_sizes(struct bam_state *s, int64_t dilation, bool whole)
{
    const struct attn_map *map = &s->map;
    int64_t width, height, around, floats, gemm;
    if (!ck_mul(dilation, s->layers > 0 ? 2 : 0, &around) ||
        !ck_add(map->width, around, &width) || !ck_add(map->height, around, &height) ||
        !ck_mul(width, height, &s->plane) || !ck_mul(s->plane, s->hidden, &s->planes))
        return false;
    s->pad = around / 2;
    s->padded_width = width;
    s->tile = whole ? map->height : TILE_PIXELS / map->width;
    s->tile = s->tile < 1 ? 1 : s->tile < map->height ? s->tile : map->height;
    s->tiles = ceil_div(map->height, s->tile);
    if (!ck_mul(s->tiles, map->channels, &s->sums) ||
        !ck_mul(s->planes, s->layers > 0 ? 2 : 1, &floats) ||
        !ck_add(floats, s->sums, &s->image_floats) ||
        !ck_mul(s->tile, width, &s->pixels) || !ck_add(s->pixels, 15, &s->pixels))
        return false;
    s->pixels -= s->pixels % 16; /* what lies behind is aligned */
    const int64_t max = s->hidden > map->channels ? s->hidden : map->channels;
    gemm = (int64_t)attn_gemm_scratch((size_t)s->hidden, (size_t)s->pixels, (size_t)max);
    return ck_mul(s->pixels, s->hidden + 2, &floats) && ck_add(floats, gemm, &floats) &&
           ck_add(floats, 9 * s->hidden * s->hidden, &floats) &&
           ck_add(floats, map->channels + 2 * s->middle + 64, &s->worker_floats);
}

static attn_status plan_bam(attnrun_step *step)
{
    struct bam_state *s = step->state;
    *s = (struct bam_state){ .hidden = step->in[BAM_SW0].dims[0].value,
                             .middle = step->in[BAM_CW0].dims[0].value };
    TRY(attn_map_sizes(step, BAM_X, &s->map));
    if (op_has_in(step, BAM_SWM))
        s->layers = step->in[BAM_SWM].dims[0].value;
    s->whole = s->map.batch > FEW_IMAGES || s->layers > MAX_CONVOLUTIONS;
    int64_t floats, shared = 0;
    bool fits = s->hidden < 1 << 15 && s->middle < 1 << 30 &&
                plan_sizes(s, ((const struct bam_args *)step->args)->dilation, s->whole);
    fits = fits && (s->whole ? ck_add(s->worker_floats, s->image_floats, &floats)
                             : ck_add(s->worker_floats, 0, &floats) &&
                                   ck_mul(s->image_floats, s->map.batch, &shared));
    if (!fits || !ck_mul(floats, 4, &step->scratch_bytes) ||
        !ck_mul(shared, 4, &step->shared_bytes))
        return op_fail_size(step,
                            "the hidden channels would be over 32767, the middle ones "
                            "over 2^30 - 1, or its scratch memory",
                            "2^63 - 1 bytes");
    if (s->map.batch == 0)
        return ATTNRUN_OK;
    const int64_t tasks = s->whole ? s->map.batch : s->map.batch * s->tiles,
                  first = s->pixels * s->map.channels * (s->hidden / 16 + 1),
                  conv = s->pixels * s->hidden * (s->hidden + 4) / 6,
                  last = s->pixels * s->map.channels;
    if (s->whole) {
        op_tasks(step, 0, tasks, first + s->layers * conv + last);
        return ATTNRUN_OK;
    }
    op_tasks(step, 0, tasks, first);
    for (int64_t i = 0; i < s->layers; i++)
        op_tasks(step, 1 + (int)i, tasks, conv);
    op_tasks(step, 1 + (int)s->layers, tasks, last);
    return ATTNRUN_OK;
}

static attn_status bam_infer(attnrun_step *step)
{
    const struct bam_args *args = step->args;
    if (args->dilation < 1 || args->dilation > INT32_MAX)
        return op_fail(step, ATTNRUN_E_ATTR, "dilation is %lld, expected 1 or more",
                       (long long)args->dilation);
    TRY(attn_map_check(step, BAM_X));
    TRY(bam_check_weights(step));
    TRY(attn_map_check_identity(step, BAM_IDENTITY, BAM_X));
    TRY(op_out_like(step, 0, BAM_X));
    return step->concrete ? plan_bam(step) : ATTNRUN_OK;
}

/* ---- run ---- */

static attn_status bam_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct bam_state *s = step->state;
    for (int64_t task = work->begin; s->map.batch > 0 && task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        struct bam_part part = { .step = step, .work = work, .scratch = work->scratch };
        if (s->whole) {
            part.image = task;
            part.floats = part.scratch + s->worker_floats;
            attn_bam_first(&part);
            for (int64_t i = 0; i < s->layers; i++)
                attn_bam_convolve(&part, i);
            TRY(attn_bam_last(&part));
            continue;
        }
        part.image = task;
        part.tile = op_take(&part.image, s->tiles);
        part.floats = (float *)work->shared + part.image * s->image_floats;
        if (work->phase == 0)
            attn_bam_first(&part);
        else if (work->phase <= s->layers)
            attn_bam_convolve(&part, work->phase - 1);
        else
            TRY(attn_bam_last(&part));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_bam_1 = {
    OP_ROW_OF("attnrun"),
    .name = "BAM",
    .since = 1,
    .inputs = "x:T cw0:T cb0:T? cw1:T cb1:T? sw0:T sb0:T? swm:T? sbm:T? sw1:T sb1:T? "
              "cwm:T? cbm:T? identity:T?",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct bam_args),
    .state_bytes = sizeof(struct bam_state),
    .attrs = bam_attrs,
    .infer = bam_infer,
    .run = bam_run,
    .cost = "O(C R n + m R^2 n), scratch O(R n)",
    .source = "Park 2018, arXiv:1807.06514",
};
