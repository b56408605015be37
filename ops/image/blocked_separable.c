/* blocked_separable.c - BlockedSeparable: the convolution of each channel by itself between two
 * of one pixel, on maps in blocks of 16 channels, line after line:
 *
 *   mid = e(ES conv(X, E) + EB)          1 x 1; without E it is X
 *   own = a(S conv(mid, W) + B)          each channel by itself, a window of height x width
 *   Y   = p(PS conv(own, P) + PB + Z)    1 x 1; without P it is own
 *
 * X     [N, ceil(channels / 16), H, W, 16]
 * E     [C, channels, 1, 1], EB [C]; W [C, 1, height, width], B [C]; P [M, C, 1, 1], PB [M]:
 *       constants; E, P or both are there, and without E channels is C. E, W and P are of one type,
 *       f32, f16 or bf16, and are packed as that
 * ES, S [16 ceil(C / 16)], PS [16 ceil(M / 16)]: constants, or 1
 * Y, Z  [N, ceil(M / 16), H', W', 16], without P ceil(C / 16) blocks and no Z; the sizes are in
 *       sliding_window.c
 *
 * A task is some lines of Y. It has the lines of mid that they see, and own, in the scratch of its
 * worker, in L2. A worker that goes on to the lines below keeps those of mid that both see.
 * Every number is computed as by three steps of BlockedConv, in the same order: the same bits.
 * Written by the pass blocked_separable. Cost: 2 N (C channels H W + C height width H' W' +
 * M C H' W') FLOPs, and (C W lines of the window + C W') lines of scratch. Source: the inverted
 * residual of MobileNetV2 (Sandler et al. 2018). */
#include "../../runtime/poll.h"
#include "blocked_strip.h"

enum { X, W, E = 4, P = 7, Z = 10 }; /* bias and factors follow weights */
enum {
    STRIP_BYTES = 1 << 19, /* of scratch, where one line does not need more */
    MIN_STRIPS = 8,        /* of a map that has as many lines */
    MAX_LINES = 1024       /* of a task, however short they are */
};

struct separable_args {
    struct window_attrs window;
    int64_t channels;
    int32_t expand, activation, project;
    float expand_alpha, expand_beta, alpha, beta, project_alpha, project_beta;
};
static const attnrun_attr_def separable_attrs[] = {
    WINDOW_ATTR_ROWS,
    WINDOW_DILATIONS,
    ATTR_INT_REQUIRED(struct separable_args, channels),
    ATTR_ENUM(struct separable_args, expand, CONV_ACTIVATIONS, 0),
    ATTR_FLOAT(struct separable_args, expand_alpha, 0.0f),
    ATTR_FLOAT(struct separable_args, expand_beta, 0.0f),
    ATTR_ENUM(struct separable_args, activation, CONV_ACTIVATIONS, 0),
    ATTR_FLOAT(struct separable_args, alpha, 0.0f),
    ATTR_FLOAT(struct separable_args, beta, 0.0f),
    ATTR_ENUM(struct separable_args, project, CONV_ACTIVATIONS, 0),
    ATTR_FLOAT(struct separable_args, project_alpha, 0.0f),
    ATTR_FLOAT(struct separable_args, project_beta, 0.0f),
    ATTR_END
};

struct separable_plan {
    struct window w;
    int64_t batch, channels, own, rows; /* of X, of each channel by itself, of Y */
    bool expands, projects;
    int64_t lines, strips;        /* of Y in the largest task; tasks of an image */
    int64_t mid_lines;            /* of mid in scratch */
    int64_t mid_plane, own_plane; /* elements of a block of channels there */
    int64_t own_at, kept_at;      /* in scratch: bytes */
    int64_t pixels;               /* of the table of places in shared memory */
    int32_t dtype;                /* of the weights */
    int64_t w_at;                 /* in scratch: W as floats, where it is of 16 bits, */
    int64_t floats_at;            /* and those of a panel of E or P */
};

