/* trimtab doctor: the device of a rank: products, copies, and what its driver counts. */
#include <math.h>
#include <string.h>

#include "backend/chips.h"
#include "backend/ops/elementwise.h"
#include "backend/ops/gemm.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "doctor/doctor_impl.h"
#include "tensor/tensor.h"

enum {
    SIDE_CPU = 512,
    SIDE_FIRST = 2048, /* of a GPU, by whose rate the side is chosen */
    SIDE_GPU = 8192,
    BATCH = 4,             /* products between two looks at the clock */
    COPY_BYTES = 64 << 20, /* to and from the host */
    COPY_ROUNDS = 4,
    DEVICE_ROUNDS = 16, /* on the device, where a copy is short beside its start */
};
static const double product_seconds = 0.2, fast_flops = 2e13;

void tt_doctor_examine_device(struct tt_examination *exam)
{
    if (strcmp(exam->place->device.kind, "cuda") != 0) return;
    (void)tt_gpu_health_read(exam->place->device.index, &exam->found.gpu);
    exam->found.is_gpu = 1;
}

/* Reads what means something under load only: `stream` has work. */
static void examine_under_load(struct tt_examination *exam)
{
    struct tt_gpu_health now, *found = &exam->found.gpu;
    if (exam->found.is_gpu == 0 || !tt_gpu_health_read(exam->place->device.index, &now)) return;
    found->slow_reasons = now.slow_reasons | (found->slow_reasons > 0 ? found->slow_reasons : 0);
    if (now.slow_reasons < 0) found->slow_reasons = -1;
    if (now.pcie_generation > found->pcie_generation) found->pcie_generation = now.pcie_generation;
    found->uncorrected = now.uncorrected;
    found->corrected = now.corrected;
    exam->found.under_load = 1;
}

/* ---- Products ---- */

/* Normal numbers as in a run: the power that products take, and with it the clock, depends on the bits of operands.
 * Over values of one exponent two H200s reached 732 and 726 TFLOP/s, over these two others 703 and 697. */
static tt_status fill_matrix(struct tt_stream *stream, struct tt_buffer *matrix, int64_t side)
{
    struct tt_random_fill_args args = {.y = tt_tensor_1d(tt_buffer_data(matrix), TT_BF16, side * side),
                                       .rng = tt_rng_make(1),
                                       .normal = true,
                                       .scale = 0.5};
    return tt_random_fill(stream, &args);
}

struct product {
    struct tt_buffer *memory[3];
    struct tt_gemm_args args;
    double flops; /* of one */
};

static void close_product(struct product *product)
{
    for (int i = 0; i < 3; i++) tt_buffer_destroy(product->memory[i]);
    *product = (struct product){0};
}

/* Two run at once, because the first ones choose kernels. */
static tt_status open_product(struct tt_examination *exam, int side, struct product *product)
{
    tt_status status = TT_OK;
    struct tt_gemm_args *args = &product->args;
    *product = (struct product){.args = {.alpha = 1, .trans_b = true}, .flops = 2.0 * side * side * side};
    for (int i = 0; i < 3; i++)
        TT_GO(tt_buffer_create(exam->device, (size_t)side * (size_t)side * 2, TT_PURPOSE_ACTIVATIONS,
                               &product->memory[i]));
    for (int i = 0; i < 2; i++) TT_GO(fill_matrix(exam->stream, product->memory[i], side));
    args->a = tt_tensor_2d(tt_buffer_data(product->memory[0]), TT_BF16, side, side);
    args->b = tt_tensor_2d(tt_buffer_data(product->memory[1]), TT_BF16, side, side);
    args->c = tt_tensor_2d(tt_buffer_data(product->memory[2]), TT_BF16, side, side);
    for (int i = 0; i < 2; i++) TT_GO(tt_gemm(exam->stream, args));
    TT_GO(tt_stream_synchronize(exam->stream));
out:
    if (status != TT_OK) close_product(product);
    return status;
}

static tt_status run_products(struct tt_examination *exam, const struct product *product, int count)
{
    for (int i = 0; i < count; i++) TT_TRY(tt_gemm(exam->stream, &product->args));
    return TT_OK;
}

/* Large products for fast GPUs; on slow ones they would take seconds. */
static tt_status choose_product(struct tt_examination *exam, struct product *product)
{
    TT_TRY(open_product(exam, exam->found.is_gpu ? SIDE_FIRST : SIDE_CPU, product));
    if (exam->found.is_gpu == 0) return TT_OK;
    double start = tt_clock_seconds();
    tt_status status = run_products(exam, product, BATCH);
    if (status == TT_OK) status = tt_stream_synchronize(exam->stream);
    bool fast = BATCH * product->flops / (tt_clock_seconds() - start) > fast_flops;
    if (status == TT_OK && !fast) return TT_OK;
    close_product(product);
    return status != TT_OK ? status : open_product(exam, SIDE_GPU, product);
}

