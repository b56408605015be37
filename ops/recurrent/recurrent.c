/* recurrent.c - shapes, packing and the loop over the steps of RNN, GRU and LSTM.
 * recurrent.h describes the operands and the cost. */
#include "../storage.h"
#include "../matmul/gemm_bytes.h"
#include "recurrent.h"
#include "../tile.h"

/* ---- shapes ---- */

static attn_status recurrent_need_operand(const attnrun_step *step, int in, int rank,
                                          const attnrun_dim *dims, const char *what)
{
    if (!op_has_in(step, in) || !op_rank_known(step, in))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, in, rank));
    for (int i = 0; i < rank; i++)
        TRY(op_need_dim(step, in, i, dims[i], what));
    return ATTNRUN_OK;
}

static attn_status recurrent_check_inputs(const attnrun_step *step,
                                          const struct recurrent_kind *kind,
                                          int directions, attnrun_dim batch,
                                          attnrun_dim inputs, attnrun_dim hidden)
{
    const struct recurrent_args *args = step->args;
    attnrun_dim d = dim_of(directions);
    attnrun_dim gates = attnrun_dim_mul(step, hidden, dim_of(kind->gates));
    attnrun_dim biases = attnrun_dim_mul(step, gates, dim_of(2));
    attnrun_dim peepholes = attnrun_dim_mul(step, hidden, dim_of(3));
    bool batch_first = args->layout != 0;
    attnrun_dim state[3] = { batch_first ? batch : d, batch_first ? d : batch, hidden };
    if (kind->quantized) {
        TRY(attn_recurrent_check_i8(step, d, inputs, hidden, gates));
    } else {
        TRY(recurrent_need_operand(step, RECURRENT_W, 3,
                                   (attnrun_dim[]){ d, gates, inputs },
                                   "directions, gates times hidden size, inputs"));
        TRY(recurrent_need_operand(step, RECURRENT_R, 3,
                                   (attnrun_dim[]){ d, gates, hidden },
                                   "directions, gates times hidden size, hidden size"));
    }
    TRY(recurrent_need_operand(step, RECURRENT_B, 2, (attnrun_dim[]){ d, biases },
                               "directions, twice gates times hidden size"));
    TRY(recurrent_need_operand(step, RECURRENT_LENGTHS, 1, &batch, "the batch"));
    TRY(recurrent_need_operand(step, RECURRENT_H0, 3, state, "the state"));
    TRY(recurrent_need_operand(step, RECURRENT_C0, 3, state, "the state"));
    return recurrent_need_operand(step, RECURRENT_P, 2, (attnrun_dim[]){ d, peepholes },
                                  "directions, three times hidden size");
}

static int64_t packed_bytes(const struct recurrent_state *s)
{
    return s->w_bytes + s->r_bytes + s->r2_bytes;
}

/* Sets the sizes of packed weights; false where they are too large. */
static bool set_sizes(const struct attn_kernels *kernels,
                      const struct recurrent_kind *kind, struct recurrent_state *s)
{
    int64_t columns = s->gates * s->hidden;
    s->split = kind->split_last ? columns - s->hidden : columns;
    if (s->inputs > ATTN_MAX_ELEMENTS / (columns + 64) ||
        s->hidden > ATTN_MAX_ELEMENTS / (columns + 64))
        return false;
    if (kind->quantized)
        return attn_recurrent_sizes_i8(kernels, s);
    const int64_t w = attn_stored_bytes(s->w_dtype), r = attn_stored_bytes(s->r_dtype);
    s->w_bytes = round_up(w * s->inputs * round_up(columns, 16), 64);
    s->r_bytes = round_up(r * s->hidden * round_up(s->split, 16), 64);
    s->r2_bytes = round_up(r * s->hidden * round_up(columns - s->split, 16), 64);
    return true;
}

/* Tasks of the two phases from project_phase on. */
static void set_tasks(attnrun_step *step)
{
    struct recurrent_state *s = step->state;
    int64_t columns = s->gates * s->hidden, rows = s->steps * s->batch;
    double walk = (double)s->hidden * (double)columns / 8 + (double)columns * 4 + 200;
    walk *= (double)s->steps;
    s->row_blocks = ceil_div(rows, RECURRENT_PROJECT_ROWS);
    s->column_blocks = ceil_div(columns, RECURRENT_PROJECT_COLUMNS);
    s->blocks = ceil_div(s->batch, RECURRENT_BLOCK);
    op_tasks(step, s->project_phase, s->directions * s->row_blocks * s->column_blocks,
             RECURRENT_PROJECT_ROWS * RECURRENT_PROJECT_COLUMNS / 30 * s->inputs + 100);
    op_tasks(step, s->project_phase + 1, s->directions * s->blocks, op_ns(walk));
}

