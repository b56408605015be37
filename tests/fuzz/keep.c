/* keep.c - in: a case that ran, its inputs and its context; out: model.onnx and
 * test_data_set_0/input_N.pb and output_N.pb in a folder named by the seed. See keep.h. */
#include "keep.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "results.h"
#include "wire.h"

enum { PATH_ROOM = 1024, MAX_KEPT = 1 << 22 };

static bool can_be_kept(const attnrun_tensor *t)
{
    return fuzz_is_dense(t) && attnrun_tensor_bytes(t) <= MAX_KEPT;
}

static void write_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) {
        perror(path);
        exit(2);
    }
}

static void make_folder(const char *path)
{
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
        perror(path);
        exit(2);
    }
}

static void write_tensor(const char *folder, const char *what, int32_t index,
                         const attnrun_tensor *t)
{
    char path[PATH_ROOM];
    struct pb tensor = wire_tensor("", t);
    snprintf(path, sizeof path, "%s/test_data_set_0/%s_%d.pb", folder, what, index);
    write_file(path, tensor.data, tensor.bytes);
    pb_free(&tensor);
}

void fuzz_keep(const struct fuzz_case *c, attnrun_context *context,
               const attnrun_model_info *info)
{
    char folder[PATH_ROOM - 64], path[PATH_ROOM];
    attnrun_tensor out;
    bool whole = info->n_inputs <= FUZZ_INPUTS;
    for (int32_t i = 0; i < info->n_inputs && whole; i++)
        whole = can_be_kept(&c->fed[i]);
    for (int32_t i = 0; i < info->n_outputs && whole; i++)
        whole = attnrun_output(context, i, &out) == ATTNRUN_OK && can_be_kept(&out);
    if (!whole)
        return;
    snprintf(folder, sizeof folder, "%s/%llu", c->keep, (unsigned long long)c->seed);
    make_folder(folder);
    snprintf(path, sizeof path, "%s/test_data_set_0", folder);
    make_folder(path);
    for (int32_t i = 0; i < info->n_inputs; i++)
        write_tensor(folder, "input", i, &c->fed[i]);
    for (int32_t i = 0; i < info->n_outputs; i++)
        if (attnrun_output(context, i, &out) == ATTNRUN_OK)
            write_tensor(folder, "output", i, &out);
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    write_file(path, c->model, c->bytes);
}
