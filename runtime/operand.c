/* operand.c - see operand.h. Nothing here recurses: a sequence holds tensors, an optional
 * a tensor or a sequence of them. */
#include "operand.h"

#include <stdio.h>

#include "abi.h"
#include "file_limits.h"
#include "node.h"

/* ---- values from outside ---- */

static bool tensor_has_type(const attnrun_tensor *t)
{
    if (t->rank < 0 || t->rank > ATTNRUN_MAX_RANK || attnrun_dtype_bits(t->dtype) == 0)
        return false;
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] < 0)
            return false;
    return true;
}

static bool tensor_well_formed(const attnrun_tensor *t)
{
    return tensor_has_type(t) && attn_tensor_can_exist(t);
}

bool attn_value_well_formed(const attnrun_tensor *value)
{
    bool known =
        value->dtype == ATTNRUN_UNDEFINED || attnrun_dtype_bits(value->dtype) > 0;
    switch (value->kind) {
    case ATTNRUN_TENSOR:
        return tensor_well_formed(value);
    case ATTNRUN_SEQUENCE:
    case ATTNRUN_MAP:
    case ATTNRUN_MAP_SEQUENCE:
        return known && value->rank == 1 && value->dims[0] >= 0 &&
               value->dims[0] <= ATTN_MAX_DIM;
    case ATTNRUN_OPTIONAL:
    case ATTNRUN_OPTIONAL_SEQUENCE:
        return known;
    default:
        return false;
    }
}

attn_status attn_input_check_form(const attnrun_tensor *value, int32_t index,
                                  const char *name)
{
    char what[200];
    snprintf(what, sizeof what, "input %d '%s'", index, attn_quote(name));
    TRY(attn_reserved_check((uint32_t)value->reserved, what));
    if (attn_value_well_formed(value))
        return ATTNRUN_OK;
    if (value->kind != ATTNRUN_TENSOR || !tensor_has_type(value))
        return attn_fail(ATTNRUN_E_USAGE, "input %d: the tensor struct is malformed",
                         index);
    attn_fail_limit(ATTN_LIMIT_ELEMENTS,
                    "input %d '%s' is %s, which is more than 2^46 elements", index,
                    attn_quote(name), attn_tensor_format(value));
    attn_fail_tensor(name);
    return ATTNRUN_E_LIMIT;
}

bool attn_value_may_be(const attnrun_type *type, int32_t kind, int32_t dtype)
{
    if (type->kind != ATTNRUN_ABSENT && type->kind != kind &&
        !(type->kind == ATTNRUN_OPTIONAL && kind == ATTNRUN_TENSOR) &&
        !(type->kind == ATTNRUN_OPTIONAL_SEQUENCE && kind == ATTNRUN_SEQUENCE))
        return false;
    return type->dtype == 0 || dtype == 0 || type->dtype == dtype;
}

/* One element; *dtype is set by the first where nothing is known yet. */
static attn_status check_element(const attnrun_tensor *t, int32_t *dtype, int64_t k,
                                 const char *what)
{
    TRY(attn_reserved_check((uint32_t)t->reserved, what));
    if (t->kind != ATTNRUN_TENSOR || !tensor_well_formed(t) ||
        (t->data == NULL && tensor_count(t) > 0))
        return attn_fail(ATTNRUN_E_USAGE, "%s: element %lld is not a well-formed tensor",
                         what, (long long)k);
    if (*dtype == ATTNRUN_UNDEFINED)
        *dtype = t->dtype;
    if (t->dtype != *dtype)
        return attn_fail(ATTNRUN_E_DTYPE, "%s: element %lld is %s, expected %s", what,
                         (long long)k, attn_tensor_format(t), attnrun_dtype_name(*dtype));
    return ATTNRUN_OK;
}

static attn_status operand_check_list(const attnrun_tensor *list, int32_t *dtype,
                                      const char *what)
{
    const attnrun_tensor *items = list->data;
    int64_t n = list->dims[0];
    if (n > 0 && items == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "%s: a sequence of %s has no data", what,
                         attn_plural(n, "element"));
    for (int64_t k = 0; k < n; k++)
        TRY(check_element(&items[k], dtype, k, what));
    return ATTNRUN_OK;
}

attn_status attn_value_check_elements(attnrun_tensor *value, const char *what)
{
    const attnrun_tensor *inner = value->data;
    switch (value->kind) {
    case ATTNRUN_SEQUENCE:
        return operand_check_list(value, &value->dtype, what);
    case ATTNRUN_OPTIONAL:
        return inner == NULL ? ATTNRUN_OK : check_element(inner, &value->dtype, 0, what);
    case ATTNRUN_OPTIONAL_SEQUENCE:
        if (inner == NULL)
            return ATTNRUN_OK;
        if (inner->kind != ATTNRUN_SEQUENCE || !attn_value_well_formed(inner))
            return attn_fail(ATTNRUN_E_USAGE,
                             "%s: the optional holds no well-formed sequence", what);
        TRY(attn_reserved_check((uint32_t)inner->reserved, what));
        return operand_check_list(inner, &value->dtype, what);
    default:
        return ATTNRUN_OK;
    }
}

/* ---- steps ---- */

static bool operand_same_type(const attnrun_type *a, int32_t kind, int32_t dtype)
{
    return a->kind == kind && a->dtype == dtype;
}

static const char *type_words(int32_t kind, int32_t dtype)
{
    attnrun_type type = { .kind = kind, .dtype = dtype, .rank = -1 };
    return attn_type_format(NULL, &type);
}

attn_status attn_step_check_inputs(const struct attn_step *step)
{
    bool same = true;
    for (int32_t i = 0; i < step->pub.n_in + step->node->n_captures; i++) {
        const attnrun_type *real = &step->pub.in[i];
        if (step->node->in[i] < 0)
            continue;
        const attnrun_type *loaded = &step->graph->values[step->node->in[i]].type;
        if (operand_same_type(loaded, real->kind, real->dtype))
            continue;
        same = false;
        if (!attn_value_may_be(loaded, real->kind, real->dtype))
            return op_fail(&step->pub, ATTNRUN_E_DTYPE,
                           "input %d '%s' is %s, but the graph declares %s", i,
                           attn_quote(step->graph->values[step->node->in[i]].name),
                           type_words(real->kind, real->dtype),
                           type_words(loaded->kind, loaded->dtype));
    }
    if (same)
        return ATTNRUN_OK;
    struct attn_promotion promotion;
    TRY(attn_node_check_types(&step->pub, &promotion));
    /* There is no cast, since load time did not know. */
    for (int32_t i = 0; i < step->pub.n_in; i++)
        if (attn_promotes_input(&promotion, i, step->pub.in[i].dtype))
            return op_fail_input(&step->pub, i, ATTNRUN_E_DTYPE,
                                 "expected a type that the graph declares");
    return ATTNRUN_OK;
}

attn_status attn_step_check_output(const struct attn_step *step, int32_t out,
                                   int32_t kind, int32_t dtype)
{
    int32_t id = step->node->out[out];
    if (id < 0 || kind == ATTNRUN_ABSENT)
        return ATTNRUN_OK;
    const attnrun_type *loaded = &step->graph->values[id].type;
    if (operand_same_type(loaded, kind, dtype) || attn_value_may_be(loaded, kind, dtype))
        return ATTNRUN_OK;
    return op_fail(&step->pub, ATTNRUN_E_DTYPE,
                   "output %d '%s' is %s, but the graph declares %s", out,
                   attn_quote(step->graph->values[id].name), type_words(kind, dtype),
                   type_words(loaded->kind, loaded->dtype));
}
