/* input_limits.h - the limits of what files of inputs may ask for. Those of models are
 * attnrun_limits; both are set by --limit. */
#ifndef TOOL_INPUT_LIMITS_H
#define TOOL_INPUT_LIMITS_H

#include <stdint.h>

/* X(member, default, the largest that can be set, what it is) */
#define TOOL_LIMIT_LIST(X)                                                               \
    X(npy_header_bytes, 64 << 10, 1 << 24, "bytes of the header of an npy file")         \
    X(npz_entries, 4096, 1 << 20, "entries of an npz file")                              \
    X(npz_ratio, 1000, 1 << 20, "bytes that a byte of an npz file may become")           \
    X(stream_bytes, INT64_C(4) << 30, INT64_C(1) << 42, "bytes of standard input")

struct tool_limits {
#define X(member, standard, largest, text) int64_t member;
    TOOL_LIMIT_LIST(X)
#undef X
};
/* The defaults, until --limit sets one. The tools run on one thread. */
extern struct tool_limits tool_limits;

#endif
