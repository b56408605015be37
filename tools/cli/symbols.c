/* symbols.c - the sizes of symbolic dimensions of inputs.
 *
 * In: the types of the inputs, --set, and the shapes of inputs that are given. Out: a size for
 * each symbol. One that is neither set nor given gets the usual size of what its name says it is
 * (batch, sequence, past, image …), or else of the place where it stands. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../io/digest.h"
#include "inputs.h"
#include "screen.h"

/* The slot of the symbol, or the free one where it would be. The hash depends on the address of
 * the table, so that no file can hold names that are made to meet. */
static int64_t *symbol_slot(const struct inputs *inputs, const char *name, size_t n)
{
    uint64_t at = digest_xxh64(name, n, (uint64_t)(uintptr_t)inputs->slots);
    for (;; at++) {
        int64_t *slot = &inputs->slots[at & (uint64_t)(inputs->n_slots - 1)];
        const char *known = *slot > 0 ? inputs->symbols[*slot - 1].name : NULL;
        if (known == NULL || (strncmp(known, name, n) == 0 && known[n] == 0))
            return slot;
    }
}

struct symbol *symbol_find(const struct inputs *inputs, const char *name, size_t n)
{
    const int64_t *slot = inputs->n_symbols > 0 ? symbol_slot(inputs, name, n) : NULL;
    return slot != NULL && *slot > 0 ? &inputs->symbols[*slot - 1] : NULL;
}

static bool holds(const char *text, const char *words)
{
    char word[16];
    for (const char *at = words; *at != 0;) {
        size_t n = strcspn(at, "|");
        snprintf(word, sizeof word, "%.*s", (int)n, at);
        if (strcasestr(text, word) != NULL)
            return true;
        at += n + (at[n] == '|');
    }
    return false;
}

static bool is_word(const char *text, const char *words)
{
    size_t n = strlen(text);
    for (const char *at = words; *at != 0;
         at += strcspn(at, "|") + (at[strcspn(at, "|")] != 0))
        if (strcspn(at, "|") == n && strncasecmp(at, text, n) == 0)
            return true;
    return false;
}

/* By the symbol's name; *known is false where it says nothing ("s0", "dim_1"). */
static enum dim_class class_of_name(const char *name, bool *known)
{
    static const struct {
        const char *parts, *words;
        enum dim_class class;
    } rules[] = {
        { "batch", "n|b|bs", DIM_BATCH },
        { "past", "p", DIM_PAST },
        { "height|width|image|pixel", "h|w", DIM_IMAGE },
        { "channel", "c", DIM_CHANNELS },
        { "sample|audio|wave", "", DIM_AUDIO },
        { "seq|len|token|time|total|frame", "s|t|l", DIM_SEQUENCE },
    };
    *known = true;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (holds(name, rules[i].parts) || is_word(name, rules[i].words)) {
            bool total = holds(name, "total") || strchr(name, '+') != NULL;
            return rules[i].class == DIM_PAST && total ? DIM_SEQUENCE : rules[i].class;
        }
    *known = false;
    return DIM_SEQUENCE;
}

/* By where the dimension stands. */
static enum dim_class class_of_place(const struct input *input, int32_t d)
{
    const attnrun_value_info *info = &input->info;
    bool real = value_is_float(info->dtype);
    if (d == 0)
        return DIM_BATCH;
    if (real && info->rank == 4 && holds(info->name, "past|cache"))
        return d == 2 ? DIM_PAST : DIM_CHANNELS;
    if (real && info->rank == 3 && d == 1 &&
        (holds(info->name, "state|hidden|cell") ||
         is_word(info->name, "h|c|h0|c0|h_0|c_0|hn|cn")))
        return DIM_BATCH; /* layers, batch, width */
    if (real && info->rank >= 4)
        return d == 1 ? DIM_CHANNELS : DIM_IMAGE;
    if (real && info->rank == 2 && d == 1 &&
        holds(info->name, "input_values|audio|wave|speech"))
        return DIM_AUDIO;
    return DIM_SEQUENCE;
}

/* *unclear: it is taken for a sequence because nothing else is known of it. */
static enum dim_class class_of(const struct input *input, int32_t d, bool *unclear)
{
    bool known;
    enum dim_class class = class_of_name(input->info.dim_names[d], &known);
    if (!known)
        class = class_of_place(input, d);
    *unclear = !known && class == DIM_SEQUENCE;
    return class;
}

