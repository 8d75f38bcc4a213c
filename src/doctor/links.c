/* trimtab doctor: exchanges between ranks: sums over all of them, and each link. */
#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/cgroup.h"
#include "base/clock.h"
#include "base/median.h"
#include "comm/host_values.h"
#include "doctor/doctor_impl.h"

enum {
    SUM_BYTES = 1024,
    LATENCY_ROUNDS = 31,
    FIRST_BYTES = 16 << 20, /* of the sums, by whose time the size of the others is chosen */
    BUS_BYTES = 256 << 20,
    BUS_ROUNDS = 3,
    LINK_ROUNDS = 3,
    LINK_BYTES = 8 << 20,       /* of each rank of a pair */
    LINK_BYTES_GPU = 256 << 20, /* where that many take less than link_seconds: a fast link begins slowly */
    MEMORY_SHARE = 16,          /* of the machine's memory, for the values of its ranks */
    EXCHANGE_BYTES = 64 << 10,  /* of each rank, in a quick check */
};
static const double bus_seconds = 2;     /* that all rounds may take */
static const double link_seconds = 0.05; /* that one exchange of a pair may take */

size_t tt_doctor_sum_bytes(const struct tt_examination *exam)
{
    bool grouped;
    size_t bytes = BUS_BYTES;
    if (!tt_device_is_host(exam->device)) return bytes;
    double share = (double)tt_memory_bytes(&grouped) / MEMORY_SHARE / exam->doctor->ranks_here;
    while (bytes > FIRST_BYTES && (double)bytes > share) bytes /= 2;
    return bytes;
}

static tt_status fill_send(struct tt_examination *exam, size_t bytes, float value)
{
    size_t count = bytes / sizeof value;
    float *values = tt_calloc(count, sizeof *values);
    if (values == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) values[i] = value;
    tt_status status =
        tt_copy_to_device(exam->stream, tt_buffer_data(exam->send), values, count * sizeof value);
    if (status == TT_OK) status = tt_stream_synchronize(exam->stream);
    tt_free(values);
    return status;
}

