/* byte_table.c - ByteTable: a function of bytes, Y = table[X].
 *
 * X, Y   u8 of one shape; table u8 [256]
 *
 * The pass blocked_layout writes it for functions of quantized maps. Cost: one pass. */
#include "../elementwise/elementwise.h"
#include "../kernels/kernels.h"

static attn_status byte_table_infer(attnrun_step *step)
{
    TRY(op_need_vector(step, 1, dim_of(256), "bytes"));
    TRY(op_out_like(step, 0, 0));
    attnrun_step_inplace(step, 0, 0);
    elementwise_tasks(step, 400);
    return ATTNRUN_OK;
}

static attn_status byte_table_run(const attnrun_step *step, const attnrun_work *work)
{
    int64_t begin, end;
    elementwise_range(work, tensor_count(&step->x[0]), &begin, &end);
    if (begin < end)
        step->kernels->look_up_u8((uint8_t *)step->y[0].data + begin,
                                  (const uint8_t *)step->x[0].data + begin,
                                  step->x[1].data, (size_t)(end - begin));
    return ATTNRUN_OK;
}

const attnrun_op_def op_byte_table_1 = {
    OP_ROW_OF("attnrun.fused"), .name = "ByteTable", .since = 1,
    .inputs = "X:u8 table:u8",  .outputs = "Y:u8",   .infer = byte_table_infer,
    .run = byte_table_run,      .cost = "O(n)",
};
