/* Panels of matrices that never change (backend/kept.h). */
#ifndef TT_BACKEND_CPU_GEMM_KEPT_H
#define TT_BACKEND_CPU_GEMM_KEPT_H

#include "backend/cpu/gemm/variants.h"
#include "backend/kept.h"

struct tt_gemm_kept;

/* Sorted and joined copies of the ranges. */
TT_MUST_USE tt_status tt_gemm_kept_create(void *memory, size_t bytes, const struct tt_kept_range *ranges,
                                          size_t count, struct tt_gemm_kept **out);
void tt_gemm_kept_destroy(struct tt_gemm_kept *kept); /* takes NULL */

/* The panels of a matrix for products over `k`, as `a` or as `b`: `floats` of them. *fresh: they are not packed yet.
 * NULL: they are not kept. */
float *tt_gemm_kept_find(struct tt_gemm_kept *kept, const struct tt_gemm_source *matrix, int64_t k, bool as_a,
                         int64_t floats, bool *fresh);

#endif
