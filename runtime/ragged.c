/* ragged.c - which tokens of a batch are there, as tensors that a graph reads; see ragged.h. */
#include "ragged.h"

#include "alloc.h"
#include "checked.h"
#include "poll.h"

enum { TOKENS, SAMPLES }; /* of values[] */
enum {
    POLL = 16384,   /* tokens between polls */
    MIN_ROWS = 16,  /* rows are a multiple of it … */
    MAX_STEPS = 16, /* … or of 16 times a power of two, less than an eighth of them */
};

static attn_status add_value(struct attn_graph *graph, const char *name, int rank,
                             const attnrun_dim *dims, int32_t *id)
{
    TRY(attn_graph_add_value(graph, attn_graph_find(graph, name) < 0 ? name : NULL, id));
    struct attn_value *value = &graph->values[*id];
    value->flags |= ATTN_VALUE_INPUT;
    value->producer = -1;
    value->type =
        (attnrun_type){ .kind = ATTNRUN_TENSOR, .dtype = ATTNRUN_I64, .rank = rank };
    memcpy(value->type.dims, dims, (size_t)rank * sizeof *dims);
    return ATTNRUN_OK;
}

attn_status attn_ragged_create(struct attn_graph *graph, int32_t mask, bool from_start)
{
    struct attn_ragged *made =
        attn_pool_alloc(&graph->model->pool, (int64_t)sizeof *made);
    if (made == NULL)
        return ATTNRUN_E_MEMORY;
    const attnrun_dim rows = attn_dim_symbol(graph->model->dims, NULL);
    const attnrun_dim samples[] = { graph->values[graph->inputs[mask]].type.dims[0],
                                    dim_of(ATTN_RAGGED_FIELDS) };
    *made = (struct attn_ragged){ .mask = mask, .from_start = from_start };
    TRY(add_value(graph, "ragged_tokens", 1, &rows, &made->values[TOKENS]));
    TRY(add_value(graph, "ragged_samples", 2, samples, &made->values[SAMPLES]));
    graph->ragged = made;
    return ATTNRUN_OK;
}

static attn_status make_tensors(const struct attn_graph *graph, int64_t rows,
                                int64_t *tokens, int64_t *samples, attnrun_tensor *inputs)
{
    attnrun_tensor *made = inputs + graph->n_inputs;
    const int64_t fields[] = { inputs[graph->ragged->mask].dims[0], ATTN_RAGGED_FIELDS };
    TRY(attnrun_tensor_make(ATTNRUN_I64, 1, &rows, tokens, &made[TOKENS]));
    return attnrun_tensor_make(ATTNRUN_I64, 2, fields, samples, &made[SAMPLES]);
}

attn_status attn_ragged_bound(const struct attn_graph *graph, attnrun_tensor *inputs)
{
    int64_t rows;
    if (graph->ragged == NULL)
        return ATTNRUN_OK;
    const attnrun_tensor *mask = &inputs[graph->ragged->mask];
    if (!ck_mul(mask->dims[0], mask->dims[1], &rows))
        return attn_fail(ATTNRUN_E_LIMIT,
                         "a ragged batch of %lld * %lld tokens is over 2^63 - 1",
                         (long long)mask->dims[0], (long long)mask->dims[1]);
    return make_tensors(graph, rows, NULL, NULL, inputs);
}

int64_t attn_ragged_bytes(const struct attn_graph *graph, const attnrun_tensor *inputs)
{
    int64_t places, fields, all;
    if (graph->ragged == NULL)
        return 0;
    const attnrun_tensor *mask = &inputs[graph->ragged->mask];
    if (!ck_mul(mask->dims[0], mask->dims[1], &places) ||
        !ck_mul(mask->dims[0], ATTN_RAGGED_FIELDS, &fields) ||
        !ck_add(places, fields, &all) || !ck_mul(all, (int64_t)sizeof(int64_t), &all))
        return INT64_MAX;
    return all > 0 ? all : 1;
}

