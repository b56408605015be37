/* dft.c - DFT and STFT.
 *
 * DFT   input  f32 or f64 [..., n, ..., 1 or 2], real, or real and imaginary; n is the dim
 *              of `axis`, which is cut or filled with zeros to dft_length (n by default)
 *       output [..., m, ..., 2]: m = dft_length, with onesided dft_length / 2 + 1.
 *              inverse divides by dft_length; inverse and onesided takes the first half
 *              of a conjugate-even spectrum to [..., dft_length, ..., 1], where dft_length
 *              is 2 (n - 1) by default
 * STFT  signal [B, n, 1 or 2], cut into frames of frame_length (that of the window by
 *              default), frame_step apart, and multiplied by the window
 *       output [B, frames, bins, 2]; onesided by default
 *
 * Phase 0 makes the tables of the transform. In phase 1 a task is one line or frame, in
 * f64. Cost: O(length log length) a line (fft.h). Memory: the tables in shared memory,
 * and a line in scratch.
 * Source: ONNX DFT-17, DFT-20, STFT-17. */
#include "fft.h"
#include "real_pixels.h"
#include "../tile.h"

struct dft_args {
    int64_t axis, inverse, onesided;
};

struct dft_state {
    struct fft_plan fft;
    int64_t length, in, out, inner, parts_in, parts_out; /* along the axis; after it */
};

static const attnrun_attr_def dft_17_attrs[] = { ATTR_INT(struct dft_args, axis, 1),
                                                 ATTR_FLAG(struct dft_args, inverse, 0),
                                                 ATTR_FLAG(struct dft_args, onesided, 0),
                                                 ATTR_END };
static const attnrun_attr_def dft_20_attrs[] = { ATTR_FLAG(struct dft_args, inverse, 0),
                                                 ATTR_FLAG(struct dft_args, onesided, 0),
                                                 ATTR_END };
static const attnrun_attr_def stft_attrs[] = { ATTR_FLAG(struct dft_args, onesided, 1),
                                               ATTR_END };

/* Reads a scalar input, of one element, as a dim; *known is false where it is not
 * known. */
static attn_status scalar(const attnrun_step *step, int in, attnrun_dim *value,
                          bool *known)
{
    int n = 0;
    TRY(op_dims(step, in, value, 1, &n, known));
    if (*known && n != 1)
        return op_fail_input(step, in, ATTNRUN_E_SHAPE, "expected one number");
    return ATTNRUN_OK;
}

static attn_status plan_fft(attnrun_step *step, struct fft_plan *fft, int64_t length,
                            int64_t tasks, int64_t line)
{
    int64_t table, work;
    if (!attn_fft_plan(fft, length))
        return op_fail(step, ATTNRUN_E_RANGE,
                       "the transform is %lld long, expected 1 to 2^40",
                       (long long)length);
    table = attn_fft_table_size(fft);
    work = attn_fft_work_size(fft) + line;
    step->shared_bytes = table * (int64_t)sizeof(struct complex64);
    step->scratch_bytes = work * (int64_t)sizeof(struct complex64);
    op_tasks(step, 0, 1, table * 30);
    op_tasks(step, 1, tasks, fft->length * (4 + 2 * (int64_t)fft->n_factors) + 50);
    return ATTNRUN_OK;
}

static attn_status check_parts(const attnrun_step *step, int rank)
{
    attnrun_dim parts = step->in[0].dims[rank - 1];
    if (!dim_is_const(parts) || parts.value == 1 || parts.value == 2)
        return ATTNRUN_OK;
    return op_fail_input(
        step, 0, ATTNRUN_E_SHAPE,
        "expected 1 or 2 in the last dim, the real and the imaginary part");
}

/* ---- DFT ---- */

