/* The op gemm: its variants, best first, and the memory that they share. */
#include "backend/cpu/gemm/variants.h"

#include <string.h>

#include "backend/cpu/gemm/kept.h"
#include "base/alloc.h"
#include "base/log.h"

/* Best first. */
static const struct tt_gemm_variant variants[] = {
    {"dot", tt_gemm_dot},
    {"panels", tt_gemm_panels},
};
enum { VARIANT_COUNT = sizeof variants / sizeof variants[0] };

static const struct tt_gemm_kernel *kernel_for(enum tt_cpu_isa isa)
{
    switch (isa) {
#if defined(__x86_64__)
    case TT_CPU_AMX:
    case TT_CPU_AVX512_BF16:
    case TT_CPU_AVX512:
        return &tt_gemm_kernel_avx512;
    case TT_CPU_AVX2:
        return &tt_gemm_kernel_avx2;
#endif
    default:
        return &tt_gemm_kernel_portable;
    }
}

/* VDPBF16PS computes twice the products of a fused multiply-add. Intel's processors start a quarter as many of
 * them (two Xeons with AMX, 2026-11: 85 against 172 and 103 against 210 GFLOP/s of one core), so panels of
 * floats are faster there. AMD's are assumed to start as many of both; bench_ops measures it. */
static const struct tt_gemm_kernel *bf16_kernel_for(enum tt_cpu_isa isa, enum tt_tuning_gemm wanted)
{
#if defined(__x86_64__)
    bool forced = wanted == TT_TUNING_GEMM_PAIRS;
    if (isa >= TT_CPU_AVX512_BF16 && (forced || (isa == TT_CPU_AVX512_BF16 && __builtin_cpu_is("amd"))))
        return &tt_gemm_kernel_avx512_bf16;
    if (isa == TT_CPU_AMX) return &tt_gemm_kernel_amx;
#endif
    return NULL;
}

/* NULL: the best that takes the types. */
static const struct tt_gemm_variant *find_forced(enum tt_tuning_gemm wanted)
{
    if (wanted == TT_TUNING_GEMM_AUTO) return NULL;
    return &variants[wanted == TT_TUNING_GEMM_DOT ? 0 : 1]; /* pairs are panels, too */
}

tt_status tt_gemm_state_create(struct tt_device *device, struct tt_gemm_state **out)
{
    tt_status status = TT_OK;
    struct tt_gemm_state *state = tt_calloc(1, sizeof *state);
    if (state == NULL) return TT_ERR_MEMORY;
    state->kernel = kernel_for(tt_cpu_of(device)->isa);
    state->bf16_kernel = bf16_kernel_for(tt_cpu_of(device)->isa, device->tuning.cpu_gemm);
    state->forced = find_forced(device->tuning.cpu_gemm);
    state->shared = tt_alloc_aligned(TT_GEMM_SHARED_FLOATS * sizeof *state->shared);
    if (state->shared == NULL) TT_GO(TT_ERR_MEMORY);
    tt_cpu_advise_huge(state->shared, TT_GEMM_SHARED_FLOATS * sizeof *state->shared);
    *out = state;
    return TT_OK;
out:
    tt_gemm_state_destroy(state);
    return status;
}

void tt_gemm_state_destroy(struct tt_gemm_state *state)
{
    if (state == NULL) return;
    tt_gemm_kept_destroy(state->kept);
    tt_free(state->shared);
    tt_free(state);
}

tt_status tt_gemm_state_keep(struct tt_gemm_state *state, void *memory, size_t bytes,
                             const struct tt_kept_range *ranges, size_t count)
{
    tt_gemm_kept_destroy(state->kept);
    state->kept = NULL;
    return memory != NULL ? tt_gemm_kept_create(memory, bytes, ranges, count, &state->kept) : TT_OK;
}

size_t tt_cpu_kept_bytes(const struct tt_device_tuning *tuning, int64_t rows, int64_t n, int64_t k,
                         tt_dtype dtype, tt_dtype input)
{
    enum tt_cpu_isa isa;
    if (tt_cpu_detect_isa(tuning, &isa) != TT_OK) return 0; /* the device reports it */
    struct tt_gemm_state state = {.kernel = kernel_for(isa),
                                  .bf16_kernel = bf16_kernel_for(isa, tuning->cpu_gemm),
                                  .forced = find_forced(tuning->cpu_gemm)};
    struct tt_gemm_problem problem = {.m = rows, .n = n, .k = k};
    problem.a = (struct tt_gemm_source){.dtype = input, .stride = k, .k_contiguous = true, .across = rows};
    problem.b = (struct tt_gemm_source){.dtype = dtype, .stride = k, .k_contiguous = true, .across = n};
    if (n < 1 || k < 1 || state.forced == &variants[0]) return 0;
    if (state.forced == NULL && rows <= tt_gemm_dot_rows_max(&state, &problem)) return 0;
    return (size_t)tt_gemm_kept_floats(tt_gemm_kernel_for(&state, &problem), &problem) * sizeof(float);
}

