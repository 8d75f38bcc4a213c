/* What the cases of bench_ops are measured with. */
#ifndef TT_BENCH_OPS_TIMING_H
#define TT_BENCH_OPS_TIMING_H

#include "backend/device.h"
#include "ops_peak.h"
#include "tensor/tensor.h"

enum { BENCH_TENSORS_MAX = 16 };

struct bench {
    struct tt_device *device;
    struct tt_stream *stream;
    double seconds;                               /* that a case is repeated for */
    struct tt_buffer *buffers[BENCH_TENSORS_MAX]; /* of the case under way */
    int buffer_count;
    bool gpu;
    double copy_bytes, gemm_flops; /* a second, at best; 0: not measured */
    struct bench_peak units;
    double peak_flops; /* of the case under way: what the units give at best; 0: not measured */
};

void bench_must(tt_status status); /* ends the program with the error record */

/* Device memory until bench_release. Normal numbers of deviation 0.5, or `scale`: zeros would flatter some
 * processors. */
void *bench_memory(struct bench *bench, size_t bytes);
tt_tensor bench_random_tensor(struct bench *bench, tt_dtype dtype, int64_t d0, int64_t d1);
tt_tensor bench_scaled_tensor(struct bench *bench, tt_dtype dtype, int64_t d0, int64_t d1, double scale);
/* t * step % bound, i32 or i64. */
tt_tensor bench_index_tensor(struct bench *bench, tt_dtype dtype, int64_t count, int64_t step, int64_t bound);
void bench_release(struct bench *bench); /* waits for the stream */

typedef tt_status bench_run(struct tt_stream *stream, const void *args);
/* Repeats the op and prints its line. Returns the median seconds of a run. On a GPU so many run in a row that waiting
 * for them does not count. flops and bytes: of one run; 0: not told. */
double bench_measure(struct bench *bench, const char *name, bench_run *run, const void *args, double flops,
                     double bytes);

#endif
