/* compiled.c - a program that contains its model and reads no file.
 *
 *     attnrun compile net.onnx -o net.c
 *     cc compiled.c net.c -DMODEL=model_net $(pkg-config --cflags --libs-only-L attnrun) \
 *         -l:libattnrun.a -lpthread -ldl -lm
 *
 * The model runs with the instruction set that it was compiled for (--isa), also on a CPU that has
 * a better one.
 *
 * The inputs are f32 or i64 and all ones; symbolic dims are 2. The program prints the elements of
 * the first output, which is f32. */
#include <attnrun.h>
#include <stdio.h>

enum { MAX_INPUTS = 8, MAX_ELEMENTS = 4096, OPEN_DIM = 2 };

extern const attnrun_source MODEL;

static attnrun_status set_ones(attnrun_model *model, attnrun_context *context, int32_t i)
{
    static int64_t numbers[MAX_INPUTS][MAX_ELEMENTS]; /* room for floats, too */
    int64_t dims[ATTNRUN_MAX_RANK];
    attnrun_tensor tensor;
    attnrun_value_info info = { .struct_size = sizeof info };
    attnrun_status status = attnrun_model_input(model, i, &info);
    for (int32_t d = 0; status == ATTNRUN_OK && d < info.rank; d++)
        dims[d] = info.dims[d] < 0 ? OPEN_DIM : info.dims[d];
    if (status == ATTNRUN_OK)
        status = attnrun_tensor_make(info.dtype, info.rank, dims, numbers[i], &tensor);
    if (status != ATTNRUN_OK || attnrun_tensor_count(&tensor) > MAX_ELEMENTS)
        return status != ATTNRUN_OK ? status : ATTNRUN_E_LIMIT;
    for (int64_t k = 0; k < attnrun_tensor_count(&tensor); k++)
        if (info.dtype == ATTNRUN_F32)
            ((float *)tensor.data)[k] = 1;
        else
            numbers[i][k] = 1;
    return attnrun_set_input(context, i, &tensor);
}

int main(void)
{
    attnrun_model *model = NULL;
    attnrun_context *context = NULL;
    attnrun_tensor y;
    attnrun_model_info info = { .struct_size = sizeof info };
    attnrun_status status = attnrun_model_open(NULL, &MODEL, &model);
    if (status == ATTNRUN_OK)
        status = attnrun_model_query(model, &info);
    if (status == ATTNRUN_OK)
        status = attnrun_context_create(model, &context);
    for (int32_t i = 0; status == ATTNRUN_OK && i < info.n_inputs; i++)
        status = i < MAX_INPUTS ? set_ones(model, context, i) : ATTNRUN_E_LIMIT;
    if (status == ATTNRUN_OK)
        status = attnrun_run(context, NULL);
    if (status == ATTNRUN_OK)
        status = attnrun_output(context, 0, &y);
    if (status == ATTNRUN_OK)
        for (int64_t k = 0; k < attnrun_tensor_count(&y); k++)
            printf("%.9g\n", (double)((float *)y.data)[k]);
    else
        fprintf(stderr, "compiled: %s\n", attnrun_last_error()->message);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    return attnrun_status_exit(status);
}
