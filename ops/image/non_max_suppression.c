/* non_max_suppression.c - NonMaxSuppression: of boxes that overlap it keeps the one with
 * the best score.
 *
 * boxes   f32 [images, n, 4]: two opposite corners (y, x, y, x), or with center_point_box
 *         1 the centre and size (x, y, width, height)
 * scores  f32 [images, classes, n]
 * max_output_boxes_per_class      i64, 0 by default, which keeps no box
 * iou_threshold, score_threshold  f32
 * Y       i64 [found, 3]: image, class, box; sorted by image, class, falling score (boxes
 *         of equal score by their number)
 *
 * A box is dropped if its overlap with a chosen one is above iou_threshold. The step is a
 * dynamic-shape step, because the number of boxes is known only at run. Cost: for each
 * class O(n log n), and one overlap for each pair of a box and a chosen box. Memory: 4
 * bytes for each box and score.
 * Source: ONNX NonMaxSuppression-11. */
#include <math.h>

#include "../../runtime/op.h"

struct nms_args {
    int64_t center_point_box;
};

static const attnrun_attr_def nms_attrs[] = {
    ATTR_FLAG(struct nms_args, center_point_box, 0), ATTR_END
};

static attn_status nms_infer(attnrun_step *step)
{
    attnrun_dim out[2] = { attnrun_dim_unknown(step), dim_of(3) };
    for (int in = 0; in < 2; in++)
        if (op_rank_known(step, in))
            TRY(op_need_rank(step, in, 3));
    if (op_rank_known(step, 0))
        TRY(op_need_dim(step, 0, 2, dim_of(4), "four numbers of a box"));
    if (op_rank_known(step, 0) && op_rank_known(step, 1)) {
        TRY(op_need_dim(step, 1, 0, step->in[0].dims[0], "the images of boxes"));
        TRY(op_need_dim(step, 1, 2, step->in[0].dims[1], "the boxes"));
    }
    for (int in = 2; in < 5; in++)
        if (op_has_in(step, in) && op_rank_known(step, in)) {
            TRY(op_need_rank_between(step, in, 0, 1));
            if (step->in[in].rank == 1)
                TRY(op_need_dim(step, in, 0, dim_of(1), "one number"));
        }
    TRY(op_out(step, 0, ATTNRUN_I64, 2, out));
    if (!step->concrete)
        return ATTNRUN_OK;
    /* For each class a heap of the boxes, and the chosen boxes of all classes. */
    int64_t n = op_count(&step->in[1], 2, 3), all = op_count(&step->in[1], 0, 3);
    if (n > INT32_MAX || all < 0 || all > ATTN_MAX_ELEMENTS)
        return op_fail_size(
            step, "the number of boxes would be over 2^31 - 1, or of scores", "2^46");
    step->scratch_bytes = (n + all) * 4 + 64;
    attnrun_step_heap_bound(step, all * 24);
    return ATTNRUN_OK;
}

struct box {
    double y0, x0, y1, x1;
};

static struct box get_box(const float *b, bool centre)
{
    double v[4] = { (double)b[0], (double)b[1], (double)b[2], (double)b[3] };
    if (centre)
        return (struct box){ v[1] - v[3] / 2, v[0] - v[2] / 2, v[1] + v[3] / 2,
                             v[0] + v[2] / 2 };
    return (struct box){ fmin(v[0], v[2]), fmin(v[1], v[3]), fmax(v[0], v[2]),
                         fmax(v[1], v[3]) };
}

static bool overlaps(struct box a, struct box b, double threshold)
{
    double h = fmin(a.y1, b.y1) - fmax(a.y0, b.y0),
           w = fmin(a.x1, b.x1) - fmax(a.x0, b.x0);
    if (!(h > 0.0 && w > 0.0))
        return false;
    double area_a = (a.y1 - a.y0) * (a.x1 - a.x0), area_b = (b.y1 - b.y0) * (b.x1 - b.x0);
    double both = h * w;
    return area_a > 0.0 && area_b > 0.0 && both / (area_a + area_b - both) > threshold;
}

/* The order of a max-heap of box numbers: by score, then by number. */
static bool before(const float *score, int32_t a, int32_t b)
{
    return score[a] > score[b] || (score[a] == score[b] && a < b);
}

