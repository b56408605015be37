/* fourier_mix.c - FourierMix: Y = Re(FFT over tokens of (FFT over channels of X)).
 *
 * X, Y   f32 (batch, tokens, channels); no attributes, no mask; nothing is divided by
 *
 * Both transforms run over ATTN_FFT_LANES lines side by side. Phase 1 takes twice as many
 * tokens as that: two real lines are one complex one. Of a token's spectrum of C channels
 * only 0 … C/2 are needed, the rest are conjugates: the real parts stay in columns c, the
 * imaginary parts in columns C - c of Y. Phase 2 transforms the columns c and C - c over
 * the tokens and writes Re to c, and to C - c for token (N - n) mod N: the symmetry
 * Y[n, c] = Y[-n, -c]. Lengths with a prime factor over 31 go through Bluestein in f64
 * (ops/image/fft.h). Twiddles are rounded from f64 in phase 0 of every run: 20 us for
 * 512, kept nowhere.
 *
 * Refuses: rank other than 3; 0 or more than 2^40 channels or tokens are empty or too
 * many. Cost: O(N C (log N + log C)). Memory: tables of N + C, and 256 bytes a token or
 * channel and worker: 4 MiB at N = 16384. Source: Lee-Thorp 2021 (FNet),
 * arXiv:2105.03824; compared with transformers 5.23.0, FNetBasicFourierTransform, which
 * is the same (without its padding for TPUs). */
#include <math.h>

#include "../../runtime/op.h"
#include "../image/fft.h"
#include "../kernels/kernels.h"

enum { LANES = ATTN_FFT_LANES, ELEMENT = 2 * LANES };
static const double pi = 3.14159265358979323846;

/* Transforms of one length over LANES lines. */
struct lanes {
    struct fft_plan plan;
    bool wide; /* Bluestein, line by line in f64 */
    int64_t table_bytes, block_bytes, work_bytes;
};

struct fourier_state {
    struct lanes tokens, channels;
    int64_t batch, n, c, row_blocks, column_blocks;
};

/* ---- a transform ---- */

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static bool lanes_plan(struct lanes *t, int64_t n)
{
    *t = (struct lanes){ 0 };
    if (!attn_fft_plan(&t->plan, n))
        return false;
    t->wide = t->plan.length != n;
    const int64_t line = (int64_t)sizeof(struct complex64);
    t->table_bytes = n * 2 * (int64_t)sizeof(float);
    t->block_bytes = n * ELEMENT * (int64_t)sizeof(float);
    t->work_bytes = t->block_bytes;
    if (t->wide) {
        t->table_bytes = attn_fft_table_size(&t->plan) * line;
        t->work_bytes = most(t->work_bytes, (n + attn_fft_work_size(&t->plan)) * line);
    }
    return ck_align(t->table_bytes, 64, &t->table_bytes) &&
           ck_align(t->work_bytes, 64, &t->work_bytes);
}

/* `work`: work_bytes, as for lanes_run(). */
static void lanes_table(const struct lanes *t, void *table, void *work)
{
    float *w = table;
    const int64_t n = t->plan.n;
    if (t->wide) {
        attn_fft_make_table(&t->plan, table, work);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        w[2 * i] = (float)cos(2.0 * pi * (double)i / (double)n);
        w[2 * i + 1] = (float)-sin(2.0 * pi * (double)i / (double)n);
    }
}

static void run_wide(const struct lanes *t, const void *table, float *x, void *work)
{
    struct complex64 *line = work;
    for (int lane = 0; lane < LANES; lane++) {
        for (int64_t i = 0; i < t->plan.n; i++)
            line[i] = (struct complex64){ (double)x[i * ELEMENT + lane],
                                          (double)x[i * ELEMENT + LANES + lane] };
        attn_fft(&t->plan, table, line, line + t->plan.n, false);
        for (int64_t i = 0; i < t->plan.n; i++) {
            x[i * ELEMENT + lane] = (float)line[i].re;
            x[i * ELEMENT + LANES + lane] = (float)line[i].im;
        }
    }
}