static tt_status time_products(struct tt_examination *exam)
{
    struct product product;
    tt_status status = tt_comm_agree(exam->place->comm, choose_product(exam, &product));
    int64_t count = 0;
    double start, seconds = 0;
    if (status != TT_OK) return status;
    TT_GO(tt_comm_barrier(exam->place->comm));
    start = tt_clock_seconds();
    do {
        TT_GO(run_products(exam, &product, BATCH));
        TT_GO(tt_stream_synchronize(exam->stream));
        count += BATCH;
        seconds = tt_clock_seconds() - start;
    } while (seconds < product_seconds);
    exam->found.flops = product.flops * (double)count / seconds;
    TT_GO(run_products(exam, &product, exam->found.is_gpu ? BATCH : 0));
    examine_under_load(exam);
    TT_GO(tt_stream_synchronize(exam->stream));
out:
    close_product(&product);
    return status;
}

/* ---- Copies ---- */

enum way { TO_DEVICE, TO_HOST, ON_DEVICE };

static tt_status copy(struct tt_examination *exam, enum way way, void *host)
{
    char *device = tt_buffer_data(exam->send);
    switch (way) {
    case TO_DEVICE:
        return tt_copy_to_device(exam->stream, device, host, COPY_BYTES);
    case TO_HOST:
        return tt_copy_to_host(exam->stream, host, device, COPY_BYTES);
    case ON_DEVICE:
        break;
    }
    size_t half = tt_buffer_bytes(exam->send) / 2;
    return tt_copy_on_device(exam->stream, device + half, device, half);
}

/* Bytes a second of some copies that are queued together. */
static tt_status time_copies(struct tt_examination *exam, enum way way, void *host, double *rate)
{
    int rounds = way == ON_DEVICE ? DEVICE_ROUNDS : COPY_ROUNDS;
    double bytes = way == ON_DEVICE ? (double)(tt_buffer_bytes(exam->send) / 2) : COPY_BYTES;
    TT_TRY(copy(exam, way, host));
    TT_TRY(tt_stream_synchronize(exam->stream));
    double start = tt_clock_seconds();
    for (int round = 0; round < rounds; round++) TT_TRY(copy(exam, way, host));
    TT_TRY(tt_stream_synchronize(exam->stream));
    *rate = bytes * rounds / (tt_clock_seconds() - start);
    for (int round = 0; round < rounds; round++) TT_TRY(copy(exam, way, host));
    examine_under_load(exam);
    return tt_stream_synchronize(exam->stream);
}

static tt_status time_own_copies(struct tt_examination *exam)
{
    struct tt_buffer *host = NULL;
    struct tt_doctor_rank *found = &exam->found;
    TT_TRY(tt_host_buffer_create(exam->device, COPY_BYTES, TT_PURPOSE_STAGING, &host));
    tt_status status = time_copies(exam, TO_DEVICE, tt_buffer_data(host), &found->to_device_bytes);
    if (status == TT_OK) status = time_copies(exam, TO_HOST, tt_buffer_data(host), &found->to_host_bytes);
    if (status == TT_OK) status = time_copies(exam, ON_DEVICE, NULL, &found->on_device_bytes);
    found->on_device_bytes *= 2; /* read and written */
    tt_buffer_destroy(host);
    return status;
}

/* One GPU of each machine at a time: several would share the machine's memory. */
static tt_status take_turns(struct tt_examination *exam)
{
    struct tt_comm *comm = exam->place->comm;
    int world = tt_comm_world_size(comm), turns = 0;
    int32_t own = exam->place->local_rank, *all = tt_calloc((size_t)world, sizeof *all);
    if (all == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_comm_host_all_gather(comm, &own, all, sizeof own);
    for (int r = 0; r < world; r++)
        if (all[r] >= turns) turns = all[r] + 1;
    tt_free(all);
    for (int turn = 0; turn < turns && status == TT_OK; turn++) {
        if (turn == own && exam->found.is_gpu) status = time_own_copies(exam);
        status = tt_comm_agree(comm, status);
    }
    return status;
}

static void expect_rates(struct tt_examination *exam)
{
    const struct tt_chip *chip = tt_device_chip(exam->device);
    if (exam->found.is_gpu == 0 || chip == NULL) return;
    exam->found.expected_flops = chip->gemm_flops;
    exam->found.expected_host_bytes = chip->host_bytes_per_second;
    exam->found.expected_memory_bytes = chip->memory_bytes_per_second;
}

tt_status tt_doctor_time_device(struct tt_examination *exam)
{
    expect_rates(exam);
    TT_TRY(time_products(exam));
    return take_turns(exam);
}
