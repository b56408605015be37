/* sizes.c - made-up sizes found by trying. In: the failure of the sizes tried last. Out:
 * the next sizes, in the symbols of the inputs.
 *
 * First come the usual sizes and smaller ones, then larger ones, each once more with ones
 * where a name says nothing. Where none of them fits, the sentence of the operator that
 * got furthest says what it expects: each number in it is tried for each free symbol, and
 * kept where a later operator is the next to fail. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "inputs.h"

enum { MAX_TRIES = 160, MAX_ASKED = 1 << 20 };

static const struct profile {
    int32_t sequence, image, audio;
    bool ones; /* for symbols whose names say nothing, but the first of a shape */
} profiles[] = {
    { 128, 224, 16000, false },   { 64, 128, 8000, false },
    { 32, 64, 4000, false },      { 16, 32, 2000, false },
    { 8, 32, 1000, false },       { 4, 32, 1000, false },
    { 2, 32, 1000, false },       { 1, 32, 1000, false },
    { 128, 224, 16000, true },    { 256, 256, 16000, false },
    { 256, 256, 16000, true },    { 512, 320, 32000, false },
    { 512, 320, 32000, true },    { 1024, 512, 48000, false },
    { 1024, 512, 48000, true },   { 4096, 640, 80000, false },
    { 4096, 640, 80000, true },   { 16000, 224, 160000, false },
    { 16000, 224, 160000, true },
};
enum {
    N_PROFILES = sizeof profiles / sizeof *profiles,
    USUAL = 8 /* and smaller ones */
};

int64_t sizes_default(const struct inputs *inputs, enum dim_class class)
{
    const struct profile *profile = &profiles[inputs->sizes.profile];
    switch (class) {
    case DIM_SEQUENCE:
        return profile->sequence;
    case DIM_IMAGE:
        return profile->image;
    case DIM_AUDIO:
        return profile->audio;
    case DIM_CHANNELS:
        return 3;
    case DIM_PAST:
        return 0;
    case DIM_BATCH:
        break;
    }
    return 1;
}

int64_t sizes_of_symbol(const struct inputs *inputs, const struct symbol *symbol)
{
    if (symbol->asked > 0)
        return symbol->asked;
    return profiles[inputs->sizes.profile].ones && symbol->unclear
               ? 1
               : sizes_default(inputs, symbol->class);
}

/* The numbers of a sentence, each once; those inside names and quotes are none. */
static void read_numbers(struct sizes *sizes, const char *text)
{
    bool quoted = false;
    sizes->n_asked = 0;
    sizes->at = 0;
    for (const char *at = text; *at != 0; at++) {
        bool in_word = at > text &&
                       (isalnum((unsigned char)at[-1]) || strchr("_./", at[-1]) != NULL);
        quoted = quoted != (*at == '\'');
        if (quoted || in_word || !isdigit((unsigned char)*at))
            continue;
        char *end;
        long long number = strtoll(at, &end, 10);
        bool known = number < 1 || number > MAX_ASKED || isalpha((unsigned char)*end);
        for (int32_t i = 0; i < sizes->n_asked; i++)
            known = known || sizes->asked[i] == number;
        if (!known && sizes->n_asked < SIZES_ASKED)
            sizes->asked[sizes->n_asked++] = number;
        at = end - 1;
    }
}

/* The next pair of a number that was asked for and a free symbol. */
static bool ask_next(struct inputs *inputs)
{
    struct sizes *sizes = &inputs->sizes;
    for (; sizes->at < sizes->n_asked * inputs->n_symbols; sizes->at++) {
        struct symbol *symbol = &inputs->symbols[sizes->at % inputs->n_symbols];
        int64_t number = sizes->asked[sizes->at / inputs->n_symbols];
        if (symbol->set || symbol->bound || symbol->total || symbol->value == number)
            continue;
        sizes->trying = (int32_t)(sizes->at++ % inputs->n_symbols);
        sizes->before = symbol->asked;
        symbol->asked = number;
        return true;
    }
    return false;
}

static void remember(struct sizes *sizes, const struct tool_error *failure)
{
    if (sizes->best_profile >= 0 && failure->node_index <= sizes->best_node)
        return;
    sizes->best_profile = sizes->profile;
    sizes->best_node = failure->node_index;
    snprintf(sizes->sentence, sizeof sizes->sentence, "%s", failure->message);
}

bool sizes_are_large(const struct sizes *sizes)
{
    return sizes->profile > USUAL || sizes->trying >= 0;
}

bool sizes_next(struct inputs *inputs, const struct tool_error *failure)
{
    struct sizes *sizes = &inputs->sizes;
    if (!inputs->guessed || sizes->tries >= MAX_TRIES)
        return false;
    sizes->tries++;
    if (sizes->trying < 0) {
        remember(sizes, failure);
        if (sizes->profile + 1 < N_PROFILES) {
            sizes->profile++;
            return true;
        }
        sizes->profile = sizes->best_profile;
        read_numbers(sizes, sizes->sentence);
        return ask_next(inputs);
    }
    if (failure->node_index > sizes->best_node) {
        sizes->best_node = failure->node_index;
        read_numbers(sizes, failure->message);
    } else {
        inputs->symbols[sizes->trying].asked = sizes->before;
    }
    return ask_next(inputs);
}

void sizes_explain(const struct inputs *inputs)
{
    char *out = tool_error.message, names[400] = "";
    size_t room = sizeof tool_error.message, n = 0;
    if (inputs->sizes.tries == 0)
        return;
    for (int64_t i = 0; i < inputs->n_symbols && n < sizeof names - 120; i++)
        if (!inputs->symbols[i].bound)
            n += (size_t)snprintf(names + n, sizeof names - n, " --set %s=...",
                                  tool_quote(inputs->symbols[i].name));
    size_t used = strlen(out);
    snprintf(out + used, room - used,
             "; %d combinations of sizes were tried, and none fits: give the right ones "
             "with%s, or with -i",
             inputs->sizes.tries + 1, names);
}
