/* packed_only.c - what a program with compiled models says of a file that is not packed. The C file
 * that `attnrun compile` writes defines attn_onnx_open() with it, so that the linker leaves out
 * what reads ONNX. */
#include "model_open.h"

attn_status attn_packed_only(const attnrun_source *source)
{
    const uint64_t errors = attn_error_count();
    attn_fail(ATTNRUN_E_UNSUPPORTED,
              "this is not a packed file, and the program has compiled models instead of "
              "the code that reads ONNX");
    return attn_open_fail(errors, ATTNRUN_E_UNSUPPORTED, source);
}
