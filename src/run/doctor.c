#include "run/doctor.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "backend/ops/gemm.h"
#include "base/alloc.h"
#include "base/cgroup.h"
#include "base/clock.h"
#include "base/crc64.h"
#include "base/file.h"
#include "base/hub_cache.h"
#include "base/median.h"
#include "base/thread.h"
#include "comm/host_values.h"
#include "base/log.h"
#include "run/doctor_parts.h"
#include "tensor/tensor.h"

enum {
    SUM_BYTES = 1024,
    LATENCY_ROUNDS = 31,
    BUS_BYTES = 16 << 20,
    BUS_ROUNDS = 5,
    LINK_BYTES = 8 << 20, /* of each rank of a pair */
    LINK_ROUNDS = 3,
    CLOCK_ROUNDS = 5,
    SIDE_CPU = 512,
    SIDE_GPU = 8192,
    FILE_BYTES = 16 << 20,
    QUICK_FILE_BYTES = 1 << 20,
    EXCHANGE_BYTES = 64 << 10, /* of each rank, in a quick check */
};
static const double product_seconds = 0.2;

struct doctor {
    const struct tt_job_spec *job;
    struct tt_doctor_report *report;
    const char *host; /* of rank 0; empty: processes do not meet by address */
    char nonce[32];   /* in the names of its files; rank 0's counts */
};

/* Of one rank. */
struct examination {
    struct doctor *doctor;
    const struct tt_world_rank *place;
    struct tt_device *device;
    struct tt_stream *stream;
    struct tt_comm *comm; /* of the data: place->comm, or over the GPUs */
    struct tt_buffer *send, *recv;
    struct tt_doctor_rank found;
};

/* ---- The machine ---- */

static void look_at_machine(struct examination *exam)
{
    struct tt_doctor_rank *found = &exam->found;
    tt_doctor_look_at_machine(exam->doctor->host, found);
    if (exam->device != NULL)
        snprintf(found->device, sizeof found->device, "%s", tt_device_name(exam->device));
    else
        snprintf(found->device, sizeof found->device, "%s", exam->place->device.kind);
    found->machine = exam->place->machine;
    found->local_rank = exam->place->local_rank;
}

/* `kind`: that of the hub's cache, where the name may also be found. */
static int is_there(const char *path, const char *kind)
{
    char *folder = NULL;
    if (path == NULL) return -1;
    if (access(path, R_OK) == 0) return 1;
    bool found = tt_hub_is_name(path) && tt_hub_find(kind, path, NULL, &folder) == TT_OK && folder != NULL;
    tt_free(folder);
    return found;
}

/* The clock against rank 0's: the smallest difference of some rounds, which is off by the time of a barrier. */
static tt_status compare_clocks(struct examination *exam)
{
    struct tt_comm *comm = exam->place->comm;
    int world = tt_comm_world_size(comm);
    double *clocks = tt_calloc((size_t)world, sizeof *clocks), least = HUGE_VAL;
    tt_status status = TT_OK;
    if (clocks == NULL) return TT_ERR_MEMORY;
    for (int round = 0; round < CLOCK_ROUNDS; round++) {
        TT_GO(tt_comm_barrier(comm));
        double now = tt_clock_unix_seconds();
        TT_GO(tt_comm_host_all_gather(comm, &now, clocks, sizeof now));
        if (fabs(now - clocks[0]) < fabs(least)) least = now - clocks[0];
    }
    exam->found.clock_seconds = least;
out:
    tt_free(clocks);
    return status;
}

/* ---- Speed of the device ---- */

/* Fills a matrix with values between 0.5 and 1 of both signs: products of zeros take less power than those of a run. */
static tt_status fill_matrix(struct tt_stream *stream, struct tt_buffer *matrix)
{
    size_t count = tt_buffer_bytes(matrix) / 2;
    uint16_t *values = tt_calloc(count, sizeof *values);
    if (values == NULL) return TT_ERR_MEMORY;
    uint32_t state = 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = (uint16_t)(0x3f00 | (state >> 16 & 0x807f)); /* bf16 */
    }
    tt_status status = tt_copy_to_device(stream, tt_buffer_data(matrix), values, count * sizeof *values);
    if (status == TT_OK) status = tt_stream_synchronize(stream);
    tt_free(values);
    return status;
}

