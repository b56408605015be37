/* linear_memory.c - the recurrence of LinearAttention on blocks of columns of S: tokens
 * change them, and queries read them. linear_attention.c has the formula.
 *
 * In: the operands of a step whose state is planned. Out: answers, and S after the last
 * tokens. The tasks of one range are computed in turns, chunk by chunk, so that rows of
 * heads that lie side by side in a token are read together. With 8 heads of 64 at 4,096
 * tokens that is twice as fast as head after head. Cost: 4 to 8 FLOPs for each element of
 * S and token. */
#include "../../tile.h"
#include "linear_attention.h"

#include <math.h>

enum { PREFETCH_ROWS = 4 /* tokens */, LINE = 64 };

/* Loads n elements of x from `first` on as f32: in place, or converted into `room`. */
static const float *linear_memory_load(const attnrun_step *step, const attnrun_tensor *x,
                                       int64_t first, int64_t n, float *room)
{
    const uint16_t *half = (const uint16_t *)x->data;
    if (x->dtype == ATTNRUN_F32)
        return (const float *)x->data + first;
    if (x->dtype == ATTNRUN_F16)
        step->kernels->f16_to_f32(room, half + first, (size_t)n);
    else
        step->kernels->bf16_to_f32(room, half + first, (size_t)n);
    return room;
}

static void linear_memory_store(const attnrun_step *step, const attnrun_tensor *y,
                                int64_t first, int64_t n, const float *from)
{
    uint16_t *half = (uint16_t *)y->data;
    if (y->data == NULL)
        return;
    if (y->dtype == ATTNRUN_F32)
        memcpy((float *)y->data + first, from, (size_t)n * sizeof *from);
    else if (y->dtype == ATTNRUN_F16)
        step->kernels->f32_to_f16(half + first, from, (size_t)n);
    else
        step->kernels->f32_to_bf16(half + first, from, (size_t)n);
}

/* Prefetches n elements of x from `first` on. It is inlined, because gcc drops calls of a
 * function that only prefetches. */
static inline __attribute__((always_inline)) void fetch_row(const attnrun_tensor *x,
                                                            int64_t first, int64_t n)
{
    const int64_t size = x->dtype == ATTNRUN_F32 ? 4 : 2;
    const char *from = (const char *)x->data + first * size;
    for (int64_t at = 0; at < n * size; at += LINE)
        __builtin_prefetch(from + at);
}

/* ---- a block of columns of one S ---- */

struct memory {
    const attnrun_step *step;
    const struct linear_state *state;
    int64_t columns, sample, head, first;
    int64_t row, tokens; /* the first token of all; how many the sample has */
    const float *at;     /* S is there, in rows … */
    int64_t at_row;      /* … that are so far apart */
    float *s;            /* room for d_k rows of LINEAR_BLOCK floats */
    float *rows;         /* room for rows of tokens */
    float *r;            /* two rows: what their keys find in S */
};

/* One or two tokens that are applied to S. */
struct tokens {
    int64_t first;
    int n;
    const float *k[2], *decay[2], *next[2];
    float beta[2], cross;
};

/* The scratch of row i of d_k floats: 0 … 11 are those of tokens, 12 and 13 of
 * queries. */
static float *room(const struct memory *m, int i)
{
    return m->rows + i * (m->state->d_k + LINEAR_VECTOR);
}

/* The query head and the key head of S in `row`, and the head of its first answer. */
static int64_t query_at(const struct memory *m, int64_t row)
{
    const int64_t heads = ((const struct linear_args *)m->step->args)->q_num_heads;
    return row * heads + m->head * m->state->group * heads / m->state->answer_heads;
}
static int64_t key_at(const struct memory *m, int64_t row)
{
    const int64_t heads = ((const struct linear_args *)m->step->args)->kv_num_heads;
    return row * m->state->key_heads + m->head * m->state->key_heads / heads;
}
static int64_t answer_at(const struct memory *m, int64_t row)
{
    return row * m->state->answer_heads + m->head * m->state->group;
}

/* The offset of row `d` of S in past or present, of slot `slot`; with v_major that of its
 * first element. */
static int64_t state_row(const struct memory *m, int64_t slot, int64_t d)
{
    const struct linear_args *args = m->step->args;
    const int64_t head = m->sample * args->kv_num_heads + m->head;
    const int64_t from = slot * m->state->state_floats;
    if (m->state->v_major)
        return from + (head * m->state->d_v + m->first) * m->state->d_k + d;
    return from + (head * m->state->d_k + d) * m->state->d_v + m->first;
}