static attn_status plan_recurrent(attnrun_step *step, const struct recurrent_kind *kind)
{
    struct recurrent_state *s = step->state;
    int64_t columns = s->gates * s->hidden, rows = s->steps * s->batch;
    int64_t d = s->directions, projected, products;
    s->w_dtype = step->in[RECURRENT_W].dtype;
    s->r_dtype = step->in[RECURRENT_R].dtype;
    if (!ck_mul(s->steps, s->batch, &rows) || !ck_mul(rows, columns, &projected) ||
        projected > ATTN_MAX_ELEMENTS || !set_sizes(step->kernels, kind, s))
        return op_fail_size(step,
                            "the number of projected inputs (steps times batch times "
                            "gates) would be over 2^46, or its scratch memory",
                            "2^63 - 1 bytes");
    s->pack_in_run = step->node->packed == NULL;
    s->bias_at = s->pack_in_run ? d * packed_bytes(s) / 4 : 0;
    s->gates_at = round_up(s->bias_at + d * columns, 16);
    step->shared_bytes = 4 * (s->gates_at + d * projected);
    op_tasks(step, 0, d, (s->pack_in_run ? packed_bytes(s) / 4 : 0) + columns);
    if (kind->quantized) {
        products = attn_recurrent_plan_i8(step);
        s->project_phase = 4;
    } else {
        products =
            4 * (int64_t)attn_gemm_scratch(RECURRENT_PROJECT_ROWS,
                                           RECURRENT_PROJECT_COLUMNS, (size_t)s->inputs);
        s->project_phase = 1;
    }
    if (products < 0)
        return op_fail_size(step, "the memory of the packed weights", "2^63 - 1 bytes");
    s->gemm_floats = products / 4;
    step->scratch_bytes =
        4 * (s->gemm_floats + RECURRENT_BLOCK * (5 * s->hidden + columns));
    set_tasks(step);
    return ATTNRUN_OK;
}

static attn_status recurrent_set_outputs(attnrun_step *step,
                                         const struct recurrent_kind *kind,
                                         attnrun_dim steps, attnrun_dim batch,
                                         attnrun_dim directions, attnrun_dim hidden)
{
    const struct recurrent_args *args = step->args;
    bool batch_first = args->layout != 0;
    attnrun_dim y[4] = { steps, directions, batch, hidden };
    attnrun_dim state[3] = { directions, batch, hidden };
    if (batch_first) {
        y[0] = batch;
        y[1] = steps;
        y[2] = state[1] = directions;
        state[0] = batch;
    }
    int32_t dtype = step->in[0].dtype;
    if (step->n_out > 0)
        TRY(op_out(step, 0, dtype, 4, y));
    if (step->n_out > 1)
        TRY(op_out(step, 1, dtype, 3, state));
    if (step->n_out > 2 && kind->cell_state)
        TRY(op_out(step, 2, dtype, 3, state));
    return ATTNRUN_OK;
}

