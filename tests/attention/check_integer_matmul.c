/* check_integer_matmul.c - MatMulInteger and QLinearMatMul against sums in 64 bits: to
 * the bit, and half to even. Batches that broadcast, vectors, zero points and scales of
 * all forms, extremes. */
#include <stdlib.h>

#include "operator_harness.h"

/* What a zero point or scale is for. */
enum form { ONE, LINES, MATRICES };

struct operand {
    const char *name;
    int32_t dtype;
    int64_t matrices, rows, columns; /* matrices 0: of rank 2 */
    int64_t lines;                   /* rows of A, columns of B */
    enum form form;                  /* of zeros and scales */
    const uint8_t *data;
    const uint8_t *zero; /* or NULL */
    const float *scale;
};

static int64_t at(const struct operand *x, int64_t matrix, int64_t line)
{
    return x->form == ONE ? 0 : x->form == LINES ? line : matrix * x->lines + line;
}
static int number(const uint8_t *data, int32_t dtype, int64_t i)
{
    return dtype == ATTNRUN_I8 ? (int8_t)data[i] : data[i];
}
static int zero_of(const struct operand *x, int64_t matrix, int64_t line)
{
    return x->zero == NULL ? 0 : number(x->zero, x->dtype, at(x, matrix, line));
}

static uint8_t *bytes(struct check *c, const char *name, int32_t dtype, int rank,
                      const int64_t *dims)
{
    static const uint8_t ends[] = { 0, 127, 128, 255 };
    const bool extreme = check_chance(c, 25);
    uint8_t *data = check_data(c, name, dtype, rank, dims);
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= dims[i];
    for (int64_t i = 0; i < n; i++)
        data[i] = extreme ? ends[check_below(c, 4)] : (uint8_t)check_below(c, 256);
    return data;
}

static void give_matrix(struct check *c, struct operand *x)
{
    if (x->matrices > 0)
        x->data = bytes(c, x->name, x->dtype, DIMS(x->matrices, x->rows, x->columns));
    else
        x->data = bytes(c, x->name, x->dtype, DIMS(x->rows, x->columns));
    if (x->name[0] == 'B' && check_chance(c, 50))
        check_constant(c);
}

/* Dims of a vector of the operand's form. */
static int vector_dims(const struct operand *x, bool of_b, int64_t *dims)
{
    if (x->form == ONE)
        return 0;
    if (x->form == LINES) {
        dims[0] = x->lines;
        return 1;
    }
    dims[0] = x->matrices;
    dims[1] = of_b ? 1 : x->lines;
    dims[2] = of_b ? x->lines : 1;
    return 3;
}

static void give_zero(struct check *c, struct operand *x, const char *name)
{
    int64_t dims[3] = { 0 };
    const int rank = vector_dims(x, name[0] == 'b', dims);
    x->zero = bytes(c, name, x->dtype, rank, dims);
}
static void give_scale(struct check *c, struct operand *x, const char *name)
{
    int64_t dims[3] = { 0 }, n = 1;
    const int rank = vector_dims(x, name[0] == 'b', dims);
    for (int i = 0; i < rank; i++)
        n *= dims[i];
    float *scale = check_f32(c, name, rank, dims);
    for (int64_t i = 0; i < n; i++)
        scale[i] =
            check_chance(c, 50) ? 0.5f : 0.01f + 0.001f * (float)check_below(c, 50);
    x->scale = scale;
}

static int64_t sum_of(const struct operand *a, const struct operand *b, int64_t ma,
                      int64_t mb, int64_t i, int64_t j)
{
    const int za = zero_of(a, ma, i), zb = zero_of(b, mb, j);
    int64_t sum = 0;
    for (int64_t k = 0; k < a->columns; k++)
        sum += (int64_t)(number(a->data, a->dtype, (ma * a->rows + i) * a->columns + k) -
                         za) *
               (number(b->data, b->dtype, (mb * b->rows + k) * b->columns + j) - zb);
    return sum;
}

static enum form any_form(struct check *c, const struct operand *x)
{
    return (enum form)check_below(c, x->matrices > 0 ? 3 : 2);
}