/* Takes the past S, in place or in scratch. */
static void memory_take(struct memory *m)
{
    const attnrun_step *step = m->step;
    const struct linear_state *state = m->state;
    const int64_t slot = state->slots - 1;
    if (state->past_in_place) {
        m->at = (const float *)step->x[LINEAR_PAST].data + state_row(m, slot, 0);
        m->at_row = state->d_v;
        return;
    }
    m->at = m->s;
    m->at_row = LINEAR_BLOCK;
    memset(m->s, 0, (size_t)(state->d_k * LINEAR_BLOCK) * sizeof *m->s);
    for (int64_t d = 0; op_has_in(step, LINEAR_PAST) && d < state->d_k; d++) {
        const float *columns = (const float *)step->x[LINEAR_PAST].data;
        for (int64_t j = 0; state->v_major && j < m->columns; j++)
            m->s[d * LINEAR_BLOCK + j] = columns[state_row(m, slot, d) + j * state->d_k];
        if (state->v_major)
            continue;
        const float *past = linear_memory_load(step, &step->x[LINEAR_PAST],
                                               state_row(m, slot, d), m->columns, m->r);
        memcpy(m->s + d * LINEAR_BLOCK, past, (size_t)m->columns * sizeof *past);
    }
}

/* Copies the present S to slot `slot` of the present states, unless it is there. */
static void memory_store(const struct memory *m, int64_t slot)
{
    const attnrun_step *step = m->step;
    for (int64_t d = 0; d < m->state->d_k; d++) {
        const int64_t row = state_row(m, slot, d);
        float *columns = (float *)step->y[1].data + row;
        for (int64_t j = 0; m->state->v_major && j < m->columns; j++)
            columns[j * m->state->d_k] = m->at[d * m->at_row + j];
        if (m->state->v_major)
            continue;
        if (!m->state->present_in_place ||
            m->at + d * m->at_row != (const float *)step->y[1].data + row)
            linear_memory_store(step, &step->y[1], row, m->columns,
                                m->at + d * m->at_row);
    }
}

/* Opens a task. `place`: the index of its S in scratch. */
static void memory_open(const attnrun_step *step, int64_t task, int64_t place,
                        void *scratch, struct memory *m)
{
    const struct linear_args *args = step->args;
    const struct linear_state *state = step->state;
    m->step = step;
    m->state = state;
    const struct op_task at = op_task_at(task, args->kv_num_heads, state->blocks);
    m->first = at.block * state->block;
    m->head = at.head;
    m->sample = at.b;
    m->row = state->starts != NULL ? state->starts[m->sample] : m->sample * state->tokens;
    m->tokens =
        state->starts != NULL ? state->starts[m->sample + 1] - m->row : state->tokens;
    m->columns =
        state->d_v - m->first < state->block ? state->d_v - m->first : state->block;
    m->s = (float *)scratch + place * state->d_k * LINEAR_BLOCK;
    /* 2 rows of r, then 2 of values, 2 of answers */
    m->r = (float *)scratch + state->together * state->d_k * LINEAR_BLOCK;
    m->rows = m->r + 6 * LINEAR_BLOCK;
    memory_take(m);
}

/* ---- tokens ---- */

/* Computes exp(g) for each row of S. */
static const float *decays(const struct memory *m, int64_t row, float *to)
{
    static const float unused[2] = { 0 };
    const struct linear_args *args = m->step->args;
    const int64_t d_k = m->state->d_k, n = m->state->per_key ? d_k : 1;
    const float *g = linear_memory_load(m->step, &m->step->x[LINEAR_DECAY],
                                        (row * args->kv_num_heads + m->head) * n, n, to);
    if (m->state->per_key) {
        m->step->kernels->exp_f32(to, g, (size_t)n, unused);
    } else {
        const float all = expf(*g);
        for (int64_t d = 0; d < d_k; d++)
            to[d] = all;
    }
    return to;
}

static float beta_of(const struct memory *m, int64_t row)
{
    const attnrun_tensor *beta = &m->step->x[LINEAR_BETA];
    float room;
    int64_t at = beta->dims[2] == 1 ? row : row * beta->dims[2] + m->head;
    return *linear_memory_load(m->step, beta, at, 1, &room);
}

/* The rows of a token are prefetched long before they are used, because they are too far
 * apart for the CPU's own prefetcher. */
static inline __attribute__((always_inline)) void fetch(const struct memory *m,
                                                        int64_t token)
{
    const struct linear_args *args = m->step->args;
    const struct linear_state *state = m->state;
    const int64_t row = m->row + token, value = row * args->kv_num_heads + m->head;
    if (token >= m->tokens)
        return;
    fetch_row(&m->step->x[LINEAR_KEY], key_at(m, row) * state->d_k, state->d_k);
    fetch_row(&m->step->x[LINEAR_VALUE], value * state->d_v + m->first, m->columns);
    fetch_row(&m->step->x[LINEAR_QUERY], query_at(m, row) * state->d_k,
              state->group * state->d_k);
    if (m->step->y[0].data != NULL)
        fetch_row(&m->step->y[0], answer_at(m, row) * state->d_v + m->first, m->columns);
}