/* Dims of the weights in input `in`, and what follows them: bias, factors of their sums. */
static attn_status check_dims(const attnrun_step *step, int in)
{
    const attnrun_dim *const w = step->in[in].dims, rows = w[0];
    for (int i = 0; i < 4; i++)
        if (!dim_is_const(w[i]) || w[i].value < 1)
            return op_fail_input(step, in, ATTNRUN_E_SHAPE,
                                 "expected constant dims of 1 or more");
    if (op_has_in(step, in + 1)) {
        TRY(op_need_rank(step, in + 1, 1));
        TRY(op_need_dim(step, in + 1, 0, rows, "output channels"));
    }
    if (!op_has_in(step, in + 2))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, in + 2, 1));
    return op_need_dim(step, in + 2, 0, dim_of(blocked_count(rows.value) * ATTN_BLOCK),
                       "output channels in blocks");
}

/* Weights of 1 x 1. */
static attn_status check_pointwise(const attnrun_step *step, int in, int64_t rows,
                                   int64_t channels)
{
    TRY(op_need_rank(step, in, 4));
    if (rows >= 0)
        TRY(op_need_dim(step, in, 0, dim_of(rows), "output channels"));
    TRY(op_need_dim(step, in, 1, dim_of(channels), "input channels"));
    for (int i = 2; i < 4; i++)
        TRY(op_need_dim(step, in, i, dim_of(1), "one tap"));
    return check_dims(step, in);
}

static attn_status check_weights(const attnrun_step *step,
                                 const struct separable_args *args)
{
    const attnrun_type *w = &step->in[W];
    if (!op_has_in(step, E) && !op_has_in(step, P))
        return op_fail(step, ATTNRUN_E_ATTR,
                       "inputs 4 (E) and 7 (P) are absent, expected one of them");
    if (op_has_in(step, Z) && !op_has_in(step, P))
        return op_fail(step, ATTNRUN_E_ATTR,
                       "input 10 (Z) is given, expected none without input 7 (P)");
    TRY(op_need_rank(step, W, 4));
    TRY(op_need_dim(step, W, 1, dim_of(1), "each channel by itself"));
    TRY(check_dims(step, W));
    if (op_has_in(step, P))
        TRY(check_pointwise(step, P, -1, w->dims[0].value));
    if (op_has_in(step, E))
        return check_pointwise(step, E, w->dims[0].value, args->channels);
    return op_need_dim(step, W, 0, dim_of(args->channels), "channels of X");
}

/* Bytes of scratch for so many lines of Y; -1 where that overflows. */
static int64_t strip_bytes(const struct separable_plan *p, int64_t lines)
{
    const int64_t channels = blocked_count(p->own) * ATTN_BLOCK;
    int64_t of_mid = 0, of_own = 0, n;
    const bool fits =
        (!p->expands ||
         ck_mul(min64(strip_reach(&p->w, 1, lines), p->w.in[1]), p->w.in[2], &of_mid)) &&
        (!p->projects || ck_mul(lines, p->w.out[2], &of_own)) &&
        ck_add(of_mid, of_own, &n) && ck_mul(n, channels * (int64_t)sizeof(float), &n);
    return fits ? n : -1;
}

/* Lines of Y in a task: few enough for L2, and for several threads; as many tasks for one of two
 * threads as for the other. */
static void cut(struct separable_plan *p)
{
    const int64_t all = p->w.out[1], most = min64(ceil_div(all, MIN_STRIPS), MAX_LINES);
    int64_t lines = 1;
    while (lines < most && strip_bytes(p, lines + 1) <= STRIP_BYTES)
        lines++;
    p->strips = ceil_div(all, lines);
    if (p->strips > 1 && p->strips < all)
        p->strips += p->strips % 2;
    p->lines = ceil_div(all, p->strips);
}

/* The first line of Y of a strip of an image. */
static int64_t line_of(const struct separable_plan *p, int64_t strip)
{
    return p->w.out[1] * strip / p->strips;
}

static double flops_of(const struct separable_plan *p)
{
    const struct window *w = &p->w;
    const double in = (double)w->in[1] * (double)w->in[2];
    const double out = (double)w->out[1] * (double)w->out[2];
    const double taps = (double)w->kernel[1] * (double)w->kernel[2];
    const double n = out * (taps + (p->projects ? (double)p->rows : 0.0)) +
                     (p->expands ? in * (double)p->channels : 0.0);
    return 2.0 * n * (double)p->own * (double)p->batch;
}

