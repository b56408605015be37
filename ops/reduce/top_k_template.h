/* top_k_template.h - the k best elements of a line, for one element type.
 * for_each_dtype.h describes the parameters. NaN is larger than every number; of equal
 * elements the one with the lower index is better. */
static inline bool N(better)(const struct top_k_line *line, int64_t a, int64_t b)
{
    const T *x = line->x;
    T va = x[a * line->stride], vb = x[b * line->stride];
    if (IS_NAN(va) || IS_NAN(vb)) {
        if (IS_NAN(va) && IS_NAN(vb))
            return a < b;
        return IS_NAN(va) == line->largest;
    }
    if (va != vb)
        return line->largest ? va > vb : va < vb;
    return a < b;
}

/* heap[0] is the worst of heap[0..n). */
static void N(sift_down)(const struct top_k_line *line, int64_t *heap, int64_t n,
                         int64_t at)
{
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && N(better)(line, heap[child], heap[child + 1]))
            child++;
        if (!N(better)(line, heap[at], heap[child]))
            return;
        int64_t moved = heap[at];
        heap[at] = heap[child];
        heap[child] = moved;
    }
}

/* index[0..k), k <= length: the best, best first. */
static void N(top_k)(const struct top_k_line *line, int64_t k, int64_t *index)
{
    for (int64_t i = 0; i < k; i++)
        index[i] = i;
    for (int64_t i = k / 2 - 1; i >= 0 && !attn_stops(i); i--)
        N(sift_down)(line, index, k, i);
    const T *x = line->x;
    for (int64_t i = k; k > 0 && i < line->length && !attn_stops_node(i); i++) {
        T v = x[i * line->stride], worst = x[index[0] * line->stride];
        if (line->largest ? v <= worst : v >= worst)
            continue; /* behind an equal one too */
        if (N(better)(line, i, index[0])) {
            index[0] = i;
            N(sift_down)(line, index, k, 0);
        }
    }
    for (int64_t n = k - 1; n > 0 && !attn_stops_node(n); n--) {
        int64_t worst = index[0];
        index[0] = index[n];
        index[n] = worst;
        N(sift_down)(line, index, n, 0);
    }
}

static void N(gather)(void *to, const struct top_k_line *line, int64_t k,
                      const int64_t *index)
{
    T *y = to;
    const T *x = line->x;
    for (int64_t i = 0; i < k; i++)
        y[i * line->stride] = x[index[i] * line->stride];
}