/* Loads n tokens from `first` on; `parity`: the other one than that of the tokens
 * before. */
static struct tokens tokens_load(const struct memory *m, int64_t first, int n, int parity)
{
    const struct linear_args *args = m->step->args;
    const int64_t d_k = m->state->d_k;
    struct tokens x = { .first = first, .n = n };
    for (int t = 0; t < n; t++) {
        const int64_t row = m->row + first + t;
        const int at = 6 * parity + 3 * t;
        fetch(m, first + t + PREFETCH_ROWS);
        x.k[t] = linear_memory_load(m->step, &m->step->x[LINEAR_KEY],
                                    key_at(m, row) * d_k, d_k, room(m, at));
        x.next[t] = x.k[t];
        if (linear_gated(args)) {
            x.decay[t] = decays(m, row, room(m, at + 1));
            x.next[t] = room(m, at + 2);
        }
        if (linear_delta(args))
            x.beta[t] = beta_of(m, row);
    }
    if (linear_delta(args) && n > 0)
        x.cross = m->step->kernels->recurrence_keys_f32(
            x.k[0], x.k[n - 1], x.decay[0], x.decay[n - 1], (size_t)d_k,
            room(m, 6 * parity + 2), room(m, 6 * parity + 5));
    return x;
}

/* ---- passes over S ---- */

static void set_following(const struct memory *m, struct attn_recurrence *g,
                          const struct tokens *following)
{
    g->n_next = linear_delta(m->step->args) ? following->n : 0;
    for (int t = 0; t < g->n_next; t++)
        g->next[t] = following->next[t];
}

/* Sets the queries of query head `head` of the group; its answers go to Y or into
 * scratch. */
static void set_queries(const struct memory *m, struct attn_recurrence *g,
                        const struct tokens *x, int64_t head)
{
    const attnrun_step *step = m->step;
    const struct linear_state *state = m->state;
    for (int t = 0; t < x->n; t++) {
        const int64_t row = m->row + x->first + t;
        g->q[t] = linear_memory_load(step, &step->x[LINEAR_QUERY],
                                     (query_at(m, row) + head) * state->d_k, state->d_k,
                                     room(m, 12 + t));
        g->o[t] = m->r + (4 + t) * LINEAR_BLOCK;
        if (step->y[0].data != NULL && step->y[0].dtype == ATTNRUN_F32)
            g->o[t] = (float *)step->y[0].data + (answer_at(m, row) + head) * state->d_v +
                      m->first;
    }
}

static void store_answers(const struct memory *m, const struct attn_recurrence *g,
                          const struct tokens *x, int64_t head)
{
    for (int t = 0; t < x->n && m->step->y[0].dtype != ATTNRUN_F32; t++) {
        const int64_t row = m->row + x->first + t;
        linear_memory_store(m->step, &m->step->y[0],
                            (answer_at(m, row) + head) * m->state->d_v + m->first,
                            m->columns, g->o[t]);
    }
}

static void set_tokens(const struct memory *m, struct attn_recurrence *g,
                       const struct tokens *x)
{
    const struct linear_args *args = m->step->args;
    const struct linear_state *state = m->state;
    g->tokens = x->n;
    g->cross = x->cross;
    for (int t = 0; t < x->n; t++) {
        const int64_t row = m->row + x->first + t;
        g->k[t] = x->k[t];
        g->decay[t] = x->decay[t];
        g->beta[t] = x->beta[t];
        g->v[t] = linear_memory_load(m->step, &m->step->x[LINEAR_VALUE],
                                     (row * args->kv_num_heads + m->head) * state->d_v +
                                         m->first,
                                     m->columns, m->r + (2 + t) * LINEAR_BLOCK);
    }
}

/* Applies the tokens x to S, which is stored to `to`; queries read it after each of
 * them. */
