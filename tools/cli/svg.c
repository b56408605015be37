/* svg.c - the arena as a drawing: time to the right, offset upwards, a rectangle per
 * block, in the colour of the operator that made it. Names stand in the blocks that have room,
 * and beside the largest that are alive at the peak. Colours follow the reader's theme. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../io/file.h"
#include "job.h"
#include "svg.h"

enum { WIDTH = 1200, HEIGHT = 720, LEFT = 90, TOP = 60, BOTTOM = 50, RIGHT = 230 };
enum { LEGEND_ROWS = 12, LABELS = 8, ROW = 18 };

/* An operator that makes blocks, or scratch: bytes of its blocks times the steps that they live. */
struct maker {
    const attnrun_plan_block *block;
    double weight;
};

struct drawing {
    struct output_file file;
    double steps, bytes;  /* of the axes */
    struct maker *makers; /* those of most bytes first */
    int64_t n_makers;
};

static void svg_put(struct drawing *drawing, const char *format, ...) TOOL_PRINTF(2, 3);

static void svg_put(struct drawing *drawing, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    output_file_write(&drawing->file, text,
                      n < (int)sizeof text ? n : (int)sizeof text - 1);
}

/* Text for XML; names are quoted before, so only five characters are left to replace, and two that
 * are in UTF-8 and not in XML: U+FFFE and U+FFFF. */
static void svg_put_text(struct drawing *drawing, const char *text)
{
    for (; *text != 0; text++) {
        switch (*text) {
        case '&':
            svg_put(drawing, "&amp;");
            break;
        case '<':
            svg_put(drawing, "&lt;");
            break;
        case '>':
            svg_put(drawing, "&gt;");
            break;
        case '"':
            svg_put(drawing, "&quot;");
            break;
        case '\xef':
            if (strncmp(text, "\xef\xbf\xbe", 3) == 0 ||
                strncmp(text, "\xef\xbf\xbf", 3) == 0) {
                svg_put(drawing, "?");
                text += 2;
                break;
            }
            /* fallthrough */
        default:
            svg_put(drawing, "%c", *text);
        }
    }
}

static double x_of(const struct drawing *drawing, double step)
{
    return LEFT + step / drawing->steps * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct drawing *drawing, double offset)
{
    return HEIGHT - BOTTOM - offset / drawing->bytes * (HEIGHT - TOP - BOTTOM);
}

/* ---- makers of blocks, and their colours ---- */

static bool is_scratch(const attnrun_plan_block *b)
{
    return strcmp(b->name, "scratch") == 0;
}

static int compare_makers(const attnrun_plan_block *a, const attnrun_plan_block *b)
{
    if (is_scratch(a) != is_scratch(b))
        return is_scratch(a) ? 1 : -1;
    return is_scratch(a) ? 0 : strcmp(a->op_type, b->op_type);
}

static int by_maker(const void *a, const void *b)
{
    return compare_makers(((const struct maker *)a)->block,
                          ((const struct maker *)b)->block);
}

static int by_weight(const void *a, const void *b)
{
    const double x = ((const struct maker *)a)->weight,
                 y = ((const struct maker *)b)->weight;
    return (x < y) - (x > y);
}

/* The makers, those of most bytes first; their number. */
static int64_t find_makers(const attnrun_plan_block *blocks, int64_t n,
                           struct maker *makers)
{
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        const attnrun_plan_block *b = &blocks[i];
        makers[i].block = b;
        makers[i].weight = (double)b->bytes * (b->last_step - b->first_step + 1);
    }
    qsort(makers, (size_t)n, sizeof *makers, by_maker);
    for (int64_t i = 0; i < n; i++)
        if (found > 0 && compare_makers(makers[found - 1].block, makers[i].block) == 0)
            makers[found - 1].weight += makers[i].weight;
        else
            makers[found++] = makers[i];
    qsort(makers, (size_t)found, sizeof *makers, by_weight);
    return found;
}

/* The colour of the operator that made the block: 137 degrees from that of the one before it, so
 * that those of the legend are far from each other. Scratch is grey. */
static void put_colour(struct drawing *drawing, const attnrun_plan_block *b)
{
    int64_t i = 0;
    while (i < drawing->n_makers - 1 && compare_makers(drawing->makers[i].block, b) != 0)
        i++;
    svg_put(drawing, "hsl(%d,%d%%,%d%%)", (int)((70 + 137 * i) % 360),
            is_scratch(b) ? 0 : 60, is_scratch(b) ? 62 : 72);
}

