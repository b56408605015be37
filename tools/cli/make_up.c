/* make_up.c - inputs that were not given, made up so that a model of its kind runs: token
 * ids within the table that they index, masks of ones, positions in order, lengths, an empty past,
 * images and other numbers from a normal distribution. The same seed gives the same
 * values. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../io/map.h"
#include "inputs.h"

/* splitmix64 */
static uint64_t next_bits(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* In (0, 1). */
static double next_uniform(uint64_t *state)
{
    return ((double)(next_bits(state) >> 11) + 0.5) * 0x1p-53;
}

/* Box and Muller: two numbers a turn. */
static void fill_normal(const attnrun_tensor *tensor, uint64_t state)
{
    const double two_pi = 6.283185307179586;
    int64_t n = attnrun_tensor_count(tensor);
    for (int64_t k = 0; k < n; k += 2) {
        double radius = sqrt(-2 * log(next_uniform(&state)));
        double angle = two_pi * next_uniform(&state);
        value_set(tensor, k, radius * cos(angle));
        if (k + 1 < n)
            value_set(tensor, k + 1, radius * sin(angle));
    }
}

static void fill_below(const attnrun_tensor *tensor, uint64_t state, int64_t rows)
{
    int64_t n = attnrun_tensor_count(tensor);
    for (int64_t k = 0; k < n; k++)
        value_set_int(tensor, k, (int64_t)(next_bits(&state) % (uint64_t)rows));
}

static void fill_same(const attnrun_tensor *tensor, int64_t value)
{
    int64_t n = attnrun_tensor_count(tensor);
    for (int64_t k = 0; k < n; k++)
        value_set_int(tensor, k, value);
}

/* 0, 1, 2, … along the last dimension, below `rows` (0: no bound). */
static void fill_positions(const attnrun_tensor *tensor, int64_t rows)
{
    int64_t n = attnrun_tensor_count(tensor);
    int64_t length = tensor->rank > 0 ? tensor->dims[tensor->rank - 1] : 1;
    for (int64_t k = 0; k < n; k++)
        value_set_int(tensor, k, rows > 0 ? k % length % rows : k % length);
}

static uint64_t seed_of(const struct inputs *inputs, const char *name)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (; *name != 0; name++)
        hash = (hash ^ (unsigned char)*name) * UINT64_C(1099511628211);
    return hash ^ (uint64_t)inputs->cli->seed * UINT64_C(0x2545f4914f6cdd1d);
}

static bool named(const struct input *input, const char *part)
{
    return strcasestr(input->info.name, part) != NULL;
}

/* The size that sequences have in this run. */
static int64_t sequence_length(const struct inputs *inputs)
{
    for (int64_t i = 0; i < inputs->n_symbols; i++)
        if (inputs->symbols[i].class == DIM_SEQUENCE && inputs->symbols[i].value > 0)
            return inputs->symbols[i].value;
    return sizes_default(inputs, DIM_SEQUENCE);
}

static void fill_positions_of(struct input *input, int64_t rows)
{
    fill_positions(&input->held.tensor, rows);
    snprintf(input->how, sizeof input->how, "0, 1, 2, ...");
}

static attnrun_status fill_ids(struct inputs *inputs, struct input *input)
{
    const attnrun_tensor *tensor = &input->held.tensor;
    char table[96] = "";
    int64_t rows;
    TRY(trace_table_rows(inputs, input->info.name, &rows, table, sizeof table));
    if (named(input, "position") || named(input, "pos_ids")) {
        fill_positions_of(input, rows);
        return ATTNRUN_OK;
    }
    input->random = true;
    if (rows > 0) {
        fill_below(tensor, seed_of(inputs, input->info.name), rows);
        snprintf(input->how, sizeof input->how, "random 0..%" PRId64 " (rows of '%s')",
                 rows - 1, table);
        return ATTNRUN_OK;
    }
    fill_below(tensor, seed_of(inputs, input->info.name), 2);
    snprintf(input->how, sizeof input->how, "random 0..1");
    return ATTNRUN_OK;
}

static void fill_same_as(struct input *input, int64_t value, const char *how)
{
    fill_same(&input->held.tensor, value);
    if (how != NULL)
        snprintf(input->how, sizeof input->how, "%s", how);
    else
        snprintf(input->how, sizeof input->how, "%" PRId64, value);
}

/* Samples a second: models are trained for some rate, most of those that listen to speech
 * for 16 kHz. */
static bool is_rate(const struct input *input)
{
    bool word = strcasecmp(input->info.name, "sr") == 0 || named(input, "sample_rate") ||
                named(input, "sampling_rate") || named(input, "samplerate");
    return word && attnrun_tensor_count(&input->held.tensor) == 1;
}

