/* recurrent_i8.c - the products of a recurrent layer whose weights are bytes. recurrent.h
 * describes the operands.
 *
 * X, h            u8 by their range: scale = (max - min) / 255 with 0 in the range. X has
 *                 one range, of all rows that a sequence reads; each row of h has a range
 *                 of its own at each step, so that a sequence does not depend on its
 *                 neighbours
 * W, R            i8 or u8, with a scale and a zero point for each direction, or for each
 *                 column of each direction
 * gates           sum * (scale of the row * scale of the column) + the projection, or
 *                 bias
 * packed weights  struct attn_packed (ops/matmul/gemm_bytes.h), a byte an element
 *
 * Cost: 2 T B D G H (I + H) integer operations. Source: ONNX Runtime contrib operators;
 * compared with onnxruntime 1.32.0. */
#include "../matmul/gemm_bytes.h"
#include "../quant/dynamic.h"
#include "recurrent.h"

enum { COLUMNS = RECURRENT_PROJECT_COLUMNS, READ_BYTES = 64 };

/* ---- shapes ---- */

/* [directions] or [directions, columns] */
static attn_status check_scale(const attnrun_step *step, int in, attnrun_dim directions,
                               attnrun_dim columns)
{
    if (!op_rank_known(step, in))
        return ATTNRUN_OK;
    TRY(op_need_rank_between(step, in, 1, 2));
    TRY(op_need_dim(step, in, 0, directions, "directions"));
    return step->in[in].rank == 1
               ? ATTNRUN_OK
               : op_need_dim(step, in, 1, columns, "gates times hidden size");
}

static attn_status recurrent_i8_check_weights(const attnrun_step *step, int in,
                                              attnrun_dim directions, attnrun_dim rows,
                                              attnrun_dim columns)
{
    if (!op_rank_known(step, in))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, in, 3));
    TRY(op_need_dim(step, in, 0, directions, "directions"));
    TRY(op_need_dim(step, in, 1, rows, in == RECURRENT_W ? "inputs" : "hidden size"));
    return op_need_dim(step, in, 2, columns, "gates times hidden size");
}

attn_status attn_recurrent_check_i8(const attnrun_step *step, attnrun_dim directions,
                                    attnrun_dim inputs, attnrun_dim hidden,
                                    attnrun_dim gates)
{
    TRY(recurrent_i8_check_weights(step, RECURRENT_W, directions, inputs, gates));
    TRY(recurrent_i8_check_weights(step, RECURRENT_R, directions, hidden, gates));
    for (int in = RECURRENT_W_SCALE; in <= RECURRENT_R_ZERO; in++)
        TRY(check_scale(step, in, directions, gates));
    return ATTNRUN_OK;
}

bool attn_recurrent_sizes_i8(const struct attn_kernels *kernels,
                             struct recurrent_state *s)
{
    const int64_t columns = s->gates * s->hidden;
    const int64_t w = attn_integer_packed_bytes(kernels, s->inputs, columns);
    const int64_t r = attn_integer_packed_bytes(kernels, s->hidden, columns);
    if (w < 0 || r < 0)
        return false;
    s->w_bytes = round_up(w, 64);
    s->r_bytes = round_up(r, 64);
    s->r2_bytes = 0;
    return true;
}

/* Byte offsets into the scratch of one product of up to `rows` rows. */
struct recurrent_room {
    int64_t sums, scales, zeros, bytes, ranges, end;
};

static struct recurrent_room room_of(const struct recurrent_state *s, int64_t rows)
{
    struct recurrent_room room = {
        .sums = round_up(4 * (int64_t)attn_gemm_i8_scratch((size_t)rows, COLUMNS), 64)
    };
    room.scales = room.sums + 4 * rows * COLUMNS;
    room.zeros = room.scales + 4 * COLUMNS;
    room.ranges = room.zeros + round_up(4 * (rows + COLUMNS), 64);
    room.bytes = room.ranges + round_up(8 * rows, 64);
    room.end = room.bytes + round_up(RECURRENT_BLOCK * s->hidden, 64);
    return room;
}

