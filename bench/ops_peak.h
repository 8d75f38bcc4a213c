/* The peak speed of a processor's arithmetic units, without memory accesses. */
#ifndef TT_BENCH_OPS_PEAK_H
#define TT_BENCH_OPS_PEAK_H

struct bench_peak {
    const char *f32_unit, *bf16_unit; /* the instructions measured */
    /* per second, all threads together; for fp32 and bf16 operands; 0: not measured */
    double f32_flops, bf16_flops;
};

/* The best of a few hundredths of a second of independent chains in registers, for a level of TRIMTAB_CPU_ISA
 * that this processor has. bf16: the faster of the level's bf16 instructions and its fp32 ones, because bf16 may
 * be widened. */
struct bench_peak bench_peak_of(const char *level, int threads);

#endif
