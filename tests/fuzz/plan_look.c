/* plan_look.c - in: a context; out: what is wrong with the blocks of its plan. See plan_look.h. */
#include "plan_look.h"

#include <stdbool.h>

enum { MAX_BLOCKS = 256 };

static const char *look_at_block(const attnrun_plan_block *b,
                                 const attnrun_plan_info *info)
{
    if (b->offset < 0 || b->bytes < 0 || b->offset % ATTNRUN_ARENA_ALIGN != 0 ||
        b->offset > info->arena_bytes - b->bytes)
        return "a block of a plan is not in the arena";
    if (b->first_step < 0 || b->first_step > b->last_step || b->last_step > info->n_steps)
        return "a block of a plan is in use at no step";
    if (b->tensor.kind == ATTNRUN_TENSOR && attnrun_tensor_bytes(&b->tensor) > b->bytes)
        return "a block of a plan is smaller than its tensor";
    return NULL;
}

static bool overlap(const attnrun_plan_block *a, const attnrun_plan_block *b)
{
    return a->first_step <= b->last_step && b->first_step <= a->last_step &&
           a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

const char *fuzz_look_at_plan(attnrun_context *context)
{
    static attnrun_plan_block blocks[MAX_BLOCKS];
    attnrun_plan_info info = { .struct_size = sizeof info };
    int64_t sum = 0, highest = 0;
    if (attnrun_plan(context, NULL, &info) != ATTNRUN_OK || info.n_blocks > MAX_BLOCKS)
        return NULL;
    for (int32_t i = 0; i < info.n_blocks; i++) {
        attnrun_plan_block *b = &blocks[i];
        *b = (attnrun_plan_block){ .struct_size = sizeof *b };
        if (attnrun_plan_get_block(context, i, b) != ATTNRUN_OK)
            return "a block of a plan cannot be read";
        const char *wrong = look_at_block(b, &info);
        if (wrong != NULL)
            return wrong;
        for (int32_t k = 0; k < i; k++)
            if (overlap(b, &blocks[k]))
                return "two blocks of a plan overlap";
        sum += b->bytes;
        highest = b->offset + b->bytes > highest ? b->offset + b->bytes : highest;
    }
    if (highest != info.arena_bytes || sum < info.arena_bytes ||
        info.lower_bound_bytes > info.arena_bytes)
        return "the arena of a plan is not that of its blocks";
    return NULL;
}
