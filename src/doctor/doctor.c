#include "doctor/doctor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hub_cache.h"
#include "base/log.h"
#include "base/thread.h"
#include "doctor/doctor_impl.h"

enum { CLOCK_ROUNDS = 5 };

static void examine_machine(struct tt_examination *exam)
{
    struct tt_doctor_rank *found = &exam->found;
    tt_doctor_examine_machine(exam->doctor->host, found);
    tt_doctor_register_memory(found);
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
    if (tt_file_is_readable(path)) return 1;
    bool found = tt_hub_is_name(path) && tt_hub_find(kind, path, NULL, &folder) == TT_OK && folder != NULL;
    tt_free(folder);
    return found;
}

/* The clock against rank 0's: the smallest difference of some rounds, which is off by the time of a barrier. */
static tt_status compare_clocks(struct tt_examination *exam)
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

static tt_status open_examination(struct tt_examination *exam)
{
    struct tt_comm *control = exam->place->comm;
    tt_doctor_examine_device(exam);
    if (exam->doctor->report->quick) return TT_OK;
    TT_TRY(tt_device_open(&exam->place->device, &exam->device));
    TT_TRY(tt_stream_create(exam->device, &exam->stream));
    TT_TRY(tt_buffer_create(exam->device, tt_doctor_sum_bytes(exam), TT_PURPOSE_COMM, &exam->send));
    TT_TRY(tt_buffer_create(exam->device, tt_doctor_link_room(exam), TT_PURPOSE_COMM, &exam->recv));
    exam->comm = control;
    if (tt_comm_world_size(control) == 1 || tt_device_is_host(exam->device)) return TT_OK;
    exam->comm = NULL;
    return tt_comm_create_gpu(control, exam->device, &exam->comm);
}

static void close_examination(struct tt_examination *exam)
{
    if (exam->comm != NULL && exam->comm != exam->place->comm) tt_comm_destroy(exam->comm);
    tt_buffer_destroy(exam->send);
    tt_buffer_destroy(exam->recv);
    tt_stream_destroy(exam->stream);
    tt_device_close(exam->device);
}

static tt_status examine(struct tt_examination *exam)
{
    struct tt_doctor *doctor = exam->doctor;
    struct tt_doctor_report *report = doctor->report;
    struct tt_comm *comm = exam->place->comm;
    int world = tt_comm_world_size(comm);
    double start = tt_clock_seconds();
    examine_machine(exam);
    exam->found.has_model = is_there(doctor->job->model.model_name_or_path, "models");
    exam->found.has_data = is_there(doctor->job->data.dataset_name, "datasets");
    exam->found.model_sum = tt_doctor_sum(doctor->job->model.model_name_or_path);
    exam->found.data_sum = tt_doctor_sum(doctor->job->data.dataset_name);
    TT_TRY(compare_clocks(exam));
    if (world > 1 && !report->quick) TT_TRY(tt_doctor_resolve_names(exam));
    if (!report->quick) TT_TRY(tt_doctor_time_device(exam));
    if (world > 1 && report->quick) TT_TRY(tt_doctor_check_exchange(exam));
    if (world > 1 && !report->quick) {
        TT_TRY(tt_doctor_try_reading(exam));
        TT_TRY(tt_doctor_time_sums(exam));
        TT_TRY(tt_doctor_time_links(exam));
    }
    TT_TRY(tt_doctor_examine_storage(exam));
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
static tt_status share_nonce(struct tt_doctor *doctor, const struct tt_world_rank *place, char nonce[32])
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
    struct tt_doctor own = *(struct tt_doctor *)context;
    struct tt_examination exam = {.doctor = &own, .place = place};
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
    struct tt_doctor doctor = {.job = job, .report = report, .host = world->local ? "" : world->host};
    doctor.ranks_here = world->ranks_per_machine > 0 ? world->ranks_per_machine : world->world_size;
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
