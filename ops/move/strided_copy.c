/* strided_copy.c - plans and runs copies between strided views. strided_copy.h has the
 * interface.
 *
 * Dims of extent 1 are dropped, and neighbouring dims that are contiguous on both sides
 * are merged. The dims that remain decide the inner loop. Extents alone decide the cut
 * into tasks. */
#include "strided_copy.h"
#include "../tile.h"

enum {
    UNIT_BYTES = 32768, /* of one unit of a run */
    TASK_BYTES = 65536, /* of the units that make a task */
    TILE_EXTENT = 64    /* of a unit of a transposition: about 64 x 64 elements */
};

/* Drops dims of 1 and merges; returns the rank left. */
static int merge(int rank, const int64_t *dims, const int64_t *from, const int64_t *to,
                 struct op_copy *c)
{
    int left = 0;
    for (int i = 0; i < rank; i++) {
        if (dims[i] == 1)
            continue;
        int last = left - 1;
        if (left > 0 && c->from[last] == from[i] * dims[i] &&
            c->to[last] == to[i] * dims[i]) {
            c->n[last] *= dims[i];
            c->from[last] = from[i];
            c->to[last] = to[i];
            continue;
        }
        c->n[left] = dims[i];
        c->from[left] = from[i];
        c->to[left++] = to[i];
    }
    return left;
}

/* Takes dim i out of the outer ones as the rows of the inner block. */
static void take_rows(struct op_copy *c, int i)
{
    c->rows = c->n[i];
    c->row_from = c->from[i];
    c->row_to = c->to[i];
    for (int k = i; k + 1 < c->n_outer; k++) {
        c->n[k] = c->n[k + 1];
        c->from[k] = c->from[k + 1];
        c->to[k] = c->to[k + 1];
    }
    c->n_outer--;
}

/* The dim that is dense in the source, where a transposition pays: else -1. */
static int dense_source_dim(const struct op_copy *c)
{
    for (int i = 0; i < c->n_outer; i++)
        if (c->from[i] == 1 && c->n[i] >= 4)
            return i;
    return -1;
}

static void strided_copy_choose(struct op_copy *c, bool bits)
{
    int tile = -1;
    if (bits)
        c->mode = OP_COPY_BITS;
    else if (c->from[c->n_outer] == 1 && c->to[c->n_outer] == 1)
        c->mode = OP_COPY_RUN;
    else if (c->from[c->n_outer] == 0)
        c->mode = OP_COPY_FILL;
    else if (c->to[c->n_outer] == 1 && (tile = dense_source_dim(c)) >= 0)
        c->mode = OP_COPY_TILE;
    else
        c->mode = OP_COPY_STRIDED;
    c->cols = c->n[c->n_outer];
    c->col_from = c->from[c->n_outer];
    c->col_to = c->to[c->n_outer];
    c->rows = 1;
    c->row_from = c->row_to = 0;
    if (tile >= 0)
        take_rows(c, tile);
    else if (c->n_outer > 0)
        take_rows(c, c->n_outer - 1);
}

/* Cuts the inner block into units, and units into tasks. */
static void strided_copy_cut(struct op_copy *c)
{
    if (c->mode == OP_COPY_TILE) {
        c->col_step = min64(c->cols, TILE_EXTENT);
        c->row_step = min64(c->rows, TILE_EXTENT * (TILE_EXTENT / c->col_step));
    } else {
        c->col_step = min64(c->cols, UNIT_BYTES / c->elem_bytes);
        c->row_step =
            max64(1, min64(c->rows, UNIT_BYTES / (c->col_step * c->elem_bytes)));
    }
    c->row_blocks = ceil_div(c->rows, c->row_step);
    c->col_blocks = ceil_div(c->cols, c->col_step);
    c->units = c->row_blocks * c->col_blocks;
    for (int i = 0; i < c->n_outer; i++)
        c->units *= c->n[i];
    int64_t elements = c->row_step * c->col_step, bytes = elements * c->elem_bytes;
    c->units_per_task = max64(1, TASK_BYTES / bytes);
    c->unit_ns = c->mode == OP_COPY_RUN ? bytes / 8 + c->row_step * 4 : elements + 8;
    if (c->mode == OP_COPY_BITS)
        c->units_per_task = c->units;
}

