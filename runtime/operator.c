/* operator.c - what a name of an operator means to a model.
 *
 * In: a domain, an op_type and an opset. Out: the rows of the registry, and copies of the names
 * that all nodes share. A graph has many nodes of few operators: what was found last is kept, an
 * entry for each hash, so a file with any number of names costs the same time for each node. */
#include "operator.h"
#include "hash.h"

static bool is_of(const struct attn_operator *found, const char *domain,
                  const char *op_type, int64_t opset)
{
    return found != NULL && found->opset == opset &&
           strcmp(found->op_type, op_type) == 0 && strcmp(found->domain, domain) == 0;
}

struct attn_operator *attn_operator_find(struct attn_model *model, const char *domain,
                                         const char *op_type, int64_t opset)
{
    uint64_t hash = attn_hash_text(ATTN_HASH_SEED, domain);
    hash = attn_hash_text(hash ^ (uint64_t)opset, op_type);
    if (model->operators == NULL)
        model->operators = attn_pool_alloc(
            &model->pool, ATTN_OPERATORS_KEPT * (int64_t)sizeof *model->operators);
    if (model->operators == NULL)
        return NULL;
    struct attn_operator **kept =
        &model->operators[attn_hash_slot(hash) % ATTN_OPERATORS_KEPT];
    if (is_of(*kept, domain, op_type, opset))
        return *kept;
    struct attn_operator *made =
        attn_pool_alloc(&model->pool, (int64_t)sizeof(struct attn_operator));
    if (made == NULL)
        return NULL;
    made->opset = opset;
    made->domain = attn_pool_string(&model->pool, domain);
    made->op_type = attn_pool_string(&model->pool, op_type);
    if (made->domain == NULL || made->op_type == NULL)
        return NULL;
    if (opset > 0) {
        made->built_in =
            attn_runtime_find_builtin(model->runtime, domain, op_type, opset);
        made->op = attn_runtime_find_op(model->runtime, domain, op_type, opset);
    }
    *kept = made;
    return made;
}
