/* ggml_products.c - one row of floats times the matrices of tools/bench/decoder.py in ggml, the
 * library under llama.cpp: 4 bits with an f16 scale for each 32 (Q4_0), or 8 (Q8_0).
 * In: bits and threads. Reads a number of runs from each line of its input, prints the shortest in
 * ms, and once at first the bytes of the weights. Built by tools/bench/ggml.py, no part of
 * attnrun. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <ggml-cpu.h>
#include <ggml.h>

enum { LAYERS = 24, HIDDEN = 896, KV = 128, INNER = 4864, WORDS = 151936, LINES = 4 };
static const int shapes[][2] = { { HIDDEN, HIDDEN }, { HIDDEN, KV },    { HIDDEN, KV },
                                 { HIDDEN, HIDDEN }, { HIDDEN, INNER }, { HIDDEN, INNER },
                                 { INNER, HIDDEN } };

static float draw(void) { return (float)(rand() % 2001 - 1000) / 1000.0f; }

static struct ggml_tensor *row_of(struct ggml_context *context, int k)
{
    struct ggml_tensor *x = ggml_new_tensor_2d(context, GGML_TYPE_F32, k, 1);
    for (int i = 0; i < k; i++)
        ((float *)x->data)[i] = draw();
    return x;
}

/* Adds a product; the lines of its weights are LINES drawn ones in turn. Returns their bytes. */
static size_t add_product(struct ggml_context *context, struct ggml_cgraph *graph,
                          enum ggml_type type, struct ggml_tensor *x, int k, int n)
{
    struct ggml_tensor *w = ggml_new_tensor_2d(context, type, k, n);
    static float line[INNER];
    for (int j = 0; j < n; j++) {
        char *to = (char *)w->data + (size_t)j * w->nb[1];
        if (j >= LINES) {
            memcpy(to, (char *)w->data + (size_t)(j % LINES) * w->nb[1], w->nb[1]);
            continue;
        }
        for (int i = 0; i < k; i++)
            line[i] = draw();
        ggml_quantize_chunk(type, line, to, 0, 1, k, NULL);
    }
    ggml_build_forward_expand(graph, ggml_mul_mat(context, w, x));
    return ggml_nbytes(w);
}

static double run_ggml_products(struct ggml_cgraph *graph, struct ggml_cplan *plan)
{
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    ggml_graph_compute(graph, plan);
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (double)(to.tv_sec - from.tv_sec) * 1e3 +
           (double)(to.tv_nsec - from.tv_nsec) / 1e6;
}

int main(int argc, char **argv)
{
    const enum ggml_type type =
        argc > 1 && atoi(argv[1]) == 8 ? GGML_TYPE_Q8_0 : GGML_TYPE_Q4_0;
    const struct ggml_init_params memory = { .mem_size = (size_t)1200 << 20 };
    struct ggml_context *context = ggml_init(memory);
    struct ggml_cgraph *graph = ggml_new_graph(context);
    struct ggml_tensor *hidden = row_of(context, HIDDEN), *inner = row_of(context, INNER);
    size_t bytes = 0;
    for (int layer = 0; layer < LAYERS; layer++)
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
            bytes +=
                add_product(context, graph, type, shapes[s][0] == HIDDEN ? hidden : inner,
                            shapes[s][0], shapes[s][1]);
    bytes += add_product(context, graph, type, hidden, HIDDEN, WORDS);
    struct ggml_cplan plan = ggml_graph_plan(graph, argc > 2 ? atoi(argv[2]) : 1, NULL);
    plan.work_data = malloc(plan.work_size + 64);
    if (plan.work_data == NULL)
        return 1;
    printf("%zu\n", bytes);
    fflush(stdout);
    for (int runs; scanf("%d", &runs) == 1;) {
        double best = 1e30;
        for (int i = 0; i < runs; i++) {
            const double ms = run_ggml_products(graph, &plan);
            best = ms < best ? ms : best;
        }
        printf("%.4f\n", best);
        fflush(stdout);
    }
    return 0;
}
