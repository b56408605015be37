/* recurrent_f64.c - RNN, GRU and LSTM in f64, in plain loops.
 *
 * In: the operands of the step and struct recurrent_state; recurrent.h describes the shapes, and
 * rnn.c, gru.c and lstm.c the formulas. Out: Y, Y_h and Y_c. A task computes one sequence in one
 * direction, from its first step to its last. Scratch: the gates of one step and three rows of
 * `hidden` numbers.
 * Cost: 2 gates hidden (inputs + hidden) FLOPs for each step of a sequence. */
#include <math.h>

#include "recurrent.h"
#include "../tile.h"

struct recurrent_f64_walk {
    const attnrun_step *step;
    const struct recurrent_state *state;
    const double *x, *w, *r, *bias, *peephole; /* of this step, of this direction */
    const struct recurrent_function *f;
    double *h, *c, *gates, *reset;
};

void attn_recurrent_plan_f64(attnrun_step *step)
{
    struct recurrent_state *s = step->state;
    int64_t columns = s->gates * s->hidden;
    step->shared_bytes = 0;
    step->scratch_bytes = 8 * (columns + 3 * s->hidden);
    double cost = (double)s->steps * (double)columns * (double)(s->hidden + s->inputs);
    step->n_phases = 1;
    op_tasks(step, 0, s->directions * s->batch, op_ns(cost + 100));
}

static double bias_of(const struct recurrent_f64_walk *k, int64_t row, bool of_r)
{
    if (k->bias == NULL)
        return 0.0;
    return k->bias[of_r ? k->state->gates * k->state->hidden + row : row];
}

