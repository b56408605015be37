/* fourier_mix.c - FourierMix: Y = Re(FFT over tokens of (FFT over channels of X)).
 *
 * X, Y   f32 (batch, tokens, channels)
 *
 * There are no attributes and no mask, and the result is not divided by anything.
 *
 * Both transforms run over ATTN_FFT_LANES lines side by side (fourier_lanes.c). Phase 1
 * takes twice as many tokens as that, because two real lines make one complex one. Of a
 * token's spectrum of C channels only 0 … C/2 are needed; the rest are conjugates. The
 * real parts stay in columns c of Y, and the imaginary parts in columns C - c. Phase 2
 * transforms the columns c and C - c over the tokens and writes Re to c, and to C - c for
 * token (N - n) mod N; this is the symmetry Y[n, c] = Y[-n, -c]. Long sequences take
 * another order of memory accesses (fourier_rows.c).
 *
 * Phase 0 of every run rounds the twiddles from f64, and nothing keeps them: this is 0.1
 * % of the time at 4,096 x 512.
 *
 * Refused: rank other than 3; more than 2^40 channels or tokens. Cost: O(N C (log N + log
 * C)). Memory: tables of N + C numbers, and 256 bytes for each token or channel and
 * worker; for long sequences 0.8 MiB at 16,384 x 512. Source: Lee-Thorp 2021 (FNet),
 * arXiv:2105.03824; compared with transformers 5.23.0, FNetBasicFourierTransform, which
 * is the same (without its padding for TPUs). */
#include "fourier_mix.h"
#include "../tile.h"

enum { LANES = FOURIER_LANES, ELEMENT = FOURIER_ELEMENT };

/* ---- infer ---- */

/* The bytes of a column; columns of a split length come a line at a time. */
static int64_t columns_bytes(const struct fourier_lanes *t)
{
    return t->work_bytes + 2 * t->line_bytes + (fourier_split(t) ? 0 : t->block_bytes);
}

static attn_status plan_columns(attnrun_step *step)
{
    struct fourier_state *s = step->state;
    int64_t n_tasks;
    step->scratch_bytes =
        max64(columns_bytes(&s->tokens), fourier_rows_bytes(&s->channels));
    s->row_blocks = ceil_div(s->n, ELEMENT);
    s->column_blocks = (s->c / 2 + LANES) / LANES;
    if (!ck_mul(s->batch, s->row_blocks, &n_tasks))
        return op_fail_size(step, "the number of tasks", "2^63 - 1");
    op_tasks(step, 1, n_tasks, s->c * 30 * (s->channels.wide ? 20 : 1));
    if (!ck_mul(s->batch, s->column_blocks, &n_tasks))
        return op_fail_size(step, "the number of tasks", "2^63 - 1");
    op_tasks(step, 2, n_tasks, s->n * 30 * (s->tokens.wide ? 20 : 1));
    return ATTNRUN_OK;
}

static attn_status plan_rows(attnrun_step *step)
{
    struct fourier_state *s = step->state;
    const int64_t a = s->tokens.parts[0].n, b = s->tokens.parts[1].n;
    int64_t first, second;
    if (!ck_mul(s->batch, b, &first) || !ck_mul(s->batch, a / 2 + 1, &second))
        return op_fail_size(step, "the number of tasks", "2^63 - 1");
    /* 8 bytes a token: roots while the tables are made */
    step->scratch_bytes =
        max64(attn_fourier_rows_scratch(s), s->n * 2 * (int64_t)sizeof(float));
    op_tasks(step, 1, first, a * s->c * 2 * (s->channels.wide ? 20 : 1));
    op_tasks(step, 2, second, b * s->c * 2);
    return ATTNRUN_OK;
}

static attn_status fourier_plan(attnrun_step *step)
{
    struct fourier_state *s = step->state;
    const attnrun_dim *d = step->in[0].dims;
    s->batch = d[0].value;
    s->n = d[1].value;
    s->c = d[2].value;
    if (s->batch == 0 || s->n == 0 || s->c == 0)
        return ATTNRUN_OK;
    if (!attn_fourier_plan(&s->tokens, s->n) || !attn_fourier_plan(&s->channels, s->c))
        return op_fail_input(step, 0, ATTNRUN_E_LIMIT, "expected at most 2^40 a dim");
    step->shared_bytes = s->tokens.table_bytes + s->channels.table_bytes;
    op_tasks(step, 0, 2, max64(s->n, s->c) * 10);
    s->by_rows = attn_fourier_rows_fit(s);
    return s->by_rows ? plan_rows(step) : plan_columns(step);
}