static attnrun_status fill_integers(struct inputs *inputs, struct input *input)
{
    if (is_rate(input))
        fill_same_as(input, 16000, NULL);
    else if (named(input, "mask"))
        fill_same_as(input, 1, "ones");
    else if (named(input, "type_id") || named(input, "segment"))
        fill_same_as(input, 0, "zeros");
    else if (named(input, "past") && attnrun_tensor_count(&input->held.tensor) <= 1)
        fill_same_as(input, 0, NULL);
    else if (named(input, "cache_position"))
        fill_positions_of(input, 0);
    else if (named(input, "len"))
        fill_same_as(input, sequence_length(inputs), NULL);
    else
        return fill_ids(inputs, input);
    return ATTNRUN_OK;
}

static attnrun_status fill_tensor(struct inputs *inputs, struct input *input)
{
    int32_t dtype = input->info.dtype;
    if (dtype == ATTNRUN_BOOL) {
        bool ones = named(input, "mask");
        fill_same_as(input, ones, ones ? "ones" : "zeros");
    } else if (value_is_int(dtype)) {
        return fill_integers(inputs, input);
    } else if (dtype == ATTNRUN_STRING) {
        snprintf(input->how, sizeof input->how, "empty strings");
    } else if (named(input, "mask")) {
        fill_same_as(input, 1, "ones");
    } else {
        input->random = true;
        fill_normal(&input->held.tensor, seed_of(inputs, input->info.name));
        snprintf(input->how, sizeof input->how, "N(0,1)");
    }
    return ATTNRUN_OK;
}

/* An empty sequence or map, or an optional of nothing. */
static attnrun_status make_up_container(struct input *input)
{
    attnrun_tensor *tensor = &input->held.tensor;
    memset(&input->held, 0, sizeof input->held);
    tensor->kind = input->info.kind;
    tensor->dtype = input->info.dtype;
    if (tensor->kind == ATTNRUN_MAP)
        return json_parse_map("{}", input->info.key_dtype, input->info.dtype,
                              &input->held);
    if (tensor->kind == ATTNRUN_SEQUENCE || tensor->kind == ATTNRUN_MAP_SEQUENCE) {
        tensor->rank = 1;
        tensor->strides[0] = (int64_t)sizeof(attnrun_tensor);
        input->held.memory = tensor->data = calloc(1, sizeof(attnrun_tensor));
        if (tensor->data == NULL)
            return tool_fail(ATTNRUN_E_MEMORY, "no memory for a sequence");
    }
    snprintf(input->how, sizeof input->how, "empty");
    return ATTNRUN_OK;
}

attnrun_status make_up_shape(struct inputs *inputs, struct input *input)
{
    const attnrun_value_info *info = &input->info;
    int64_t dims[ATTNRUN_MAX_RANK];
    int32_t rank = input->shape_rank >= 0 ? input->shape_rank : info->rank;
    if (info->kind != ATTNRUN_TENSOR && info->kind != ATTNRUN_ABSENT)
        return make_up_container(input);
    if (rank < 0) {
        tool_fail(ATTNRUN_E_INPUT,
                  "the model does not say how many dimensions input '%s' has",
                  tool_quote(info->name));
        tool_hint("--shape %s=..., or -i %s=...", tool_quote(info->name),
                  tool_quote(info->name));
        return ATTNRUN_E_INPUT;
    }
    for (int32_t d = 0; d < rank; d++)
        if (input->shape_rank >= 0)
            dims[d] = input->dims[d];
        else
            TRY(symbols_dim(inputs, input, d, &dims[d]));
    attnrun_status status =
        attnrun_tensor_make(info->dtype, rank, dims, NULL, &input->held.tensor);
    if (status != ATTNRUN_OK) {
        tool_fail_library(status);
        return tool_fail_at("input '%s'", tool_quote(info->name));
    }
    return ATTNRUN_OK;
}

attnrun_status make_up_data(struct inputs *inputs, struct input *input)
{
    attnrun_tensor shape = input->held.tensor;
    if (shape.kind != ATTNRUN_TENSOR)
        return ATTNRUN_OK;
    attnrun_status status =
        held_make(&input->held, shape.dtype, shape.rank, shape.dims, inputs->max_bytes);
    if (status != ATTNRUN_OK)
        return tool_fail_at("input '%s'", tool_quote(input->info.name));
    TRY(fill_tensor(inputs, input));
    if (attnrun_tensor_count(&input->held.tensor) == 0) {
        input->random = false;
        snprintf(input->how, sizeof input->how, "empty");
    }
    return ATTNRUN_OK;
}
