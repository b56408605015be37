/* convert_template.h - store_all: one wide type FROM to every dtype. TO_INT(x) and
 * TO_UINT(x) give int64_t and uint64_t; N(name) adds the suffix. All are undefined at the
 * end. */
#define STORE(type, value)                                                               \
    for (int64_t i = 0; i < n; i++)                                                      \
    ((type *)array)[first + i] = (type)(value)

static void N(store_narrow)(int32_t dtype, void *array, int64_t first, int64_t n,
                            const FROM *x, const struct convert_rule *rule)
{
    if (attn_convert_wide(dtype) != ATTNRUN_F32) { /* integers under 8 bits */
        for (int64_t i = 0; i < n; i++)
            attn_subbyte_set(dtype, array, first + i, (int32_t)(TO_INT(x[i]) & 0xff));
        return;
    }
    float run[CONVERT_RUN];
    for (int64_t k = 0; k < n; k += CONVERT_RUN) {
        int64_t size = n - k < CONVERT_RUN ? n - k : CONVERT_RUN;
        for (int64_t i = 0; i < size; i++)
            run[i] = (float)x[k + i];
        store_float(dtype, array, first + k, size, run, rule);
    }
}

static void N(store_all)(int32_t dtype, void *array, int64_t first, int64_t n,
                         const FROM *x, const struct convert_rule *rule)
{
    switch (dtype) {
    case ATTNRUN_F32:
        STORE(float, x[i]);
        break;
    case ATTNRUN_F64:
        STORE(double, x[i]);
        break;
    case ATTNRUN_BOOL:
        STORE(uint8_t, x[i] != 0);
        break;
    case ATTNRUN_I8:
    case ATTNRUN_U8:
        STORE(uint8_t, TO_INT(x[i]));
        break;
    case ATTNRUN_I16:
    case ATTNRUN_U16:
        STORE(uint16_t, TO_INT(x[i]));
        break;
    case ATTNRUN_I32:
    case ATTNRUN_U32:
        STORE(uint32_t, TO_INT(x[i]));
        break;
    case ATTNRUN_I64:
        STORE(int64_t, TO_INT(x[i]));
        break;
    case ATTNRUN_U64:
        STORE(uint64_t, TO_UINT(x[i]));
        break;
    default:
        N(store_narrow)(dtype, array, first, n, x, rule);
    }
}
#undef STORE
#undef FROM
#undef N
#undef TO_INT
#undef TO_UINT
