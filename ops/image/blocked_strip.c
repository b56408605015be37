/* blocked_strip.c - copies what a part of the output of a convolution of blocked maps sees.
 *
 * In: X, blocked or plain, as floats, bytes, f16 or bf16. Out: the strip [channels that lie side by
 * side][line][pixel][channel] of floats, bytes, or words of two bf16, with padding around the map.
 * Lines and columns are those of the map, or, where dilations leave out most of them, those of each
 * index of the kernel. Lanes that are no channels become 0 in words. Cost: one copy. */
#include "blocked_strip.h"

/* A line of X: what is at x is the first channel of a group, and `blocks` lie block_step bytes
 * apart, of a plain X channels. */
struct line_source {
    const char *x; /* NULL: it lies outside of the map */
    int64_t pixels, blocks, block_step;
};

/* n pixels of a plain X, `step` pixels apart, with all channels, become words. */
static void copy_plain_words(const struct blocked_plan *p, char *to,
                             const struct line_source *line, int64_t first, int64_t n,
                             int64_t step)
{
    enum { PIXELS = 64 };
    const struct attn_kernels *const k = p->kernels;
    const int64_t bytes = strip_pixel_bytes(p), channels = line->blocks;
    const char *x = line->x + first * bytes;
    uint32_t *words = (uint32_t *)(void *)to;
    float some[ATTN_BLOCK * PIXELS];
    if (p->shape.plain_type == 0 && step == 1) {
        k->words_of_planes_bf16(words, (const float *)(const void *)x,
                                line->block_step / bytes, (size_t)channels, (size_t)n);
        return;
    }
    for (int64_t left; n > 0;
         n -= left, words += left * strip_unit(p), x += left * step * bytes) {
        left = min64(n, PIXELS);
        for (int64_t c = 0; c < channels; c++)
            for (int64_t i = 0; i < left; i++) {
                const char *at = x + c * line->block_step + i * step * bytes;
                float *value = some + c * PIXELS + i;
                if (p->shape.plain_type == 0)
                    memcpy(value, at, sizeof *value);
                else
                    attn_stored_to_floats(k, p->shape.plain_type, value, at, 1);
            }
        k->words_of_planes_bf16(words, some, PIXELS, (size_t)channels, (size_t)left);
    }
}

/* n pixels of a block, `step` pixels apart, go to pixels of the copy. */
static void copy_pixels(const struct blocked_plan *p, char *to, const char *x, int64_t n,
                        int64_t step)
{
    const int64_t put = strip_unit(p) * strip_element(p), in = strip_pixel_bytes(p);
    const bool words = p->words && !p->shape.x_bf16;
    if (words && (step != 1 || p->inputs > ATTN_BLOCK))
        p->kernels->words_of_blocks_bf16((uint32_t *)(void *)to, strip_unit(p),
                                         (const float *)(const void *)x,
                                         step * ATTN_BLOCK, (size_t)n);
    else if (words)
        p->kernels->words_bf16((uint32_t *)(void *)to, (const float *)(const void *)x,
                               (size_t)(n * strip_unit(p)));
    else if (p->shape.plain_type != 0)
        for (int64_t i = 0; i < n; i += step == 1 ? n : 1)
            attn_stored_to_floats(p->kernels, p->shape.plain_type,
                                  (float *)(void *)to + i, x + i * step * in,
                                  step == 1 ? n : 1);
    else if (step == 1 && put == in)
        memcpy(to, x, (size_t)(n * in));
    else if (in == ATTN_BLOCK)
        for (int64_t i = 0; i < n; i++, to += put, x += step * in)
            memcpy(to, x, ATTN_BLOCK);
    else if (in == 2 * ATTN_BLOCK)
        for (int64_t i = 0; i < n; i++, to += put, x += step * in)
            memcpy(to, x, (size_t)2 * ATTN_BLOCK);
    else
        for (int64_t i = 0; i < n; i++, to += put, x += step * in)
            memcpy(to, x, (size_t)in);
}

/* n columns of the copy, of which the first shows column `first` of the map, and the others
 * every `step`-th from there on. */