static void shape(struct check *c, struct operand *a, struct operand *b)
{
    const bool large = check_chance(c, 10);
    const int64_t max = large ? 300 : 40, batch = check_between(c, 0, 3);
    const int64_t m = check_between(c, check_chance(c, 10) ? 0 : 1, max),
                  k = check_between(c, check_chance(c, 10) ? 0 : 1, 3 * max),
                  n = check_between(c, check_chance(c, 10) ? 0 : 1, max);
    *a = (struct operand){ .name = "A", .rows = m, .columns = k, .lines = m };
    *b = (struct operand){ .name = "B", .rows = k, .columns = n, .lines = n };
    a->dtype = check_chance(c, 50) ? ATTNRUN_I8 : ATTNRUN_U8;
    b->dtype = check_chance(c, 50) ? ATTNRUN_I8 : ATTNRUN_U8;
    a->matrices = check_chance(c, 70) ? batch : check_below(c, 2);
    b->matrices = check_chance(c, 50) ? batch : check_below(c, 2);
    if (a->matrices > 1 && b->matrices > 1 && a->matrices != b->matrices)
        b->matrices = 1;
    a->form = any_form(c, a);
    b->form = any_form(c, b);
}

static int64_t largest(int64_t x, int64_t y) { return x > y ? x : y; }

static double *give_output(struct check *c, int32_t dtype, const struct operand *a,
                           const struct operand *b)
{
    const int64_t batch = largest(a->matrices, b->matrices);
    return batch > 0 ? check_output_of(c, "Y", dtype, DIMS(batch, a->rows, b->columns))
                     : check_output_of(c, "Y", dtype, DIMS(a->rows, b->columns));
}

static void check_plain(struct check *c)
{
    struct operand a, b;
    shape(c, &a, &b);
    check_begin(c, "::MatMulInteger");
    give_matrix(c, &a);
    give_matrix(c, &b);
    if (check_chance(c, 70))
        give_zero(c, &a, "a_zero");
    else
        check_absent(c);
    if (check_chance(c, 70))
        give_zero(c, &b, "b_zero");
    double *y = give_output(c, ATTNRUN_I32, &a, &b);
    const int64_t m = a.rows, n = b.columns, batch = largest(a.matrices, b.matrices);
    for (int64_t i = 0; i < largest(batch, 1) * m * n; i++) {
        const int64_t matrix = i / n / m;
        y[i] = (double)(int32_t)sum_of(&a, &b, a.matrices > 1 ? matrix : 0,
                                       b.matrices > 1 ? matrix : 0, i / n % m, i % n);
    }
    check_run(c, CHECK_EXACT);
}

static void check_qlinear(struct check *c)
{
    struct operand a, b;
    shape(c, &a, &b);
    struct operand out = { .dtype = check_chance(c, 50) ? ATTNRUN_I8 : ATTNRUN_U8,
                           .matrices = largest(a.matrices, b.matrices),
                           .lines = a.rows };
    out.form = b.matrices > a.matrices ? MATRICES : any_form(c, &out);
    check_begin(c, "::QLinearMatMul");
    give_matrix(c, &a);
    give_scale(c, &a, "a_scale");
    give_zero(c, &a, "a_zero");
    give_matrix(c, &b);
    give_scale(c, &b, "b_scale");
    give_zero(c, &b, "b_zero");
    give_scale(c, &out, "y_scale");
    give_zero(c, &out, "y_zero");
    double *y = give_output(c, out.dtype, &a, &b);
    const int64_t m = a.rows, n = b.columns, batch = largest(a.matrices, b.matrices);
    const double low = out.dtype == ATTNRUN_I8 ? -128 : 0;
    for (int64_t i = 0; i < largest(batch, 1) * m * n; i++) {
        const int64_t matrix = i / n / m, line = i / n % m;
        const int64_t ma = a.matrices > 1 ? matrix : 0, mb = b.matrices > 1 ? matrix : 0;
        /* in float, as ONNX Runtime computes it */
        const float factor = a.scale[at(&a, ma, line)] * b.scale[at(&b, mb, i % n)] /
                             out.scale[at(&out, matrix, line)];
        const float sum = (float)(int32_t)sum_of(&a, &b, ma, mb, line, i % n);
        const double v = rint((double)(sum * factor)) + zero_of(&out, matrix, line);
        y[i] = fmin(fmax(v, low), low + 255);
    }
    check_run(c, CHECK_EXACT);
}

void check_integer_matmul(struct check *c)
{
    CHECK_ROUNDS(c, 120)
    check_plain(c);
    CHECK_ROUNDS(c, 80)
    check_qlinear(c);
    check_begin(c, "::MatMulInteger");
    check_data(c, "A", ATTNRUN_U8, DIMS(2, 3));
    check_data(c, "B", ATTNRUN_I8, DIMS(3, 4));
    check_data(c, "a_zero", ATTNRUN_U8, DIMS(3));
    check_output_of(c, "Y", ATTNRUN_I32, DIMS(2, 4));
    check_refuses(c, ATTNRUN_E_SHAPE, "input 2|expected 1 or 2 elements, one per row");
}
