/* blas.c - the only file that calls OpenBLAS: products of doubles, inside of our own tasks,
 * always on one thread. Where OpenBLAS is not built in, not installed, or not allowed,
 * plain_product.c multiplies instead. Cost: 2 m n k FLOPs.
 *
 * The library is loaded when the first product of doubles is planned. Loading it takes 1.7 ms,
 * with the libraries that it needs, which is a tenth of a short program without doubles. */
#include "blas.h"

#include "../../runtime/graph.h"

#include <limits.h>

#ifdef ATTN_BLAS_LIBRARY
#include <cblas.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

static struct {
    __typeof__(&cblas_dgemm) dgemm;
    __typeof__(&openblas_get_config) config;
    _Atomic bool found; /* both; set last */
} blas;

/* It stays loaded, since threads may be in it until the program ends. */
static void load_blas(void)
{
    void *library = dlopen(ATTN_BLAS_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return;
    *(void **)(void *)&blas.dgemm = dlsym(library, "cblas_dgemm");
    *(void **)(void *)&blas.config = dlsym(library, "openblas_get_config");
    atomic_store(&blas.found, blas.dgemm != NULL && blas.config != NULL);
}

static bool has_blas(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_blas);
    return atomic_load(&blas.found);
}

const char *attn_blas_name(void)
{
    return atomic_load(&blas.found) ? blas.config() : "OpenBLAS " ATTN_BLAS_VERSION;
}

static bool is_plain_product(int64_t row, int64_t col)
{
    return (col == 1 && row >= 1) || (row == 1 && col >= 1);
}

bool attn_blas_fits(const attnrun_step *step, const struct attn_gemm *g)
{
    const int64_t sizes[] = { g->m,     g->n,     g->k,     g->a_row,
                              g->a_col, g->b_row, g->b_col, g->c_row };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i] > INT_MAX || sizes[i] < 0)
            return false;
    return g->m >= 16 && g->n >= 16 && g->k >= 16 &&
           is_plain_product(g->a_row, g->a_col) && is_plain_product(g->b_row, g->b_col) &&
           op_may_use_blas(step) && has_blas();
}

void attn_blas_product_f64(const struct attn_gemm *g, int64_t rows, const double *a,
                           const double *b, double *c)
{
    const bool a_plain = g->a_col == 1, b_plain = g->b_col == 1;
    blas.dgemm(CblasRowMajor, a_plain ? CblasNoTrans : CblasTrans,
               b_plain ? CblasNoTrans : CblasTrans, (int)rows, (int)g->n, (int)g->k, 1.0,
               a, (int)(a_plain ? g->a_row : g->a_col), b,
               (int)(b_plain ? g->b_row : g->b_col), 0.0, c, (int)g->c_row);
}
#else
const char *attn_blas_name(void) { return "none"; }

bool attn_blas_fits(const attnrun_step *step, const struct attn_gemm *g)
{
    (void)step;
    (void)g;
    return false;
}

void attn_blas_product_f64(const struct attn_gemm *g, int64_t rows, const double *a,
                           const double *b, double *c)
{
    (void)g;
    (void)rows;
    (void)a;
    (void)b;
    (void)c;
}
#endif