attn_status attn_recurrent_infer(attnrun_step *step, const struct recurrent_kind *kind)
{
    const struct recurrent_args *args = step->args;
    struct recurrent_state *s = step->state;
    int directions = args->direction == RECURRENT_BIDIRECTIONAL ? 2 : 1;
    bool batch_first = args->layout != 0, known = op_rank_known(step, RECURRENT_X);
    attnrun_dim hidden = attnrun_dim_unknown(step), steps = attnrun_dim_unknown(step);
    attnrun_dim batch = attnrun_dim_unknown(step), inputs = attnrun_dim_unknown(step);
    if (args->layout < 0 || args->layout > 1)
        return op_fail(step, ATTNRUN_E_ATTR, "attribute layout is %lld, expected 0 or 1",
                       (long long)args->layout);
    if (known) {
        TRY(op_need_rank(step, RECURRENT_X, 3));
        steps = step->in[RECURRENT_X].dims[batch_first ? 1 : 0];
        batch = step->in[RECURRENT_X].dims[batch_first ? 0 : 1];
        inputs = step->in[RECURRENT_X].dims[2];
    }
    if (op_rank_known(step, RECURRENT_R)) {
        TRY(op_need_rank(step, RECURRENT_R, 3));
        const int at = kind->quantized ? 1 : 2;
        hidden = step->in[RECURRENT_R].dims[at];
        if (args->hidden_size != OP_INT_ABSENT)
            TRY(op_need_dim(step, RECURRENT_R, at, dim_of(args->hidden_size),
                            "attribute hidden_size"));
    } else if (args->hidden_size != OP_INT_ABSENT) {
        hidden = dim_of(args->hidden_size);
    }
    if (dim_is_const(hidden) && (hidden.value < 1 || hidden.value > INT32_MAX))
        return op_fail(step, ATTNRUN_E_ATTR,
                       "the hidden size is %lld, expected 1 or more",
                       (long long)hidden.value);
    TRY(recurrent_check_inputs(step, kind, directions, batch, inputs, hidden));
    TRY(recurrent_set_outputs(step, kind, steps, batch, dim_of(directions), hidden));
    if (!step->concrete)
        return ATTNRUN_OK;
    s->steps = steps.value;
    s->batch = batch.value;
    s->inputs = inputs.value;
    s->hidden = hidden.value;
    s->gates = kind->gates;
    s->directions = directions;
    TRY(attn_recurrent_functions(step, kind, s));
    if (step->in[RECURRENT_X].dtype == ATTNRUN_F64) {
        attn_recurrent_plan_f64(step);
        return ATTNRUN_OK;
    }
    return plan_recurrent(step, kind);
}

/* ---- weights ---- */

/* Makes the rows of a matrix [columns, depth] the columns of a right operand. */
static void pack_matrix(const struct attn_kernels *k, int32_t dtype, void *to,
                        const void *from, int64_t depth, int64_t columns)
{
    if (columns > 0 && attn_stored_as(dtype) == ATTN_B_F32)
        k->gemm_pack_f32(to, from, 1, depth, (size_t)depth, (size_t)columns);
    else if (columns > 0)
        k->gemm_pack_16(to, from, 1, depth, (size_t)depth, (size_t)columns);
}

/* W and R of direction d, which are dense and begin with the directions. */
static void pack_direction(const struct attn_kernels *k,
                           const struct recurrent_kind *kind,
                           const struct recurrent_state *s, const attnrun_tensor *x,
                           int64_t d, void *packed)
{
    int64_t columns = s->gates * s->hidden, rest = columns - s->split;
    uint8_t *to = (uint8_t *)packed + d * packed_bytes(s);
    if (kind->quantized) {
        attn_recurrent_pack_i8(k, s, &x[RECURRENT_W], &x[RECURRENT_R], d, to);
        return;
    }
    const void *w =
        attn_stored_at(s->w_dtype, x[RECURRENT_W].data, d * columns * s->inputs);
    const int64_t r = d * columns * s->hidden;
    pack_matrix(k, s->w_dtype, to, w, s->inputs, columns);
    to += s->w_bytes;
    pack_matrix(k, s->r_dtype, to, attn_stored_at(s->r_dtype, x[RECURRENT_R].data, r),
                s->hidden, s->split);
    to += s->r_bytes;
    pack_matrix(k, s->r_dtype, to,
                attn_stored_at(s->r_dtype, x[RECURRENT_R].data, r + s->split * s->hidden),
                s->hidden, rest);
}

attn_status attn_recurrent_pack(attnrun_pack *pack, const struct recurrent_kind *kind,
                                int64_t *bytes, void *packed)
{
    const attnrun_tensor *w = &pack->x[RECURRENT_W], *r = &pack->x[RECURRENT_R];
    const int inner =
        kind->quantized ? 2 : 1; /* the axis of G H; that of I is the other */
    *bytes = 0;
    if (w->data == NULL || r->data == NULL || w->rank != 3 || r->rank != 3 ||
        w->dtype == ATTNRUN_F64 || w->dims[0] != r->dims[0] ||
        w->dims[inner] != r->dims[inner] ||
        r->dims[inner] != kind->gates * r->dims[3 - inner] || tensor_count(r) <= 0)
        return ATTNRUN_OK;
    struct recurrent_state s = { .inputs = w->dims[3 - inner],
                                 .hidden = r->dims[3 - inner],
                                 .gates = kind->gates,
                                 .w_dtype = w->dtype,
                                 .r_dtype = r->dtype };
    if (!set_sizes(pack->kernels, kind, &s))
        return ATTNRUN_OK;
    *bytes = packed_bytes(&s) * w->dims[0];
    pack->replaces = 1u << RECURRENT_W | 1u << RECURRENT_R;
    if (packed == NULL)
        return ATTNRUN_OK;
    memset(packed, 0, (size_t)*bytes);
    for (int64_t d = 0; d < w->dims[0]; d++)
        pack_direction(pack->kernels, kind, &s, pack->x, d, packed);
    return ATTNRUN_OK;
}

