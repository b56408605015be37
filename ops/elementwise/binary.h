/* binary.h - the loops of binary.def, for operators that apply them several times. */
#ifndef ATTN_BINARY_H
#define ATTN_BINARY_H

#include "elementwise.h"

enum { SHIFT_LEFT, SHIFT_RIGHT };
struct binary_args {
    int64_t axis, broadcast; /* of opset 1 and 6 */
    int64_t fmod;            /* Mod */
    int32_t direction;       /* BitShift */
};

/* b as laid over a by the forms of opset 1 and 6: dims of 1 to append. */
struct binary_state {
    int32_t append;
};

typedef void binary_loop(void *z, const char *a, int64_t a_step, const char *b,
                         int64_t b_step, int64_t n, const struct binary_args *args);
struct binary {
    binary_loop *loops[ATTNRUN_DTYPE_COUNT];
    size_t kernel; /* KERNEL_AT() of f32, or 0; one of compare_f32.def where to_bool */
    int64_t cost;  /* nanoseconds per 1000 elements */
    bool to_bool;
    elementwise_combine *known;
};
#define BINARY(name, Name, since, group, attrs, out, known, cost, f)                     \
    extern const struct binary attn_binary_##name;
#define BINARY_K                            BINARY
#define BINARY_LOOPS(name, group, known, f) extern const struct binary attn_binary_##name;
#define BINARY_OLD(name, Name, group, out)
#include "binary.def"
#undef BINARY
#undef BINARY_K
#undef BINARY_LOOPS
#undef BINARY_OLD

/* infer: the node's row has a loop for the dtype of input 0. */
attn_status attn_binary_need_loop(const attnrun_step *step);
/* Elements [begin, end) of z = f(a, b); a and b are broadcast to z, which is dense. */
void attn_binary_apply(const struct binary *binary, const struct attn_kernels *kernels,
                       const struct binary_args *args, const attnrun_tensor *z,
                       const attnrun_tensor *a, const attnrun_tensor *b, int64_t begin,
                       int64_t end);

/* The forms of opset 1 and 6: output 0 has the dims of a; *append as in the state. The
 * args are a struct binary_args. */
attn_status attn_binary_old_infer(attnrun_step *step, int32_t dtype, int32_t *append);
/* What they are in the newest forms, with dims of 1 behind those of b; nothing while the ranks are
 * unknown. */
attn_status attn_binary_old_expand(const attnrun_step *step, attnrun_body *body);
/* Appends dims of 1, where b's rank allows it. */
void attn_binary_append(attnrun_tensor *b, int32_t append);

#endif