static tt_status time_products(struct examination *exam)
{
    int side = tt_device_is_host(exam->device) ? SIDE_CPU : SIDE_GPU;
    size_t bytes = (size_t)side * (size_t)side * 2;
    struct tt_buffer *memory[3] = {0};
    tt_status status = TT_OK;
    int64_t count = 0;
    double start, seconds = 0;
    for (int i = 0; i < 3; i++)
        TT_GO(tt_buffer_create(exam->device, bytes, TT_PURPOSE_ACTIVATIONS, &memory[i]));
    for (int i = 0; i < 2; i++) TT_GO(fill_matrix(exam->stream, memory[i]));
    struct tt_gemm_args args = {.alpha = 1, .trans_b = true};
    args.a = tt_tensor_2d(tt_buffer_data(memory[0]), TT_BF16, side, side);
    args.b = tt_tensor_2d(tt_buffer_data(memory[1]), TT_BF16, side, side);
    args.c = tt_tensor_2d(tt_buffer_data(memory[2]), TT_BF16, side, side);
    for (int i = 0; i < 2; i++) TT_GO(tt_gemm(exam->stream, &args));
    TT_GO(tt_stream_synchronize(exam->stream));
    TT_GO(tt_comm_barrier(exam->place->comm));
    start = tt_clock_seconds();
    do {
        for (int i = 0; i < 4; i++) TT_GO(tt_gemm(exam->stream, &args));
        TT_GO(tt_stream_synchronize(exam->stream));
        count += 4;
        seconds = tt_clock_seconds() - start;
    } while (seconds < product_seconds);
    exam->found.flops = 2.0 * side * side * side * (double)count / seconds;
out:
    for (int i = 0; i < 3; i++) tt_buffer_destroy(memory[i]);
    return status;
}

/* ---- Connections ---- */

static tt_status fill_send(struct examination *exam, float value)
{
    size_t count = tt_buffer_bytes(exam->send) / sizeof value;
    float *values = tt_calloc(count, sizeof *values);
    if (values == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) values[i] = value;
    tt_status status =
        tt_copy_to_device(exam->stream, tt_buffer_data(exam->send), values, count * sizeof value);
    if (status == TT_OK) status = tt_stream_synchronize(exam->stream);
    tt_free(values);
    return status;
}

static tt_status sum_once(struct examination *exam, size_t bytes, double *seconds)
{
    TT_TRY(tt_comm_barrier(exam->place->comm));
    double start = tt_clock_seconds();
    TT_TRY(tt_comm_all_reduce(exam->comm, exam->stream, tt_buffer_data(exam->send), bytes / sizeof(float),
                              TT_F32, TT_REDUCE_SUM));
    TT_TRY(tt_stream_synchronize(exam->stream));
    *seconds = tt_clock_seconds() - start;
    return TT_OK;
}