static void copy_line(char *to, const struct line_source *line,
                      const struct blocked_plan *p, int64_t first, int64_t n,
                      int64_t step, int padding)
{
    const int64_t put = strip_unit(p) * strip_element(p), width = line->pixels;
    const int64_t of_block = p->words ? ATTN_BLOCK * 2 : ATTN_BLOCK * strip_element(p);
    int64_t from = first < 0 ? min64(ceil_div(-first, step), n) : 0;
    int64_t end = first < width ? min64(ceil_div(width - first, step), n) : 0;
    if (line->x == NULL || end <= from)
        from = end = 0;
    memset(to, padding, (size_t)(from * put));
    memset(to + end * put, padding, (size_t)((n - end) * put));
    if (end == from)
        return;
    first += from * step;
    to += from * put;
    if (p->words && p->shape.plain) {
        copy_plain_words(p, to, line, first, end - from, step);
        return;
    }
    for (int64_t b = 0; b < line->blocks; b++)
        copy_pixels(p, to + b * of_block,
                    line->x + b * line->block_step + first * strip_pixel_bytes(p),
                    end - from, step);
}

/* All columns of one line of the copy. */
static void copy_columns(const struct blocked_plan *p, const struct blocked_part *part,
                         char *to, const struct line_source *line, int padding)
{
    const struct window *w = &p->shape.w;
    const int64_t left = part->w * w->stride[2] - w->before[2], n = p->block_w;
    if (!strip_by_taps(w, 2, n)) {
        copy_line(to, line, p, left, p->strip_w, 1, padding);
        return;
    }
    for (int64_t k = 0; k < w->kernel[2]; k++, to += n * strip_unit(p) * strip_element(p))
        copy_line(to, line, p, left + k * w->dilation[2], n, w->stride[2], padding);
}

/* Blocks of a group of X, or planes of a plain one. */
static int64_t blocks_in(const struct blocked_plan *p)
{
    const int64_t channels = p->shape.channels / p->shape.groups;
    if (p->shape.plain)
        return p->shape.bytes ? ceil_div(channels, 4) : channels;
    return blocked_count(channels);
}

/* The strip has the lines of the map from end to end, which are then copied as one. */
static bool has_whole_lines(const struct blocked_plan *p, const struct blocked_part *part)
{
    const struct window *w = &p->shape.w;
    return !strip_by_taps(w, 1, p->block_h) && !strip_by_taps(w, 2, p->block_w) &&
           p->strip_w == w->in[2] && part->w * w->stride[2] == w->before[2];
}

/* What the lines of a part see, with `padding` around the map. */
static void copy_strip(const struct blocked_plan *p, const struct blocked_part *part,
                       char *to, const char *x, int padding)
{
    const struct window *w = &p->shape.w;
    const int64_t pixel = strip_pixel_bytes(p), n = p->block_h, blocks = blocks_in(p);
    const int64_t block_step = w->in[1] * w->in[2] * pixel;
    const int64_t side_by_side = ceil_div(blocks, strip_planes_in(p));
    const int64_t top = part->h * w->stride[1] - w->before[1];
    const int64_t put = p->strip_w * strip_unit(p) * strip_element(p); /* of a line */
    const bool taps = strip_by_taps(w, 1, n), whole = has_whole_lines(p, part);
    for (int64_t b = 0; b < blocks; b += side_by_side, x += side_by_side * block_step) {
        struct line_source source = {
            .x = x,
            .pixels = whole ? w->in[1] * w->in[2] : w->in[2],
            .blocks = min64(blocks - b, side_by_side),
            .block_step = block_step,
        };
        if (whole) {
            copy_line(to, &source, p, top * w->in[2], p->strip_h * w->in[2], 1, padding);
            to += p->strip_h * put;
            continue;
        }
        for (int64_t i = 0; i < p->strip_h; i++, to += put) {
            const int64_t line =
                top + (taps ? i % n * w->stride[1] + i / n * w->dilation[1] : i);
            const bool inside = line >= 0 && line < w->in[1];
            source.x = inside ? x + line * w->in[2] * pixel : NULL;
            copy_columns(p, part, to, &source, padding);
        }
    }
}

const void *attn_blocked_find_x(const struct blocked_plan *p,
                                const struct blocked_part *part, const void *x,
                                void *strip, int padding, bool kept)
{
    const struct window *w = &p->shape.w;
    const int64_t block = w->in[1] * w->in[2] * strip_pixel_bytes(p);
    const char *from = x;
    from += (part->image * p->shape.groups + part->group) * blocks_in(p) * block;
    if (p->strip_h == 0)
        return from + (part->h * w->stride[1] * p->x_row +
                       part->w * w->stride[2] * strip_unit(p)) *
                          strip_element(p);
    if (kept)
        return strip;
    copy_strip(p, part, strip, from, padding);
    const int64_t left = p->shape.channels / p->shape.groups % p->inputs;
    if (p->words && !p->shape.plain && left > 0)
        blocked_clear_words((uint32_t *)strip + (strip_planes_in(p) - 1) * p->x_plane,
                            p->strip_h * p->strip_w, strip_unit(p), left);
    return strip;
}
