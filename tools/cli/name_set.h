/* name_set.h - a set of names, for passes over all nodes of a model: each is found at once, however
 * many there are. */
#ifndef TOOL_NAME_SET_H
#define TOOL_NAME_SET_H

#include <stdbool.h>
#include <stdint.h>

/* A name, and what it is the name of, or NULL. */
struct named {
    const char *name;
    const void *of;
};
struct name_set {
    struct named *slots; /* name NULL: free; half of them at least */
    int64_t n, room;
};
bool name_set_has(const struct name_set *set, const char *name, const void *of);
/* Keeps the pointers; false without memory. */
bool name_set_add(struct name_set *set, const char *name, const void *of);
void name_set_free(struct name_set *set);

#endif