static void sift(int32_t *heap, int64_t n, int64_t i, const float *score)
{
    int32_t moved = heap[i];
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(score, heap[child + 1], heap[child]))
            child++;
        if (!before(score, heap[child], moved))
            break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

struct nms {
    const float *boxes, *score;
    int64_t n, max;
    double overlap;
    bool centre, limited;
    double min;
};

/* Chooses the boxes of one class; returns how many, or -1 where cancelled. */
static int64_t nms_choose(const struct nms *c, int32_t *heap, int32_t *chosen,
                          const attnrun_work *work)
{
    int64_t n = 0, found = 0;
    if (OP_CANCELLED_AFTER(work, c->n * 4))
        return -1;
    for (int64_t i = 0; i < c->n && !attn_stops(i); i++)
        if (!isnan(c->score[i]) && (!c->limited || (double)c->score[i] > c->min))
            heap[n++] = (int32_t)i;
    for (int64_t i = n / 2 - 1; i >= 0 && !attn_stops_node(i); i--)
        sift(heap, n, i, c->score);
    while (n > 0 && found < c->max) {
        if (OP_CANCELLED(work))
            return -1;
        int32_t best = heap[0];
        heap[0] = heap[--n];
        if (n > 0)
            sift(heap, n, 0, c->score);
        struct box box = get_box(c->boxes + 4 * (int64_t)best, c->centre);
        bool keep = true;
        for (int64_t i = 0; keep && i < found; i++)
            keep = !overlaps(box, get_box(c->boxes + 4 * (int64_t)chosen[i], c->centre),
                             c->overlap);
        if (keep)
            chosen[found++] = best;
    }
    return found;
}

static attn_status nms_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct nms_args *args = step->args;
    int64_t images = step->x[1].dims[0], classes = step->x[1].dims[1],
            n = step->x[1].dims[2];
    struct nms c = { .n = n, .centre = args->center_point_box != 0 };
    c.max = op_has_in(step, 2) ? tensor_get_int(&step->x[2], 0) : 0;
    c.overlap = op_has_in(step, 3) ? tensor_get_real(&step->x[3], 0) : 0.0;
    c.limited = op_has_in(step, 4);
    c.min = c.limited ? tensor_get_real(&step->x[4], 0) : 0.0;
    if (!(c.overlap >= 0.0 && c.overlap <= 1.0))
        return op_fail(step, ATTNRUN_E_RANGE, "iou_threshold is %g, expected 0 to 1",
                       c.overlap);
    int32_t *heap = work->scratch, *chosen = heap + n;
    /* Without a box, any number of classes takes no memory. */
    int64_t total = 0, lists = n > 0 ? images * classes : 0;
    for (int64_t k = 0; k < lists; k++) {
        c.boxes = (const float *)step->x[0].data + k / classes * n * 4;
        c.score = (const float *)step->x[1].data + k * n;
        int64_t found = nms_choose(&c, heap, chosen + k * n, work);
        if (found < 0)
            return ATTNRUN_E_CANCELLED;
        if (found < n)
            chosen[k * n + found] = -1;
        total += found;
    }
    TRY(attnrun_step_alloc(step, 0, ATTNRUN_I64, 2, (int64_t[]){ total, 3 }));
    int64_t *y = step->y[0].data;
    for (int64_t k = 0; y != NULL && k < lists; k++)
        for (int64_t i = 0; i < n && chosen[k * n + i] >= 0 && !attn_stops(i); i++) {
            *y++ = k / classes;
            *y++ = k % classes;
            *y++ = chosen[k * n + i];
        }
    return ATTNRUN_OK;
}

const attnrun_op_def op_non_max_suppression_10 = {
    OP_ROW,
    .flags = ATTNRUN_OP_DYNAMIC,
    .name = "NonMaxSuppression",
    .since = 10,
    .args_bytes = sizeof(struct nms_args),
    .inputs = "boxes:f32 scores:f32 max_output_boxes_per_class:i64? iou_threshold:f32? "
              "score_threshold:f32?",
    .outputs = "selected_indices:i64",
    .attrs = nms_attrs,
    .infer = nms_infer,
    .run = nms_run,
};