/* The slot of the floats of a panel of E or of P: one after the other they take the same room.
 * False where it would be too large. */
static bool slot_of_panel(const attnrun_step *step, struct separable_plan *p,
                          int64_t *bytes)
{
    const int64_t own = blocked_count(p->own) * ATTN_BLOCK;
    const int64_t rows = blocked_count(p->rows) * ATTN_BLOCK;
    int64_t expand = *bytes, project = *bytes;
    const bool fits =
        (!p->expands ||
         op_slot_rows(&p->floats_at, &expand, p->channels,
                      blocked_widest_panel(step->kernels, own), sizeof(float))) &&
        (!p->projects ||
         op_slot_rows(&p->floats_at, &project, p->own,
                      blocked_widest_panel(step->kernels, rows), sizeof(float)));
    *bytes = max64(expand, project);
    return fits;
}

static attn_status make_plan(attnrun_step *step, const struct separable_args *args,
                             struct separable_plan *p)
{
    const int64_t in = op_count(&step->in[X], 0, 5), out = op_count(&step->out[0], 0, 5);
    p->batch = step->in[X].dims[0].value;
    p->channels = args->channels;
    p->own = step->in[W].dims[0].value;
    p->expands = op_has_in(step, E);
    p->projects = op_has_in(step, P);
    p->rows = p->projects ? step->in[P].dims[0].value : p->own;
    if (in < 0 || out < 0 || in > ATTN_MAX_ELEMENTS || out > ATTN_MAX_ELEMENTS)
        return op_fail_size(step, "the number of elements of the image or of the result",
                            "2^46");
    op_flops(step, flops_of(p));
    if (out == 0) {
        op_tasks(step, 0, 0, 0);
        op_tasks(step, 1, 0, 0);
        return ATTNRUN_OK;
    }
    cut(p);
    p->mid_lines = min64(strip_reach(&p->w, 1, p->lines), p->w.in[1]);
    int64_t bytes = strip_bytes(p, p->lines), of_mid, of_own, of_weights, n_tasks;
    if (bytes < 0 || !ck_mul(p->mid_lines, p->w.in[2], &of_mid) ||
        !ck_mul(p->lines, p->w.out[2], &of_own) ||
        max64(of_mid, of_own) > INT32_MAX / ATTN_BLOCK ||
        !ck_mul(p->batch, p->strips, &n_tasks))
        return op_fail_size(step,
                            "some lines of the image would have more than 2^31 "
                            "elements, or the number of tasks",
                            "2^63 - 1");
    p->mid_plane = of_mid * ATTN_BLOCK;
    p->own_plane = of_own * ATTN_BLOCK;
    p->own_at =
        p->expands ? blocked_count(p->own) * p->mid_plane * (int64_t)sizeof(float) : 0;
    p->dtype = step->in[W].dtype;
    p->w_at = bytes;
    if (attn_stored_narrow(p->dtype) &&
        (!ck_mul(blocked_count(p->own) * p->w.kernel[1] * p->w.kernel[2],
                 ATTN_BLOCK * (int64_t)sizeof(float), &of_weights) ||
         !ck_add(bytes, of_weights, &bytes) || !slot_of_panel(step, p, &bytes)))
        return op_fail_scratch(step);
    p->kept_at = bytes;
    p->pixels = max64(p->expands ? of_mid : 0, p->projects ? of_own : 0);
    step->scratch_bytes = bytes + (int64_t)sizeof(int64_t);
    step->shared_bytes = (blocked_count(p->channels) + blocked_count(p->own)) *
                             (int64_t)sizeof(struct attn_blocked_tap) +
                         p->pixels * (int64_t)sizeof(int32_t);
    op_tasks(step, 0, 1, step->shared_bytes);
    op_tasks(step, 1, n_tasks, window_cost(flops_of(p) / 100.0 / (double)n_tasks));
    return ATTNRUN_OK;
}

