/* qlinear.c - scales and zero points of the QOperator form. qlinear.h has the interface.
 */
#include "qlinear.h"

static attn_status check_one(const attnrun_step *step, int in)
{
    if (!op_has_in(step, in) || !op_rank_known(step, in))
        return ATTNRUN_OK;
    const attnrun_type *x = &step->in[in];
    if (!dim_may_equal(op_dims_product(step, x->dims, 0, x->rank), dim_of(1)))
        return op_fail_input(step, in, ATTNRUN_E_SHAPE, "expected one number");
    return ATTNRUN_OK;
}

attn_status op_qlinear_check(const attnrun_step *step, int scale, int zero)
{
    TRY(check_one(step, scale));
    return check_one(step, zero);
}

struct op_qlinear op_qlinear_of(const attnrun_step *step, int scale, int zero)
{
    struct op_qlinear q = { .scale = *(const float *)step->x[scale].data };
    if (op_has_in(step, zero))
        q.zero = (float)tensor_get_int(&step->x[zero], 0);
    return q;
}

void op_qlinear_table(uint8_t table[256], bool is_signed, struct op_qlinear from,
                      struct op_qlinear to, float (*f)(float x, float arg), float arg)
{
    for (int i = 0; i < 256; i++) {
        float x = op_qlinear_real(is_signed, (uint8_t)i, from);
        if (f != NULL)
            x = f(x, arg);
        table[i] = op_qlinear_byte(is_signed, x / to.scale, to.zero);
    }
}
