/* check_decoder_masked_multi_head_attention.c - com.microsoft
 * DecoderMaskedMultiHeadAttention in all its forms: what it keeps, and what it gives. */
#include <stdlib.h>

#include "operator_harness.h"

enum form { SHARED, GROWING, FIRST, CROSS, FORMS };

struct decoder {
    enum form form;
    int64_t batch, heads, dim, v_dim, past, max; /* most: tokens of a shared buffer */
    int64_t bias_batch, bias_heads;              /* of attention_bias; 0: none */
    bool packed, biased, masked, scores, given;  /* given: past_sequence_length */
    double scale, filler;
    int32_t *length, *beams;
};

/* Where element d of key or value j lies; the new one is at j = past. */
struct operand {
    const float *past, *fresh, *bias;
    int64_t dim, row, tokens;
};

static double element(const struct decoder *p, const struct operand *o, int64_t b,
                      int64_t h, int64_t j, int64_t d)
{
    if (p->form == CROSS || j < p->past)
        return (double)o->past[((b * p->heads + h) * o->tokens + j) * o->dim + d];
    const double x = (double)o->fresh[b * o->row + h * o->dim + d];
    return x + (o->bias != NULL ? (double)o->bias[h * o->dim + d] : 0.0);
}

static void expect_present(const struct decoder *p, const struct operand *o,
                           int64_t tokens, double *present)
{
    for (int64_t head = 0; head < p->batch * p->heads; head++)
        for (int64_t j = 0; j < tokens; j++)
            for (int64_t d = 0; d < o->dim; d++)
                *present++ = j > p->past
                                 ? (double)o->past[(head * o->tokens + j) * o->dim + d]
                                 : element(p, o, head / p->heads, head % p->heads, j, d);
}

/* One head: `scores` are left with what the softmax is taken of. */
static void expect_head(const struct decoder *p, int64_t b, int64_t h, int64_t total,
                        const struct operand *o, const int32_t *mask, const float *bias,
                        double *scores, double *y)
{
    double max = (double)-INFINITY, sum = 0;
    const int64_t head =
        (p->bias_batch > 1 ? b * p->bias_heads : 0) + (p->bias_heads > 1 ? h : 0);
    for (int64_t j = 0; j < total; j++) {
        scores[j] = 0;
        for (int64_t d = 0; d < p->dim; d++)
            scores[j] += ((double)o[0].fresh[b * o[0].row + h * p->dim + d] +
                          (p->biased ? (double)o[0].bias[h * p->dim + d] : 0.0)) *
                         element(p, &o[1], b, h, j, d);
        scores[j] *= p->scale;
        if (bias != NULL)
            scores[j] += (double)bias[head * total + j];
        if (mask != NULL && mask[b * total + j] <= 0)
            scores[j] += p->filler;
        max = scores[j] > max ? scores[j] : max;
    }
    for (int64_t j = 0; j < total; j++)
        sum += exp(scores[j] - max);
    for (int64_t j = 0; j < total; j++)
        for (int64_t d = 0; d < p->v_dim; d++)
            y[d] += exp(scores[j] - max) / sum * element(p, &o[2], b, h, j, d);
}

static int32_t *fill_mask(struct check *c, const struct decoder *p, int64_t total)
{
    int32_t *mask = check_data(c, "mask_index", ATTNRUN_I32, DIMS(p->batch, total));
    for (int64_t i = 0; i < p->batch * total; i++)
        mask[i] = (int32_t)check_between(c, -1, 2);
    for (int64_t b = 0; b < p->batch && p->filler < -100; b++)
        mask[b * total + check_below(c, total)] = 1; /* all at -1e4 cost three digits */
    return mask;
}

/* New query, key and value, or keys and values of rank 4. */
static void add_operands(struct check *c, const struct decoder *p, struct operand o[3])
{
    static const char *const names[] = { "query", "key", "value" };
    const int64_t parts = p->packed ? 3 : 1;
    const float *data = NULL;
    for (int i = 0; i < 3; i++) {
        const int64_t width = p->heads * o[i].dim;
        if (p->packed && i > 0) {
            check_absent(c);
        } else if (p->form == CROSS && i > 0) {
            o[i].tokens = p->past;
            o[i].past =
                check_f32(c, names[i], DIMS(p->batch, p->heads, p->past, o[i].dim));
        } else {
            data = check_f32(c, names[i], DIMS(p->batch, 1, parts * width));
        }
        o[i].row = parts * width;
        o[i].fresh = p->packed ? data + i * width : data;
    }
}