static void draw_block(struct drawing *drawing, const attnrun_plan_block *b)
{
    double x = x_of(drawing, b->first_step), right = x_of(drawing, b->last_step + 1.0);
    double top = y_of(drawing, (double)(b->offset + b->bytes));
    double bottom = y_of(drawing, (double)b->offset);
    svg_put(drawing, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"",
            x, top, right - x, bottom - top);
    put_colour(drawing, b);
    svg_put(drawing, "\"><title>");
    svg_put_text(drawing, tool_quote(b->name));
    svg_put(drawing, " (");
    svg_put_text(drawing, tool_quote(b->op_type));
    svg_put(drawing,
            ")\n%s\n%" PRId64 " bytes at %" PRId64 ", steps %d-%d</title></rect>\n",
            value_shape(&b->tensor), b->bytes, b->offset, b->first_step, b->last_step);
    if (right - x < 80 || bottom - top < 12)
        return;
    svg_put(drawing, "<text class=\"in\" x=\"%.2f\" y=\"%.2f\" pointer-events=\"none\">",
            x + 3, (top + bottom) / 2 + 4);
    char name[96];
    size_t room = (size_t)((right - x) / 7);
    attnrun_escape(b->name, name, room < 90 ? room : 90);
    svg_put_text(drawing, name);
    svg_put(drawing, "</text>\n");
}

/* A round distance of at most about 8 marks: 1, 2 or 5 times a power of ten. */
static double mark_distance(double range)
{
    double distance = 1;
    while (distance * 80 < range)
        distance *= 10;
    return distance * 16 >= range && distance * 8 < range ? distance * 2
           : distance * 8 >= range                        ? distance
           : distance * 40 >= range                       ? distance * 5
                                                          : distance * 10;
}

static void draw_axes(struct drawing *drawing)
{
    double distance = mark_distance(drawing->bytes);
    for (double offset = 0; offset <= drawing->bytes; offset += distance) {
        double y = y_of(drawing, offset);
        svg_put(drawing,
                "<path class=\"grid\" d=\"M%d %.2fH%d\"/><text x=\"%d\" y=\"%.2f\" "
                "text-anchor=\"end\">%s</text>\n",
                LEFT, y, WIDTH - RIGHT, LEFT - 6, y + 4, text_bytes((int64_t)offset));
    }
    distance = mark_distance(drawing->steps);
    for (double step = 0; step <= drawing->steps; step += distance)
        svg_put(drawing, "<text x=\"%.2f\" y=\"%d\" text-anchor=\"middle\">%.0f</text>\n",
                x_of(drawing, step), HEIGHT - BOTTOM + 18, step);
    svg_put(drawing, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12);
    svg_put(drawing,
            "<text transform=\"rotate(-90 16 %d)\" x=\"16\" y=\"%d\" "
            "text-anchor=\"middle\">offset in the arena</text>\n",
            (TOP + HEIGHT - BOTTOM) / 2, (TOP + HEIGHT - BOTTOM) / 2);
}

/* ---- what stands beside: the operators, and the blocks of the peak ---- */

static double draw_legend(struct drawing *drawing)
{
    const int x = WIDTH - RIGHT + 20;
    double y = TOP;
    svg_put(drawing, "<text class=\"head\" x=\"%d\" y=\"%.0f\">made by</text>\n", x, y);
    for (int64_t i = 0; i < drawing->n_makers && i < LEGEND_ROWS; i++) {
        const attnrun_plan_block *b = drawing->makers[i].block;
        y += ROW;
        svg_put(drawing, "<rect x=\"%d\" y=\"%.0f\" width=\"12\" height=\"12\" fill=\"",
                x, y - 10);
        put_colour(drawing, b);
        svg_put(drawing, "\"/><text x=\"%d\" y=\"%.0f\">", x + 18, y);
        svg_put_text(drawing,
                     is_scratch(b) ? "scratch of a step" : tool_quote(b->op_type));
        svg_put(drawing, "</text>\n");
    }
    return y + 2 * ROW;
}

