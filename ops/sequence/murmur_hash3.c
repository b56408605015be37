/* murmur_hash3.c - com.microsoft MurmurHash3: a hash of 32 bits for each element.
 *
 * X   strings, or integers and floats of 4 or 8 bytes, hashed as their bytes
 * Y   X's shape: u32 with `positive` (1 by default), else i32; the bits are the same
 * seed   0 by default, taken modulo 2^32
 *
 * Cost: O(bytes of X). Source: Appleby's MurmurHash3 x86_32 (public domain); ONNX Runtime
 * contrib operators; compared with onnxruntime 1.32.0. */
#include "../../runtime/op.h"

struct murmur_args {
    int64_t positive, seed;
};
static const attnrun_attr_def murmur_attrs[] = {
    ATTR_INT(struct murmur_args, positive, 1), ATTR_INT(struct murmur_args, seed, 0),
    ATTR_END
};

static attn_status murmur_infer(attnrun_step *step)
{
    const struct murmur_args *args = step->args;
    TRY(op_out(step, 0, args->positive != 0 ? ATTNRUN_U32 : ATTNRUN_I32, step->in[0].rank,
               step->in[0].dims));
    if (step->concrete && step->in[0].rank >= 0)
        op_unit_tasks(step, 0, op_count(&step->in[0], 0, step->in[0].rank), OP_CHUNK, 10);
    return ATTNRUN_OK;
}

static uint32_t rotate(uint32_t x, int bits) { return x << bits | x >> (32 - bits); }

static uint32_t mix(uint32_t word)
{
    return rotate(word * UINT32_C(0xcc9e2d51), 15) * UINT32_C(0x1b873593);
}

static uint32_t hash(const unsigned char *bytes, int64_t n, uint32_t seed)
{
    uint32_t h = seed, word = 0;
    int64_t i = 0;
    for (; i + 4 <= n && !attn_stops(i / 4); i += 4) {
        word = (uint32_t)bytes[i] | (uint32_t)bytes[i + 1] << 8 |
               (uint32_t)bytes[i + 2] << 16 | (uint32_t)bytes[i + 3] << 24;
        h = rotate(h ^ mix(word), 13) * 5 + UINT32_C(0xe6546b64);
    }
    word = 0;
    for (int64_t k = n - 1; k >= (n & ~INT64_C(3)); k--)
        word = word << 8 | bytes[k];
    h ^= mix(word) ^ (uint32_t)n;
    h = (h ^ h >> 16) * UINT32_C(0x85ebca6b);
    h = (h ^ h >> 13) * UINT32_C(0xc2b2ae35);
    return h ^ h >> 16;
}

static attn_status murmur_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct murmur_args *args = step->args;
    const attnrun_tensor *x = &step->x[0];
    const int64_t count = tensor_count(x), bytes = dtype_bytes(x->dtype);
    const uint32_t seed = (uint32_t)(uint64_t)args->seed;
    uint32_t *y = step->y[0].data;
    for (int64_t t = work->begin; t < work->end && y != NULL; t++) {
        int64_t end = count - t * OP_CHUNK < OP_CHUNK ? count : (t + 1) * OP_CHUNK;
        for (int64_t i = t * OP_CHUNK; i < end; i++) {
            if (x->dtype == ATTNRUN_STRING) {
                const attnrun_string *text = (const attnrun_string *)x->data + i;
                y[i] = hash((const unsigned char *)text->data, text->n, seed);
                if (OP_CANCELLED(work))
                    return ATTNRUN_E_CANCELLED;
            } else {
                y[i] = hash((const unsigned char *)x->data + i * bytes, bytes, seed);
            }
        }
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_murmur_hash3_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "MurmurHash3",
    .since = 1,
    .inputs = "X:T1",
    .outputs = "Y:T2",
    .types = "T1=i32,u32,i64,u64,f32,f64,string T2=i32,u32",
    .args_bytes = sizeof(struct murmur_args),
    .attrs = murmur_attrs,
    .infer = murmur_infer,
    .run = murmur_run,
    .cost = "O(bytes)",
    .source = "ONNX Runtime contrib operators",
};
