/* Timing of the cases of bench_ops. */
#ifndef TT_BENCH_OPS_TIMING_H
#define TT_BENCH_OPS_TIMING_H

#include "backend/device.h"
#include "ops_peak.h"
#include "tensor/tensor.h"

enum { BENCH_TENSORS_MAX = 20 };

struct bench {
    struct tt_device *device;
    struct tt_stream *stream;
    double seconds;                               /* time for which a case is repeated */
    struct tt_buffer *buffers[BENCH_TENSORS_MAX]; /* memory of the current case */
    int buffer_count;
    bool gpu;
    double copy_bytes, gemm_flops; /* measured peaks per second; 0: not measured */
    struct bench_peak units;
    double peak_flops; /* peak of the units for the current case; 0: not measured */
};

void bench_must(tt_status status); /* ends the program with the error record */

/* Device memory until bench_release, filled with normal numbers of deviation 0.5, or `scale`: some processors
 * are faster with zeros. */
void *bench_memory(struct bench *bench, size_t bytes);
tt_tensor bench_random_tensor(struct bench *bench, tt_dtype dtype, int64_t d0, int64_t d1);
tt_tensor bench_scaled_tensor(struct bench *bench, tt_dtype dtype, int64_t d0, int64_t d1, double scale);
/* t * step % bound, i32 or i64. */
tt_tensor bench_index_tensor(struct bench *bench, tt_dtype dtype, int64_t count, int64_t step, int64_t bound);
void bench_release(struct bench *bench); /* waits for the stream */

typedef tt_status bench_run(struct tt_stream *stream, const void *args);
/* Repeats the op and prints its line. Returns the median seconds of a run. On a GPU many runs are queued in a
 * row, so that the wait for them is negligible. flops and bytes: of one run; 0: unknown. */
double bench_measure(struct bench *bench, const char *name, bench_run *run, const void *args, double flops,
                     double bytes);

#endif