/* The largest blocks that are alive at the peak, with their sizes. */
static void draw_peak(struct drawing *drawing, const attnrun_plan_info *plan,
                      const attnrun_plan_block *blocks, int64_t n, double y)
{
    const int x = WIDTH - RIGHT + 20;
    int64_t below = INT64_MAX,
            last = -1; /* shown so far: larger, or as large before it */
    svg_put(drawing,
            "<text class=\"head\" x=\"%d\" y=\"%.0f\">alive at the peak</text>\n", x, y);
    for (int row = 0; row < LABELS; row++) {
        const attnrun_plan_block *best = NULL;
        for (int64_t i = 0; i < n; i++) {
            const attnrun_plan_block *b = &blocks[i];
            if (b->first_step <= plan->peak_step && b->last_step >= plan->peak_step &&
                (b->bytes < below || (b->bytes == below && i > last)) &&
                (best == NULL || b->bytes > best->bytes))
                best = b;
        }
        if (best == NULL)
            return;
        below = best->bytes;
        last = best - blocks;
        y += ROW;
        char name[64];
        attnrun_escape(best->name, name, 25);
        svg_put(drawing, "<text x=\"%d\" y=\"%.0f\">%s ", x, y, text_bytes(best->bytes));
        svg_put_text(drawing, name);
        svg_put(drawing, "</text>\n");
    }
}

static void svg_draw(struct drawing *drawing, const char *model,
                     const attnrun_plan_info *plan, const attnrun_plan_block *blocks,
                     int64_t n)
{
    svg_put(
        drawing,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
        "font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n"
        "<title>Arena of a run: step to the right, offset upwards</title>\n"
        "<style>text{fill:#1f2328}.page{fill:#fff}.grid{stroke:#d8dee4}.in{fill:#1f2328;"
        "stroke:none}"
        ".head{font-weight:600}.edge{stroke:#0006}.peak{stroke:#cf222e;stroke-dasharray:"
        "4 3}"
        "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.page{fill:#0d1117}"
        ".grid{stroke:#30363d}.edge{stroke:#fff6}.peak{stroke:#ff7b72}.in{fill:#1f2328}}"
        "</style>\n<rect class=\"page\" width=\"100%%\" height=\"100%%\"/>\n"
        "<text x=\"%d\" y=\"24\" font-size=\"16\">",
        WIDTH, HEIGHT, LEFT);
    svg_put_text(drawing, model);
    svg_put(drawing,
            ": arena of %" PRId64
            " bytes</text>\n<text x=\"%d\" y=\"44\">peak at step %d, ",
            plan->arena_bytes, LEFT, plan->peak_step);
    svg_put_text(drawing, tool_quote(plan->peak_node != NULL ? plan->peak_node : ""));
    svg_put(drawing, "; at least %" PRId64 " bytes are alive there; %s</text>\n",
            plan->lower_bound_bytes, tool_plural(n, "block"));
    draw_axes(drawing);
    svg_put(drawing, "<g class=\"edge\" stroke-width=\"0.5\">\n");
    for (int64_t i = 0; i < n; i++)
        draw_block(drawing, &blocks[i]);
    svg_put(drawing, "</g>\n<path class=\"peak\" d=\"M%.2f %dV%d\"/>\n",
            x_of(drawing, plan->peak_step + 0.5), TOP, HEIGHT - BOTTOM);
    draw_peak(drawing, plan, blocks, n, draw_legend(drawing));
    svg_put(drawing, "</svg>\n");
}

attnrun_status svg_write(const char *path, const char *model,
                         const attnrun_plan_info *plan, const attnrun_plan_block *blocks,
                         int64_t n)
{
    struct drawing drawing = { .steps = plan->n_steps > 0 ? plan->n_steps : 1,
                               .bytes = plan->arena_bytes > 0 ? (double)plan->arena_bytes
                                                              : 1 };
    for (int64_t i = 0; i < n; i++) /* outputs live on behind the last step */
        if (blocks[i].last_step + 1.0 > drawing.steps)
            drawing.steps = blocks[i].last_step + 1.0;
    drawing.makers = calloc((size_t)n + 1, sizeof *drawing.makers);
    if (drawing.makers == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for a drawing");
    drawing.n_makers = find_makers(blocks, n, drawing.makers);
    attnrun_status status = output_file_open(&drawing.file, path);
    if (status == ATTNRUN_OK) {
        svg_draw(&drawing, model, plan, blocks, n);
        status = output_file_commit(&drawing.file);
    }
    free(drawing.makers);
    return status;
}
