/* oracle_given.h - outputs in memory of the caller, with a guard behind it: see oracle.c. In: a
 * context that has run. Out: the outputs of one more run, in given[i] where that is not NULL. */
#ifndef ATTN_TESTS_ORACLE_GIVEN_H
#define ATTN_TESTS_ORACLE_GIVEN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/attnrun.h"

enum { GUARD = 256, GUARD_BYTE = 0xEE };

static attnrun_status give_memory(attnrun_context *context, int32_t n, char **given)
{
    for (int32_t i = 0; i < n; i++) {
        attnrun_tensor value;
        attnrun_status status = attnrun_output(context, i, &value);
        if (status != ATTNRUN_OK)
            return status;
        if (value.kind != ATTNRUN_TENSOR || value.dtype == ATTNRUN_STRING)
            continue;
        const size_t bytes = (size_t)attnrun_tensor_bytes(&value);
        given[i] = malloc(bytes + GUARD);
        memset(given[i], GUARD_BYTE, bytes + GUARD);
        status =
            attnrun_tensor_make(value.dtype, value.rank, value.dims, given[i], &value);
        if (status == ATTNRUN_OK)
            status = attnrun_set_output(context, i, &value);
        if (status != ATTNRUN_OK)
            return status;
    }
    return ATTNRUN_OK;
}

/* One more run writes its outputs there; a byte behind them that changed ends the program. */
static attnrun_status run_given(attnrun_context *context, int32_t n, char **given,
                                const char *folder)
{
    attnrun_status status = give_memory(context, n, given);
    if (status == ATTNRUN_OK)
        status = attnrun_run(context, NULL);
    for (int32_t i = 0; i < n && status == ATTNRUN_OK; i++) {
        attnrun_tensor value;
        if (given[i] == NULL)
            continue;
        status = attnrun_output(context, i, &value);
        const size_t bytes = (size_t)attnrun_tensor_bytes(&value);
        for (int k = 0; k < GUARD; k++)
            if ((unsigned char)given[i][bytes + (size_t)k] != GUARD_BYTE) {
                printf("FAIL %s: output %d is written behind its end\n", folder, i);
                exit(1);
            }
    }
    return status;
}

#endif
