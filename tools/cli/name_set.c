/* name_set.c - a table of names with open addresses; see name_set.h. The hash depends on the
 * address of the table, so that no file can hold names that are made to meet. */
#include "name_set.h"

#include <stdlib.h>
#include <string.h>

#include "../io/digest.h"

/* The slot of the name, or the free one where it would be. */
static struct named *slot_of(struct named *slots, int64_t room, const char *name,
                             const void *of)
{
    const uint64_t seed = (uint64_t)(uintptr_t)slots ^ (uint64_t)(uintptr_t)of;
    uint64_t at = digest_xxh64(name, strlen(name), seed);
    for (;; at++) {
        struct named *slot = &slots[at & (uint64_t)(room - 1)];
        if (slot->name == NULL || (slot->of == of && strcmp(slot->name, name) == 0))
            return slot;
    }
}

bool name_set_has(const struct name_set *set, const char *name, const void *of)
{
    return set->n > 0 && slot_of(set->slots, set->room, name, of)->name != NULL;
}

static bool name_set_grow(struct name_set *set)
{
    const int64_t room = set->room > 0 ? 2 * set->room : 64;
    struct named *slots = calloc((size_t)room, sizeof *slots);
    if (slots == NULL)
        return false;
    for (int64_t i = 0; i < set->room; i++)
        if (set->slots[i].name != NULL)
            *slot_of(slots, room, set->slots[i].name, set->slots[i].of) = set->slots[i];
    free(set->slots);
    set->slots = slots;
    set->room = room;
    return true;
}

bool name_set_add(struct name_set *set, const char *name, const void *of)
{
    if (2 * (set->n + 1) > set->room && !name_set_grow(set))
        return false;
    struct named *slot = slot_of(set->slots, set->room, name, of);
    set->n += slot->name == NULL;
    *slot = (struct named){ name, of };
    return true;
}

void name_set_free(struct name_set *set)
{
    free(set->slots);
    *set = (struct name_set){ 0 };
}