attn_status attn_recurrent_check_packed_i8(const attnrun_pack *pack,
                                           const struct recurrent_kind *kind,
                                           const void *packed)
{
    const attnrun_tensor *w = &pack->x[RECURRENT_W], *r = &pack->x[RECURRENT_R];
    struct recurrent_state s = { .inputs = w->dims[1],
                                 .hidden = r->dims[1],
                                 .gates = kind->gates };
    if (!set_sizes(pack->kernels, kind, &s))
        return ATTNRUN_E_MODEL; /* pack() has set them before */
    for (int64_t d = 0; d < w->dims[0]; d++) {
        const uint8_t *at = (const uint8_t *)packed + d * packed_bytes(&s);
        TRY(attn_integer_check_header(pack, at, s.inputs, s.gates * s.hidden,
                                      w->dtype == ATTNRUN_I8));
        TRY(attn_integer_check_header(pack, at + s.w_bytes, s.hidden, s.gates * s.hidden,
                                      r->dtype == ATTNRUN_I8));
    }
    return ATTNRUN_OK;
}

const void *attn_recurrent_packed(const attnrun_step *step, const attnrun_work *work,
                                  int64_t d)
{
    const struct recurrent_state *s = step->state;
    const void *packed = s->pack_in_run ? work->shared : step->node->packed;
    return (const uint8_t *)packed + d * packed_bytes(s);
}

/* ---- phases up to project_phase ---- */

static attn_status check_lengths(const attnrun_step *step)
{
    const struct recurrent_state *s = step->state;
    if (!op_has_in(step, RECURRENT_LENGTHS))
        return ATTNRUN_OK;
    const int32_t *lengths = step->x[RECURRENT_LENGTHS].data;
    for (int64_t b = 0; b < s->batch; b++)
        if (lengths[b] < 0 || lengths[b] > s->steps)
            return op_fail(step, ATTNRUN_E_RANGE,
                           "sequence_lens[%lld] is %d, expected 0 to %lld", (long long)b,
                           lengths[b], (long long)s->steps);
    return ATTNRUN_OK;
}

/* The bias of direction d that goes onto X W'. */
static void sum_bias(const attnrun_step *step, const struct recurrent_kind *kind,
                     int64_t d, float *to)
{
    const struct recurrent_args *args = step->args;
    const struct recurrent_state *s = step->state;
    int64_t columns = s->gates * s->hidden;
    if (!op_has_in(step, RECURRENT_B)) {
        memset(to, 0, (size_t)columns * sizeof(float));
        return;
    }
    const float *bias = (const float *)step->x[RECURRENT_B].data + d * 2 * columns;
    bool keep = kind->keep_bias_r && args->linear_before_reset != 0;
    int64_t summed = keep ? columns - s->hidden : columns;
    for (int64_t i = 0; i < columns; i++)
        to[i] = i < summed ? bias[i] + bias[columns + i] : bias[i];
}

static void recurrent_prepare(const attnrun_step *step, const attnrun_work *work,
                              const struct recurrent_kind *kind, int64_t d)
{
    const struct recurrent_state *s = step->state;
    float *bias = (float *)work->shared + s->bias_at + d * s->gates * s->hidden;
    sum_bias(step, kind, d, bias);
    if (kind->quantized && d == 0)
        attn_recurrent_count_i8(step, work);
    if (s->pack_in_run)
        pack_direction(step->kernels, kind, s, step->x, d, work->shared);
}