static attn_status separable_infer(attnrun_step *step)
{
    const struct separable_args *args = step->args;
    struct separable_plan *p = step->state;
    for (int in = 1; in < step->n_in && in < Z; in++)
        if (op_has_in(step, in) && !op_rank_known(step, in))
            return op_out(step, 0, ATTNRUN_F32, -1, NULL);
    TRY(check_weights(step, args)); /* all that packing reads, before X is known */
    TRY(attn_window_check(step, &args->window, 2));
    if (!op_rank_known(step, X))
        return op_out(step, 0, ATTNRUN_F32, -1, NULL);
    TRY(attn_blocked_check(step, X));
    TRY(op_need_dim(step, X, 1, dim_of(blocked_count(args->channels)),
                    "blocks of channels"));
    const attnrun_dim *x = step->in[X].dims, *w = step->in[W].dims;
    const attnrun_dim rows = step->in[op_has_in(step, P) ? P : W].dims[0];
    attnrun_dim out[2];
    TRY(attn_blocked_window(step, &args->window, out));
    TRY(attn_blocked_out(step, x[0], dim_of(blocked_count(rows.value)), out[0], out[1]));
    if (op_has_in(step, Z)) {
        if (!op_rank_known(step, Z))
            return ATTNRUN_OK;
        TRY(attn_blocked_check_like_out(step, Z));
    }
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(attn_window_resolve(step, &args->window, 2, x + 2, w + 2, false, &p->w));
    return make_plan(step, args, p);
}

/* ---- packing: E, W and P one behind the other, each as BlockedConv has it ---- */

static bool pack_has(const attnrun_pack *pack, int in)
{
    return pack->n_in > in && pack->in[in].kind != ATTNRUN_ABSENT;
}

/* The weights in input `in`, with what follows them; false where one is no constant. */
static bool weights_of(const attnrun_pack *pack, int in, struct blocked_weights *weights,
                       uint32_t *sources)
{
    const attnrun_tensor *w = &pack->x[in];
    if (w->data == NULL || w->rank != 4)
        return false;
    *sources |= 1u << in;
    for (int i = in + 1; i <= in + 2; i++) {
        if (pack_has(pack, i) && pack->x[i].data == NULL)
            return false;
        *sources |= pack_has(pack, i) ? 1u << i : 0;
    }
    *weights = (struct blocked_weights){
        .w = w,
        .bias = pack_has(pack, in + 1) ? pack->x[in + 1].data : NULL,
        .scale = pack_has(pack, in + 2) ? pack->x[in + 2].data : NULL,
        .groups = in == W ? w->dims[0] : 1,
        .by_itself = in == W,
        .floats = true,
        .kernels = pack->kernels,
    };
    return true;
}

static attn_status separable_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    static const int inputs[3] = { E, W, P };
    struct blocked_weights weights[3];
    int64_t all = 0, at[3] = { 0 };
    uint32_t sources = 0;
    *bytes = 0;
    for (int i = 0; i < 3; i++) {
        weights[i].w = NULL;
        if (!pack_has(pack, inputs[i]))
            continue;
        at[i] = all;
        if (!weights_of(pack, inputs[i], &weights[i], &sources))
            return ATTNRUN_OK;
        const int64_t n = attn_blocked_packed_bytes(&weights[i]);
        if (n < 0 || !ck_add(all, n, &all))
            return ATTNRUN_OK;
    }
    *bytes = all;
    pack->sources = sources;
    pack->replaces |= sources;
    for (int i = 0; packed != NULL && i < 3; i++)
        if (weights[i].w != NULL)
            attn_blocked_pack((char *)packed + at[i], &weights[i]);
    return ATTNRUN_OK;
}

/* ---- a task ---- */

/* The three convolutions, with what a strip shares. */
struct separable {
    const attnrun_step *step;
    const struct separable_plan *p;
    struct blocked_operands expand, own, project;
    struct attn_epilogue steps[3][3];
    const struct attn_blocked_tap *expand_taps, *project_taps;
    const int32_t *pixels;
    float *mid, *sums;    /* in scratch */
    float *floats;        /* too, with weights of 16 bits, or NULL */
    const float *weights; /* W as floats */
};

