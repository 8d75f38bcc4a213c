/* Choices between several ways to compute, for tests, measurements and runs that must give the same bits. Zeroed: the
 * device's own choice. The fields are settings of every job (backend/settings.h), which the environment may give
 * too, so that they are saved with a run and compared between its processes; a device reads nothing but this. */
#ifndef TT_BACKEND_TUNING_H
#define TT_BACKEND_TUNING_H

#include <stdbool.h>

#include "base/error.h"

/* Values in the order of the rows' words; 0 is "auto". */
enum tt_tuning_isa { TT_TUNING_ISA_AUTO, TT_TUNING_ISA_FIRST }; /* then enum tt_cpu_isa of cpu/cpu_device.h */
enum tt_tuning_gemm { TT_TUNING_GEMM_AUTO, TT_TUNING_GEMM_DOT, TT_TUNING_GEMM_PANELS, TT_TUNING_GEMM_PAIRS };
enum tt_tuning_panels { TT_TUNING_PANELS_AUTO, TT_TUNING_PANELS_OFF };
enum tt_tuning_attention { TT_TUNING_ATTENTION_AUTO, TT_TUNING_ATTENTION_OWN, TT_TUNING_ATTENTION_CUDNN };
enum tt_tuning_fused { TT_TUNING_FUSED_AUTO, TT_TUNING_FUSED_OFF, TT_TUNING_FUSED_REQUIRE };

struct tt_device_tuning {
    int cpu_isa; /* 0: what the processor has; else TT_TUNING_ISA_FIRST + enum tt_cpu_isa */
    enum tt_tuning_gemm cpu_gemm;
    enum tt_tuning_panels cpu_panels; /* of weights, in a generation */
    enum tt_tuning_attention attention;
    enum tt_tuning_fused gemm_fused;
    bool gemm_tune;      /* measure products and keep the fastest */
    bool deterministic;  /* attention and sums over ranks in one order */
    double hang_seconds; /* a GPU that is silent for longer hangs; 0: 20 */
};

/* Reads the environment alone, for programs that run no job. TT_ERR_USAGE for an unknown word. */
TT_MUST_USE tt_status tt_device_tuning_read(struct tt_device_tuning *out);

#endif
