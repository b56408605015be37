/* no_onnx.c - in the place of what reads and writes ONNX, in a library that opens packed files
 * alone (ATTNRUN_ONNX=OFF of CMake). In: the calls that would. Out: E_UNSUPPORTED, with a
 * sentence. */
#include "model_open.h"

static attn_status refuse_onnx(const char *what)
{
    attn_fail(ATTNRUN_E_UNSUPPORTED,
              "%s, and this library was built without ONNX (ATTNRUN_ONNX=OFF)", what);
    attn_hint("a library with ONNX makes packed files: attnrun pack model.onnx -o "
              "model.attnpack");
    return ATTNRUN_E_UNSUPPORTED;
}

/* Weak: a compiled model's C file may define it. */
__attribute__((weak)) attn_status attn_onnx_open(struct attn_model *model,
                                                 const attnrun_source *source,
                                                 const struct attn_file *file)
{
    const uint64_t errors = attn_error_count();
    (void)model;
    (void)file;
    return attn_open_fail(errors, refuse_onnx("this is not a packed file"), source);
}

attnrun_status attnrun_save_onnx(attnrun_runtime *runtime, const attnrun_source *source,
                                 const attnrun_onnx_edit *edit, attnrun_write_fn write,
                                 void *user, attnrun_onnx_saved *saved)
{
    (void)runtime, (void)source, (void)edit, (void)write, (void)user, (void)saved;
    return refuse_onnx("attnrun_save_onnx() writes ONNX");
}

attnrun_status attnrun_tensor_from_pb(attnrun_runtime *runtime, const void *data,
                                      uint64_t bytes, int32_t kind,
                                      attnrun_tensor **tensor, const char **name)
{
    (void)runtime, (void)data, (void)bytes, (void)kind, (void)tensor, (void)name;
    return refuse_onnx("attnrun_tensor_from_pb() reads ONNX");
}

/* There is none to be freed but NULL. */
void attnrun_tensor_free(attnrun_runtime *runtime, attnrun_tensor *tensor)
{
    (void)runtime, (void)tensor;
}