int64_t attn_recurrent_plan_i8(attnrun_step *step)
{
    struct recurrent_state *s = step->state;
    int64_t count, range;
    if (!ck_mul(s->steps * s->batch, s->inputs, &count) ||
        !attn_dynamic_bytes(count, &range))
        return -1;
    s->range_at = round_up(step->shared_bytes, 64) + READ_BYTES;
    if (!ck_add(s->range_at, range, &s->bytes_at) ||
        !ck_add(s->bytes_at, count, &step->shared_bytes))
        return -1;
    attn_dynamic_tasks(step, 1, count);
    return room_of(s, RECURRENT_PROJECT_ROWS).end;
}

void attn_recurrent_pack_i8(const struct attn_kernels *kernels,
                            const struct recurrent_state *s, const attnrun_tensor *w,
                            const attnrun_tensor *r, int64_t d, void *to)
{
    const int64_t columns = s->gates * s->hidden;
    attn_integer_pack(kernels, to, (const uint8_t *)w->data + d * s->inputs * columns,
                      s->inputs, columns, w->dtype == ATTNRUN_I8);
    attn_integer_pack(kernels, (struct attn_packed *)(void *)((uint8_t *)to + s->w_bytes),
                      (const uint8_t *)r->data + d * s->hidden * columns, s->hidden,
                      columns, r->dtype == ATTNRUN_I8);
}

/* ---- X as bytes ---- */

/* Elements of the rows that some sequence reads; found in phase 0. */
static int64_t *elements_read(const attnrun_step *step, const attnrun_work *work)
{
    const struct recurrent_state *s = step->state;
    return (int64_t *)(void *)((uint8_t *)work->shared + s->range_at - READ_BYTES);
}

void attn_recurrent_count_i8(const attnrun_step *step, const attnrun_work *work)
{
    const struct recurrent_state *s = step->state;
    int64_t steps = 0;
    for (int64_t b = 0; b < s->batch; b++) {
        const int64_t length = attn_recurrent_length(step, b);
        steps = length > steps ? length : steps;
    }
    *elements_read(step, work) = steps * s->batch * s->inputs;
}

attn_status attn_recurrent_quantize_i8(const attnrun_step *step, const attnrun_work *work)
{
    const struct recurrent_state *s = step->state;
    const float *x = step->x[RECURRENT_X].data;
    const int64_t count = tensor_count(&step->x[RECURRENT_X]);
    const int64_t read = *elements_read(step, work);
    uint8_t *shared = work->shared;
    float *range = (float *)(void *)(shared + s->range_at);
    attnrun_work chunks = *work;
    if (work->phase == 1) {
        if (chunks.end > op_chunks(read))
            chunks.end = op_chunks(read);
        attn_dynamic_ranges(step, &chunks, x, read, range);
    } else if (work->phase == 2) {
        attn_dynamic_whole(range, read);
    } else {
        attn_dynamic_quantize(step, work, shared + s->bytes_at, x, count, range);
    }
    return OP_CANCELLED(work) ? ATTNRUN_E_CANCELLED : ATTNRUN_OK;
}

/* ---- products ---- */

/* m rows of bytes `a`, row i with ranges[i * range_row] = {scale, zero point}, times columns
 * of packed weights: to = sum * scales + add. */
struct product {
    const attnrun_step *step;
    const uint8_t *a;
    const float *ranges;
    const struct attn_packed *packed;
    const attnrun_tensor *scale, *zero; /* of the weights of all directions */
    float *to;
    const float *add;
    int64_t range_row, a_row, m, k, column, n, d, to_row, add_row;
};

/* The element for a column of direction d. */
static int64_t recurrent_i8_place(const attnrun_tensor *x, int64_t d, int64_t column)
{
    return x->rank == 1 ? d : d * x->dims[1] + column;
}

