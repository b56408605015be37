/* conv_texts.h - the texts of the tiles of a plain convolution, by the number of their channels.
 *
 * In, defined by the file that includes this one: TEXTS_CONV, the struct of the kernel, and
 * TEXTS_PLACE, that of the place of a tile; and before TEXTS(), run_tile(d, at, m, nv), which
 * computes a tile of m channels, a constant, and of nv vectors, a struct rows.
 * Out: struct texts, TEXTS() and texts_of(). */
#ifndef ATTN_CONV_TEXTS_H
#define ATTN_CONV_TEXTS_H

/* The texts of some channels: of tiles of `vectors` vectors, which do most of the work, and of
 * tiles of fewer, n. */
struct texts {
    int vectors;
    void (*whole)(const TEXTS_CONV *d, const TEXTS_PLACE *at);
    void (*some)(const TEXTS_CONV *d, const TEXTS_PLACE *at, int n);
};

/* Both of m channels: whole_m and some_m. */
#define TEXTS(m, vectors)                                                                \
    static void some_##m(const TEXTS_CONV *d, const TEXTS_PLACE *at, int n)              \
    {                                                                                    \
        run_tile(d, at, m, (struct rows){ n, 1, (vectors) - !ATTN_ONE_TEXT });           \
    }                                                                                    \
    static void whole_##m(const TEXTS_CONV *d, const TEXTS_PLACE *at)                    \
    {                                                                                    \
        if (ATTN_ONE_TEXT)                                                               \
            some_##m(d, at, vectors);                                                    \
        else                                                                             \
            run_tile(d, at, m, (struct rows){ vectors, vectors, vectors });              \
    }

/* The texts of the next tile where `left` channels are left, and its channels. `all`: those of 1, 2
 * and 4 channels; of_8: those of 8, which only 32 registers hold. */
static ALWAYS_INLINE const struct texts *texts_of(const struct texts *all,
                                                  const struct texts *of_8, int64_t left,
                                                  int64_t *channels)
{
    const int log = left >= 4 ? 2 : left >= 2 ? 1 : 0;
    *channels = 1 << log;
    if (REGISTERS < 32 || left < 8)
        return &all[log];
    *channels = 8;
    return of_8;
}

#endif