void op_copy_plan(struct op_copy *c, int32_t dtype, int rank, const int64_t *dims,
                  const int64_t *from, int64_t from_offset, const int64_t *to,
                  int64_t to_offset)
{
    bool bits = dtype_bits(dtype) < 8;
    int64_t unit = bits ? 1 : dtype_bytes(dtype);
    memset(c, 0, sizeof *c);
    c->dtype = dtype;
    c->elem_bytes = (int32_t)unit;
    c->from_offset = from_offset * unit;
    c->to_offset = to_offset * unit;
    for (int i = 0; i < rank; i++)
        if (dims[i] == 0)
            return; /* OP_COPY_NONE, no units */
    int left = merge(rank, dims, from, to, c);
    if (left == 0) {
        c->n[0] = c->from[0] = c->to[0] = 1;
        left = 1;
    }
    c->n_outer = left - 1;
    strided_copy_choose(c, bits);
    for (int i = 0; i < c->n_outer; i++) {
        c->from[i] *= unit;
        c->to[i] *= unit;
    }
    c->row_from *= unit;
    c->row_to *= unit;
    c->col_from *= unit;
    c->col_to *= unit;
    strided_copy_cut(c);
}

void op_copy_plan_exchange(struct op_copy *copy, int32_t dtype, int64_t batch,
                           int64_t rows, int64_t columns)
{
    const int64_t dims[3] = { batch, columns, rows };
    const int64_t from[3] = { rows * columns, 1, columns };
    const int64_t to[3] = { rows * columns, rows, 1 };
    op_copy_plan(copy, dtype, 3, dims, from, 0, to, 0);
}

bool op_copy_is_view(const struct op_copy *c, int64_t *byte_offset)
{
    if (c->mode != OP_COPY_RUN || c->rows != 1 || c->n_outer != 0 || c->to_offset != 0)
        return false;
    *byte_offset = c->from_offset;
    return true;
}

void op_copy_tasks(attnrun_step *step, int phase, const struct op_copy *c)
{
    op_unit_tasks(step, phase, c->units, c->units_per_task, (double)c->unit_ns);
}

/* ---- inner loops: rows x cols at `to` and `from` ---- */
typedef uint32_t four __attribute__((vector_size(16), aligned(1)));
typedef struct {
    uint64_t half[2];
} pair;

static void tile_4x4(char *to, int64_t row_to, const char *from, int64_t col_from)
{
    four a = *(const four *)(const void *)from;
    four b = *(const four *)(const void *)(from + col_from);
    four c = *(const four *)(const void *)(from + 2 * col_from);
    four d = *(const four *)(const void *)(from + 3 * col_from);
    four ac = __builtin_shufflevector(a, c, 0, 4, 1, 5);
    four bd = __builtin_shufflevector(b, d, 0, 4, 1, 5);
    four ac_high = __builtin_shufflevector(a, c, 2, 6, 3, 7);
    four bd_high = __builtin_shufflevector(b, d, 2, 6, 3, 7);
    *(four *)(void *)to = __builtin_shufflevector(ac, bd, 0, 4, 1, 5);
    *(four *)(void *)(to + row_to) = __builtin_shufflevector(ac, bd, 2, 6, 3, 7);
    *(four *)(void *)(to + 2 * row_to) =
        __builtin_shufflevector(ac_high, bd_high, 0, 4, 1, 5);
    *(four *)(void *)(to + 3 * row_to) =
        __builtin_shufflevector(ac_high, bd_high, 2, 6, 3, 7);
}

/* One dim of a block: its extent, and the byte strides of both sides. */
struct axis {
    int64_t n, to, from;
};

#define STRIDED(name, type)                                                              \
    static void name(char *to, const char *from, struct axis outer, struct axis inner)   \
    {                                                                                    \
        for (int64_t r = 0; r < outer.n; r++)                                            \
            for (int64_t c = 0; c < inner.n; c++)                                        \
                memcpy(to + r * outer.to + c * inner.to,                                 \
                       from + r * outer.from + c * inner.from, sizeof(type));            \
    }
STRIDED(strided_1, uint8_t)
STRIDED(strided_2, uint16_t)
STRIDED(strided_4, uint32_t)
STRIDED(strided_8, uint64_t)
STRIDED(strided_16, pair)
#undef STRIDED

static void strided(int32_t elem_bytes, char *to, const char *from, struct axis outer,
                    struct axis inner)
{
    switch (elem_bytes) {
    case 1:
        strided_1(to, from, outer, inner);
        break;
    case 2:
        strided_2(to, from, outer, inner);
        break;
    case 4:
        strided_4(to, from, outer, inner);
        break;
    case 8:
        strided_8(to, from, outer, inner);
        break;
    default:
        strided_16(to, from, outer, inner);
    }
}

/* Rows are dense in the source. As many at a time as use up each cache line that is read,
 * and more where the lines of the result that stay open lie close enough for the first
 * cache. */
static int64_t tile_rows(const struct op_copy *c)
{
    return c->row_to <= 512 && c->row_to >= -512 ? 64 : 16;
}

