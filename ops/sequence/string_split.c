/* string_split.c - StringSplit: the parts of each string between delimiters.
 *
 * x           strings of any shape
 * y           strings: x's dims and one more, which is the largest number of parts;
 *             shorter rows are filled up with ""
 * z           i64 like x: the number of parts
 * delimiter   "" (default): white space of any length, which the ends of parts do not have
 * maxsplit    at most that many cuts from the left; the rest stays together
 *
 * Cost: O(text * delimiter). Source: ONNX StringSplit-20. */
#include "values.h"

struct string_split_args {
    int64_t maxsplit;
    attnrun_string delimiter;
};
static const attnrun_attr_def split_attrs[] = {
    ATTR_INT(struct string_split_args, maxsplit, OP_INT_ABSENT),
    ATTR_STRING(struct string_split_args, delimiter, NULL), ATTR_END
};

static attn_status split_infer(attnrun_step *step)
{
    const attnrun_type *in = &step->in[0];
    TRY(op_need_rank_between(step, 0, 0, ATTNRUN_MAX_RANK - 1));
    TRY(op_out(step, 1, ATTNRUN_I64, in->rank, in->dims));
    return op_value_unknown(step, 0, ATTNRUN_TENSOR, ATTNRUN_STRING);
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* The part that begins at *at; false behind the last. `cuts`: cuts made so far. */
static bool next_part(const struct string_split_args *args, const attnrun_string *text,
                      int64_t *at, int64_t cuts, attnrun_string *part)
{
    bool spaces = args->delimiter.n == 0;
    bool rest =
        args->maxsplit != OP_INT_ABSENT && args->maxsplit >= 0 && cuts >= args->maxsplit;
    while (spaces && *at < text->n && is_space(text->data[*at]) && !attn_stops(*at))
        ++*at;
    if (spaces ? *at >= text->n : *at > text->n)
        return false;
    int64_t end = text->n, width = 1;
    while (rest && spaces && is_space(text->data[end - 1]) && !attn_stops(end))
        end--;
    if (!rest && spaces) {
        for (end = *at; end < text->n && !is_space(text->data[end]) && !attn_stops(end);
             end++)
            ;
    } else if (!rest) {
        width = args->delimiter.n;
        const char *found =
            op_text_find(text->data + *at, text->n - *at, &args->delimiter);
        end = found != NULL ? found - text->data : text->n;
    }
    *part = (attnrun_string){ text->data + *at, end - *at };
    *at = end >= text->n ? text->n + 1 : end + width;
    return true;
}

static attn_status count_parts(const attnrun_step *step, const attnrun_work *work,
                               int64_t *max)
{
    const attnrun_string *x = step->x[0].data;
    int64_t n = tensor_count(&step->x[0]),
            *z = op_has_out(step, 1) ? step->y[1].data : NULL;
    attnrun_string part;
    *max = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0, parts = 0;
        if (OP_CANCELLED_AFTER(work, x[i].n + 16))
            return ATTNRUN_E_CANCELLED;
        while (next_part(step->args, &x[i], &at, parts, &part) && !attn_stops(parts))
            parts++;
        *max = parts > *max ? parts : *max;
        if (z != NULL)
            z[i] = parts;
    }
    return ATTNRUN_OK;
}

static attn_status split_run(const attnrun_step *step, const attnrun_work *work)
{
    const attnrun_tensor *x = &step->x[0];
    const attnrun_string *from = x->data;
    int64_t dims[ATTNRUN_MAX_RANK], max = 0;
    memcpy(dims, x->dims, sizeof dims);
    TRY(attnrun_step_alloc(step, 1, ATTNRUN_I64, x->rank, dims));
    TRY(count_parts(step, work, &max));
    dims[x->rank] = max;
    TRY(attnrun_step_alloc(step, 0, ATTNRUN_STRING, x->rank + 1, dims));
    if (!op_has_out(step, 0))
        return ATTNRUN_OK;
    attnrun_string *y = step->y[0].data, part;
    for (int64_t i = 0; i < tensor_count(x); i++) {
        int64_t at = 0, parts = 0;
        if (OP_CANCELLED_AFTER(work, from[i].n + max * 16))
            return ATTNRUN_E_CANCELLED;
        /* A part that a stop ends early leaves more parts than were counted. */
        while (parts < max && next_part(step->args, &from[i], &at, parts, &part))
            y[i * max + parts++] = part;
        for (; parts < max; parts++)
            y[i * max + parts] = (attnrun_string){ "", 0 };
    }
    return op_heap_strings(step, 0, &step->y[0]);
}

const attnrun_op_def op_string_split_20 = { OP_ROW,
                                            .flags = ATTNRUN_OP_DYNAMIC,
                                            .name = "StringSplit",
                                            .since = 20,
                                            .inputs = "X:string",
                                            .outputs = "Y:string Z:i64",
                                            .args_bytes =
                                                sizeof(struct string_split_args),
                                            .attrs = split_attrs,
                                            .infer = split_infer,
                                            .run = split_run };