static attn_status dft_infer_axis(attnrun_step *step, int64_t named, bool axis_known)
{
    const struct dft_args *args = step->args;
    struct dft_state *s = step->state;
    int rank = step->in[0].rank, axis = 0;
    if (rank < 0)
        return op_out(step, 0, step->in[0].dtype, -1, NULL);
    TRY(op_need_rank_between(step, 0, 2, ATTNRUN_MAX_RANK));
    TRY(check_parts(step, rank));
    attnrun_dim out[ATTNRUN_MAX_RANK], length = attnrun_dim_unknown(step);
    bool have_length = op_has_in(step, 1), known = true;
    bool back = args->inverse != 0 && args->onesided != 0;
    for (int i = 0; i < rank; i++)
        out[i] = axis_known ? step->in[0].dims[i] : attnrun_dim_unknown(step);
    out[rank - 1] = dim_of(back ? 1 : 2);
    if (!axis_known)
        return op_out(step, 0, step->in[0].dtype, rank, out);
    TRY(op_axis(step, named, rank, false, &axis));
    if (axis == rank - 1)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "the axis is the last one, which holds the real and imaginary "
                       "parts; expected another axis");
    if (have_length)
        TRY(scalar(step, 1, &length, &known));
    else if (back)
        length =
            attnrun_dim_mul(step, attnrun_dim_sub(step, out[axis], dim_of(1)), dim_of(2));
    else
        length = out[axis];
    if (!known)
        length = attnrun_dim_unknown(step);
    out[axis] = length;
    if (args->onesided && !args->inverse)
        out[axis] =
            attnrun_dim_add(step, attnrun_dim_div(step, length, dim_of(2)), dim_of(1));
    if (dim_is_const(length) && (length.value < 1 || length.value > INT64_C(1) << 40))
        return op_fail(step, ATTNRUN_E_RANGE,
                       "the transform is %lld long, expected 1 to 2^40",
                       (long long)length.value);
    TRY(op_out(step, 0, step->in[0].dtype, rank, out));
    if (!step->concrete || !dim_is_const(length))
        return ATTNRUN_OK;
    s->length = length.value;
    s->in = step->in[0].dims[axis].value;
    s->out = out[axis].value;
    s->inner = op_count(&step->in[0], axis + 1, rank - 1);
    s->parts_in = step->in[0].dims[rank - 1].value;
    s->parts_out = out[rank - 1].value;
    int64_t outer = op_count(&step->in[0], 0, axis), lines;
    if (s->inner < 0 || outer < 0 || !ck_mul(outer, s->inner, &lines))
        return op_fail_size(step, "the number of transforms", "2^63 - 1");
    return plan_fft(step, &s->fft, s->length, lines, s->length);
}

static attn_status dft_17_infer(attnrun_step *step)
{
    return dft_infer_axis(step, ((const struct dft_args *)step->args)->axis, true);
}

static attn_status dft_20_infer(attnrun_step *step)
{
    int64_t axis = -2;
    int n = 1;
    bool known = true;
    if (op_has_in(step, 2))
        TRY(op_ints(step, 2, &axis, 1, &n, &known));
    if (known && n != 1)
        return op_fail_input(step, 2, ATTNRUN_E_SHAPE, "expected one number");
    return dft_infer_axis(step, axis, known);
}

/* Reads element k of the line at `at` (of parts, `step` apart). */
static struct complex64 get_complex(const attnrun_tensor *x, int64_t at, int64_t parts)
{
    struct complex64 v = { real_get(x, at), 0.0 };
    if (parts == 2)
        v.im = real_get(x, at + 1);
    return v;
}

static void load_line(const attnrun_step *step, struct complex64 *line, int64_t outer,
                      int64_t inner, bool back)
{
    const struct dft_state *s = step->state;
    int64_t half = s->length / 2 + 1, have = back && half < s->in ? half : s->in;
    for (int64_t k = 0; k < s->length && !attn_stops(k); k++) {
        bool mirrored = back && k >= half;
        int64_t from = mirrored ? s->length - k : k;
        line[k] = (struct complex64){ 0.0, 0.0 };
        if (from < have)
            line[k] = get_complex(
                &step->x[0], ((outer * s->in + from) * s->inner + inner) * s->parts_in,
                s->parts_in);
        if (mirrored)
            line[k].im = -line[k].im;
    }
}

static attn_status dft_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct dft_args *args = step->args;
    const struct dft_state *s = step->state;
    struct complex64 *line = work->scratch, *rest = line + s->length;
    bool inverse = args->inverse != 0, back = inverse && args->onesided != 0;
    if (work->phase == 0) {
        attn_fft_make_table(&s->fft, work->shared, work->scratch);
        return ATTNRUN_OK;
    }
    double scale = inverse ? 1.0 / (double)s->length : 1.0;
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        int64_t outer = task, inner = op_take(&outer, s->inner);
        load_line(step, line, outer, inner, back);
        attn_fft(&s->fft, work->shared, line, rest, inverse);
        for (int64_t k = 0; k < s->out && !attn_stops(k); k++) {
            int64_t at = ((outer * s->out + k) * s->inner + inner) * s->parts_out;
            real_put(&step->y[0], at, line[k].re * scale);
            if (s->parts_out == 2)
                real_put(&step->y[0], at + 1, line[k].im * scale);
        }
    }
    return ATTNRUN_OK;
}

#define DFT_ROW                                                                          \
    .args_bytes = sizeof(struct dft_args), .state_bytes = sizeof(struct dft_state),      \
    .outputs = "output:T", .types = "T=f32,f64 I=i32,i64", .run = dft_run,               \
    .cost = "O(n log n)"
const attnrun_op_def op_dft_17 = {
    OP_ROW,
    .name = "DFT",
    .since = 17,
    .inputs = "input:T dft_length:I?",
    .attrs = dft_17_attrs,
    .infer = dft_17_infer,
    DFT_ROW,
};

const attnrun_op_def op_dft_20 = {
    OP_ROW,
    .name = "DFT",
    .since = 20,
    .inputs = "input:T dft_length:I? axis:i64?",
    .attrs = dft_20_attrs,
    .infer = dft_20_infer,
    DFT_ROW,
};

/* ---- STFT ---- */