static void learn(struct memory *m, const struct tokens *x,
                  const struct tokens *following, float *to, int64_t to_row)
{
    const struct linear_state *state = m->state;
    const bool corrects = linear_delta(m->step->args);
    struct attn_recurrence g = { .from = m->at,
                                 .from_row = m->at_row,
                                 .rows = (size_t)state->d_k,
                                 .n = (size_t)m->columns,
                                 .r = { corrects ? m->r : NULL, m->r + LINEAR_BLOCK },
                                 .scale = state->scale };
    set_tokens(m, &g, x);
    for (int64_t h = 1; h < state->group && m->step->y[0].data != NULL; h++) {
        if (attn_poll() != ATTNRUN_OK)
            return;
        set_queries(m, &g, x, h);
        m->step->kernels->recurrence_f32(&g);
        store_answers(m, &g, x, h);
    }
    set_queries(m, &g, x, 0);
    set_following(m, &g, following);
    g.to = to;
    g.to_row = to_row;
    m->step->kernels->recurrence_f32(&g);
    if (m->step->y[0].data != NULL)
        store_answers(m, &g, x, 0);
    m->at = to;
    m->at_row = to_row;
}

/* Reads what the keys of the first tokens find in S. */
static void look_up(const struct memory *m, const struct tokens *x)
{
    struct attn_recurrence g = { .from = m->at,
                                 .from_row = m->at_row,
                                 .rows = (size_t)m->state->d_k,
                                 .n = (size_t)m->columns,
                                 .r = { m->r, m->r + LINEAR_BLOCK } };
    set_following(m, &g, x);
    m->step->kernels->recurrence_f32(&g);
}

/* The slot that S is stored to after token t, or -1: none. */
static int64_t memory_slot(const struct memory *m, int64_t t)
{
    const int64_t slot = m->state->slots - m->tokens + t;
    return m->step->n_out > 1 && m->step->y[1].data != NULL && slot >= 0 ? slot : -1;
}

/* The number of tokens of a pass that begins with t: one where its S is an output. */
static int pass_length(const struct memory *m, int64_t t, int64_t to)
{
    if (t + 1 >= to)
        return t < to;
    return memory_slot(m, t) >= 0 ? 1 : 2;
}

/* Computes tokens from … to - 1. */
static void memory_run(struct memory *m, int64_t from, int64_t to)
{
    struct tokens x = tokens_load(m, from, pass_length(m, from, to), 0);
    if (linear_delta(m->step->args))
        look_up(m, &x);
    for (int parity = 1; x.n > 0 && attn_poll() == ATTNRUN_OK; parity ^= 1) {
        const int64_t t = x.first + x.n, slot = memory_slot(m, t - 1);
        const struct tokens following = tokens_load(m, t, pass_length(m, t, to), parity);
        const bool direct = slot >= 0 && m->state->present_in_place;
        if (direct)
            learn(m, &x, &following, (float *)m->step->y[1].data + state_row(m, slot, 0),
                  m->state->d_v);
        else
            learn(m, &x, &following, m->s, LINEAR_BLOCK);
        if (slot >= 0 && !direct)
            memory_store(m, slot);
        x = following;
    }
}

/* Clears the slots of tokens that do not exist. */
static void clear_slots(const struct memory *m)
{
    const struct linear_state *state = m->state;
    static const float zeros[LINEAR_BLOCK] = { 0 };
    const int64_t last = memory_slot(m, m->tokens - 1) >= 0 ? state->slots - 1 : 0;
    for (int64_t slot = 0; slot < last && slot < state->slots - m->tokens; slot++)
        for (int64_t d = 0; d < state->d_k; d++)
            linear_memory_store(m->step, &m->step->y[1], state_row(m, slot, d),
                                m->columns, zeros);
}

/* Computes n tasks chunk by chunk, so that rows of heads that lie side by side are read
 * together. */
static attn_status run_together(const attnrun_step *step, int64_t task, int64_t n,
                                const attnrun_work *work)
{
    const struct linear_state *state = step->state;
    struct memory m[LINEAR_TOGETHER];
    for (int64_t i = 0; i < n; i++) {
        memory_open(step, task + i, i, work->scratch, &m[i]);
        clear_slots(&m[i]);
        if (m[i].tokens == 0 && memory_slot(&m[i], -1) >= 0)
            memory_store(&m[i], state->slots - 1);
    }
    for (int64_t t = 0; t < state->tokens; t += LINEAR_CHUNK)
        for (int64_t i = 0; i < n; i++) {
            const int64_t end = t + LINEAR_CHUNK;
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            if (t < m[i].tokens)
                memory_run(&m[i], t, end < m[i].tokens ? end : m[i].tokens);
        }
    return ATTNRUN_OK;
}

attn_status attn_linear_run(const attnrun_step *step, const attnrun_work *work)
{
    const int64_t max = ((const struct linear_state *)step->state)->together;
    for (int64_t task = work->begin; task < work->end; task += max) {
        const int64_t left = work->end - task;
        TRY(run_together(step, task, left < max ? left : max, work));
    }
    return ATTNRUN_OK;
}
