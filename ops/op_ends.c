/* op_ends.c - where the rows of a list end. In: the END rows of the file that ATTNRUN_OPS
 * of CMake names. END(domain, name, since) is the next version of an operator, which has
 * no row here. Out: the same as a list, which is empty in a library with all rows. The
 * file is separate from op_list.c, which a program with a list of its own leaves out. */
#include "../runtime/graph.h"

#ifdef ATTN_OPS_LISTED
const bool attn_ops_listed = true;
#else
const bool attn_ops_listed = false;
#endif

const struct attn_op_end attn_op_ends[] = {
#ifdef ATTN_OPS_LISTED
#define END(domain, name, since) { domain, name, since },
#include "op_ends_used.def"
#undef END
#endif
    { NULL, NULL, 0 },
};