/* Transforms block x; the result is where it says: in x or in `work`. */
static float *lanes_run(const struct lanes *t, const struct attn_kernels *kernels,
                        const void *table, float *x, void *work)
{
    float *from = x, *to = work;
    struct attn_fft_pass pass = { .table = table, .length = t->plan.n, .s = 1 };
    int64_t left = t->plan.n;
    if (t->wide) {
        run_wide(t, table, x, work);
        return x;
    }
    for (int i = 0; i < t->plan.n_factors; i++) {
        pass.radix = t->plan.factors[i];
        left /= pass.radix;
        pass.m = left;
        kernels->fft_pass_f32(to, from, &pass);
        pass.s *= pass.radix;
        float *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

/* ---- infer ---- */

static attn_status fourier_plan(attnrun_step *step)
{
    struct fourier_state *s = step->state;
    const attnrun_dim *d = step->in[0].dims;
    int64_t n_tasks, scratch;
    s->batch = d[0].value;
    s->n = d[1].value;
    s->c = d[2].value;
    if (s->batch == 0 || s->n == 0 || s->c == 0)
        return ATTNRUN_OK;
    if (!lanes_plan(&s->tokens, s->n) || !lanes_plan(&s->channels, s->c))
        return op_fail_input(step, 0, ATTNRUN_E_LIMIT, "expected at most 2^40 a dim");
    scratch = most(s->tokens.block_bytes + s->tokens.work_bytes,
                   s->channels.block_bytes + s->channels.work_bytes);
    step->scratch_bytes = scratch;
    step->shared_bytes = s->tokens.table_bytes + s->channels.table_bytes;
    s->row_blocks = (s->n + ELEMENT - 1) / ELEMENT;
    s->column_blocks = (s->c / 2 + LANES) / LANES;
    op_tasks(step, 0, 2, most(s->n, s->c) * 40);
    if (!ck_mul(s->batch, s->row_blocks, &n_tasks))
        return op_fail(step, ATTNRUN_E_LIMIT, "the input is too large");
    op_tasks(step, 1, n_tasks, s->c * 30 * (s->channels.wide ? 20 : 1));
    if (!ck_mul(s->batch, s->column_blocks, &n_tasks))
        return op_fail(step, ATTNRUN_E_LIMIT, "the input is too large");
    op_tasks(step, 2, n_tasks, s->n * 30 * (s->tokens.wide ? 20 : 1));
    return ATTNRUN_OK;
}

static attn_status fourier_infer(attnrun_step *step)
{
    TRY(op_need_rank(step, 0, 3));
    TRY(op_out_like(step, 0, 0));
    return step->concrete ? fourier_plan(step) : ATTNRUN_OK;
}

/* ---- run ---- */

/* Rows `first` … of a sample as lanes: row i is the real part of lane i, row LANES + i
 * the imaginary part. */
static void load_rows(const struct attn_kernels *kernels, float *block, const float *x,
                      int64_t rows, int64_t c)
{
    if (rows < ELEMENT)
        memset(block, 0, (size_t)(c * ELEMENT) * sizeof *block);
    kernels->transpose_f32(block, ELEMENT, x, (ptrdiff_t)c, (size_t)rows, (size_t)c);
}

/* Of a sum of two real lines' spectra a + i b: Re a, Re b into element `re`, Im a, Im b
 * into element `im` of `to` (none where they are one). k, mirror: elements j and C - j.
 */
static void part_spectra(const float *k, const float *mirror, float *re, float *im)
{
    for (int i = 0; i < LANES; i++) {
        re[i] = 0.5f * (k[i] + mirror[i]);
        re[LANES + i] = 0.5f * (k[LANES + i] + mirror[LANES + i]);
    }
    for (int i = 0; i < LANES && im != re; i++) {
        im[i] = 0.5f * (k[LANES + i] - mirror[LANES + i]);
        im[LANES + i] = 0.5f * (mirror[i] - k[i]);
    }
}

static void run_rows(const attnrun_step *step, const attnrun_work *work, int64_t task)
{
    const struct fourier_state *s = step->state;
    const int64_t c = s->c, first = task % s->row_blocks * ELEMENT;
    const int64_t rows = s->n - first < ELEMENT ? s->n - first : ELEMENT;
    const int64_t at = (task / s->row_blocks * s->n + first) * c;
    const char *table = (const char *)work->shared + s->tokens.table_bytes;
    float *block = work->scratch, *rest = block + s->channels.block_bytes / 4;
    load_rows(step->kernels, block, (const float *)step->x[0].data + at, rows, c);
    float *got = lanes_run(&s->channels, step->kernels, table, block, rest);
    float *halves = got == block ? rest : block;
    for (int64_t j = 0; j <= c / 2; j++) {
        const int64_t mirror = j == 0 ? 0 : c - j;
        part_spectra(got + j * ELEMENT, got + mirror * ELEMENT, halves + j * ELEMENT,
                     halves + mirror * ELEMENT);
    }
    step->kernels->transpose_f32((float *)step->y[0].data + at, (ptrdiff_t)c, halves,
                                 ELEMENT, (size_t)c, (size_t)rows);
}

/* Columns first … first + lanes - 1 and their mirrors, as real and imaginary parts. */
static void load_columns(const struct fourier_state *s, float *block, const float *y,
                         int64_t first, int64_t lanes)
{
    const int64_t c = s->c;
    for (int64_t n = 0; n < s->n; n++) {
        float *to = block + n * ELEMENT;
        const float *row = y + n * c, *mirror = row + c - first;
        memset(to, 0, ELEMENT * sizeof *to);
        for (int64_t i = 0; i < lanes; i++)
            to[i] = row[first + i];
        for (int64_t i = 0; i < lanes; i++)
            if (first + i > 0 && 2 * (first + i) != c)
                to[LANES + i] = mirror[-i];
    }
}

static void store_columns(const struct fourier_state *s, const float *block, float *y,
                          int64_t first, int64_t lanes)
{
    const int64_t c = s->c;
    for (int64_t n = 0; n < s->n; n++) {
        const float *from = block + n * ELEMENT;
        const float *opposite = block + (n == 0 ? 0 : s->n - n) * ELEMENT;
        float *row = y + n * c, *mirror = row + c - first;
        for (int64_t i = 0; i < lanes; i++)
            row[first + i] = from[i];
        for (int64_t i = 0; i < lanes; i++)
            if (first + i > 0)
                mirror[-i] = opposite[i];
    }
}

static void run_columns(const attnrun_step *step, const attnrun_work *work, int64_t task)
{
    const struct fourier_state *s = step->state;
    const int64_t first = task % s->column_blocks * LANES, end = s->c / 2 + 1;
    const int64_t lanes = end - first < LANES ? end - first : LANES;
    float *y = (float *)step->y[0].data + task / s->column_blocks * s->n * s->c;
    float *block = work->scratch, *rest = block + s->tokens.block_bytes / 4;
    load_columns(s, block, y, first, lanes);
    block = lanes_run(&s->tokens, step->kernels, work->shared, block, rest);
    store_columns(s, block, y, first, lanes);
}

static attn_status fourier_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct fourier_state *s = step->state;
    if (s->batch == 0 || s->n == 0 || s->c == 0)
        return ATTNRUN_OK;
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (work->phase == 1)
            run_rows(step, work, task);
        else if (work->phase == 2)
            run_columns(step, work, task);
        else if (task == 0)
            lanes_table(&s->tokens, work->shared, work->scratch);
        else
            lanes_table(&s->channels, (char *)work->shared + s->tokens.table_bytes,
                        work->scratch);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_fourier_mix_1 = {
    .struct_size = sizeof(attnrun_op_def),
    .domain = "attnrun",
    .name = "FourierMix",
    .since = 1,
    .inputs = "X:T",
    .outputs = "Y:T",
    .types = "T=f32",
    .state_bytes = sizeof(struct fourier_state),
    .infer = fourier_infer,
    .run = fourier_run,
    .cost = "O(N C (log N + log C))",
    .source = "Lee-Thorp 2021, arXiv:2105.03824",
};
