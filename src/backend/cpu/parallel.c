/* Instruction sets, scratch and large pages, for ops and for the device. */
#include <stdint.h>
#include <sys/mman.h>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/gemm/variants.h"

static const char *const isa_names[] = {[TT_CPU_PORTABLE] = "portable",
                                        [TT_CPU_AVX2] = "avx2",
                                        [TT_CPU_AVX512] = "avx512",
                                        [TT_CPU_AVX512_BF16] = "avx512_bf16",
                                        [TT_CPU_AMX] = "amx"};

const char *tt_cpu_isa_name(enum tt_cpu_isa isa)
{
    return isa_names[isa];
}

static enum tt_cpu_isa best_isa(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
        if (!__builtin_cpu_supports("avx512bf16")) return TT_CPU_AVX512;
        return tt_gemm_amx_request() ? TT_CPU_AMX : TT_CPU_AVX512_BF16;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return TT_CPU_AVX2;
#endif
    return TT_CPU_PORTABLE;
}

tt_status tt_cpu_detect_isa(const struct tt_device_tuning *tuning, enum tt_cpu_isa *out)
{
    enum tt_cpu_isa best = best_isa();
    *out = best;
    if (tuning->cpu_isa == TT_TUNING_ISA_AUTO) return TT_OK;
    int wanted = tuning->cpu_isa - TT_TUNING_ISA_FIRST;
    if (wanted < TT_CPU_PORTABLE || wanted > TT_CPU_AMX)
        return tt_fail(TT_ERR_INTERNAL, "cpu_isa %d is no level of instructions", tuning->cpu_isa);
    if (wanted > (int)best)
        return tt_fail(TT_ERR_UNSUPPORTED, "cpu_isa asks for %s, this processor has %s", isa_names[wanted],
                       isa_names[best]);
    *out = (enum tt_cpu_isa)wanted;
    return TT_OK;
}

/* Matrices are read in panels, one row per page. With pages of 4 KiB most of a large matrix is not in the TLB. A
 * kernel that declines costs speed only. */
void tt_cpu_advise_huge(void *block, size_t bytes)
{
#if defined(MADV_HUGEPAGE)
    uintptr_t begin = ((uintptr_t)block + TT_CPU_HUGE_PAGE - 1) / TT_CPU_HUGE_PAGE * TT_CPU_HUGE_PAGE,
              end = ((uintptr_t)block + bytes) / TT_CPU_HUGE_PAGE * TT_CPU_HUGE_PAGE;
    if (end > begin) (void)madvise((void *)begin, end - begin, MADV_HUGEPAGE);
#else
    (void)block, (void)bytes;
#endif
}

enum tt_cpu_isa tt_cpu_isa(const struct tt_stream *stream)
{
    return tt_cpu_of(stream->device)->isa;
}

void *tt_cpu_scratch(const struct tt_stream *stream, int thread)
{
    return tt_cpu_of(stream->device)->scratch + (size_t)thread * TT_CPU_SCRATCH_BYTES;
}