/* The length of the symbol that an expression has at `at`, 0 where there is none. Letters
 * beyond ASCII are taken for letters. */
static size_t symbol_length(const char *at)
{
    size_t n = 0;
    if (!isalpha((unsigned char)*at) && *at != '_' && (*at & 0x80) == 0)
        return 0;
    while (isalnum((unsigned char)at[n]) || (at[n] & 0x80) != 0 ||
           (at[n] != 0 && strchr("_.:=", at[n]) != NULL))
        n++;
    return n;
}

/* Sums of [number *] symbol and numbers. Without `value`, checks the form and adds
 * symbols. */
static bool parse_sum(const struct inputs *inputs, const char *text, int64_t *value)
{
    int64_t sum = 0, sign = 1;
    for (const char *at = text;;) {
        int64_t factor = 1;
        at += strspn(at, " ");
        char *end;
        if (isdigit((unsigned char)*at)) {
            factor = strtoll(at, &end, 10);
            at = end + strspn(end, " ");
            if (*at == '*')
                at += 1 + strspn(at + 1, " ");
            else
                goto term_done;
        }
        size_t n = symbol_length(at);
        const struct symbol *symbol = n == 0 ? NULL : symbol_find(inputs, at, n);
        if (symbol == NULL)
            return false;
        if (__builtin_mul_overflow(factor, symbol->value, &factor))
            return false;
        at += n;
    term_done:
        if (__builtin_mul_overflow(factor, sign, &factor) ||
            __builtin_add_overflow(sum, factor, &sum))
            return false;
        at += strspn(at, " ");
        if (*at == 0)
            break;
        if (*at != '+' && *at != '-')
            return false;
        sign = *at++ == '-' ? -1 : 1;
    }
    *value = sum;
    return true;
}

/* Room for one more symbol. */
static attnrun_status grow_symbols(struct inputs *inputs)
{
    const int64_t n_slots = inputs->n_slots > 0 ? 2 * inputs->n_slots : 64;
    const size_t bytes = (size_t)n_slots / 2 * sizeof *inputs->symbols;
    struct symbol *symbols = realloc(inputs->symbols, bytes);
    int64_t *slots = calloc((size_t)n_slots, sizeof *slots);
    inputs->symbols = symbols != NULL ? symbols : inputs->symbols;
    if (symbols == NULL || slots == NULL) {
        free(slots);
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for symbols");
    }
    free(inputs->slots);
    inputs->slots = slots;
    inputs->n_slots = n_slots;
    for (int64_t i = 0; i < inputs->n_symbols; i++)
        *symbol_slot(inputs, symbols[i].name, strlen(symbols[i].name)) = i + 1;
    return ATTNRUN_OK;
}

static attnrun_status add_symbol(struct inputs *inputs, const char *name, size_t n,
                                 enum dim_class class, bool unclear)
{
    if (n == 0 || n >= sizeof inputs->symbols[0].name ||
        symbol_find(inputs, name, n) != NULL)
        return ATTNRUN_OK;
    if (inputs->n_symbols == inputs->n_slots / 2)
        TRY(grow_symbols(inputs));
    int64_t *slot = symbol_slot(inputs, name, n);
    struct symbol *symbol = &inputs->symbols[inputs->n_symbols++];
    memset(symbol, 0, sizeof *symbol);
    memcpy(symbol->name, name, n);
    symbol->class = class;
    symbol->unclear = unclear;
    *slot = inputs->n_symbols;
    return ATTNRUN_OK;
}

/* All of a dimension's text is one symbol: what can be bound. */
static bool is_plain(const char *text)
{
    return text[0] != 0 && symbol_length(text) == strlen(text);
}

/* Symbols inside expressions are sized by their own names. */
static attnrun_status add_inner_symbols(struct inputs *inputs, const char *text)
{
    bool known;
    char name[64];
    while (*text != 0) {
        size_t n = symbol_length(text);
        if (n == 0) {
            text++;
            continue;
        }
        snprintf(name, sizeof name, "%.*s", n > 60 ? 60 : (int)n, text);
        enum dim_class class = class_of_name(name, &known);
        TRY(add_symbol(inputs, text, n, class, false));
        text += n;
    }
    return ATTNRUN_OK;
}

