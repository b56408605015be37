/* fail.h - how a call inside the tools fails: a status, and one sentence kept for the
 * end. */
#ifndef TOOL_FAIL_H
#define TOOL_FAIL_H

#include <stdbool.h>

#include "attnrun.h"

#define TOOL_PRINTF(text, first) __attribute__((format(printf, text, first)))

#define TRY(call)                                                                        \
    do {                                                                                 \
        attnrun_status try_status_ = (call);                                             \
        if (try_status_ != ATTNRUN_OK)                                                   \
            return try_status_;                                                          \
    } while (0)
/* The same for a call of the library: keeps its sentence. */
#define TRY_LIB(call)                                                                    \
    do {                                                                                 \
        attnrun_status try_status_ = (call);                                             \
        if (try_status_ != ATTNRUN_OK)                                                   \
            return tool_fail_library(try_status_);                                       \
    } while (0)

struct tool_error {
    attnrun_status status;
    int32_t
        node_index; /* of the library's error: its place in the order of running, or -1 */
    char message[1024]; /* "INPUT: …" */
    char hint[256];
    /* of the library's error, or "" */
    char node_name[96], op_type[64], tensor[96];
};
/* The error of the last call that failed. The tools run on one thread. */
extern struct tool_error tool_error;

/* Records "NAME: <sentence>"; returns `status`. Names from files go through tool_quote().
 */
attnrun_status tool_fail(attnrun_status status, const char *format, ...)
    TOOL_PRINTF(2, 3);
/* E_USAGE with the word CONFIG in front: a fault in a configuration file. */
attnrun_status tool_fail_config(const char *format, ...) TOOL_PRINTF(1, 2);
/* E_IO, with the sentence of errno at its end. */
attnrun_status tool_fail_io(const char *format, ...) TOOL_PRINTF(1, 2);
/* Takes over what attnrun_last_error() says. */
attnrun_status tool_fail_library(attnrun_status status);
/* Adds a hint to the error recorded last. */
void tool_hint(const char *format, ...) TOOL_PRINTF(1, 2);
/* The hint how to raise the limit `name` of input files; returns the status recorded last. */
attnrun_status tool_hint_limit(const char *name);
/* Adds " (did you mean 'x'?)" to the error recorded last, where one of words[0..n) is near;
 * returns whether one is. */
bool tool_suggest(const char *word, const char *const *words, int64_t n);
/* Puts "<text>: " behind the status word of the error recorded last; returns its status.
 */
attnrun_status tool_fail_at(const char *format, ...) TOOL_PRINTF(1, 2);

/* Text from a file or the user made safe for a terminal by attnrun_escape(), cut after some
 * 90 bytes. One of 8 rotating buffers. */
const char *tool_quote(const char *text);
/* The same for a path: up to 250 bytes. */
const char *tool_path(const char *path);
/* A number and its noun: "1 node", "2 nodes". One of the same buffers. */
const char *tool_plural(int64_t n, const char *noun);

#endif