/* Where the units of a task follow each other along the rows, the lines of the next one
 * are prefetched: there are too many streams for the CPU's own prefetcher. */
static int64_t tile_fours(const struct op_copy *c, char *to, const char *from,
                          int64_t rows, int64_t cols)
{
    bool prefetch = c->col_blocks == 1 && rows == TILE_EXTENT;
    int64_t col = 0;
    for (; col + 4 <= cols; col += 4) {
        const char *x = from + col * c->col_from;
        for (int64_t k = 0; prefetch && k < 16; k++)
            __builtin_prefetch(x + (k & 3) * c->col_from + rows * 4 + (k >> 2) * 64);
        for (int64_t row = 0; row + 4 <= rows; row += 4)
            tile_4x4(to + row * c->row_to + col * 4, c->row_to, x + row * 4, c->col_from);
    }
    return col;
}

static void copy_tile(const struct op_copy *c, char *to, const char *from, int64_t rows,
                      int64_t cols)
{
    int64_t max_rows = tile_rows(c);
    for (int64_t row = 0; row < rows; row += max_rows) {
        int64_t n = min64(max_rows, rows - row), fours = 0, col = 0;
        char *y = to + row * c->row_to;
        const char *x = from + row * c->row_from;
        if (c->elem_bytes == 4 && n >= 4) {
            col = tile_fours(c, y, x, n, cols);
            fours = n - n % 4;
        }
        /* The rest, with the dense side of the source innermost: columns past the last 4,
         * then rows past the last 4. */
        struct axis columns = { cols - col, c->col_to, c->col_from };
        struct axis dense = { fours > 0 ? fours : n, c->row_to, c->row_from };
        strided(c->elem_bytes, y + col * c->col_to, x + col * c->col_from, columns,
                dense);
        columns.n = cols;
        dense.n = n - fours;
        if (fours > 0 && fours < n)
            strided(c->elem_bytes, y + fours * c->row_to, x + fours * c->row_from,
                    columns, dense);
    }
}

static void copy_run(const struct op_copy *c, char *to, const char *from, int64_t rows,
                     int64_t cols)
{
    size_t bytes = (size_t)(cols * c->elem_bytes);
    for (int64_t r = 0; r < rows; r++)
        if (to + r * c->row_to != from + r * c->row_from)
            memcpy(to + r * c->row_to, from + r * c->row_from, bytes);
}

/* `to` and `from` are the bases: positions of bits cannot be held in a pointer. */
static void copy_bits(const struct op_copy *c, char *to, int64_t to_at, const char *from,
                      int64_t from_at, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < cols; k++)
            attn_subbyte_set(
                c->dtype, to, to_at + r * c->row_to + k * c->col_to,
                attn_subbyte_get(c->dtype, from,
                                 from_at + r * c->row_from + k * c->col_from));
}

static void copy_unit(const struct op_copy *c, char *to, int64_t to_at, const char *from,
                      int64_t from_at, int64_t rows, int64_t cols)
{
    switch (c->mode) {
    case OP_COPY_RUN:
        copy_run(c, to + to_at, from + from_at, rows, cols);
        break;
    case OP_COPY_TILE:
        copy_tile(c, to + to_at, from + from_at, rows, cols);
        break;
    case OP_COPY_BITS:
        copy_bits(c, to, to_at, from, from_at, rows, cols);
        break;
    default:
        strided(c->elem_bytes, to + to_at, from + from_at,
                (struct axis){ rows, c->row_to, c->row_from },
                (struct axis){ cols, c->col_to, c->col_from });
    }
}

attn_status op_copy_run(const struct op_copy *c, const attnrun_work *work, void *to,
                        const void *from)
{
    if (c->mode == OP_COPY_NONE || to == NULL)
        return ATTNRUN_OK;
    int64_t first = work->begin * c->units_per_task;
    int64_t last = min64(c->units, work->end * c->units_per_task);
    for (int64_t unit = first; unit < last; unit++) {
        if ((unit & 7) == 0 && OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        int64_t left = unit, to_at = c->to_offset, from_at = c->from_offset;
        int64_t col = op_take(&left, c->col_blocks) * c->col_step;
        int64_t row = op_take(&left, c->row_blocks) * c->row_step;
        for (int i = c->n_outer - 1; i >= 0 && left > 0; i--) {
            int64_t k = op_take(&left, c->n[i]);
            to_at += k * c->to[i];
            from_at += k * c->from[i];
        }
        to_at += row * c->row_to + col * c->col_to;
        from_at += row * c->row_from + col * c->col_from;
        copy_unit(c, to, to_at, from, from_at, min64(c->row_step, c->rows - row),
                  min64(c->col_step, c->cols - col));
    }
    return ATTNRUN_OK;
}
