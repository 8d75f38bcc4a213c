/* What a processor's arithmetic units give when nothing but arithmetic is asked of them. */
#ifndef TT_BENCH_OPS_PEAK_H
#define TT_BENCH_OPS_PEAK_H

struct bench_peak {
    const char *f32_unit, *bf16_unit; /* the instructions measured */
    /* a second, all threads together; of products of such operands; 0: not measured */
    double f32_flops, bf16_flops;
};

/* The best of a few hundredths of a second of independent chains in registers, for a level of TRIMTAB_CPU_ISA that
 * this processor has. bf16: the faster of the level's instructions, for the products of floats that bf16 may be
 * widened to too. */
struct bench_peak bench_peak_of(const char *level, int threads);

#endif
