/* measure_products.c - loops of the instructions that multiply pairs of bf16 numbers, or four
 * bytes, and add them to sums of 32 bits: their rate is the peak of products in that type.
 *
 * Each loop has as many independent sums as hide the latency of the instruction: 12 vectors, as
 * in measure_loops.h, or six tiles of AMX.
 */
#include "measure_block.h"

#include <stddef.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

enum { SUMS = 12, TILES = 6, TILE_ROWS = 16, TILE_BYTES = 64 };

/* A loop `name` over vectors of `target`: sums of type `sum`, which START(i) begins with
 * values that differ, so that no compiler takes two of them for one, and factors of type
 * `factor`, whose bits are those of the block's start. */
#define VECTOR_LOOP(name, target, sum, factor, START, PRODUCT)                           \
    target static void name(struct block *p)                                             \
    {                                                                                    \
        factor a, b;                                                                     \
        char bits[sizeof a];                                                             \
        memset(bits, 1 + (int)p->start[0], sizeof bits);                                 \
        memcpy(&a, bits, sizeof a);                                                      \
        memset(bits, 2 + (int)p->start[0], sizeof bits);                                 \
        memcpy(&b, bits, sizeof b);                                                      \
        sum y0 = START(0), y1 = START(1), y2 = START(2), y3 = START(3), y4 = START(4);   \
        sum y5 = START(5), y6 = START(6), y7 = START(7), y8 = START(8), y9 = START(9);   \
        sum y10 = START(10), y11 = START(11);                                            \
        for (int64_t i = 0; i < p->n; i++) {                                             \
            y0 = PRODUCT(y0, a, b);                                                      \
            y1 = PRODUCT(y1, a, b);                                                      \
            y2 = PRODUCT(y2, a, b);                                                      \
            y3 = PRODUCT(y3, a, b);                                                      \
            y4 = PRODUCT(y4, a, b);                                                      \
            y5 = PRODUCT(y5, a, b);                                                      \
            y6 = PRODUCT(y6, a, b);                                                      \
            y7 = PRODUCT(y7, a, b);                                                      \
            y8 = PRODUCT(y8, a, b);                                                      \
            y9 = PRODUCT(y9, a, b);                                                      \
            y10 = PRODUCT(y10, a, b);                                                    \
            y11 = PRODUCT(y11, a, b);                                                    \
        }                                                                                \
        const sum all[SUMS] = { y0, y1, y2, y3, y4, y5, y6, y7, y8, y9, y10, y11 };      \
        float *to = p->result;                                                           \
        for (int i = 0; i < SUMS; i++) {                                                 \
            float part;                                                                  \
            memcpy(&part, &all[i], sizeof part);                                         \
            to[i] = part;                                                                \
        }                                                                                \
    }

#if defined(__x86_64__)

#define START_PS(i)   _mm512_set1_ps(p->start[i])
#define START_512(i)  _mm512_set1_epi32((int)(16 * p->start[i]))
#define START_256(i)  _mm256_set1_epi32((int)(16 * p->start[i]))
#define FOR_BF16      __attribute__((target("avx512f,avx512bf16")))
#define FOR_VNNI      __attribute__((target("avx512f,avx512vnni")))
#define FOR_AVX2_VNNI __attribute__((target("avx2,avxvnni")))
VECTOR_LOOP(pairs_512, FOR_BF16, __m512, __m512bh, START_PS, _mm512_dpbf16_ps)
VECTOR_LOOP(bytes_512, FOR_VNNI, __m512i, __m512i, START_512, _mm512_dpbusd_epi32)
VECTOR_LOOP(bytes_256, FOR_AVX2_VNNI, __m256i, __m256i, START_256,
            _mm256_dpbusd_avx_epi32)

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* A loop `name` of six sums of tiles. The operating system has allowed tiles (runtime/cpu.c). */
#define TILE_LOOP(name, target, PRODUCT)                                                 \
    target static void name(struct block *p)                                             \
    {                                                                                    \
        struct tile_config config = { .palette = 1 };                                    \
        char bits[TILE_ROWS * TILE_BYTES];                                               \
        memset(bits, 1 + (int)p->start[0], sizeof bits);                                 \
        for (int i = 0; i < TILES + 2; i++) {                                            \
            config.row_bytes[i] = TILE_BYTES;                                            \
            config.rows[i] = TILE_ROWS;                                                  \
        }                                                                                \
        _tile_loadconfig(&config);                                                       \
        _tile_zero(0);                                                                   \
        _tile_zero(1);                                                                   \
        _tile_zero(2);                                                                   \
        _tile_zero(3);                                                                   \
        _tile_zero(4);                                                                   \
        _tile_zero(5);                                                                   \
        _tile_loadd(6, bits, TILE_BYTES);                                                \
        _tile_loadd(7, bits, TILE_BYTES);                                                \
        for (int64_t i = 0; i < p->n; i++) {                                             \
            PRODUCT(0, 6, 7);                                                            \
            PRODUCT(1, 6, 7);                                                            \
            PRODUCT(2, 6, 7);                                                            \
            PRODUCT(3, 6, 7);                                                            \
            PRODUCT(4, 6, 7);                                                            \
            PRODUCT(5, 6, 7);                                                            \
        }                                                                                \
        _tile_stored(0, bits, TILE_BYTES);                                               \
        memcpy(p->result, bits, sizeof p->result);                                       \
        _tile_release();                                                                 \
    }

#define FOR_TILES      __attribute__((target("amx-tile,amx-int8")))
#define FOR_TILES_BF16 __attribute__((target("amx-tile,amx-bf16")))
TILE_LOOP(tiles_of_bytes, FOR_TILES, _tile_dpbusd)
TILE_LOOP(tiles_of_pairs, FOR_TILES_BF16, _tile_dpbf16ps)

static const struct product_loops rows[] = {
    { "avx2_vnni", NULL, bytes_256, 0, SUMS * 8 * 4 * 2 },
    { "avx512_vnni", NULL, bytes_512, 0, SUMS * 16 * 4 * 2 },
    { "avx512_bf16", pairs_512, bytes_512, SUMS * 16 * 2 * 2, SUMS * 16 * 4 * 2 },
    { "avx512_amx", NULL, tiles_of_bytes, 0, TILES * 16 * 16 * 64 * 2 },
    { "avx512_amx_bf16", tiles_of_pairs, tiles_of_bytes, TILES * 16 * 16 * 32 * 2,
      TILES * 16 * 16 * 64 * 2 },
};

#elif defined(__aarch64__)

#define START_S32(i) vdupq_n_s32((int)(16 * p->start[i]))
#define FOR_DOT      __attribute__((target("arch=armv8.2-a+dotprod")))
VECTOR_LOOP(bytes_dot, FOR_DOT, int32x4_t, int8x16_t, START_S32, vdotq_s32)

static const struct product_loops rows[] = {
    { "neon_dot", NULL, bytes_dot, 0, SUMS * 4 * 4 * 2 },
};

#else
static const struct product_loops rows[] = { { "", NULL, NULL, 0, 0 } };
#endif

const struct product_loops *measure_products_of(const char *isa)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].isa, isa) == 0)
            return &rows[i];
    return NULL;
}