/* The largest value of all ranks. */
static tt_status largest_of(struct tt_comm *comm, double own, double *largest)
{
    int world = tt_comm_world_size(comm);
    double *all = tt_calloc((size_t)world, sizeof *all);
    if (all == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_comm_host_all_gather(comm, &own, all, sizeof own);
    *largest = own;
    for (int r = 0; r < world && status == TT_OK; r++) *largest = fmax(*largest, all[r]);
    tt_free(all);
    return status;
}

static tt_status sum_once(struct tt_examination *exam, size_t bytes, double *seconds)
{
    TT_TRY(tt_comm_barrier(exam->place->comm));
    double start = tt_clock_seconds();
    TT_TRY(tt_comm_all_reduce(exam->comm, exam->stream, tt_buffer_data(exam->send), bytes / sizeof(float),
                              TT_F32, TT_REDUCE_SUM));
    TT_TRY(tt_stream_synchronize(exam->stream));
    *seconds = tt_clock_seconds() - start;
    return TT_OK;
}

/* A sum of known values, which every element must have. */
static tt_status check_sum(struct tt_examination *exam, size_t bytes, bool *right)
{
    double seconds;
    int world = tt_comm_world_size(exam->place->comm);
    float wanted = (float)world * (float)(world + 1) / 2;
    TT_TRY(fill_send(exam, bytes, (float)(tt_comm_rank(exam->place->comm) + 1)));
    TT_TRY(sum_once(exam, bytes, &seconds));
    float *values = tt_calloc(bytes, 1);
    if (values == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_copy_to_host(exam->stream, values, tt_buffer_data(exam->send), bytes);
    if (status == TT_OK) status = tt_stream_synchronize(exam->stream);
    for (size_t i = 0; i < bytes / sizeof *values && *right; i++) *right = values[i] == wanted;
    tt_free(values);
    if (status == TT_OK) status = fill_send(exam, bytes, 0);
    return status;
}

/* The most bytes for which all ranks have room and whose rounds take less than bus_seconds. */
static tt_status choose_bytes(struct tt_examination *exam, double first_seconds, size_t *bytes)
{
    struct tt_comm *comm = exam->place->comm;
    int world = tt_comm_world_size(comm);
    uint64_t own = tt_buffer_bytes(exam->send), *all = tt_calloc((size_t)world, sizeof *all);
    if (all == NULL) return TT_ERR_MEMORY;
    while (own > FIRST_BYTES && first_seconds * ((double)own / FIRST_BYTES) * (BUS_ROUNDS + 1) > bus_seconds)
        own /= 2;
    tt_status status = tt_comm_host_all_gather(comm, &own, all, sizeof own);
    for (int r = 0; r < world && status == TT_OK; r++)
        if (all[r] < own) own = all[r];
    tt_free(all);
    *bytes = (size_t)own;
    return status;
}

tt_status tt_doctor_time_sums(struct tt_examination *exam)
{
    struct tt_comm *comm = exam->place->comm;
    struct tt_doctor_report *report = exam->doctor->report;
    double seconds[LATENCY_ROUNDS], best = HUGE_VAL, once;
    size_t bytes = FIRST_BYTES;
    int world = tt_comm_world_size(comm);
    bool right = true;
    TT_TRY(check_sum(exam, bytes, &right));
    TT_TRY(sum_once(exam, bytes, &once));
    TT_TRY(choose_bytes(exam, once, &bytes));
    if (bytes > FIRST_BYTES) TT_TRY(check_sum(exam, bytes, &right));
    for (int round = 0; round < BUS_ROUNDS; round++) {
        TT_TRY(sum_once(exam, bytes, &once));
        TT_TRY(largest_of(comm, once, &once));
        best = fmin(best, once);
    }
    for (int round = 0; round < LATENCY_ROUNDS; round++) TT_TRY(sum_once(exam, SUM_BYTES, &seconds[round]));
    double wrong = !right;
    TT_TRY(tt_comm_host_sum(comm, &wrong, 1));
    if (tt_comm_rank(comm) != 0) return TT_OK;
    report->sum_is_right = wrong == 0;
    report->all_reduce_seconds = tt_median(seconds, LATENCY_ROUNDS);
    report->bus_bytes = bytes;
    report->all_reduce_bytes = (double)bytes * 2.0 * (world - 1) / world / best;
    report->transport = tt_comm_kind(exam->comm);
    return TT_OK;
}

/* Reads some bytes of another process's GPU by its handle. */
static tt_status read_other(struct tt_examination *exam, const struct tt_memory_handle *handle)
{
    void *data = NULL;
    TT_TRY(tt_device_import(exam->device, handle, &data));
    tt_status status = tt_copy_on_device(exam->stream, tt_buffer_data(exam->recv), data, EXCHANGE_BYTES);
    if (status == TT_OK) status = tt_stream_synchronize(exam->stream);
    tt_device_unimport(exam->device, data);
    return status;
}

tt_status tt_doctor_try_reading(struct tt_examination *exam)
{
    struct tt_doctor_rank *found = &exam->found;
    struct tt_comm *comm = exam->place->comm;
    size_t world = (size_t)tt_comm_world_size(comm);
    enum tt_reach least = TT_REACH_NONE, *reaches = tt_calloc(world, sizeof *reaches);
    struct tt_memory_handle own = {{0}}, *all = tt_calloc(world, sizeof *all);
    bool willing = !tt_device_is_host(exam->device);
    tt_status status = reaches != NULL && all != NULL ? TT_OK : TT_ERR_MEMORY;
    if (status == TT_OK) status = tt_comm_reaches(comm, exam->device, willing, reaches, &least);
    for (size_t r = 0; status == TT_OK && r < world; r++)
        found->other_processes += reaches[r] == TT_REACH_MACHINE;
    tt_status tried = TT_OK;
    if (status == TT_OK && found->other_processes > 0) tried = tt_buffer_export(exam->send, &own);
    if (status == TT_OK) status = tt_comm_host_all_gather(comm, &own, all, sizeof own);
    for (size_t r = 0; status == TT_OK && tried == TT_OK && r < world; r++)
        if (reaches[r] == TT_REACH_MACHINE) tried = read_other(exam, &all[r]);
    if (status == TT_OK && tried != TT_OK)
        snprintf(found->reading_error, sizeof found->reading_error, "%.*s",
                 (int)sizeof found->reading_error - 1, tt_error_last()->message);
    if (status == TT_OK) tt_error_clear();
    if (status == TT_OK) status = tt_comm_barrier(comm); /* the memory is read no more */
    tt_free(reaches);
    tt_free(all);
    return status;
}

tt_status tt_doctor_check_exchange(struct tt_examination *exam)
{
    struct tt_doctor_report *report = exam->doctor->report;
    struct tt_comm *comm = exam->place->comm;
    int world = tt_comm_world_size(comm);
    unsigned char *all = tt_calloc((size_t)world, EXCHANGE_BYTES), *own = tt_calloc(EXCHANGE_BYTES, 1);
    tt_status status = all != NULL && own != NULL ? TT_OK : TT_ERR_MEMORY;
    bool right = true;
    for (size_t i = 0; status == TT_OK && i < EXCHANGE_BYTES; i++)
        own[i] = (unsigned char)((size_t)tt_comm_rank(comm) + i * 31);
    double start = tt_clock_seconds();
    if (status == TT_OK) status = tt_comm_host_all_gather(comm, own, all, EXCHANGE_BYTES);
    for (size_t i = 0; status == TT_OK && i < (size_t)world * EXCHANGE_BYTES && right; i++)
        right = all[i] == (unsigned char)(i / EXCHANGE_BYTES + i % EXCHANGE_BYTES * 31);
    double wrong = !right;
    if (status == TT_OK) status = tt_comm_host_sum(comm, &wrong, 1);
    if (status == TT_OK && tt_comm_rank(comm) == 0) {
        report->sum_is_right = wrong == 0;
        report->transport = tt_comm_kind(comm);
        report->all_reduce_seconds = tt_clock_seconds() - start;
    }
    tt_free(all);
    tt_free(own);
    return status;
}

size_t tt_doctor_link_room(const struct tt_examination *exam)
{
    return 2 * (size_t)(tt_device_is_host(exam->device) ? LINK_BYTES : LINK_BYTES_GPU);
}

/* Returns in *best the seconds of the fastest round; the slower side of a round counts. */
static tt_status exchange_pair(struct tt_examination *exam, struct tt_comm *pair, size_t bytes, double *best)
{
    *best = HUGE_VAL;
    for (int round = 0; round < LINK_ROUNDS; round++) {
        TT_TRY(tt_comm_barrier(pair));
        double start = tt_clock_seconds();
        TT_TRY(tt_comm_all_gather(pair, exam->stream, tt_buffer_data(exam->send), tt_buffer_data(exam->recv),
                                  bytes));
        TT_TRY(tt_stream_synchronize(exam->stream));
        double seconds = tt_clock_seconds() - start;
        TT_TRY(largest_of(pair, seconds, &seconds));
        *best = fmin(*best, seconds);
    }
    return TT_OK;
}

/* Bytes a second each way between this rank and the other one of the pair. */
static tt_status time_pair(struct tt_examination *exam, struct tt_comm *pair, double *rate)
{
    size_t bytes = LINK_BYTES, more = tt_doctor_link_room(exam) / 2, held = tt_doctor_sum_bytes(exam);
    double best;
    if (more > held) more = held;
    TT_TRY(exchange_pair(exam, pair, bytes, &best));
    if (more > bytes && best * ((double)more / LINK_BYTES) < link_seconds) {
        bytes = more;
        TT_TRY(exchange_pair(exam, pair, bytes, &best));
    }
    *rate = (double)bytes / best;
    return TT_OK;
}

/* Each rank exchanges with the next one, while the others wait. */
tt_status tt_doctor_time_links(struct tt_examination *exam)
{
    struct tt_comm *world = exam->place->comm;
    int size = tt_comm_world_size(world), rank = tt_comm_rank(world), links = size == 2 ? 1 : size;
    for (int first = 0; first < links; first++) {
        struct tt_comm *pair = NULL;
        bool takes_part = rank == first || rank == (first + 1) % size;
        double rate = 0;
        tt_status status = tt_comm_split(exam->comm, takes_part ? 0 : 1 + rank, &pair);
        if (status == TT_OK && takes_part) status = time_pair(exam, pair, &rate);
        tt_comm_destroy(pair);
        TT_TRY(status);
        if (rank == first) exam->found.link_bytes = rate;
        TT_TRY(tt_comm_barrier(world));
    }
    return TT_OK;
}
