/* measure_loops.h - the inner loops of measure.c for one instruction set.
 *
 * Parameters, undefined at the end: LOOP(name) gives a name its suffix, LOOP_TARGET is a
 * function attribute or nothing, LOOP_BYTES the width of a vector. */
typedef float LOOP(reals) __attribute__((vector_size(LOOP_BYTES)));
typedef uint64_t LOOP(words) __attribute__((vector_size(LOOP_BYTES), may_alias));

/* 12 chains y = y*m + a: enough for two units of a latency of up to 6 cycles, and with
 * m and a still within 16 registers. The chains start from different values, so that no
 * compiler takes two of them for one. */
LOOP_TARGET static void LOOP(fma)(struct block *p)
{
    const LOOP(reals) zero = { 0 };
    const float *s = p->start;
    LOOP(reals) m = zero + p->factor, a = zero + p->term;
    LOOP(reals) y0 = zero + s[0], y1 = zero + s[1], y2 = zero + s[2], y3 = zero + s[3];
    LOOP(reals) y4 = zero + s[4], y5 = zero + s[5], y6 = zero + s[6], y7 = zero + s[7];
    LOOP(reals)
    y8 = zero + s[8], y9 = zero + s[9], y10 = zero + s[10], y11 = zero + s[11];
    for (int64_t i = 0; i < p->n; i++) {
        y0 = y0 * m + a;
        y1 = y1 * m + a;
        y2 = y2 * m + a;
        y3 = y3 * m + a;
        y4 = y4 * m + a;
        y5 = y5 * m + a;
        y6 = y6 * m + a;
        y7 = y7 * m + a;
        y8 = y8 * m + a;
        y9 = y9 * m + a;
        y10 = y10 * m + a;
        y11 = y11 * m + a;
    }
    y0 += y1 + y2 + y3 + y4 + y5 + y6 + y7 + y8 + y9 + y10 + y11;
    memcpy(p->result, &y0, sizeof y0);
}

/* 6 chains that multiply and 6 that add: half the FLOPs of fma() per turn. */
LOOP_TARGET static void LOOP(mul_add)(struct block *p)
{
    const LOOP(reals) zero = { 0 };
    const float *s = p->start;
    LOOP(reals) m = zero + p->factor, a = zero + p->term;
    LOOP(reals) x0 = zero + s[0], x1 = zero + s[1], x2 = zero + s[2], x3 = zero + s[3];
    LOOP(reals) x4 = zero + s[4], x5 = zero + s[5], y0 = zero + s[6], y1 = zero + s[7];
    LOOP(reals) y2 = zero + s[8], y3 = zero + s[9], y4 = zero + s[10], y5 = zero + s[11];
    for (int64_t i = 0; i < p->n; i++) {
        x0 *= m;
        y0 += a;
        x1 *= m;
        y1 += a;
        x2 *= m;
        y2 += a;
        x3 *= m;
        y3 += a;
        x4 *= m;
        y4 += a;
        x5 *= m;
        y5 += a;
    }
    x0 += x1 + x2 + x3 + x4 + x5 + y0 + y1 + y2 + y3 + y4 + y5;
    memcpy(p->result, &x0, sizeof x0);
}

/* Reads BLOCK_BYTES from p->data on, a multiple of eight vectors, aligned. */
LOOP_TARGET static void LOOP(read)(struct block *p)
{
    const LOOP(words) *x = (const LOOP(words) *)(const void *)p->data;
    LOOP(words) y0 = { 0 }, y1 = y0, y2 = y0, y3 = y0, y4 = y0, y5 = y0, y6 = y0, y7 = y0;
    for (size_t i = 0; i < BLOCK_BYTES / LOOP_BYTES; i += 8) {
        y0 += x[i];
        y1 += x[i + 1];
        y2 += x[i + 2];
        y3 += x[i + 3];
        y4 += x[i + 4];
        y5 += x[i + 5];
        y6 += x[i + 6];
        y7 += x[i + 7];
    }
    y0 += y1 + y2 + y3 + y4 + y5 + y6 + y7;
    memcpy(p->result, &y0, sizeof y0);
}

static const struct loops LOOP(loops) = { LOOP(fma), LOOP(mul_add), LOOP(read),
                                          LOOP_BYTES / 4 };

#undef LOOP
#undef LOOP_TARGET
#undef LOOP_BYTES
