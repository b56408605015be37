/* blas.c - the only file that knows OpenBLAS. */
#include "../../runtime/graph.h"

#ifdef ATTN_HAVE_BLAS
#include <cblas.h>

const char *attn_blas_name(void) { return openblas_get_config(); }
#else
const char *attn_blas_name(void) { return "none"; }
#endif