/* The parts of packed weights of `rows` output channels, each of `inputs`, in input `in`. *packed
 * goes on to the next. */
static struct blocked_operands operands_of(const attnrun_step *step, int in, int64_t rows,
                                           int64_t inputs, const char **packed)
{
    const int32_t dtype = ((const struct separable_plan *)step->state)->dtype;
    struct blocked_operands o = { .x = NULL };
    attn_blocked_set_packed(&o, *packed, rows,
                            attn_stored_narrow(dtype) && op_has_in(step, in + 2));
    *packed = (const char *)o.w +
              blocked_count(rows) * ATTN_BLOCK * inputs * attn_stored_bytes(dtype);
    return o;
}

/* W as floats: where it is packed, or in scratch times its factors. */
static const float *find_own(const struct separable *s, void *scratch)
{
    const struct separable_plan *p = s->p;
    const int64_t taps = p->w.kernel[1] * p->w.kernel[2] * ATTN_BLOCK;
    const int64_t n = blocked_count(p->own) * taps;
    if (!attn_stored_narrow(p->dtype))
        return s->own.w;
    float *w = op_slot_floats(scratch, p->w_at);
    attn_stored_to_floats(s->step->kernels, p->dtype, w, s->own.w, n);
    for (int64_t i = 0; s->own.scale != NULL && i < n; i++)
        w[i] *= s->own.scale[i / taps * ATTN_BLOCK + i % ATTN_BLOCK];
    return w;
}

static void set_up(struct separable *s, const attnrun_step *step,
                   const attnrun_work *work)
{
    const struct separable_args *args = step->args;
    const struct separable_plan *p = step->state;
    const char *packed = step->node->packed;
    s->step = step;
    s->p = p;
    s->expand_taps = work->shared;
    s->project_taps = s->expand_taps + blocked_count(p->channels);
    s->pixels = (const int32_t *)(const void *)(s->project_taps + blocked_count(p->own));
    s->mid = work->scratch;
    s->sums = op_slot_floats(work->scratch, p->own_at);
    s->floats =
        attn_stored_narrow(p->dtype) ? op_slot_floats(work->scratch, p->floats_at) : NULL;
    if (p->expands)
        s->expand = operands_of(step, E, p->own, p->channels, &packed);
    s->own = operands_of(step, W, p->own, p->w.kernel[1] * p->w.kernel[2], &packed);
    if (p->projects)
        s->project = operands_of(step, P, p->rows, p->own, &packed);
    s->weights = find_own(s, work->scratch);
    attn_blocked_set_activation(&s->expand, s->steps[0], args->expand,
                                &args->expand_alpha, &args->expand_beta);
    attn_blocked_set_activation(&s->own, s->steps[1], args->activation, &args->alpha,
                                &args->beta);
    attn_blocked_set_activation(&s->project, s->steps[2], args->project,
                                &args->project_alpha, &args->project_beta);
}

/* Lines of mid that lines [first, first + n) of Y see. */
static void lines_of(const struct window *w, int64_t first, int64_t n, int64_t *from,
                     int64_t *to)
{
    const int64_t begin = first * w->stride[1] - w->before[1];
    const int64_t end = begin + strip_reach(w, 1, n);
    *to = max64(min64(end, w->in[1]), 0);
    *from = min64(max64(begin, 0), *to);
}

/* Lines [from, to) of mid; `x`: of the image; those from `first` on begin the scratch. */
static attn_status expand(const struct separable *s, const float *x, int64_t first,
                          int64_t from, int64_t to)
{
    const struct separable_plan *p = s->p;
    const int64_t line = p->w.in[2] * ATTN_BLOCK,
                  columns = blocked_count(p->own) * ATTN_BLOCK;
    if (from >= to)
        return ATTNRUN_OK;
    struct attn_blocked_conv c = {
        .x = x + from * line,
        .w = s->expand.w,
        .w_type = attn_stored_as(p->dtype),
        .floats = s->floats,
        .bias = s->expand.bias,
        .scale = s->expand.scale,
        .pixels = s->pixels,
        .taps = s->expand_taps,
        .y = s->mid + (from - first) * line,
        .n_taps = blocked_count(p->channels),
        .rows = p->channels,
        .n_pixels = (to - from) * p->w.in[2],
        .y_block = p->mid_plane,
        .min = s->expand.min,
        .max = s->expand.max,
    };
    return attn_blocked_dense_floats(s->step, &s->expand, &c, columns);
}

