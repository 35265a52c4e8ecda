/* Owns finding OpenBLAS, and the numbers that the interface of BLAS gives its orders. */
#include "model/blas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

enum { ROW_MAJOR = 101, AS_IT_IS = 111, TRANSPOSED = 112 };

static struct ts_blas found;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void product(const struct ts_blas *blas, const float *x, size_t rows, const float *w, size_t columns,
                    size_t depth, float *y, size_t stride)
{
    if (rows == 1)
        blas->sgemv(ROW_MAJOR, AS_IT_IS, (int)columns, (int)depth, 1.0f, w, (int)depth, x, 1, 0.0f, y, 1);
    else
        blas->sgemm(ROW_MAJOR, AS_IT_IS, TRANSPOSED, (int)rows, (int)columns, (int)depth, 1.0f, x, (int)depth, w,
                    (int)depth, 0.0f, y, (int)stride);
}

/* A function is not an object to the language; POSIX has its address in a pointer all the same. */
static int find(void *library, const char *name, void *function)
{
    void *address = dlsym(library, name);
    memcpy(function, &address, sizeof address);
    return address != NULL;
}

static void load(void)
{
    /* Homebrew keeps its library out of the places that are searched. */
    static const char *const names[] = {"libopenblas.so.0", "libopenblas.so", "libopenblas.dylib",
                                        "/opt/homebrew/opt/openblas/lib/libopenblas.dylib",
                                        "/usr/local/opt/openblas/lib/libopenblas.dylib"};
    void (*set_threads)(int count);
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library || !find(library, "openblas_set_num_threads", &set_threads) ||
        !find(library, "cblas_sgemv", &found.sgemv) || !find(library, "cblas_sgemm", &found.sgemm))
        return;
    set_threads(1); /* the threads are ours */
    found.product = product;
}

const struct ts_blas *ts_blas_load(void)
{
    pthread_once(&once, load);
    return found.product ? &found : NULL;
}