static void recurrent_project(const attnrun_step *step, const attnrun_work *work,
                              const struct recurrent_kind *kind, int64_t task)
{
    const struct recurrent_state *s = step->state;
    int64_t columns = s->gates * s->hidden, rows = s->steps * s->batch;
    const int64_t column = op_take(&task, s->column_blocks) * RECURRENT_PROJECT_COLUMNS;
    const int64_t row = op_take(&task, s->row_blocks) * RECURRENT_PROJECT_ROWS, d = task;
    int64_t n = columns - column < RECURRENT_PROJECT_COLUMNS ? columns - column
                                                             : RECURRENT_PROJECT_COLUMNS;
    int64_t m = rows - row < RECURRENT_PROJECT_ROWS ? rows - row : RECURRENT_PROJECT_ROWS;
    float *shared = work->shared;
    if (kind->quantized) {
        attn_recurrent_project_i8(step, work, d, row, m, column, n);
        return;
    }
    struct attn_epilogue bias = { .kind = ATTN_EPI_ADD,
                                  .alpha = 1.0f,
                                  .col = 1,
                                  .data = shared + s->bias_at + d * columns + column };
    struct attn_gemm_f32 g = {
        .a = (const float *)step->x[RECURRENT_X].data + row * s->inputs,
        .a_row = s->inputs,
        .b = attn_stored_at(s->w_dtype, attn_recurrent_packed(step, work, d),
                            column * s->inputs),
        .b_type = attn_stored_as(s->w_dtype),
        .packed = 1,
        .c = shared + s->gates_at + (d * rows + row) * columns + column,
        .c_row = columns,
        .m = (size_t)m,
        .n = (size_t)n,
        .k = (size_t)s->inputs,
        .epilogue = &bias,
        .n_epilogue = 1,
        .scratch = work->scratch,
    };
    step->kernels->gemm_f32(&g);
}

/* ---- the steps ---- */

/* The row of time t and sequence b in X and in the projections. */
int64_t attn_recurrent_time_row(const attnrun_step *step, int64_t t, int64_t b)
{
    const struct recurrent_args *args = step->args;
    const struct recurrent_state *s = step->state;
    return args->layout ? b * s->steps + t : t * s->batch + b;
}

int64_t attn_recurrent_y_row(const attnrun_step *step, int64_t t, int64_t b, int64_t d)
{
    const struct recurrent_args *args = step->args;
    const struct recurrent_state *s = step->state;
    if (args->layout)
        return (b * s->steps + t) * s->directions + d;
    return (t * s->directions + d) * s->batch + b;
}

int64_t attn_recurrent_state_row(const attnrun_step *step, int64_t b, int64_t d)
{
    const struct recurrent_args *args = step->args;
    const struct recurrent_state *s = step->state;
    return args->layout ? b * s->directions + d : d * s->batch + b;
}

int64_t attn_recurrent_length(const attnrun_step *step, int64_t b)
{
    if (!op_has_in(step, RECURRENT_LENGTHS))
        return ((const struct recurrent_state *)step->state)->steps;
    return ((const int32_t *)step->x[RECURRENT_LENGTHS].data)[b];
}

static void load_state(const attnrun_step *step, int in, float *to, int64_t first,
                       int64_t rows, int64_t d)
{
    const struct recurrent_state *s = step->state;
    for (int64_t r = 0; r < rows; r++, to += s->hidden) {
        if (op_has_in(step, in))
            memcpy(to,
                   (const float *)step->x[in].data +
                       attn_recurrent_state_row(step, first + r, d) * s->hidden,
                   (size_t)s->hidden * sizeof(float));
        else
            memset(to, 0, (size_t)s->hidden * sizeof(float));
    }
}

static bool wants(const attnrun_step *step, int out)
{
    return out < step->n_out && step->y[out].data != NULL;
}

static void store_row(const attnrun_step *step, int out, int64_t row, const float *from)
{
    int64_t hidden = ((const struct recurrent_state *)step->state)->hidden;
    float *to = (float *)step->y[out].data + row * hidden;
    if (from != NULL)
        memcpy(to, from, (size_t)hidden * sizeof(float));
    else
        memset(to, 0, (size_t)hidden * sizeof(float));
}

/* Step `i` of the walk of a block of sequences. Sequences that have ended keep their
 * state, and leave it to `extra` while the cell computes over all rows. */
