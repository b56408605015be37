/* show_constant.c - prints what the library makes of a constant, for test_tensors.py.
 *
 * usage: show_constant FLAGS NAME MODEL...
 * A line for each model: "STATUS sentence", or "0 DTYPE dims,… HEX" with the bytes of the
 * elements; strings are printed as their bytes, each behind "/". */
#include <stdio.h>
#include <stdlib.h>

#include "attnrun.h"

static void print_bytes(const void *data, int64_t bytes)
{
    for (int64_t k = 0; k < bytes; k++)
        printf("%02x", ((const unsigned char *)data)[k]);
}

static void print_tensor(const attnrun_tensor *t)
{
    printf("0 %d ", t->dtype);
    for (int32_t k = 0; k < t->rank; k++)
        printf("%lld,", (long long)t->dims[k]);
    printf(" ");
    if (t->dtype != ATTNRUN_STRING) {
        print_bytes(t->data, attnrun_tensor_bytes(t));
    } else {
        const attnrun_string *strings = t->data;
        for (int64_t k = 0; k < attnrun_tensor_count(t); k++) {
            printf("/");
            print_bytes(strings[k].data, strings[k].n);
        }
    }
    printf("\n");
}

static void show(attnrun_runtime *runtime, uint32_t flags, const char *name,
                 const char *path)
{
    attnrun_source source = { .struct_size = sizeof source,
                              .flags = flags,
                              .path = path };
    attnrun_value_info info = { .struct_size = sizeof info };
    attnrun_model *model = NULL;
    attnrun_status status = attnrun_model_open(runtime, &source, &model);
    if (status == ATTNRUN_OK)
        status = attnrun_model_value(model, name, &info);
    if (status != ATTNRUN_OK)
        printf("%d %s\n", status, attnrun_last_error()->message);
    else if (info.constant == NULL)
        printf("-1 not a constant\n");
    else
        print_tensor(info.constant);
    attnrun_model_release(model);
}

int main(int argc, char **argv)
{
    attnrun_runtime *runtime = NULL;
    if (argc < 4 || attnrun_runtime_create(NULL, &runtime) != ATTNRUN_OK)
        return 2;
    for (int k = 3; k < argc; k++)
        show(runtime, (uint32_t)atoi(argv[1]), argv[2], argv[k]);
    attnrun_runtime_destroy(runtime);
    return 0;
}