/* Moves the lines [from, to) of mid, in scratch from line `first` on, to its begin. */
static void keep_lines(const struct separable *s, int64_t first, int64_t from, int64_t to)
{
    const int64_t line = s->p->w.in[2] * ATTN_BLOCK;
    for (int64_t b = 0; from > first && b < blocked_count(s->p->own); b++) {
        float *plane = s->mid + b * s->p->mid_plane;
        memmove(plane, plane + (from - first) * line,
                (size_t)((to - from) * line) * sizeof *plane);
    }
}

/* Lines [row, row + rows) of each channel by itself to y, whose blocks are `y_block` apart.
 * `x`: line `first` of mid, blocks `x_block` apart. */
struct own_lines {
    const float *x;
    float *y;
    int64_t x_block, y_block, first, row, rows;
};
static attn_status run_own(const struct separable *s, const struct own_lines *at)
{
    const struct separable_plan *p = s->p;
    const struct window *w = &p->w;
    const int64_t blocks = blocked_count(p->own), taps = w->kernel[1] * w->kernel[2];
    struct attn_blocked_rows d = blocked_rows_of(w);
    d.min = s->own.min, d.max = s->own.max;
    d.row = at->row, d.rows = at->rows;
    for (int64_t b = 0; b < blocks; b++) {
        /* Where line 0 would be: the kernel reads the lines that are there. */
        d.x = (const float *)((uintptr_t)(at->x + b * at->x_block) -
                              (uintptr_t)(at->first * w->in[2] * ATTN_BLOCK) *
                                  sizeof(float));
        d.bias = s->own.bias + b * ATTN_BLOCK;
        d.w = s->weights + b * taps * ATTN_BLOCK;
        d.y = at->y + b * at->y_block;
        s->step->kernels->blocked_depthwise_f32(&d);
        if (attn_poll_work(d.rows * w->out[2] * ATTN_BLOCK * 8) != ATTNRUN_OK)
            return ATTNRUN_E_CANCELLED;
        if (!s->own.clipped)
            attn_conv_apply(s->step->kernels, s->own.activation, s->own.n_activation, d.y,
                            d.rows * w->out[2] * ATTN_BLOCK);
    }
    return ATTNRUN_OK;
}

/* Lines [row, row + rows) of the image `y`; z: the same of Z, or NULL. */
static attn_status project(const struct separable *s, float *y, const float *z,
                           int64_t row, int64_t rows)
{
    const struct separable_plan *p = s->p;
    const struct window *w = &p->w;
    const int64_t at = row * w->out[2] * ATTN_BLOCK,
                  columns = blocked_count(p->rows) * ATTN_BLOCK;
    struct attn_blocked_conv c = {
        .x = s->sums,
        .w = s->project.w,
        .w_type = attn_stored_as(p->dtype),
        .floats = s->floats,
        .bias = s->project.bias,
        .scale = s->project.scale,
        .z = z != NULL ? z + at : NULL,
        .pixels = s->pixels,
        .taps = s->project_taps,
        .y = y + at,
        .n_taps = blocked_count(p->own),
        .rows = p->own,
        .n_pixels = rows * w->out[2],
        .y_block = w->out[1] * w->out[2] * ATTN_BLOCK,
        .min = s->project.min,
        .max = s->project.max,
    };
    return attn_blocked_dense_floats(s->step, &s->project, &c, columns);
}

