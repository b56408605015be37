/* fourier_mix.c - FourierMix: Y = Re(FFT over tokens of (FFT over channels of X)).
 *
 * X, Y   f32 (batch, tokens, channels); no attributes, no mask; nothing is divided by
 *
 * Both transforms run over ATTN_FFT_LANES lines side by side. Phase 1 takes twice as many
 * tokens as that: two real lines are one complex one. Of a token's spectrum of C channels
 * only 0 … C/2 are needed, the rest are conjugates: the real parts stay in columns c, the
 * imaginary parts in columns C - c of Y. Phase 2 transforms the columns c and C - c over
 * the tokens and writes Re to c, and to C - c for token (N - n) mod N: the symmetry
 * Y[n, c] = Y[-n, -c].
 *
 * A length N = A B of 256 or more takes four steps: B transforms of length A over
 * elements that are B apart, turns by e^(-2 pi i q k / N), A transforms of length B. Each
 * of these stays in the first-level cache, and the whole passes by twice instead of once
 * for each radix. The rows of the block in between end with one element of room, or all
 * elements of a column would fall into a few lines of cache. Lengths with a prime factor
 * over 31 go through Bluestein in f64 (ops/image/fft.h).
 *
 * Twiddles are rounded from f64 in phase 0 of every run and kept nowhere: one in eight is
 * computed, in all 0.1 % of the time at 4,096 x 512.
 *
 * Refuses: rank other than 3; more than 2^40 channels or tokens. Cost: O(N C (log N + log
 * C)). Memory: tables of N + C, and 128 bytes a token or channel and worker, 256 under a
 * length of 256: 2.2 MiB at N = 16384. Source: Lee-Thorp 2021 (FNet), arXiv:2105.03824;
 * four steps: Bailey 1990; compared with transformers 5.23.0,
 * FNetBasicFourierTransform, which is the same (without its padding for TPUs). */
#include <math.h>

#include "../../runtime/op.h"
#include "../image/fft.h"
#include "../kernels/kernels.h"

enum { LANES = ATTN_FFT_LANES, ELEMENT = 2 * LANES, LEAST_SPLIT = 256 };
static const double pi = 3.14159265358979323846;

/* Transforms of one length over LANES lines. */
struct lanes {
    struct fft_plan plan;
    struct fft_plan parts[2]; /* length = A B; A is 1: not split */
    bool wide;                /* Bluestein, line by line in f64 */
    int64_t table_bytes, block_bytes, work_bytes, line_bytes;
};

struct fourier_state {
    struct lanes tokens, channels;
    int64_t batch, n, c, row_blocks, column_blocks;
};

/* Memory of a task. */
struct room {
    float *block, *work; /* n elements each; `work` of a split length: A rows of B + 1 */
    float *line[2];      /* of a split length: A or B elements */
};

/* ---- a transform ---- */

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static bool is_split(const struct lanes *t) { return t->parts[0].n > 1; }

/* A: a product of radices, near the root of n. */
static int64_t split_at(const struct fft_plan *plan)
{
    int64_t a = 1;
    for (int i = 0; i < plan->n_factors; i++)
        if (a * plan->factors[i] * a * plan->factors[i] <= plan->n)
            a *= plan->factors[i];
    return plan->n < LEAST_SPLIT || plan->length != plan->n ? 1 : a;
}

static bool lanes_plan(struct lanes *t, int64_t n)
{
    *t = (struct lanes){ 0 };
    if (!attn_fft_plan(&t->plan, n))
        return false;
    const int64_t a = split_at(&t->plan);
    if (!attn_fft_plan(&t->parts[0], a) || !attn_fft_plan(&t->parts[1], n / a))
        return false;
    t->wide = t->plan.length != n;
    const int64_t line = (int64_t)sizeof(struct complex64);
    const int64_t element = ELEMENT * (int64_t)sizeof(float);
    t->table_bytes = n * 2 * (int64_t)sizeof(float);
    t->block_bytes = n * element;
    t->work_bytes = t->block_bytes;
    if (t->wide) {
        t->table_bytes = attn_fft_table_size(&t->plan) * line;
        t->work_bytes = most(t->work_bytes, (n + attn_fft_work_size(&t->plan)) * line);
    } else if (is_split(t)) {
        t->table_bytes += (a + n / a) * 2 * (int64_t)sizeof(float);
        t->work_bytes += a * element;
        t->line_bytes = most(a, n / a) * element;
    }
    return ck_align(t->table_bytes, 64, &t->table_bytes) &&
           ck_align(t->work_bytes, 64, &t->work_bytes);
}

