/* growth.c - in: what a step is about to take; out: E_LIMIT where a few bytes would become very
 * many. Sizes that a file or an input writes down (the shape of an Expand, the end of a Range,
 * the iterations of a Loop) cost it nothing: so a step may make more than the limit
 * 'made_bytes' only of inputs that are a fair part of that. */
#include <stdio.h>

#include "dtype.h"
#include "graph.h"
#include "file_limits.h"
#include "op.h"
#include "step.h"

enum {
    GROWTH = 1024
}; /* bytes that each byte of the inputs may become, above the limit */

/* Those of captured values included; INT64_MAX where they are not known. */
static int64_t input_bytes(const struct attn_step *step)
{
    int64_t all = 0;
    for (int32_t i = 0; i < step->pub.n_in + step->node->n_captures; i++) {
        const attnrun_type *type = &step->pub.in[i];
        if (type->kind == ATTNRUN_ABSENT)
            continue;
        if (type->kind != ATTNRUN_TENSOR || type->dtype == ATTNRUN_STRING ||
            !attn_type_is_concrete(type))
            return INT64_MAX;
        const int64_t bytes = dtype_bytes_of(type->dtype, op_count(type, 0, type->rank));
        if (bytes < 0 || !ck_add(all, bytes, &all))
            return INT64_MAX;
    }
    return all;
}

attn_status op_check_growth(const attnrun_step *step, int32_t out, int64_t bytes)
{
    const struct attn_step *full = step_of(step);
    const int64_t limit = full->graph->model->limits.made_bytes;
    if (bytes <= limit || (out >= 0 && full->known_outputs[out].view_of >= 0) ||
        bytes / GROWTH < input_bytes(full))
        return ATTNRUN_OK;
    char what[32] = "its scratch memory";
    if (out >= 0)
        snprintf(what, sizeof what, "output %d", out);
    op_fail(step, ATTNRUN_E_LIMIT,
            "%s would take %lld bytes, while the inputs take %lld; expected at most %lld "
            "(limit 'made_bytes')",
            what, (long long)bytes, (long long)input_bytes(full), (long long)limit);
    attn_hint_limit(ATTN_LIMIT_MADE_BYTES);
    return ATTNRUN_E_LIMIT;
}

attn_status op_check_iterations(const attnrun_step *step, int64_t done)
{
    if (done < step_of(step)->graph->model->limits.loop_iterations)
        return ATTNRUN_OK;
    op_fail(step, ATTNRUN_E_LIMIT, "it has not ended after %s (limit 'loop_iterations')",
            attn_plural(done, "iteration"));
    attn_hint_limit(ATTN_LIMIT_LOOP_ITERATIONS);
    return ATTNRUN_E_LIMIT;
}