static attn_status fourier_infer(attnrun_step *step)
{
    TRY(op_need_rank(step, 0, 3));
    TRY(op_out_like(step, 0, 0));
    return step->concrete ? fourier_plan(step) : ATTNRUN_OK;
}

/* ---- run ---- */

static void fourier_run_rows(const attnrun_step *step, const attnrun_work *work,
                             int64_t task)
{
    const struct fourier_state *s = step->state;
    const int64_t c = s->c, first = op_take(&task, s->row_blocks) * ELEMENT;
    const int64_t rows = s->n - first < ELEMENT ? s->n - first : ELEMENT;
    const int64_t at = (task * s->n + first) * c;
    const char *table = (const char *)work->shared + s->tokens.table_bytes;
    const struct fourier_room r = attn_fourier_room(&s->channels, work->scratch, true);
    attn_fourier_load_rows(step->kernels, r.block, (const float *)step->x[0].data + at,
                           (ptrdiff_t)c, rows, c);
    float *got = attn_fourier_run(&s->channels, step->kernels, table, &r);
    step->kernels->fft_halves_f32(got, got, (size_t)c, 0);
    step->kernels->transpose_f32((float *)step->y[0].data + at, (ptrdiff_t)c, got,
                                 ELEMENT, (size_t)c, (size_t)rows);
}

/* The columns first … of a sample and their mirrors, in rows row, row + step, … */
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

/* Stores rows of Y from n elements k, k + step, …. */
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
    const struct fourier_lanes *t = &s->tokens;
    const struct attn_kernels *kernels = step->kernels;
    const int64_t first = op_take(&task, s->column_blocks) * LANES;
    const int64_t a = t->parts[0].n, b = t->parts[1].n;
    float *y = (float *)step->y[0].data + task * s->n * s->c;
    const struct fourier_room r = attn_fourier_room(t, work->scratch, !fourier_split(t));
    struct fourier_line l = { .x = r.line[0], .x_row = ELEMENT, .x_im = LANES };
    l.room[0] = r.line[0];
    l.room[1] = r.line[1];
    if (!fourier_split(t)) {
        const struct attn_fft_columns f = columns_of(s, y, first, 0, 1);
        kernels->fft_columns_in_f32(r.block, &f, (size_t)s->n);
        const float *got = attn_fourier_run(t, kernels, work->shared, &r);
        store_columns(step, y, first, got, 0, 1, s->n);
        return;
    }
    for (int64_t q = 0; q < b; q++) {
        const struct attn_fft_columns f = columns_of(s, y, first, q, b);
        kernels->fft_columns_in_f32(r.line[0], &f, (size_t)a);
        kernels->fft_rotate_f32(r.work + q * ELEMENT, (b + 1) * ELEMENT, LANES,
                                attn_fourier_part(t, kernels, work->shared, 0, &l),
                                (size_t)a, attn_fourier_rotations(t, work->shared, q));
    }
    for (int64_t k = 0; k < a; k++) {
        l.x = r.work + k * (b + 1) * ELEMENT;
        store_columns(step, y, first, attn_fourier_part(t, kernels, work->shared, 1, &l),
                      k, a, b);
    }
}

/* Task 0: tables of the tokens; task 1: those of the channels. */
static void run_tables(const struct fourier_state *s, const attnrun_work *work,
                       int64_t task)
{
    if (task == 0)
        attn_fourier_table(&s->tokens, work->shared, work->scratch);
    else
        attn_fourier_table(&s->channels, (char *)work->shared + s->tokens.table_bytes,
                           work->scratch);
}

static attn_status fourier_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct fourier_state *s = step->state;
    if (s->batch == 0 || s->n == 0 || s->c == 0)
        return ATTNRUN_OK;
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (work->phase == 0)
            run_tables(s, work, task);
        else if (s->by_rows)
            (work->phase == 1 ? attn_fourier_rows_first
                              : attn_fourier_rows_second)(step, work, task);
        else
            (work->phase == 1 ? fourier_run_rows : run_columns)(step, work, task);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_fourier_mix_1 = {
    OP_ROW_OF("attnrun"),
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
