/* test_nd_iter.c - random broadcasts, cut into random ranges, against index arithmetic.
 */
#include <stdio.h>
#include <stdlib.h>

#include "../../ops/nd_iter.h"

static uint64_t state = 0x9e3779b97f4a7c15u;
static int below(int n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)(state >> 33) % n;
}

static int32_t values[3][65536];

struct operand {
    attnrun_tensor t;
    int64_t stride[ATTNRUN_MAX_RANK]; /* elements, in the dims of the output */
};

static void make_operand(struct operand *o, int32_t *data, int rank, const int64_t *dims)
{
    int drop = below(4) == 0 ? below(rank + 1) : 0;
    int64_t step = 1;
    memset(o, 0, sizeof *o);
    o->t.kind = ATTNRUN_TENSOR;
    o->t.dtype = ATTNRUN_I32;
    o->t.rank = rank - drop;
    o->t.data = data;
    for (int d = rank - 1; d >= drop; d--) {
        int64_t dim = below(3) == 0 ? 1 : dims[d];
        o->t.dims[d - drop] = dim;
        o->t.strides[d - drop] = step * 4;
        o->stride[d] = dim == 1 ? 0 : step;
        step *= dim;
    }
}

static int32_t expected(const struct operand *o, int rank, const int64_t *dims, int64_t k)
{
    int64_t at = 0;
    for (int d = rank - 1; d >= 0; d--) {
        at += k % dims[d] * o->stride[d];
        k /= dims[d];
    }
    return ((const int32_t *)o->t.data)[at];
}

static int test_nd_iter_equals_index_arithmetic(void)
{
    int rank = below(ATTNRUN_MAX_RANK + 1);
    int64_t dims[ATTNRUN_MAX_RANK], count = 1;
    struct operand operands[3];
    for (int d = 0; d < rank; d++) {
        dims[d] = below(20) == 0 ? 0 : 1 + below(4);
        count *= dims[d];
    }
    for (int k = 0; k < 3; k++)
        make_operand(&operands[k], values[k], rank, dims);
    for (int64_t begin = 0; begin < count;) {
        int64_t end = begin + 1 + below((int)(count - begin));
        struct nd_iter it;
        attn_nd_iter_init(&it, rank, dims);
        for (int k = 0; k < 3; k++)
            attn_nd_iter_add(&it, &operands[k].t);
        attn_nd_iter_start(&it, begin, end);
        while (attn_nd_iter_next(&it))
            for (int64_t i = 0; i < it.n; i++, begin++)
                for (int k = 0; k < 3; k++)
                    if (*(int32_t *)(it.p[k] + i * it.step[k]) !=
                        expected(&operands[k], rank, dims, begin))
                        return 0;
        if (begin != end)
            return 0;
    }
    return 1;
}

int main(void)
{
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 65536; i++)
            values[k][i] = i * 3 + k;
    for (int round = 0; round < 20000; round++)
        if (!test_nd_iter_equals_index_arithmetic()) {
            printf("test_nd_iter: round %d differs\n", round);
            return EXIT_FAILURE;
        }
    printf("test_nd_iter: 20000 random broadcasts agree\n");
    return EXIT_SUCCESS;
}