/* Notes in which inputs the symbols stand. */
static void find_places(struct inputs *inputs)
{
    for (int32_t i = 0; i < inputs->n; i++) {
        const attnrun_value_info *info = &inputs->v[i].info;
        const bool mask = holds(info->name, "mask");
        for (int32_t d = 0; d < info->rank; d++) {
            const char *name = info->dim_names[d];
            struct symbol *symbol =
                info->dims[d] < 0 ? symbol_find(inputs, name, strlen(name)) : NULL;
            if (symbol == NULL)
                continue;
            symbol->in_mask = symbol->in_mask || mask;
            symbol->elsewhere = symbol->elsewhere || !mask;
        }
    }
}

/* Where there is a past, a length that masks alone have is that of past and sequence. */
static void find_totals(struct inputs *inputs)
{
    bool past = false;
    for (int64_t k = 0; k < inputs->n_symbols; k++)
        past = past || inputs->symbols[k].class == DIM_PAST;
    find_places(inputs);
    for (int64_t k = 0; past && k < inputs->n_symbols; k++) {
        struct symbol *symbol = &inputs->symbols[k];
        symbol->total =
            symbol->class == DIM_SEQUENCE &&
            (holds(symbol->name, "total") || (symbol->in_mask && !symbol->elsewhere));
    }
}

void symbols_default(struct inputs *inputs)
{
    int64_t sequence = -1, past = 0;
    for (int64_t i = 0; i < inputs->n_symbols; i++) {
        struct symbol *symbol = &inputs->symbols[i];
        if (!symbol->set && !symbol->bound)
            symbol->value = sizes_of_symbol(inputs, symbol);
        if (symbol->class == DIM_SEQUENCE && !symbol->total && sequence < 0)
            sequence = symbol->value;
        if (symbol->class == DIM_PAST)
            past = symbol->value;
    }
    for (int64_t i = 0; i < inputs->n_symbols; i++) {
        struct symbol *symbol = &inputs->symbols[i];
        if (symbol->total && !symbol->set && !symbol->bound && sequence >= 0 &&
            __builtin_add_overflow(sequence, past, &symbol->value))
            symbol->value = sequence;
    }
}

attnrun_status symbols_collect(struct inputs *inputs)
{
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < inputs->n; i++)
            for (int32_t d = 0; d < inputs->v[i].info.rank; d++) {
                const char *name = inputs->v[i].info.dim_names[d];
                if (inputs->v[i].info.dims[d] >= 0)
                    continue;
                bool unclear;
                enum dim_class class = class_of(&inputs->v[i], d, &unclear);
                if (pass == 0 && is_plain(name))
                    TRY(add_symbol(inputs, name, strlen(name), class, unclear));
                if (pass == 1 && !is_plain(name))
                    TRY(add_inner_symbols(inputs, name));
            }
    find_totals(inputs);
    return ATTNRUN_OK;
}

static attnrun_status unknown_symbol(const struct inputs *inputs, const char *name)
{
    const char *names[64];
    int64_t n = 0;
    for (; n < inputs->n_symbols && n < 64; n++)
        names[n] = inputs->symbols[n].name;
    tool_fail(ATTNRUN_E_USAGE, "--set: no input has a dimension '%s'%s", tool_quote(name),
              n == 0 ? "; all sizes are fixed" : "");
    if (tool_suggest(name, names, n) || n == 0)
        return ATTNRUN_E_USAGE;
    struct line line = { .n = 0 };
    line_add(&line, "the model has the dimension%s", n > 1 ? "s" : "");
    for (int64_t i = 0; i < n && i < 8; i++)
        line_add(&line, "%s '%s'", i > 0 ? "," : "", tool_quote(names[i]));
    tool_hint("%s%s", line.text, n > 8 ? ", ..." : "");
    return ATTNRUN_E_USAGE;
}

static bool is_symbol(const struct inputs *inputs, const char *name, size_t n)
{
    return symbol_find(inputs, name, n) != NULL;
}

/* Whether the words up to the next comma hold a '='. */
static bool is_setting(const char *text)
{
    const char *equals = strchr(text, '='), *comma = strchr(text, ',');
    return equals != NULL && (comma == NULL || equals < comma);
}

