/* signal_window.c - HannWindow, HammingWindow, BlackmanWindow and MelWeightMatrix.
 *
 * size             scalar i32 or i64;  Y [size]
 * periodic         1 by default: divided by size, else by size - 1
 * output_datatype  f32 by default; any real type
 * MelWeightMatrix  num_mel_bins, dft_length, sample_rate, lower and upper edge in hertz;
 *                  Y [dft_length / 2 + 1, num_mel_bins]: triangles on the mel scale
 *
 * Cost: one cosine or two for each element of a window; one pass over Y for
 * MelWeightMatrix. Source: ONNX HannWindow-17, HammingWindow-17, BlackmanWindow-17,
 * MelWeightMatrix-17. */
#include <math.h>

#include "../../runtime/op.h"

struct window_args {
    int64_t output_datatype, periodic;
};

static const attnrun_attr_def signal_window_attrs[] = {
    ATTR_INT(struct window_args, output_datatype, ATTNRUN_F32),
    ATTR_FLAG(struct window_args, periodic, 1), ATTR_END
};
static const attnrun_attr_def mel_attrs[] = {
    ATTR_INT(struct window_args, output_datatype, ATTNRUN_F32), ATTR_END
};

static attn_status check_dtype(const attnrun_step *step)
{
    const struct window_args *args = step->args;
    if (args->output_datatype > 0 && args->output_datatype < ATTNRUN_DTYPE_COUNT &&
        dtype_in((int32_t)args->output_datatype, ATTN_DT_NUM))
        return ATTNRUN_OK;
    return op_fail(step, ATTNRUN_E_ATTR,
                   "attribute output_datatype is %lld, expected a type of numbers",
                   (long long)args->output_datatype);
}

static void signal_window_put(const attnrun_tensor *y, int64_t i, double v)
{
    switch (y->dtype) {
    case ATTNRUN_F32:
        ((float *)y->data)[i] = (float)v;
        return;
    case ATTNRUN_F64:
        ((double *)y->data)[i] = v;
        return;
    case ATTNRUN_F16:
        ((uint16_t *)y->data)[i] = attn_f32_to_f16((float)v);
        return;
    case ATTNRUN_BF16:
        ((uint16_t *)y->data)[i] = attn_f32_to_bf16((float)v);
        return;
    default:
        break;
    }
    /* Windows and weights are in [-1, 1]. The standard computes in floats: a window that
     * reaches 1 is also 1 as an integer, where a double would be just below. */
    uint64_t bits = (uint64_t)(int64_t)(float)v;
    int64_t bytes = dtype_bytes(y->dtype);
    memcpy((uint8_t *)y->data + i * bytes, &bits, (size_t)bytes);
}

static attn_status signal_window_infer(attnrun_step *step)
{
    const struct window_args *args = step->args;
    attnrun_dim size;
    int n = 0;
    bool known = false;
    TRY(check_dtype(step));
    TRY(op_dims(step, 0, &size, 1, &n, &known));
    if (known && n != 1)
        return op_fail_input(step, 0, ATTNRUN_E_SHAPE, "expected one number");
    if (!known)
        size = attnrun_dim_unknown(step);
    if (dim_is_const(size) && (size.value < 0 || size.value > ATTN_MAX_DIM))
        return op_fail(step, ATTNRUN_E_RANGE, "the size is %lld, expected 0 to 2^47",
                       (long long)size.value);
    TRY(op_out(step, 0, (int32_t)args->output_datatype, 1, &size));
    if (step->concrete && dim_is_const(size))
        op_unit_tasks(step, 0, size.value, OP_CHUNK, 20);
    return ATTNRUN_OK;
}

/* Computes a - b cos(2 pi i / n) + c cos(4 pi i / n). */
static attn_status cosines(const attnrun_step *step, const attnrun_work *work, double a,
                           double b, double c)
{
    const struct window_args *args = step->args;
    const double pi = 3.14159265358979323846;
    int64_t size = step->y[0].dims[0];
    double n = (double)(args->periodic ? size : size - 1);
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED_AFTER(work, OP_CHUNK * 32))
            return ATTNRUN_E_CANCELLED;
        for (int64_t i = task * OP_CHUNK; i < size && i < (task + 1) * OP_CHUNK; i++) {
            double angle = n > 0.0 ? 2.0 * pi * (double)i / n : 0.0;
            signal_window_put(&step->y[0], i, a - b * cos(angle) + c * cos(2.0 * angle));
        }
    }
    return ATTNRUN_OK;
}

static attn_status hann_run(const attnrun_step *step, const attnrun_work *work)
{
    return cosines(step, work, 0.5, 0.5, 0.0);
}
static attn_status hamming_run(const attnrun_step *step, const attnrun_work *work)
{
    return cosines(step, work, 25.0 / 46.0, 1.0 - 25.0 / 46.0, 0.0);
}
static attn_status blackman_run(const attnrun_step *step, const attnrun_work *work)
{
    return cosines(step, work, 0.42, 0.5, 0.08);
}

