/* check_winograd_weights.c - the transform of weights that are stored in 16 bits, against plain
 * sums in double. */
#include "checks.h"

enum { PLACES = ATTN_WINOGRAD_PLACES };

/* Element (row, column) of G g G'. */
static double place_of(const float *g, int64_t line, int row, int column)
{
    static const double rows[4][3] = {
        { 1, 0, 0 }, { 0.5, 0.5, 0.5 }, { 0.5, -0.5, 0.5 }, { 0, 0, 1 }
    };
    double sum = 0.0;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            sum += rows[row][i] * rows[column][j] * (double)g[(3 * i + j) * line];
    return sum;
}

void check_winograd_weights_f32(struct check *c)
{
    for (int n = 0; n < 40; n++) {
        struct attn_winograd_weights p = { .channels = 1 + check_below(c, 20),
                                           .width =
                                               ATTN_BLOCK * (1 + check_below(c, 2)) };
        const size_t all = (size_t)(9 * p.channels * p.width);
        float *weights = check_normal_f32(c, all);
        p.w_type = n % 2 ? ATTN_B_F16 : ATTN_B_BF16;
        p.w = check_stored(c, weights, all, p.w_type);
        p.place = p.channels * p.width + ATTN_BLOCK * check_below(c, 2);
        float *y = check_memory(c, (size_t)(PLACES * p.place) * sizeof *y);
        p.y = y;
        c->k->winograd_weights_f32(&p);
        for (int64_t i = 0; i < PLACES * p.channels * p.width; i++) {
            const int64_t place = i % PLACES, channel = i / PLACES / p.width,
                          column = i / PLACES % p.width;
            check_near(c, (size_t)i,
                       (double)y[place * p.place + channel * p.width + column],
                       place_of(weights + 9 * channel * p.width + column, p.width,
                                (int)place / 4, (int)place % 4),
                       5e-7);
        }
        check_again(c);
    }
}