static double product(const double *a, const double *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* x W' + h R' + both biases for rows from … to - 1 of the gates; the caller polls, too. */
static void make_gates(const struct recurrent_f64_walk *k, const double *h, int64_t from,
                       int64_t to)
{
    const struct recurrent_state *s = k->state;
    const int64_t bytes = (s->inputs + s->hidden) * (int64_t)sizeof(double);
    for (int64_t row = from; row < to && attn_poll_work(bytes) == ATTNRUN_OK; row++)
        k->gates[row] = product(k->x, k->w + row * s->inputs, s->inputs) +
                        product(h, k->r + row * s->hidden, s->hidden) +
                        bias_of(k, row, false) + bias_of(k, row, true);
}

static void recurrent_f64_apply(const struct recurrent_f64_walk *k, int function,
                                double *x, int64_t n)
{
    const struct recurrent_args *args = k->step->args;
    double clip = (double)args->clip;
    for (int64_t i = 0; i < n; i++) {
        double v = x[i];
        if (clip > 0.0)
            v = v > clip ? clip : v < -clip ? -clip : v;
        x[i] = attn_recurrent_function_f64(&k->f[function], v);
    }
}

static void rnn_step(const struct recurrent_f64_walk *k)
{
    int64_t n = k->state->hidden;
    make_gates(k, k->h, 0, n);
    recurrent_f64_apply(k, 0, k->gates, n);
    memcpy(k->h, k->gates, (size_t)n * sizeof *k->h);
}

static void gru_step(const struct recurrent_f64_walk *k)
{
    const struct recurrent_args *args = k->step->args;
    int64_t n = k->state->hidden;
    double *z = k->gates, *r = z + n, *fresh = r + n;
    make_gates(k, k->h, 0, 2 * n);
    recurrent_f64_apply(k, 0, z, 2 * n);
    for (int64_t i = 0; i < n; i++)
        k->reset[i] = r[i] * k->h[i];
    if (!args->linear_before_reset) {
        make_gates(k, k->reset, 2 * n, 3 * n);
    } else {
        for (int64_t i = 0; i < n; i++) {
            int64_t row = 2 * n + i;
            double h = product(k->h, k->r + row * n, n) + bias_of(k, row, true);
            fresh[i] = product(k->x, k->w + row * k->state->inputs, k->state->inputs) +
                       bias_of(k, row, false) + r[i] * h;
        }
    }
    recurrent_f64_apply(k, 1, fresh, n);
    for (int64_t i = 0; i < n; i++)
        k->h[i] = (1.0 - z[i]) * fresh[i] + z[i] * k->h[i];
}

static void lstm_step(const struct recurrent_f64_walk *k)
{
    const struct recurrent_args *args = k->step->args;
    int64_t n = k->state->hidden;
    double *in = k->gates, *out = in + n, *forget = out + n, *fresh = forget + n;
    const double *p = k->peephole;
    make_gates(k, k->h, 0, 4 * n);
    for (int64_t i = 0; p != NULL && i < n; i++) {
        in[i] += p[i] * k->c[i];
        forget[i] += p[2 * n + i] * k->c[i];
    }
    recurrent_f64_apply(k, 0, in, n);
    recurrent_f64_apply(k, 0, forget, n);
    recurrent_f64_apply(k, 1, fresh, n);
    for (int64_t i = 0; i < n; i++) {
        double keep = args->input_forget ? 1.0 - in[i] : forget[i];
        k->c[i] = keep * k->c[i] + in[i] * fresh[i];
        out[i] += p != NULL ? p[n + i] * k->c[i] : 0.0;
    }
    recurrent_f64_apply(k, 0, out, n);
    for (int64_t i = 0; i < n; i++)
        k->h[i] = out[i] * attn_recurrent_function_f64(&k->f[2], k->c[i]);
}

static const double *input(const attnrun_step *step, int in, int64_t offset)
{
    return op_has_in(step, in) ? (const double *)step->x[in].data + offset : NULL;
}

static void set_state(double *to, const double *from, int64_t n)
{
    if (from != NULL)
        memcpy(to, from, (size_t)n * sizeof *to);
    else
        memset(to, 0, (size_t)n * sizeof *to);
}

static void put_row(const attnrun_step *step, int out, int64_t row, const double *from,
                    int64_t n)
{
    if (out < step->n_out && step->y[out].data != NULL)
        set_state((double *)step->y[out].data + row * n, from, n);
}

static attn_status walk_sequence(const attnrun_step *step, const attnrun_work *work,
                                 int64_t d, int64_t b)
{
    const struct recurrent_args *args = step->args;
    const struct recurrent_state *s = step->state;
    int64_t n = s->hidden, columns = s->gates * n,
            row = attn_recurrent_state_row(step, b, d);
    bool reverse = args->direction == RECURRENT_REVERSE || d == 1;
    struct recurrent_f64_walk k = {
        .step = step, .state = s, .f = s->functions[d], .h = work->scratch
    };
    k.c = k.h + n;
    k.reset = k.c + n;
    k.gates = k.reset + n;
    k.w = input(step, RECURRENT_W, d * columns * s->inputs);
    k.r = input(step, RECURRENT_R, d * columns * n);
    k.bias = input(step, RECURRENT_B, d * 2 * columns);
    k.peephole = input(step, RECURRENT_P, d * 3 * n);
    set_state(k.h, input(step, RECURRENT_H0, row * n), n);
    set_state(k.c, input(step, RECURRENT_C0, row * n), n);
    int64_t length = attn_recurrent_length(step, b);
    for (int64_t i = 0; i < s->steps; i++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        int64_t t = reverse && i < length ? length - 1 - i : i;
        k.x = input(step, RECURRENT_X, attn_recurrent_time_row(step, t, b) * s->inputs);
        if (i < length && s->gates == 1)
            rnn_step(&k);
        else if (i < length && s->gates == 3)
            gru_step(&k);
        else if (i < length)
            lstm_step(&k);
        put_row(step, 0, attn_recurrent_y_row(step, t, b, d), i < length ? k.h : NULL, n);
    }
    put_row(step, 1, row, k.h, n);
    put_row(step, 2, row, k.c, n);
    return ATTNRUN_OK;
}

attn_status attn_recurrent_run_f64(const attnrun_step *step, const attnrun_work *work)
{
    const struct recurrent_state *s = step->state;
    for (int64_t task = work->begin; task < work->end; task++) {
        int64_t direction = task, b = op_take(&direction, s->batch);
        TRY(walk_sequence(step, work, direction, b));
    }
    return ATTNRUN_OK;
}