struct tt_gemm_source tt_gemm_source_of(tt_tensor matrix, bool k_contiguous)
{
    return (struct tt_gemm_source){.data = matrix.data,
                                   .dtype = matrix.dtype,
                                   .stride = matrix.strides[0],
                                   .k_contiguous = k_contiguous,
                                   .across = matrix.dims[k_contiguous ? 0 : 1]};
}

/* True when a problem of this shape is seen for the first time; the table is small and may forget. */
static bool is_new(struct tt_gemm_state *state, const struct tt_gemm_problem *problem)
{
    const int64_t traits[] = {problem->m,
                              problem->n,
                              problem->k,
                              problem->a.dtype,
                              problem->b.dtype,
                              problem->c.dtype,
                              problem->a.k_contiguous,
                              problem->b.k_contiguous,
                              problem->beta != 0.0f,
                              problem->low_count};
    uint64_t hash = 14695981039346656037u; /* FNV-1a over whole words */
    for (size_t i = 0; i < sizeof traits / sizeof traits[0]; i++) {
        hash = (hash ^ (uint64_t)traits[i]) * 1099511628211u;
    }
    uint64_t *slot = &state->seen[(hash >> 32) % (sizeof state->seen / sizeof state->seen[0])];
    bool fresh = *slot != hash;
    *slot = hash;
    return fresh;
}

static void log_choice(const struct tt_gemm_problem *problem, const char *variant, const char *declined)
{
    tt_debug("gemm %lldx%lldx%lld %s%s*%s%s->%s: %s%s%s", (long long)problem->m, (long long)problem->n,
             (long long)problem->k, tt_dtype_name(problem->a.dtype), problem->a.k_contiguous ? "" : "^T",
             tt_dtype_name(problem->b.dtype), problem->b.k_contiguous ? "^T" : "",
             tt_dtype_name(problem->c.dtype), variant, declined != NULL ? " declines: " : "",
             declined != NULL ? declined : "");
}

/* c = beta * c, when alpha * a * b is zero. */
static void scale_only(const struct tt_gemm_kernel *kernel, const struct tt_gemm_problem *problem)
{
    static const float zeros[256] = {0};
    for (int64_t column = 0; column < problem->n; column += 256) {
        int64_t count = problem->n - column < 256 ? problem->n - column : 256;
        kernel->finish(&problem->c, 0, column, zeros, 0, problem->m, count, 0.0f, problem->beta);
    }
}

tt_status tt_gemm_run(struct tt_stream *stream, const struct tt_gemm_problem *problem)
{
    struct tt_gemm_state *state = tt_gemm_state_of(stream);
    bool talk = is_new(state, problem);
    const struct tt_gemm_variant *first = state->forced != NULL ? state->forced : variants;
    const struct tt_gemm_variant *last = state->forced != NULL ? state->forced : variants + VARIANT_COUNT - 1;
    for (const struct tt_gemm_variant *variant = first; variant <= last; variant++) {
        const char *declined = NULL;
        TT_TRY(variant->run(stream, problem, &declined));
        if (talk) log_choice(problem, variant->name, declined);
        if (declined == NULL) return TT_OK;
        if (variant == state->forced) {
            return tt_fail(TT_ERR_UNSUPPORTED, "gemm: the forced variant %s declines %lldx%lldx%lld: %s",
                           variant->name, (long long)problem->m, (long long)problem->n, (long long)problem->k,
                           declined);
        }
    }
    return tt_fail(TT_ERR_INTERNAL, "gemm: no variant takes %lldx%lldx%lld", (long long)problem->m,
                   (long long)problem->n, (long long)problem->k);
}

/* The kernels can add only to c, so another addend is copied there. */
static void copy_addend(const struct tt_gemm_args *args)
{
    size_t element = tt_dtype_bytes(args->c.dtype), row = (size_t)args->c.dims[1] * element;
    for (int64_t m = 0; m < args->c.dims[0]; m++) {
        size_t offset = (size_t)(m * args->c.strides[0]) * element;
        memcpy((char *)args->c.data + offset, (const char *)args->addend.data + offset, row);
    }
}

tt_status tt_cpu_gemm(struct tt_stream *stream, const struct tt_gemm_args *args)
{
    if (args->beta != 0.0f && !tt_tensor_is_empty(args->addend)) copy_addend(args);
    struct tt_gemm_state *state = tt_gemm_state_of(stream);
    struct tt_gemm_problem problem = {
        .m = args->c.dims[0],
        .n = args->c.dims[1],
        .k = args->a.dims[args->trans_a ? 0 : 1],
        .a = tt_gemm_source_of(args->a, !args->trans_a),
        .b = tt_gemm_source_of(args->b, args->trans_b),
        .c = {.data = args->c.data, .dtype = args->c.dtype, .stride = args->c.strides[0]},
        .alpha = args->alpha,
        .beta = args->beta,
    };
    if (problem.k == 0 || args->alpha == 0.0f) {
        scale_only(state->kernel, &problem);
        return TT_OK;
    }
    return tt_gemm_run(stream, &problem);
}
