/* passes.c - the list of rewrite passes. In: the rows of passes.def, or those of them
 * that the file of ATTNRUN_OPS names. If only packed files are opened, which are
 * rewritten already (ATTNRUN_ONNX=OFF), there are none. Out: attn_passes[]. */
#include "../../runtime/graph.h"

#ifdef ATTN_PASSES_LISTED
#define ROWS "passes_used.def"
#else
#define ROWS "passes.def"
#endif

#define PASS(name) extern const struct attn_pass attn_pass_##name;
#include ROWS
#undef PASS

const struct attn_pass *const attn_passes[] = {
#define PASS(name) &attn_pass_##name,
#include ROWS
#undef PASS
    NULL,
};