attnrun_status symbols_refuse(const char *option, const char *text, const char *form)
{
    char words[256];
    size_t n = 0;
    bool several = false;
    tool_fail(ATTNRUN_E_USAGE, "%s: '%s' is not %s", option, tool_quote(text), form);
    for (; *text != 0 && n + sizeof " --set " < sizeof words; text++)
        if (*text == ',' && is_setting(text + 1)) {
            n += (size_t)snprintf(words + n, sizeof words - n, " %s ", option);
            several = true;
        } else {
            words[n++] = *text;
        }
    words[n] = 0;
    if (several)
        tool_hint("write one %s for each dimension: %s %s", option, option,
                  tool_quote(words));
    return ATTNRUN_E_USAGE;
}

attnrun_status symbols_size(const char *option, const char *text, const char *equals,
                            int64_t *value)
{
    const int64_t max = INT64_C(1) << 47;
    char *end;
    const bool below = equals != NULL && equals[1] == '-';
    if (equals == NULL || equals == text || !isdigit((unsigned char)equals[1 + below]))
        return symbols_refuse(option, text, "SYMBOL=N");
    errno = 0;
    *value = strtoll(equals + 1, &end, 10);
    if (*end != 0)
        return symbols_refuse(option, text, "SYMBOL=N");
    if (below)
        return tool_fail(ATTNRUN_E_USAGE, "%s: %s is below 0", option, tool_quote(text));
    if (errno != 0 || *value > max)
        return tool_fail(ATTNRUN_E_USAGE, "%s: %s is above %" PRId64, option,
                         tool_quote(text), max);
    return ATTNRUN_OK;
}

attnrun_status symbols_set(struct inputs *inputs)
{
    const struct list *sets = &inputs->cli->sets;
    for (int64_t i = 0; i < sets->n; i++) {
        char name[64];
        const char *equals = inputs_equals(inputs, sets->v[i], is_symbol);
        int64_t value = 0;
        TRY(symbols_size("--set", sets->v[i], equals, &value));
        int n = equals - sets->v[i] > 60 ? 60 : (int)(equals - sets->v[i]);
        snprintf(name, sizeof name, "%.*s", n, sets->v[i]);
        struct symbol *symbol = symbol_find(inputs, name, strlen(name));
        if (symbol == NULL)
            return unknown_symbol(inputs, name);
        symbol->value = value;
        symbol->set = true;
    }
    return ATTNRUN_OK;
}

void symbols_bind(struct inputs *inputs, const struct input *input)
{
    const attnrun_tensor *tensor = &input->held.tensor;
    for (int32_t d = 0; d < tensor->rank && tensor->rank == input->info.rank; d++) {
        const char *name = input->info.dim_names[d];
        if (input->info.dims[d] >= 0 || !is_plain(name))
            continue;
        struct symbol *symbol = symbol_find(inputs, name, strlen(name));
        if (symbol == NULL)
            continue;
        if (symbol->set && symbol->value != tensor->dims[d])
            snprintf(inputs->conflict, sizeof inputs->conflict,
                     "symbol %s was bound to %" PRId64 " by --set and to %" PRId64
                     " by input '%s'",
                     tool_quote(name), symbol->value, tensor->dims[d],
                     tool_quote(input->info.name));
        if (!symbol->set && !symbol->bound) {
            symbol->bound = true;
            symbol->value = tensor->dims[d];
        }
    }
}

attnrun_status symbols_dim(struct inputs *inputs, const struct input *input, int32_t d,
                           int64_t *size)
{
    const char *name = input->info.dim_names[d];
    *size = input->info.dims[d];
    if (*size >= 0)
        return ATTNRUN_OK;
    struct symbol *symbol = symbol_find(inputs, name, strlen(name));
    if (symbol == NULL || !symbol->set)
        inputs->guessed = true;
    if (name[0] != 0 && parse_sum(inputs, name, size) && *size >= 0)
        return ATTNRUN_OK;
    if (name[0] != 0 && *size < -1)
        return tool_fail(ATTNRUN_E_INPUT,
                         "dimension '%s' of input '%s' would be %" PRId64,
                         tool_quote(name), tool_quote(input->info.name), *size);
    bool unclear;
    *size = sizes_default(inputs, class_of(input, d, &unclear));
    return ATTNRUN_OK;
}