static void recurrent_i8_multiply(const struct product *p, uint8_t *scratch)
{
    const struct recurrent_state *s = p->step->state;
    const struct attn_kernels *k = p->step->kernels;
    const struct recurrent_room room = room_of(s, p->m);
    uint32_t *sums = (uint32_t *)(void *)(scratch + room.sums);
    float *scales = (float *)(void *)(scratch + room.scales);
    int32_t *zeros = (int32_t *)(void *)(scratch + room.zeros);
    struct attn_gemm_i8 g = { .a = p->a,
                              .a_row = p->a_row,
                              .a_zero = zeros,
                              .b_zero = zeros + p->m,
                              .c = sums,
                              .c_row = p->n,
                              .m = (size_t)p->m,
                              .n = (size_t)p->n,
                              .k = (size_t)p->k,
                              .scratch = (uint32_t *)(void *)scratch };
    for (int64_t i = 0; i < p->m; i++)
        zeros[i] = (int32_t)p->ranges[i * p->range_row + 1];
    for (int64_t j = 0; j < p->n; j++)
        zeros[p->m + j] =
            attn_integer_at(p->zero, recurrent_i8_place(p->zero, p->d, p->column + j));
    attn_integer_packed_columns(p->packed, p->column, &g);
    k->gemm_i8(&g);
    for (int64_t i = 0; i < p->m; i++) {
        const float *scale = p->scale->data;
        for (int64_t j = 0; j < p->n; j++)
            scales[j] = p->ranges[i * p->range_row] *
                        scale[recurrent_i8_place(p->scale, p->d, p->column + j)];
        k->rescale_i32(p->to + i * p->to_row, (const int32_t *)sums + i * p->n, scales, 1,
                       p->add + i * p->add_row, (size_t)p->n);
    }
}

void attn_recurrent_project_i8(const attnrun_step *step, const attnrun_work *work,
                               int64_t d, int64_t row, int64_t m, int64_t column,
                               int64_t n)
{
    const struct recurrent_state *s = step->state;
    const int64_t columns = s->gates * s->hidden, rows = s->steps * s->batch;
    uint8_t *shared = work->shared;
    float *floats = work->shared;
    const struct product product = {
        .step = step,
        .a = shared + s->bytes_at + row * s->inputs,
        .ranges = (const float *)(const void *)(shared + s->range_at),
        .packed = attn_recurrent_packed(step, work, d),
        .scale = &step->x[RECURRENT_W_SCALE],
        .zero = &step->x[RECURRENT_W_ZERO],
        .to = floats + s->gates_at + (d * rows + row) * columns + column,
        .add = floats + s->bias_at + d * columns + column,
        .a_row = s->inputs,
        .m = m,
        .k = s->inputs,
        .column = column,
        .n = n,
        .d = d,
        .to_row = columns,
    };
    recurrent_i8_multiply(&product, work->scratch);
}

void attn_recurrent_gates_i8(const struct recurrent_cell *cell)
{
    const struct recurrent_state *s = cell->state;
    const struct attn_kernels *k = cell->step->kernels;
    const int64_t columns = s->gates * s->hidden;
    const struct recurrent_room room = room_of(s, cell->rows);
    uint8_t *scratch = (uint8_t *)(void *)cell->scratch, *bytes = scratch + room.bytes;
    float *ranges = (float *)(void *)(scratch + room.ranges);
    for (int64_t i = 0; i < cell->rows; i++) {
        const float *h = cell->h + i * s->hidden;
        const size_t n = (size_t)s->hidden;
        float *pair = ranges + 2 * i;
        attn_dynamic_pair(k->reduce_min_f32(h, n), k->reduce_max_f32(h, n), pair);
        if (pair[0] > 0)
            k->quantize_u8_f32(bytes + i * s->hidden, h, pair[0], pair[1], n);
        else
            memset(bytes + i * s->hidden, 0, n);
    }
    struct product product = { .step = cell->step,
                               .a = bytes,
                               .ranges = ranges,
                               .packed = cell->r,
                               .scale = &cell->step->x[RECURRENT_R_SCALE],
                               .zero = &cell->step->x[RECURRENT_R_ZERO],
                               .range_row = 2,
                               .a_row = s->hidden,
                               .m = cell->rows,
                               .k = s->hidden,
                               .d = cell->direction,
                               .to_row = columns,
                               .add_row = columns };
    for (int64_t column = 0; column < columns; column += COLUMNS) {
        product.column = column;
        product.n = columns - column < COLUMNS ? columns - column : COLUMNS;
        product.to = cell->gates + column;
        product.add = product.to;
        recurrent_i8_multiply(&product, scratch);
    }
}