static void walk_step(const struct recurrent_kind *kind, struct recurrent_cell *cell,
                      const float *projected, int64_t first, int64_t i, bool reverse,
                      float *kept)
{
    const attnrun_step *step = cell->step;
    const struct recurrent_state *s = cell->state;
    int64_t columns = s->gates * s->hidden;
    size_t bytes = (size_t)s->hidden * sizeof(float);
    for (int64_t r = 0; r < cell->rows; r++) {
        int64_t length = attn_recurrent_length(step, first + r);
        float *gates = cell->gates + r * columns;
        if (i >= length) {
            memset(gates, 0, (size_t)columns * sizeof(float));
            if (wants(step, 1) || (kind->cell_state && wants(step, 2))) {
                memcpy(kept + r * s->hidden, cell->h + r * s->hidden, bytes);
                memcpy(kept + (cell->rows + r) * s->hidden, cell->c + r * s->hidden,
                       bytes);
            }
            continue;
        }
        int64_t t = reverse ? length - 1 - i : i;
        memcpy(gates, projected + attn_recurrent_time_row(step, t, first + r) * columns,
               (size_t)columns * sizeof(float));
    }
    kind->cell(cell);
    for (int64_t r = 0; r < cell->rows; r++) {
        int64_t length = attn_recurrent_length(step, first + r),
                t = reverse ? length - 1 - i : i;
        float *h = cell->h + r * s->hidden, *c = cell->c + r * s->hidden;
        if (i >= length) {
            if (wants(step, 1) || (kind->cell_state && wants(step, 2))) {
                memcpy(h, kept + r * s->hidden, bytes);
                memcpy(c, kept + (cell->rows + r) * s->hidden, bytes);
            }
            t = i; /* past its end in either direction */
            h = NULL;
        }
        if (wants(step, 0))
            store_row(step, 0, attn_recurrent_y_row(step, t, first + r, cell->direction),
                      h);
    }
}

static attn_status recurrent_walk(const attnrun_step *step, const attnrun_work *work,
                                  const struct recurrent_kind *kind, int64_t task)
{
    const struct recurrent_args *args = step->args;
    const struct recurrent_state *s = step->state;
    int64_t first = op_take(&task, s->blocks) * RECURRENT_BLOCK, d = task;
    int64_t columns = s->gates * s->hidden, left = s->batch - first;
    bool reverse = args->direction == RECURRENT_REVERSE || d == 1;
    struct recurrent_cell cell = { .step = step,
                                   .state = s,
                                   .direction = (int32_t)d,
                                   .rows =
                                       left < RECURRENT_BLOCK ? left : RECURRENT_BLOCK };
    cell.scratch = work->scratch;
    cell.h = cell.scratch + s->gemm_floats;
    cell.c = cell.h + RECURRENT_BLOCK * s->hidden;
    cell.extra = cell.c + RECURRENT_BLOCK * s->hidden;
    cell.gates = cell.extra + RECURRENT_BLOCK * s->hidden;
    float *kept = cell.gates + RECURRENT_BLOCK * columns;
    cell.r = (const uint8_t *)attn_recurrent_packed(step, work, d) + s->w_bytes;
    cell.r2 = (const uint8_t *)cell.r + s->r_bytes;
    if (op_has_in(step, RECURRENT_B))
        cell.bias_r = (const float *)step->x[RECURRENT_B].data + (2 * d + 1) * columns;
    if (op_has_in(step, RECURRENT_P))
        cell.peephole = (const float *)step->x[RECURRENT_P].data + d * 3 * s->hidden;
    const float *projected = (const float *)work->shared + s->gates_at;
    projected += d * s->steps * s->batch * columns;
    load_state(step, RECURRENT_H0, cell.h, first, cell.rows, d);
    load_state(step, RECURRENT_C0, cell.c, first, cell.rows, d);
    for (int64_t i = 0; i < s->steps; i++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        walk_step(kind, &cell, projected, first, i, reverse, kept);
    }
    for (int64_t r = 0; r < cell.rows; r++) {
        int64_t row = attn_recurrent_state_row(step, first + r, d);
        if (wants(step, 1))
            store_row(step, 1, row, cell.h + r * s->hidden);
        if (kind->cell_state && wants(step, 2))
            store_row(step, 2, row, cell.c + r * s->hidden);
    }
    return ATTNRUN_OK;
}

attn_status attn_recurrent_run(const attnrun_step *step, const attnrun_work *work,
                               const struct recurrent_kind *kind)
{
    if (work->phase == 0)
        TRY(check_lengths(step));
    const struct recurrent_state *s = step->state;
    if (step->x[RECURRENT_X].dtype == ATTNRUN_F64)
        return attn_recurrent_run_f64(step, work);
    if (work->phase > 0 && work->phase < s->project_phase)
        return attn_recurrent_quantize_i8(step, work);
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (work->phase == 0)
            recurrent_prepare(step, work, kind, task);
        else if (work->phase == s->project_phase)
            recurrent_project(step, work, kind, task);
        else
            TRY(recurrent_walk(step, work, kind, task));
    }
    return ATTNRUN_OK;
}
