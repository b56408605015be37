/* regex_full_match.c - RegexFullMatch: whether each string as a whole matches a pattern.
 *
 * X         strings of any shape;  Y  b8 of X's shape
 * pattern   RE2's syntax, see regex.h
 *
 * Cost: O(pattern * text). Source: ONNX RegexFullMatch-20. */
#include "regex.h"
#include "values.h"

struct regex_args {
    attnrun_string pattern;
};
static const attnrun_attr_def regex_attrs[] = {
    ATTR_STRING(struct regex_args, pattern, ""), ATTR_END
};

static attn_status regex_infer(attnrun_step *step)
{
    step->scratch_bytes = (int64_t)sizeof(struct op_regex);
    return op_out(step, 0, ATTNRUN_BOOL, step->in[0].rank, step->in[0].dims);
}

static attn_status regex_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct regex_args *args = step->args;
    const attnrun_string *x = step->x[0].data;
    struct op_regex *regex = work->scratch;
    uint8_t *y = step->y[0].data;
    int64_t n = y != NULL ? tensor_count(&step->x[0]) : 0;
    const char *wrong = op_regex_compile(regex, args->pattern.data, args->pattern.n);
    TRY(attn_poll());
    if (wrong != NULL)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED, "the pattern is not supported: %s",
                       wrong);
    for (int64_t i = 0; i < n; i++) {
        y[i] = op_regex_match(regex, x[i].data, x[i].n);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_regex_full_match_20 = { OP_ROW,
                                                .name = "RegexFullMatch",
                                                .since = 20,
                                                .inputs = "X:string",
                                                .outputs = "Y:b8",
                                                .args_bytes = sizeof(struct regex_args),
                                                .attrs = regex_attrs,
                                                .infer = regex_infer,
                                                .run = regex_run };