static void add_past(struct check *c, struct decoder *p, struct operand o[3])
{
    const bool shared = p->form == SHARED;
    for (int i = 1; i < 3; i++) {
        if (shared || p->form == GROWING) {
            o[i].tokens = shared ? p->max : p->past;
            o[i].past = check_f32(c, i == 1 ? "past_key" : "past_value",
                                  DIMS(p->batch, p->heads, o[i].tokens, o[i].dim));
        } else {
            check_absent(c);
        }
    }
    p->length = p->beams = NULL;
    if (shared || p->given) {
        p->length = check_data(c, "past_length", ATTNRUN_I32, DIMS(1));
        *p->length = (int32_t)(p->form == FIRST ? 0 : p->past);
        /* Else the size of qk is known at run only. */
        if ((p->scores && !p->masked && p->bias_batch == 0) || check_chance(c, 30))
            check_constant(c);
    } else {
        check_absent(c);
    }
    if (check_chance(c, 30)) {
        p->beams = check_data(c, "beam_width", ATTNRUN_I32, DIMS(1));
        *p->beams = 1;
    } else {
        check_absent(c);
    }
    check_absent(c);
}

static void add_attributes(struct check *c, struct decoder *p)
{
    check_begin(c, "com.microsoft::DecoderMaskedMultiHeadAttention");
    check_int(c, "num_heads", p->heads);
    if (p->form == SHARED)
        check_int(c, "past_present_share_buffer", 1);
    if (p->scale != 0)
        check_float(c, "scale", (float)p->scale);
    else
        p->scale = 1 / sqrt((double)p->dim);
    if (p->filler != -10000)
        check_float(c, "mask_filter_value", (float)p->filler);
    if (p->scores)
        check_int(c, "output_qk", 1);
}

static void build(struct check *c, struct decoder *p)
{
    const int64_t total = p->past + (p->form == CROSS ? 0 : 1);
    struct operand o[3] = { { .dim = p->dim }, { .dim = p->dim }, { .dim = p->v_dim } };
    const int32_t *mask = NULL;
    const float *bias = NULL;
    add_attributes(c, p);
    add_operands(c, p, o);
    if (p->masked)
        mask = fill_mask(c, p, total);
    else
        check_absent(c);
    if (p->bias_batch > 0)
        bias =
            check_f32(c, "attention_bias", DIMS(p->bias_batch, p->bias_heads, 1, total));
    else
        check_absent(c);
    add_past(c, p, o);
    if (p->biased) {
        const int64_t width = p->heads * p->dim;
        o[0].bias = check_weight(c, "bias", DIMS(2 * width + p->heads * p->v_dim));
        o[1].bias = o[0].bias + width;
        o[2].bias = o[1].bias + width;
    }
    double *y = check_output(c, "output", DIMS(p->batch, 1, p->heads * p->v_dim));
    double *scores = malloc((size_t)(p->batch * p->heads * total + 1) * sizeof *scores);
    for (int64_t head = 0; head < p->batch * p->heads; head++)
        expect_head(p, head / p->heads, head % p->heads, total, o, mask, bias,
                    scores + head * total, y + head * p->v_dim);
    if (p->form != CROSS && (p->scores || check_chance(c, 70)))
        for (int i = 1; i < 3; i++) {
            const int64_t tokens = p->form == SHARED ? p->max : total;
            expect_present(p, &o[i], tokens,
                           check_output(c, i == 1 ? "present_key" : "present_value",
                                        DIMS(p->batch, p->heads, tokens, o[i].dim)));
        }
    if (p->scores)
        memcpy(check_output(c, "qk", DIMS(p->batch, p->heads, 1, total)), scores,
               (size_t)(p->batch * p->heads * total) * sizeof *scores);
    free(scores);
}

static struct decoder small(enum form form)
{
    return (struct decoder){ .form = form,
                             .batch = 2,
                             .heads = 3,
                             .dim = 4,
                             .v_dim = 4,
                             .past = 5,
                             .max = 8,
                             .masked = true,
                             .bias_batch = 1,
                             .bias_heads = 3,
                             .given = form == GROWING,
                             .filler = -3 };
}