/* w[t] = e^(-2 pi i t / n), t < n. */
static void make_roots(float *w, int64_t n)
{
    const int64_t n_computed = n % 8 == 0 ? n / 8 + 1 : n;
    for (int64_t i = 0; i < n_computed; i++) {
        const double angle = 2.0 * pi * (double)i / (double)n;
        w[2 * i] = (float)cos(angle);
        w[2 * i + 1] = (float)-sin(angle);
    }
    if (n_computed == n)
        return;
    for (int64_t i = 0; i < n / 8; i++) { /* mirrored at an eighth of the circle … */
        w[2 * (n / 4 - i)] = -w[2 * i + 1];
        w[2 * (n / 4 - i) + 1] = -w[2 * i];
    }
    for (int64_t i = n / 4 + 1; i < n; i++) { /* … and turned by -i for each quarter */
        w[2 * i] = w[2 * (i - n / 4) + 1];
        w[2 * i + 1] = -w[2 * (i - n / 4)];
    }
}

/* Split: the roots of both parts, then those between them in the order of their use.
 * `work`: work_bytes. */
static void lanes_table(const struct lanes *t, void *table, void *work)
{
    const int64_t n = t->plan.n, a = t->parts[0].n, b = t->parts[1].n;
    float *w = table, *roots = work;
    if (t->wide) {
        attn_fft_make_table(&t->plan, table, work);
        return;
    }
    if (!is_split(t)) {
        make_roots(w, n);
        return;
    }
    make_roots(roots, n);
    for (int64_t k = 0; k < a; k++, w += 2)
        memcpy(w, roots + 2 * k * b, 2 * sizeof *w);
    for (int64_t k = 0; k < b; k++, w += 2)
        memcpy(w, roots + 2 * k * a, 2 * sizeof *w);
    for (int64_t q = 0; q < b; q++)
        for (int64_t k = 0; k < a; k++, w += 2)
            memcpy(w, roots + 2 * q * k, 2 * sizeof *w);
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

/* A transform between two places with elements x_step and y_step apart. */
struct line {
    const float *x;
    float *y; /* NULL: the result is in one of `room` */
    int64_t x_step, y_step;
    float *room[2]; /* x may be one of them */
};

/* Returns where the result is. */
static float *line_run(const struct attn_kernels *kernels, const struct fft_plan *plan,
                       const float *roots, const struct line *l)
{
    struct attn_fft_pass pass = { .table = roots, .length = plan->n, .s = 1 };
    const float *from = l->x;
    float *to = l->room[0];
    int64_t left = plan->n;
    for (int i = 0; i < plan->n_factors; i++) {
        const bool to_y = i + 1 == plan->n_factors && l->y != NULL;
        to = to_y ? l->y : from == l->room[0] ? l->room[1] : l->room[0];
        pass.radix = plan->factors[i];
        left /= pass.radix;
        pass.m = left;
        pass.x_step = i == 0 ? l->x_step : 1;
        pass.y_step = to_y ? l->y_step : 1;
        kernels->fft_pass_f32(to, from, &pass);
        pass.s *= pass.radix;
        from = to;
    }
    return to;
}

/* Step 1 of a split length: elements q, q + B, … are transformed, turned, and are then
 * column q of `work`. */
static void run_first(const struct lanes *t, const struct attn_kernels *kernels,
                      const float *table, const struct line *l, float *work, int64_t q)
{
    const int64_t a = t->parts[0].n, b = t->parts[1].n;
    const float *turns = table + 2 * (a + b) + 2 * q * a;
    const float *got = line_run(kernels, &t->parts[0], table, l);
    kernels->fft_turn_f32(work + q * ELEMENT, b + 1, got, (size_t)a, turns);
}

/* Step 2: row k of `work` has the elements k, k + A, … of the result. */
static float *run_second(const struct lanes *t, const struct attn_kernels *kernels,
                         const float *table, struct line *l, const float *work, int64_t k)
{
    const int64_t a = t->parts[0].n, b = t->parts[1].n;
    l->x = work + k * (b + 1) * ELEMENT;
    l->x_step = 1;
    return line_run(kernels, &t->parts[1], table + 2 * a, l);
}

static void run_split(const struct lanes *t, const struct attn_kernels *kernels,
                      const float *table, const struct room *r)
{
    const int64_t a = t->parts[0].n, b = t->parts[1].n;
    struct line l = { .room = { r->line[0], r->line[1] }, .x_step = b, .y_step = a };
    for (int64_t q = 0; q < b; q++) {
        l.x = r->block + q * ELEMENT;
        run_first(t, kernels, table, &l, r->work, q);
    }
    for (int64_t k = 0; k < a; k++) {
        l.y = r->block + k * ELEMENT;
        run_second(t, kernels, table, &l, r->work, k);
    }
}

/* Transforms r->block; the result is where it says: there or in r->work. */
static float *lanes_run(const struct lanes *t, const struct attn_kernels *kernels,
                        const void *table, const struct room *r)
{
    const struct line l = { .x = r->block, .x_step = 1, .room = { r->block, r->work } };
    if (t->plan.n == 1)
        return r->block;
    if (!t->wide && !is_split(t))
        return line_run(kernels, &t->plan, table, &l);
    if (t->wide)
        run_wide(t, table, r->block, r->work);
    else
        run_split(t, kernels, table, r);
    return r->block;
}

/* ---- infer ---- */

/* Columns of a split length come a line at a time. */
static int64_t columns_bytes(const struct lanes *t)
{
    return t->work_bytes + 2 * t->line_bytes + (is_split(t) ? 0 : t->block_bytes);
}

static int64_t rows_bytes(const struct lanes *t)
{
    return t->work_bytes + 2 * t->line_bytes + t->block_bytes;
}

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
    scratch = most(columns_bytes(&s->tokens), rows_bytes(&s->channels));
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

static struct room room_of(const struct lanes *t, float *scratch, bool with_block)
{
    struct room r = { .work = scratch };
    r.line[0] = scratch + t->work_bytes / (int64_t)sizeof *scratch;
    r.line[1] = r.line[0] + t->line_bytes / (int64_t)sizeof *scratch;
    if (with_block)
        r.block = r.line[1] + t->line_bytes / (int64_t)sizeof *scratch;
    return r;
}

static void run_rows(const attnrun_step *step, const attnrun_work *work, int64_t task)
{
    const struct fourier_state *s = step->state;
    const int64_t c = s->c, first = task % s->row_blocks * ELEMENT;
    const int64_t rows = s->n - first < ELEMENT ? s->n - first : ELEMENT;
    const int64_t at = (task / s->row_blocks * s->n + first) * c;
    const char *table = (const char *)work->shared + s->tokens.table_bytes;
    const struct room r = room_of(&s->channels, work->scratch, true);
    load_rows(step->kernels, r.block, (const float *)step->x[0].data + at, rows, c);
    float *got = lanes_run(&s->channels, step->kernels, table, &r);
    step->kernels->fft_halves_f32(got, got, (size_t)c);
    step->kernels->transpose_f32((float *)step->y[0].data + at, (ptrdiff_t)c, got,
                                 ELEMENT, (size_t)c, (size_t)rows);
}

/* Columns first … of a sample and their mirrors, in rows row, row + step, … */
static struct attn_fft_columns columns_of(const struct fourier_state *s, float *y,
                                          int64_t first, int64_t row, int64_t step)
{
    const int64_t end = s->c / 2 + 1, c = s->c;
    struct attn_fft_columns f = { .row = y + row * c + first,
                                  .mirror = y + row * c + c - first,
                                  .step = step * c };
    f.lanes = (int32_t)(end - first < LANES ? end - first : LANES);
    f.im_begin = first == 0; /* columns 0 and C / 2 are real */
    f.im_end = f.lanes - (c % 2 == 0 && first + f.lanes == end);
    return f;
}

/* Rows of Y from elements k, k + step, …, n of them. */
static void store_columns(const attnrun_step *step, float *y, int64_t first,
                          const float *x, int64_t k, int64_t by, int64_t n)
{
    const struct fourier_state *s = step->state;
    struct attn_fft_columns f = columns_of(s, y, first, k, by);
    f.mirror = y + (k == 0 ? 0 : s->n - k) * s->c + s->c - first;
    step->kernels->fft_columns_out_f32(&f, x, k == 0 ? 1 : (size_t)n);
    if (k == 0 && n > 1)
        store_columns(step, y, first, x + ELEMENT, by, by, n - 1);
}

static void run_columns(const attnrun_step *step, const attnrun_work *work, int64_t task)
{
    const struct fourier_state *s = step->state;
    const struct lanes *t = &s->tokens;
    const struct attn_kernels *kernels = step->kernels;
    const int64_t first = task % s->column_blocks * LANES;
    const int64_t a = t->parts[0].n, b = t->parts[1].n;
    float *y = (float *)step->y[0].data + task / s->column_blocks * s->n * s->c;
    const struct room r = room_of(t, work->scratch, !is_split(t));
    struct line l = { .x = r.line[0], .x_step = 1, .room = { r.line[0], r.line[1] } };
    if (!is_split(t)) {
        const struct attn_fft_columns f = columns_of(s, y, first, 0, 1);
        kernels->fft_columns_in_f32(r.block, &f, (size_t)s->n);
        const float *got = lanes_run(t, kernels, work->shared, &r);
        store_columns(step, y, first, got, 0, 1, s->n);
        return;
    }
    for (int64_t q = 0; q < b; q++) {
        const struct attn_fft_columns f = columns_of(s, y, first, q, b);
        kernels->fft_columns_in_f32(r.line[0], &f, (size_t)a);
        run_first(t, kernels, work->shared, &l, r.work, q);
    }
    for (int64_t k = 0; k < a; k++)
        store_columns(step, y, first, run_second(t, kernels, work->shared, &l, r.work, k),
                      k, a, b);
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