/* The first sum is of known values, which every element must have. */
static tt_status time_sums(struct examination *exam, struct tt_doctor_report *report)
{
    double seconds[LATENCY_ROUNDS], best = HUGE_VAL, once;
    int world = tt_comm_world_size(exam->place->comm);
    float wanted = (float)world * (float)(world + 1) / 2;
    bool right = true;
    TT_TRY(fill_send(exam, (float)(tt_comm_rank(exam->place->comm) + 1)));
    TT_TRY(sum_once(exam, BUS_BYTES, &once));
    float *values = tt_calloc(BUS_BYTES, 1);
    if (values == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_copy_to_host(exam->stream, values, tt_buffer_data(exam->send), BUS_BYTES);
    if (status == TT_OK) status = tt_stream_synchronize(exam->stream);
    for (size_t i = 0; i < BUS_BYTES / sizeof *values && right; i++) right = values[i] == wanted;
    tt_free(values);
    TT_TRY(status);
    TT_TRY(fill_send(exam, 0));
    for (int round = 0; round < BUS_ROUNDS; round++) {
        TT_TRY(sum_once(exam, BUS_BYTES, &once));
        if (once < best) best = once;
    }
    for (int round = 0; round < LATENCY_ROUNDS; round++) TT_TRY(sum_once(exam, SUM_BYTES, &seconds[round]));
    int *all = tt_calloc((size_t)world, sizeof *all), mine = right;
    if (all == NULL) return TT_ERR_MEMORY;
    status = tt_comm_host_all_gather(exam->place->comm, &mine, all, sizeof mine);
    for (int r = 0; r < world; r++) right = right && all[r] == 1;
    tt_free(all);
    TT_TRY(status);
    if (tt_comm_rank(exam->place->comm) != 0) return TT_OK;
    report->sum_is_right = right;
    report->all_reduce_seconds = tt_median(seconds, LATENCY_ROUNDS);
    report->all_reduce_bytes = BUS_BYTES * 2.0 * (world - 1) / world / best;
    report->transport = tt_comm_kind(exam->comm);
    return TT_OK;
}

/* Without a device: known bytes of every rank, over the connections of the ranks' hosts. */
static tt_status check_exchange(struct examination *exam, struct tt_doctor_report *report)
{
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

/* Each rank exchanges with the next one, while the others wait. */
static tt_status time_links(struct examination *exam)
{
    struct tt_comm *world = exam->place->comm;
    int size = tt_comm_world_size(world), rank = tt_comm_rank(world), links = size == 2 ? 1 : size;
    for (int first = 0; first < links; first++) {
        struct tt_comm *pair = NULL;
        int second = (first + 1) % size;
        bool takes_part = rank == first || rank == second;
        double best = HUGE_VAL;
        tt_status status = tt_comm_split(exam->comm, takes_part ? 0 : 1 + rank, &pair);
        for (int round = 0; round < LINK_ROUNDS && status == TT_OK && takes_part; round++) {
            double start = tt_clock_seconds();
            status = tt_comm_all_gather(pair, exam->stream, tt_buffer_data(exam->send),
                                        tt_buffer_data(exam->recv), LINK_BYTES);
            if (status == TT_OK) status = tt_stream_synchronize(exam->stream);
            double seconds = tt_clock_seconds() - start;
            if (seconds < best) best = seconds;
        }
        tt_comm_destroy(pair);
        TT_TRY(status);
        if (rank == first) exam->found.link_bytes = LINK_BYTES / best;
        TT_TRY(tt_comm_barrier(world));
    }
    return TT_OK;
}

/* ---- Storage ---- */

/* The nearest folder of the path `output_dir` that exists. */
static tt_status find_folder(const char *output_dir, struct tt_path *folder)
{
    int length = snprintf(folder->text, sizeof folder->text, "%s", output_dir);
    if (length < 0 || (size_t)length >= sizeof folder->text)
        return tt_fail(TT_ERR_USAGE, "output_dir is longer than a path may be");
    while (!tt_path_is_dir(folder->text)) {
        char *slash = strrchr(folder->text, '/');
        if (slash == NULL)
            strcpy(folder->text, "."); /* a path has room for it */
        else
            slash[slash == folder->text] = 0;
    }
    return TT_OK;
}

static tt_status write_and_read(const char *temporary, const char *path, size_t size,
                                struct tt_doctor_rank *found)
{
    tt_status status = TT_OK;
    struct tt_str data = {0};
    int file = -1;
    unsigned char *bytes = tt_calloc(size, 1);
    if (bytes == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < size; i++) bytes[i] = (unsigned char)(i * 131 + (i >> 12));
    uint64_t sum = tt_crc64(0, bytes, size);
    double start = tt_clock_seconds();
    TT_GO(tt_file_create(temporary, size, &file));
    status = tt_file_pwrite(file, temporary, bytes, size, 0);
    if (status == TT_OK) {
        (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        status = tt_file_sync_close(file, temporary);
    } else {
        tt_file_close(file);
    }
    TT_GO(status);
    TT_GO(tt_file_rename(temporary, path));
    found->write_bytes = (double)size / (tt_clock_seconds() - start);
    start = tt_clock_seconds();
    TT_GO(tt_file_read(path, size + 1, &data));
    found->read_bytes = (double)size / (tt_clock_seconds() - start);
    if (data.bytes != size || tt_crc64(0, data.data, data.bytes) != sum)
        status = tt_fail(TT_ERR_IO, "'%s' has other bytes than were written", path);
out:
    tt_str_deinit(&data);
    tt_free(bytes);
    return status;
}

/* A failure is a finding, not an error. */
static tt_status look_at_storage(struct examination *exam)
{
    struct tt_comm *comm = exam->place->comm;
    struct tt_doctor_rank *found = &exam->found;
    int rank = tt_comm_rank(comm);
    struct tt_path folder, temporary, path, first;
    char name[96];
    const char *output = exam->doctor->job->run.output_dir;
    TT_TRY(find_folder(output != NULL ? output : ".", &folder));
    snprintf(name, sizeof name, ".trimtab-doctor-%s-0", exam->doctor->nonce);
    TT_TRY(tt_path_set(&first, folder.text, name));
    snprintf(name, sizeof name, ".trimtab-doctor-%s-%d", exam->doctor->nonce, rank);
    TT_TRY(tt_path_set(&path, folder.text, name));
    snprintf(name, sizeof name, ".trimtab-doctor-%s-%d.tmp", exam->doctor->nonce, rank);
    TT_TRY(tt_path_set(&temporary, folder.text, name));
    tt_status status = TT_OK;
    if (found->local_rank == 0) {
        status = tt_dir_free_bytes(folder.text, &found->free_bytes);
        if (status == TT_OK)
            status = write_and_read(temporary.text, path.text,
                                    exam->doctor->report->quick ? QUICK_FILE_BYTES : FILE_BYTES, found);
        if (status == TT_ERR_MEMORY) return status;
        if (status != TT_OK)
            snprintf(found->storage_error, sizeof found->storage_error, "%.199s", tt_error_last()->message);
    }
    status = tt_comm_barrier(comm); /* rank 0's file exists, if it could be written */
    found->sees_rank0 = access(first.text, F_OK) == 0;
    if (status == TT_OK) status = tt_comm_barrier(comm);
    (void)unlink(temporary.text);
    (void)unlink(path.text);
    return status;
}

/* ---- All together ---- */

static tt_status open_examination(struct examination *exam)
{
    struct tt_comm *control = exam->place->comm;
    if (exam->doctor->report->quick) return TT_OK;
    TT_TRY(tt_device_open(&exam->place->device, &exam->device));
    TT_TRY(tt_stream_create(exam->device, &exam->stream));
    TT_TRY(tt_buffer_create(exam->device, BUS_BYTES, TT_PURPOSE_COMM, &exam->send));
    TT_TRY(tt_buffer_create(exam->device, 2 * (size_t)LINK_BYTES, TT_PURPOSE_COMM, &exam->recv));
    exam->comm = control;
    if (tt_comm_world_size(control) == 1 || tt_device_is_host(exam->device)) return TT_OK;
    exam->comm = NULL;
    return tt_comm_create_gpu(control, exam->device, &exam->comm);
}

static void close_examination(struct examination *exam)
{
    if (exam->comm != NULL && exam->comm != exam->place->comm) tt_comm_destroy(exam->comm);
    tt_buffer_destroy(exam->send);
    tt_buffer_destroy(exam->recv);
    tt_stream_destroy(exam->stream);
    tt_device_close(exam->device);
}

static tt_status examine(struct examination *exam)
{
    struct doctor *doctor = exam->doctor;
    struct tt_doctor_report *report = doctor->report;
    struct tt_comm *comm = exam->place->comm;
    int world = tt_comm_world_size(comm);
    double start = tt_clock_seconds();
    look_at_machine(exam);
    exam->found.has_model = is_there(doctor->job->model.model_name_or_path, "models");
    exam->found.has_data = is_there(doctor->job->data.dataset_name, "datasets");
    exam->found.model_sum = tt_doctor_sum(doctor->job->model.model_name_or_path);
    exam->found.data_sum = tt_doctor_sum(doctor->job->data.dataset_name);
    TT_TRY(compare_clocks(exam));
    if (!report->quick) TT_TRY(time_products(exam));
    if (world > 1 && report->quick) TT_TRY(check_exchange(exam, report));
    if (world > 1 && !report->quick) {
        TT_TRY(time_sums(exam, report));
        TT_TRY(time_links(exam));
    }
    TT_TRY(look_at_storage(exam));
    struct tt_doctor_rank *all = tt_calloc((size_t)world, sizeof *all);
    if (all == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_comm_host_all_gather(comm, &exam->found, all, sizeof *all);
    if (status != TT_OK || tt_comm_rank(comm) != 0) {
        tt_free(all);
        return status;
    }
    report->ranks = all;
    report->rank_count = world;
    report->seconds = tt_clock_seconds() - start;
    return TT_OK;
}

/* All ranks take rank 0's names. */
static tt_status share_nonce(struct doctor *doctor, const struct tt_world_rank *place, char nonce[32])
{
    int world = tt_comm_world_size(place->comm);
    char *all = tt_calloc((size_t)world, 32);
    if (all == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_comm_host_all_gather(place->comm, doctor->nonce, all, 32);
    memcpy(nonce, all, 32);
    tt_free(all);
    return status;
}

static tt_status rank_main(void *context, const struct tt_world_rank *place)
{
    struct doctor own = *(struct doctor *)context;
    struct examination exam = {.doctor = &own, .place = place};
    tt_status status = tt_comm_agree(place->comm, open_examination(&exam));
    if (status == TT_OK) status = share_nonce(context, place, own.nonce);
    if (status == TT_OK) status = examine(&exam);
    tt_world_rank_failed(place->comm, status);
    close_examination(&exam);
    return status;
}

/* Fills the report of global rank 0. */
static tt_status run_checks(const struct tt_job_spec *job, bool quick, struct tt_world *world,
                            struct tt_doctor_report *report)
{
    struct doctor doctor = {.job = job, .report = report, .host = world->local ? "" : world->host};
    *report = (struct tt_doctor_report){.sum_is_right = true, .quick = quick, .transport = "self"};
    snprintf(doctor.nonce, sizeof doctor.nonce, "%ld-%lld", (long)getpid(),
             (long long)(tt_clock_unix_seconds() * 1e6) % 1000000000);
    TT_TRY(tt_world_run(world, rank_main, &doctor));
    if (report->ranks == NULL) return TT_OK;
    if (!quick) tt_doctor_plan(job, world, &report->needs); /* a training makes its own plan */
    return tt_doctor_compare(job, report);
}

tt_status tt_doctor_run(const struct tt_job_spec *job, struct tt_cancel *cancel,
                        struct tt_doctor_report *report)
{
    tt_status status = TT_OK;
    struct tt_world world = {0};
    struct tt_world_config config = {.launch = &job->launch,
                                     .device = &job->device,
                                     .command = "doctor",
                                     .settings = "",
                                     .cancel = cancel};
    *report = (struct tt_doctor_report){0};
    TT_GO(tt_world_open(&config, &world));
    TT_GO(run_checks(job, false, &world, report));
out:
    tt_world_close(&world);
    if (status != TT_OK) tt_doctor_deinit(report);
    return status;
}

tt_status tt_doctor_fail(const struct tt_doctor_report *report)
{
    int failed = tt_doctor_count(report, TT_DOCTOR_FAILS), i = 0;
    if (failed == 0) return TT_OK;
    while (report->checks[i].verdict != TT_DOCTOR_FAILS) i++;
    return tt_fail(TT_ERR_DEVICE, "%d of %d checks failed, first '%s': %s", failed, report->check_count,
                   report->checks[i].name, tt_str_text(&report->checks[i].text));
}

tt_status tt_doctor_preflight(const struct tt_job_spec *job, struct tt_world *world)
{
    struct tt_doctor_report report;
    tt_status status = run_checks(job, true, world, &report);
    if (status == TT_OK && report.ranks != NULL) {
        for (int i = 0; i < report.check_count; i++)
            if (report.checks[i].verdict == TT_DOCTOR_WARNS)
                tt_warn("preflight: %s: %s", report.checks[i].name, tt_str_text(&report.checks[i].text));
        tt_info("preflight: %d checks in %.1f s, %d warned", report.check_count, report.seconds,
                tt_doctor_count(&report, TT_DOCTOR_WARNS));
        status = tt_doctor_fail(&report);
        if (status != TT_OK) tt_while("checking the machines (preflight)");
    }
    status = tt_world_agree(world, status);
    tt_doctor_deinit(&report);
    return status;
}

void tt_doctor_deinit(struct tt_doctor_report *report)
{
    for (int i = 0; i < report->check_count; i++) tt_str_deinit(&report->checks[i].text);
    tt_free(report->ranks);
    *report = (struct tt_doctor_report){0};
}
