/* status.c - statuses, and the sentence of the last failure of each thread.
 *
 * In: a status with a format and its values. Out: the status, and the sentence in memory of
 * the thread, cut to a fixed length; names in it are quoted and made printable. */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { QUOTE_MAX = 80, PLURAL_MAX = 48, QUOTE_BUFFERS = 8 };

static _Thread_local attnrun_error last_error = { .node_index = -1 };
static _Thread_local uint64_t n_recorded;

const char *attnrun_version(void) { return ATTNRUN_VERSION; }

int32_t attnrun_abi_version(void) { return ATTNRUN_VERSION_MAJOR; }

int32_t attnrun_status_exit(attnrun_status status)
{
    return status < 0 ? ATTNRUN_E_INTERNAL / 100 : status / 100;
}

/* "E_SHAPE" is printed as "SHAPE". */
static const char *without_prefix(const char *name)
{
    return name[0] == 'E' && name[1] == '_' ? name + 2 : name;
}

const char *attnrun_status_name(attnrun_status status)
{
    switch (status) {
#define X(name, code, text)                                                              \
    case code:                                                                           \
        return without_prefix(#name);
        ATTNRUN_STATUS_LIST(X)
#undef X
    default:
        return "UNKNOWN";
    }
}

const attnrun_error *attnrun_last_error(void) { return &last_error; }

const char *attn_quote(const char *name)
{
    static _Thread_local char buffers[QUOTE_BUFFERS][QUOTE_MAX + 4];
    static _Thread_local unsigned next;
    char *text = buffers[next++ % QUOTE_BUFFERS];
    attnrun_escape(name, text, sizeof buffers[0]);
    return text;
}

const char *attn_plural(int64_t n, const char *noun)
{
    static _Thread_local char buffers[QUOTE_BUFFERS][PLURAL_MAX];
    static _Thread_local unsigned next;
    char *text = buffers[next++ % QUOTE_BUFFERS];
    attnrun_plural(n, noun, text, sizeof buffers[0]);
    return text;
}

static void copy_text(char *to, size_t bytes, const char *from)
{
    snprintf(to, bytes, "%s", from);
}

/* "SHAPE: node 'enc.3' (MatMul): ", or "(MatMul of Mlp)" in the body of a function; a node
 * without a name goes by its number. */
static void write_place(char *text, size_t bytes, attn_status status,
                        const attnrun_node *node)
{
    const char *name = attnrun_status_name(status);
    if (node == NULL) {
        snprintf(text, bytes, "%s: ", name);
        return;
    }
    const bool inlined = node->function != NULL && node->function[0] != 0;
    const char *of = inlined ? " of " : "";
    const char *function = inlined ? attn_quote(node->function) : "";
    if (node->name != NULL && node->name[0] != 0)
        snprintf(text, bytes, "%s: node '%s' (%s%s%s): ", name, attn_quote(node->name),
                 attn_quote(node->op_type), of, function);
    else
        snprintf(text, bytes, "%s: node %d (%s%s%s): ", name, node->index,
                 attn_quote(node->op_type), of, function);
}

static void name_node(attnrun_error *error, const attnrun_node *node)
{
    error->node_index = node->index;
    attnrun_escape(node->name, error->node_name, sizeof error->node_name);
    attnrun_escape(node->op_type, error->op_type, sizeof error->op_type);
}

/* Built aside: the arguments may point into the error before. Names are quoted already. Sentences
 * of operators, of their formulas and of the loader of plugins are made safe here. */
ATTN_PRINTF(3, 0)
static attn_status record(attn_status status, const attnrun_node *node,
                          const char *format, va_list arguments)
{
    attnrun_error error = { .status = status, .node_index = -1 };
    write_place(error.message, sizeof error.message, status, node);
    char sentence[sizeof error.message];
    const size_t n = strlen(error.message);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    attnrun_escape(sentence, error.message + n, sizeof error.message - n);
    if (node != NULL)
        name_node(&error, node);
    last_error = error;
    n_recorded++;
    return status;
}

attn_status attn_fail(attn_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    record(status, NULL, format, arguments);
    va_end(arguments);
    return status;
}

attn_status attn_fail_node(attn_status status, const attnrun_node *node,
                           const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    record(status, node, format, arguments);
    va_end(arguments);
    return status;
}

void attn_hint(const char *format, ...)
{
    char hint[sizeof last_error.hint];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(hint, sizeof hint, format, arguments);
    va_end(arguments);
    copy_text(last_error.hint, sizeof last_error.hint, hint);
}

void attn_suggest(const char *word, const char *const *words, int64_t n)
{
    const char *near = attnrun_nearest_word(word, words, n);
    size_t used = strlen(last_error.message);
    if (near != NULL)
        snprintf(last_error.message + used, sizeof last_error.message - used,
                 " (did you mean '%s'?)", attn_quote(near));
}

void attn_fail_tensor(const char *name)
{
    copy_text(last_error.tensor, sizeof last_error.tensor, attn_quote(name));
}

attn_status attn_fail_again(const attnrun_error *error)
{
    attn_status status = error->status;
    if (error != &last_error)
        last_error = *error;
    n_recorded++;
    return status;
}

/* An error is large: it is copied where there is one, before the call or in it. */
void attn_call_begin(attnrun_error *before)
{
    before->status = last_error.status;
    if (last_error.status != ATTNRUN_OK)
        *before = last_error;
}

attn_status attn_call_end(attn_status status, const attnrun_error *before)
{
    if (status != ATTNRUN_OK || last_error.status == ATTNRUN_OK)
        return status;
    last_error =
        before->status != ATTNRUN_OK ? *before : (attnrun_error){ .node_index = -1 };
    return status;
}

uint64_t attn_error_count(void) { return n_recorded; }

bool attn_error_is_of(attn_status status, uint64_t count)
{
    return n_recorded != count && last_error.status == status;
}

void attn_fail_keep(attn_status status, uint64_t count, attnrun_error *error)
{
    if (attn_error_is_of(status, count)) {
        *error = last_error;
        return;
    }
    *error = (attnrun_error){ .status = status, .node_index = -1 };
    snprintf(error->message, sizeof error->message, "%s: no details are known",
             attnrun_status_name(status));
}

/* What depends on the model, its data or the machine; not on calls, files and versions. */
static bool is_of_operators(attn_status status)
{
    switch (status) {
    case ATTNRUN_E_USAGE:
    case ATTNRUN_E_IO:
    case ATTNRUN_E_PARSE:
    case ATTNRUN_E_PATH:
    case ATTNRUN_E_VERSION:
    case ATTNRUN_E_NONFINITE:
        return false;
    default:
        return true;
    }
}

attn_status attn_fail_quietly(attn_status status, uint64_t count,
                              const attnrun_node *node, const char *function)
{
    if (status == ATTNRUN_OK)
        return status;
    if (strcmp(attnrun_status_name(status), "UNKNOWN") == 0)
        return attn_fail_node(ATTNRUN_E_INTERNAL, node,
                              "%s() returned %d, which is not a status", function,
                              (int)status);
    if (node != NULL && !is_of_operators(status))
        return attn_fail_node(ATTNRUN_E_INTERNAL, node,
                              "%s() returned %s, which is not a status of an operator",
                              function, attnrun_status_name(status));
    if (attn_error_is_of(status, count)) {
        if (node != NULL && last_error.node_index < 0)
            name_node(&last_error, node);
        return status;
    }
    return attn_fail_node(status, node, "%s() failed without a message", function);
}