void attn_ragged_free(struct attn_memory *memory, struct attn_ragged_lists *lists)
{
    attn_free(memory, ATTN_MEM_PLAN, lists->data, lists->bytes);
    *lists = (struct attn_ragged_lists){ NULL, 0 };
}

attn_status attn_ragged_reserve(const struct attn_graph *graph,
                                struct attn_memory *memory,
                                struct attn_ragged_lists *lists,
                                const attnrun_tensor *inputs)
{
    const int64_t bytes = attn_ragged_bytes(graph, inputs);
    if (bytes <= lists->bytes)
        return ATTNRUN_OK;
    attn_ragged_free(memory, lists);
    lists->data = attn_alloc(memory, ATTN_MEM_PLAN, bytes);
    if (lists->data == NULL)
        return ATTNRUN_E_MEMORY;
    lists->bytes = bytes;
    return ATTNRUN_OK;
}

/* The tokens of a sample. */
static attn_status find_range(const attnrun_tensor *mask, bool from_start, int64_t b,
                              struct attn_ragged_sample *sample)
{
    const int64_t n = mask->dims[1];
    attnrun_tensor one = *mask;
    bool whole = false;
    sample->first = n;
    sample->last = 0;
    for (int64_t s = 0; s < n; s++) {
        one.data = (char *)mask->data + b * mask->strides[0] + s * mask->strides[1];
        const int64_t there = tensor_get_int(&one, 0);
        whole = whole || (there != 0 && there != 1);
        if (whole && !from_start)
            return attn_fail(ATTNRUN_E_RANGE,
                             "the mask of a ragged batch is %lld at [%lld,%lld], "
                             "expected 0 or 1",
                             (long long)there, (long long)b, (long long)s);
        if (s % POLL == POLL - 1)
            TRY(attn_poll_work(POLL * (int64_t)sizeof(int64_t)));
        if (there == 0)
            continue;
        sample->first = min64(sample->first, s);
        sample->last = s + 1;
    }
    if (from_start) {
        sample->first = 0;
        sample->last = whole || sample->last == 0 ? n : sample->last;
    }
    sample->first = min64(sample->first, sample->last);
    return ATTNRUN_OK;
}

/* Rounded up, so that a step is at most an eighth. */
static int64_t round_rows(int64_t rows, int64_t max)
{
    int64_t step = MIN_ROWS;
    while (step < rows / MAX_STEPS)
        step *= 2;
    const int64_t rounded = rows > 0 ? round_up(rows, step) : step;
    return min64(rounded, max);
}

attn_status attn_ragged_read(const struct attn_graph *graph, struct attn_memory *memory,
                             bool whole, struct attn_ragged_lists *lists,
                             attnrun_tensor *inputs)
{
    if (graph->ragged == NULL)
        return ATTNRUN_OK;
    TRY(attn_ragged_bound(graph, inputs));
    TRY(attn_ragged_reserve(graph, memory, lists, inputs));
    const attnrun_tensor *mask = &inputs[graph->ragged->mask];
    const int64_t batch = mask->dims[0], tokens = mask->dims[1];
    int64_t *samples = lists->data, *places = samples + batch * ATTN_RAGGED_FIELDS;
    int64_t rows = 0;
    for (int64_t b = 0; b < batch; b++) {
        struct attn_ragged_sample sample = { rows, 0, tokens };
        if (!whole)
            TRY(find_range(mask, graph->ragged->from_start, b, &sample));
        memcpy(samples + b * ATTN_RAGGED_FIELDS, &sample, sizeof sample);
        for (int64_t s = sample.first; s < sample.last; s++)
            places[rows++] = b * tokens + s;
        TRY(attn_poll_work((sample.last - sample.first + 64) * (int64_t)sizeof *places));
    }
    const int64_t rounded = round_rows(rows, batch * tokens);
    for (; rows < rounded; rows++)
        places[rows] = -1;
    return make_tensors(graph, rounded, places, samples, inputs);
}
