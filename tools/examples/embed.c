/* embed.c - runs a model whose input is f32[N,3], from C or C++:  embed model.onnx
 *
 *     cc embed.c $(pkg-config --cflags --libs attnrun) */
#include <attnrun.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    float data[] = { 1, -2, 3, -4, 5, -6 };
    int64_t dims[] = { 2, 3 };
    attnrun_source source;
    attnrun_tensor x, y;
    attnrun_model *model = NULL;
    attnrun_context *context = NULL;
    memset(&source, 0, sizeof source); /* zero is the default of what is not set */
    source.struct_size = sizeof source;
    source.path = argv[argc - 1];

    attnrun_status status = attnrun_model_open(NULL, &source, &model);
    if (status == ATTNRUN_OK)
        status = attnrun_context_create(model, &context);
    if (status == ATTNRUN_OK)
        status = attnrun_tensor_make(ATTNRUN_F32, 2, dims, data, &x);
    if (status == ATTNRUN_OK)
        status =
            attnrun_set_input(context, 0, &x); /* kept by reference until the run ends */
    if (status == ATTNRUN_OK)
        status = attnrun_run(context, NULL);
    if (status == ATTNRUN_OK)
        status = attnrun_output(context, 0, &y); /* valid until the next run */
    if (status == ATTNRUN_OK)
        for (int64_t k = 0; k < attnrun_tensor_count(&y); k++)
            printf("%g\n", (double)((float *)y.data)[k]);
    else
        fprintf(stderr, "embed: %s\n", attnrun_last_error()->message);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    return attnrun_status_exit(status);
}