/* Strip `task`; `last`: the strip whose lines of mid are in scratch, or -1. */
static attn_status run_strip(const struct separable *s, int64_t task, int64_t last)
{
    const struct separable_plan *p = s->p;
    const struct window *w = &p->w;
    int64_t image = task;
    const int64_t strip = op_take(&image, p->strips);
    const int64_t row = line_of(p, strip), rows = line_of(p, strip + 1) - row;
    const int64_t y_image = w->out[1] * w->out[2] * blocked_count(p->rows) * ATTN_BLOCK;
    const float *x = s->step->x[X].data, *z = op_in_data(s->step, Z);
    float *y = (float *)s->step->y[0].data + image * y_image;
    struct own_lines at = { .row = row, .rows = rows };
    int64_t from, to, first = 0;
    x += image * blocked_count(p->channels) * w->in[1] * w->in[2] * ATTN_BLOCK;
    lines_of(w, row, rows, &from, &to);
    if (p->expands) {
        int64_t made = from, old_from, old_to;
        if (last >= 0 && last == task - 1 && strip > 0) {
            const int64_t above = line_of(p, strip - 1);
            lines_of(w, above, row - above, &old_from, &old_to);
            if (old_to > from && from >= old_from) {
                keep_lines(s, old_from, from, old_to);
                made = old_to;
            }
        }
        first = from;
        TRY(expand(s, x, first, made, to));
    }
    at.first = first;
    at.x = p->expands ? s->mid : x;
    at.x_block = p->expands ? p->mid_plane : w->in[1] * w->in[2] * ATTN_BLOCK;
    at.y = p->projects ? s->sums : y + row * w->out[2] * ATTN_BLOCK;
    at.y_block = p->projects ? p->own_plane : w->out[1] * w->out[2] * ATTN_BLOCK;
    TRY(run_own(s, &at));
    return p->projects ? project(s, y, z != NULL ? z + image * y_image : NULL, row, rows)
                       : ATTNRUN_OK;
}

/* Where the blocks of a pixel are, and the pixels of some lines. */
static void prepare(const struct separable_plan *p, void *shared)
{
    struct attn_blocked_tap *tap = shared;
    for (int64_t c = 0; c < p->channels; c += ATTN_BLOCK)
        *tap++ =
            (struct attn_blocked_tap){ .offset = c * p->w.in[1] * p->w.in[2],
                                       .inputs = min64(p->channels - c, ATTN_BLOCK) };
    for (int64_t c = 0; c < p->own; c += ATTN_BLOCK)
        *tap++ = (struct attn_blocked_tap){ .offset = c / ATTN_BLOCK * p->own_plane,
                                            .inputs = min64(p->own - c, ATTN_BLOCK) };
    int32_t *pixel = (int32_t *)(void *)tap;
    for (int64_t i = 0; i < p->pixels && !attn_stops(i); i++)
        pixel[i] = (int32_t)(i * ATTN_BLOCK);
}

static attn_status separable_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct separable_plan *p = step->state;
    struct separable s;
    if (step->node->packed == NULL)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED, "a weight is not a constant");
    if (work->phase == 0) {
        prepare(p, work->shared);
        return ATTNRUN_OK;
    }
    int64_t *kept = op_slot_at(work->scratch, p->kept_at);
    int64_t last = attn_work_resumes(work) ? *kept : -1;
    set_up(&s, step, work);
    for (int64_t task = work->begin; task < work->end; task++) {
        TRY(run_strip(&s, task, last));
        last = task;
    }
    *kept = last;
    return ATTNRUN_OK;
}

const attnrun_op_def op_blocked_separable_1 = {
    OP_ROW_OF("attnrun.fused"),
    .name = "BlockedSeparable",
    .since = 1,
    .args_bytes = sizeof(struct separable_args),
    .state_bytes = sizeof(struct separable_plan),
    .inputs = "X:T W:V B:T? S:T? E:V? EB:T? ES:T? P:V? PB:T? PS:T? Z:T?",
    .outputs = "Y:T",
    .types = "T=f32 V=f32,f16,bf16",
    .attrs = separable_attrs,
    .infer = separable_infer,
    .pack = separable_pack,
    .check_packed = op_packed_is_data,
    .run = separable_run,
    .cost = "O(N H W C (channels + window + M))",
    .source = "MobileNetV2 (arXiv:1801.04381)",
};