#define WINDOW(row, name_, run_)                                                         \
    const attnrun_op_def row = {                                                         \
        OP_ROW,                                                                          \
        .name = name_,                                                                   \
        .since = 17,                                                                     \
        .args_bytes = sizeof(struct window_args),                                        \
        .inputs = "size:I",                                                              \
        .outputs = "output:U",                                                           \
        .types = "I=i32,i64 U=num",                                                      \
        .attrs = signal_window_attrs,                                                    \
        .infer = signal_window_infer,                                                    \
        .run = run_,                                                                     \
    }
WINDOW(op_hann_window_17, "HannWindow", hann_run);
WINDOW(op_hamming_window_17, "HammingWindow", hamming_run);
WINDOW(op_blackman_window_17, "BlackmanWindow", blackman_run);

/* ---- MelWeightMatrix ---- */

static attn_status mel_infer(attnrun_step *step)
{
    const struct window_args *args = step->args;
    attnrun_dim out[2], value;
    bool known = false;
    TRY(check_dtype(step));
    for (int in = 0; in < 2; in++) { /* num_mel_bins, dft_length */
        int n = 0;
        TRY(op_dims(step, in, &value, 1, &n, &known));
        if (known && n != 1)
            return op_fail_input(step, in, ATTNRUN_E_SHAPE, "expected one number");
        if (!known)
            value = attnrun_dim_unknown(step);
        if (dim_is_const(value) && (value.value < 0 || value.value > INT32_MAX))
            return op_fail(step, ATTNRUN_E_RANGE, "%s is %lld, expected 0 to 2147483647",
                           in == 0 ? "num_mel_bins" : "dft_length",
                           (long long)value.value);
        out[1 - in] = value;
    }
    for (int in = 2; in < 5; in++) { /* sample_rate and the edges */
        TRY(op_need_rank_between(step, in, 0, 1));
        if (step->in[in].rank == 1)
            TRY(op_need_dim(step, in, 0, dim_of(1), "one number"));
    }
    out[0] = attnrun_dim_div(step, out[0], dim_of(2));
    out[0] = attnrun_dim_add(step, out[0], dim_of(1));
    return op_out(step, 0, (int32_t)args->output_datatype, 2, out);
}

/* Edge `i` of the triangles in spectrogram bins. */
static int64_t mel_edge(double low, double step_mel, int64_t i, double dft_length,
                        double rate)
{
    double hertz = 700.0 * (pow(10.0, (low + step_mel * (double)i) / 2595.0) - 1.0);
    double bin = floor((dft_length + 1.0) * hertz / rate);
    return bin > -1.0 && bin < 1e15 ? (int64_t)bin : -1;
}

static attn_status mel_run(const attnrun_step *step, const attnrun_work *work)
{
    const attnrun_tensor *y = &step->y[0];
    int64_t rows = y->dims[0], bins = y->dims[1], rate = tensor_get_int(&step->x[2], 0);
    double length = (double)tensor_get_int(&step->x[1], 0);
    double low = 2595.0 * log10(1.0 + tensor_get_real(&step->x[3], 0) / 700.0);
    double high = 2595.0 * log10(1.0 + tensor_get_real(&step->x[4], 0) / 700.0);
    double width = (high - low) / (double)(bins + 2);
    if (rate < 1)
        return op_fail(step, ATTNRUN_E_RANGE, "sample_rate is %lld, expected 1 or more",
                       (long long)rate);
    for (int64_t i = 0; i < bins && !attn_stops_node(i); i++) {
        for (int64_t k = 0; k < 3; k++) { /* a left edge of falling ones is not read */
            int64_t edge = mel_edge(low, width, i + k, length, (double)rate);
            if (edge < 0 || (k > 0 && edge >= rows))
                return op_fail(step, ATTNRUN_E_RANGE,
                               "mel bin %lld has an edge at spectrogram bin %lld, "
                               "expected 0 to %lld",
                               (long long)i, (long long)edge, (long long)rows - 1);
        }
    }
    TRY(attn_poll_fill(y->data, 0, tensor_bytes(y)));
    for (int64_t i = 0; i < bins; i++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        int64_t left = mel_edge(low, width, i, length, (double)rate);
        int64_t peak = mel_edge(low, width, i + 1, length, (double)rate);
        int64_t right = mel_edge(low, width, i + 2, length, (double)rate);
        if (left == peak)
            signal_window_put(y, peak * bins + i, 1.0);
        for (int64_t j = left; left < peak && j <= peak && !attn_stops(j); j++)
            signal_window_put(y, j * bins + i,
                              (double)(j - left) / (double)(peak - left));
        for (int64_t j = peak; j < right && !attn_stops(j); j++)
            signal_window_put(y, j * bins + i,
                              (double)(right - j) / (double)(right - peak));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_mel_weight_matrix_17 = {
    OP_ROW,
    .name = "MelWeightMatrix",
    .since = 17,
    .args_bytes = sizeof(struct window_args),
    .inputs =
        "num_mel_bins:I dft_length:I sample_rate:I lower_edge_hertz:F upper_edge_hertz:F",
    .outputs = "output:U",
    .types = "I=i32,i64 F=f32,f64 U=num",
    .attrs = mel_attrs,
    .infer = mel_infer,
    .run = mel_run,
};
