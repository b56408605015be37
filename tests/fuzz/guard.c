/* guard.c - in: a size; out: a block whose last bytes touch an unmapped page. What lies between
 * the block and that page (less than `align` bytes), and between the start of its first page and
 * the block, holds a pattern that guard_free() looks at. See guard.h. */
#include "guard.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PATTERN = 0xa7 };

struct place {
    size_t page, pages_bytes; /* without the guard page */
    size_t front, behind;     /* bytes of the pattern */
};

static struct place place_of(size_t bytes, size_t align)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t rounded = (bytes + align - 1) / align * align;
    const size_t pages = rounded == 0 ? page : (rounded + page - 1) / page * page;
    return (struct place){ page, pages, pages - rounded, rounded - bytes };
}

void *guard_alloc(size_t bytes, size_t align)
{
    const struct place place = place_of(bytes, align);
    uint8_t *base = mmap(NULL, place.pages_bytes + place.page, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    if (mprotect(base + place.pages_bytes, place.page, PROT_NONE) != 0) {
        munmap(base, place.pages_bytes + place.page);
        return NULL;
    }
    memset(base, PATTERN, place.front);
    memset(base + place.pages_bytes - place.behind, PATTERN, place.behind);
    return base + place.front;
}

static bool is_pattern(const uint8_t *at, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (at[i] != PATTERN)
            return false;
    return true;
}

bool guard_free(void *memory, size_t bytes, size_t align)
{
    const struct place place = place_of(bytes, align);
    uint8_t *block = memory, *base = block - place.front;
    const bool whole =
        is_pattern(base, place.front) && is_pattern(block + bytes, place.behind);
    munmap(base, place.pages_bytes + place.page);
    return whole;
}
