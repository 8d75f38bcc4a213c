#include "base/lapack.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

static struct tt_lapack calls;
static bool is_there;

static bool find(void *library, const char *name, void *place)
{
    void *symbol = dlsym(library, name);
    if (symbol != NULL) memcpy(place, &symbol, sizeof symbol);
    return symbol != NULL;
}

static void open_library(void)
{
    static const char *const names[] = {"libopenblas.so.0", "liblapack.so.3"};
    for (size_t i = 0; i < sizeof names / sizeof *names && !is_there; i++) {
        void (*set_threads)(int) = NULL;
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) continue;
        is_there = find(library, "dgemm_", &calls.gemm) && find(library, "dsyrk_", &calls.syrk) &&
                   find(library, "dsyevr_", &calls.syevr);
        if (find(library, "openblas_set_num_threads", &set_threads)) set_threads(1);
    }
}

tt_status tt_lapack_open(const struct tt_lapack **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, open_library);
    if (!is_there) {
        tt_status status =
            tt_fail(TT_ERR_UNSUPPORTED, "neither libopenblas.so.0 nor liblapack.so.3 can be opened, "
                                        "which decompose the weights");
        tt_hint(
            "install OpenBLAS (Debian's package libopenblas0-pthread), or choose init_lora_weights: true");
        return status;
    }
    *out = &calls;
    return TT_OK;
}