struct stft_state {
    struct fft_plan fft;
    int64_t samples, parts, hop, length, frames, bins;
};

static attn_status frame_length(const attnrun_step *step, attnrun_dim *length)
{
    bool known = false;
    *length = attnrun_dim_unknown(step);
    if (op_has_in(step, 2) && op_rank_known(step, 2)) {
        TRY(op_need_rank(step, 2, 1));
        *length = step->in[2].dims[0];
    }
    if (op_has_in(step, 3)) {
        attnrun_dim given;
        TRY(scalar(step, 3, &given, &known));
        if (known && op_has_in(step, 2) && op_rank_known(step, 2))
            TRY(op_need_dim(step, 2, 0, given, "frame_length"));
        if (known)
            *length = given;
    } else if (!op_has_in(step, 2) && op_rank_known(step, 0) && step->in[0].rank > 1) {
        *length = step->in[0].dims[1];
    }
    if (dim_is_const(*length) && (length->value < 1 || length->value > INT64_C(1) << 40))
        return op_fail(step, ATTNRUN_E_RANGE, "frames are %lld long, expected 1 to 2^40",
                       (long long)length->value);
    return ATTNRUN_OK;
}

static attn_status stft_infer(attnrun_step *step)
{
    const struct dft_args *args = step->args;
    struct stft_state *s = step->state;
    attnrun_dim hop, length;
    attnrun_dim out[4] = { attnrun_dim_unknown(step), attnrun_dim_unknown(step),
                           dim_of(0), dim_of(2) };
    bool known = false;
    TRY(scalar(step, 1, &hop, &known));
    TRY(frame_length(step, &length));
    out[2] = length;
    if (args->onesided)
        out[2] =
            attnrun_dim_add(step, attnrun_dim_div(step, length, dim_of(2)), dim_of(1));
    known = known && dim_is_const(hop);
    if (known && (hop.value < 1 || hop.value > ATTN_MAX_DIM))
        return op_fail(step, ATTNRUN_E_RANGE, "frame_step is %lld, expected 1 to 2^47",
                       (long long)hop.value);
    if (op_rank_known(step, 0)) {
        TRY(op_need_rank_between(step, 0, 2, 3));
        if (step->in[0].rank == 3)
            TRY(check_parts(step, 3));
        out[0] = step->in[0].dims[0];
        attnrun_dim room = attnrun_dim_sub(step, step->in[0].dims[1], length);
        if (dim_is_const(room) && room.value < 0)
            return op_fail_input(step, 0, ATTNRUN_E_SHAPE,
                                 "expected at least one frame of %s",
                                 attn_plural(length.value, "sample"));
        if (known)
            out[1] = attnrun_dim_add(step, attnrun_dim_div(step, room, hop), dim_of(1));
    }
    TRY(op_out(step, 0, step->in[0].dtype, 4, out));
    if (!step->concrete || !known || !dim_is_const(length))
        return ATTNRUN_OK;
    s->samples = step->in[0].dims[1].value;
    s->parts = step->in[0].rank == 3 ? step->in[0].dims[2].value : 1;
    s->hop = hop.value;
    s->length = length.value;
    s->frames = out[1].value;
    s->bins = out[2].value;
    int64_t tasks;
    if (!ck_mul(out[0].value, s->frames, &tasks))
        return op_fail_size(step, "the number of frames of the batch", "2^63 - 1");
    return plan_fft(step, &s->fft, s->length, tasks, s->length);
}

static attn_status stft_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct stft_state *s = step->state;
    struct complex64 *line = work->scratch, *rest = line + s->length;
    if (work->phase == 0) {
        attn_fft_make_table(&s->fft, work->shared, work->scratch);
        return ATTNRUN_OK;
    }
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        int64_t signal = task, first = op_take(&signal, s->frames) * s->hop;
        first += signal * s->samples;
        for (int64_t t = 0; t < s->length && !attn_stops(t); t++) {
            double w = op_has_in(step, 2) ? real_get(&step->x[2], t) : 1.0;
            line[t] = get_complex(&step->x[0], (first + t) * s->parts, s->parts);
            line[t].re *= w;
            line[t].im *= w;
        }
        attn_fft(&s->fft, work->shared, line, rest, false);
        for (int64_t k = 0; k < s->bins && !attn_stops(k); k++) {
            real_put(&step->y[0], (task * s->bins + k) * 2, line[k].re);
            real_put(&step->y[0], (task * s->bins + k) * 2 + 1, line[k].im);
        }
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_stft_17 = {
    OP_ROW,
    .name = "STFT",
    .since = 17,
    .args_bytes = sizeof(struct dft_args),
    .state_bytes = sizeof(struct stft_state),
    .inputs = "signal:T frame_step:I window:T? frame_length:I?",
    .outputs = "output:T",
    .types = "T=f32,f64 I=i32,i64",
    .attrs = stft_attrs,
    .infer = stft_infer,
    .run = stft_run,
    .cost = "O(frames n log n)",
};