/* Mask and bias have as many keys as there are, which the length says at run. */
static void refuse_lengths(struct check *c)
{
    struct decoder p = small(SHARED);
    build(c, &p);
    *p.length = 8;
    check_refuses(c, ATTNRUN_E_RANGE, "past_length|holds 8, expected 0 to 7");
    build(c, &p);
    *p.length = -1;
    check_refuses(c, ATTNRUN_E_RANGE, "past_length|holds -1, expected 0 to 7");
    build(c, &p);
    *p.length = 4;
    check_refuses(c, ATTNRUN_E_SHAPE, "mask_index|expected 5 in dim 1");
    p.masked = false;
    build(c, &p);
    *p.length = 6;
    check_refuses(c, ATTNRUN_E_SHAPE, "attention_bias|expected 7 in dim 3");
    p = small(GROWING);
    build(c, &p);
    *p.length = 4;
    check_refuses(c, ATTNRUN_E_RANGE, "past_length|holds 4, expected 5");
}

static void refuse_beams(struct check *c)
{
    struct decoder p = small(SHARED);
    do
        build(c, &p);
    while (p.beams == NULL);
    *p.beams = 4;
    check_refuses(c, ATTNRUN_E_UNSUPPORTED, "beam_width|holds 4, expected 1");
    check_begin(c, "com.microsoft::DecoderMaskedMultiHeadAttention");
    check_int(c, "num_heads", 2);
    check_f32(c, "query", DIMS(2, 1, 8));
    check_f32(c, "key", DIMS(2, 2, 3, 4));
    check_f32(c, "value", DIMS(2, 2, 3, 4));
    for (int i = 0; i < 6; i++)
        check_absent(c);
    check_data(c, "came_from", ATTNRUN_I32, DIMS(1, 2, 3));
    check_output(c, "output", DIMS(2, 1, 8));
    check_refuses(c, ATTNRUN_E_UNSUPPORTED, "cache_indirection|came_from|beams");
}

/* Query and keys alone. */
static void refuse_shape(struct check *c, int64_t tokens, int64_t k_width,
                         attnrun_status status, const char *words)
{
    check_begin(c, "com.microsoft::DecoderMaskedMultiHeadAttention");
    check_int(c, "num_heads", 2);
    check_f32(c, "query", DIMS(2, tokens, 8));
    check_f32(c, "key", DIMS(2, 1, k_width));
    check_f32(c, "value", DIMS(2, 1, 8));
    check_output(c, "output", DIMS(2, tokens, 8));
    check_refuses(c, status, words);
}

static void refusals(struct check *c)
{
    refuse_lengths(c);
    refuse_beams(c);
    refuse_shape(c, 2, 8, ATTNRUN_E_SHAPE, "query|expected 1 in dim 1 (one token)");
    refuse_shape(c, 1, 6, ATTNRUN_E_SHAPE, "key|expected the width of query");
    refuse_shape(c, 1, 7, ATTNRUN_E_SHAPE, "key|expected a multiple of 2 heads");
    check_begin(c, "com.microsoft::DecoderMaskedMultiHeadAttention");
    check_int(c, "num_heads", 2);
    check_int(c, "past_present_share_buffer", 1);
    check_f32(c, "query", DIMS(2, 1, 24));
    check_output(c, "output", DIMS(2, 1, 8));
    check_refuses(c, ATTNRUN_E_INPUT, "past_present_share_buffer is 1, but past_key");
}

void check_decoder_masked_multi_head_attention(struct check *c)
{
    CHECK_ROUNDS(c, 80)
    {
        struct decoder p = { .form = (enum form)check_below(c, FORMS),
                             .batch = check_between(c, 0, 3),
                             .heads = check_between(c, 1, 5),
                             .dim = check_between(c, 1, 70),
                             .past = check_between(c, 0, check_chance(c, 20) ? 600 : 40),
                             .packed = check_chance(c, 25),
                             .biased = check_chance(c, 40),
                             .masked = check_chance(c, 40),
                             .scores = check_chance(c, 25),
                             .given = check_chance(c, 20),
                             .scale = check_chance(c, 50) ? 0 : 0.25,
                             .filler = check_chance(c, 50) ? -3 : -10000 };
        if (p.form == FIRST)
            p.past = 0;
        if (p.form == CROSS && p.past == 0)
            p.past = 1;
        p.packed = p.packed && p.form != CROSS;
        p.scores = p.scores && p.form != CROSS;
        p.v_dim = p.packed || check_chance(c, 70) ? p.dim : check_between(c, 1, 40);
        p.max = p.past + check_between(c, 1, 20);
        if (check_chance(c, 40)) {
            p.bias_batch = check_chance(c, 50) ? 1 : p.batch;
            p.bias_heads = check_chance(c, 50) ? 1 : p.heads;
        }
        build(c, &p);
        check_run(c, CHECK_A);
    }
    refusals(c);
}
