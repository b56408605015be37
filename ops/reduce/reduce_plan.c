/* reduce_plan.c - cuts an array into kept and folded dims. reduce_plan.h has the
 * interface. */
#include "reduce_plan.h"

static void add_loop(struct reduce_loops *loops, int64_t dim, int64_t stride)
{
    loops->dims[loops->n] = dim;
    loops->strides[loops->n++] = stride;
    loops->count *= dim;
}

void attn_reduce_plan_make(struct reduce_plan *plan, int rank, const int64_t *dims,
                           uint32_t mask)
{
    memset(plan, 0, sizeof *plan);
    plan->kept.count = plan->folded.count = plan->folded_count = 1;
    int64_t stride = 1, dim = 1;
    bool first = true, folded = true;
    plan->run = 1;
    plan->run_folded = 1;
    for (int d = rank - 1; d >= -1; d--) {
        bool this_folded = d >= 0 && (mask >> d & 1) != 0;
        if (d >= 0 && dims[d] == 1)
            continue;
        if (d >= 0 && this_folded)
            plan->folded_count *= dims[d];
        if (d >= 0 && (dim == 1 || this_folded == folded)) {
            dim *= dims[d]; /* goes on in the same group */
            folded = this_folded;
            continue;
        }
        if (first) { /* the group that ends here is the fastest */
            plan->run = dim;
            plan->run_folded = folded;
            first = false;
        } else {
            add_loop(folded ? &plan->folded : &plan->kept, dim, stride);
        }
        stride *= dim;
        if (d >= 0) {
            dim = dims[d];
            folded = this_folded;
        }
    }
}
