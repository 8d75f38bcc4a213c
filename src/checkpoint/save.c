#include "checkpoint/save.h"

#include <stdio.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/integer.h"
#include "base/thread.h"
#include "checkpoint/publish.h"
#include "checkpoint/writer.h"
#include "io/text_part.h"
#include "model/new_rows.h"
#include "model/lora_init.h"
#include "model/scores.h"

/* Two writers of one file wait for each other inside the kernel, so a fast save needs several files, of some gigabytes
 * each. Weights as transformers 4 shards them; the state by tt_state_split. */
static const uint64_t weights_file_bytes = 5ull * 1000 * 1000 * 1000;

/* State of a save; its thread advances it from TAKEN (copies queued) on. */
enum phase { IDLE, TAKEN, WRITING, WRITTEN, DONE, FAILED };

struct tt_saver {
    struct tt_saver_config config;
    bool first;     /* rank 0 */
    bool *expected; /* [world_size]: ranks that write */
    struct tt_weights_layout weights, state;
    struct tt_kept_files kept; /* on rank 0 */
    struct tt_writer writer;   /* of the weights, then of the state */
    size_t weights_files;      /* that ranks write their slices of */
    struct tt_thread *thread;
    atomic_int phase;
    atomic_bool cancelled, all_written;
    struct tt_str folder, temporary;
    struct tt_save_job job; /* in progress; texts owned */
    double start_seconds, stall_seconds, end_seconds;
    uint64_t bytes;
};

static bool needs_masters(const struct tt_saver_config *config)
{
    return config->dtype != TT_F32;
}

static bool has_state(const struct tt_saver_config *config)
{
    return config->snapshot->config.moments != NULL;
}

/* A value of the optimizer: of its own type, and its elements may stand for several of the piece. */
static void set_state_part(const struct tt_saver_config *config, const struct tt_weights_file *file, size_t e,
                           const struct tt_piece *piece, struct tt_writer_part *part)
{
    struct tt_state_value value;
    if (!tt_slot_value(config->snapshot->config.optimizer, piece->param, file->slots[e], &value)) return;
    part->dtype = value.dtype;
    part->first = piece->first / value.block - file->firsts[e];
    part->count = tt_slot_elements(&value, piece->count);
}

/* A value of the parameter: the elements of a unit's piece that are those of the entry, or of a piece of the file. */
static void set_weight_part(const struct tt_weights_file *file, size_t e,
                            const struct tt_source_piece *in_file, const struct tt_piece *piece,
                            struct tt_writer_part *part)
{
    const struct tt_safetensors_entry *entry = &file->entries[e];
    int64_t begins = in_file != NULL ? in_file->first : file->firsts[e];
    int64_t ends = begins + (in_file != NULL ? in_file->rows * in_file->columns
                                             : (int64_t)(entry->bytes / tt_dtype_bytes(entry->dtype)));
    int64_t first = tt_larger(piece->first, begins), last = tt_smaller(piece->first + piece->count, ends);
    part->count = last > first ? last - first : 0;
    if (part->count == 0) return;
    part->from = (const char *)part->from + (size_t)(first - piece->first) * tt_dtype_bytes(piece->dtype);
    part->first = first - begins;
    part->piece = in_file;
}

/* Adds what the units have of one value of a parameter: for an entry as a whole, or for a piece of one. Entries of the
 * whole state begin at element 0; entries of a rank's own file begin with its piece. */
static tt_status add_parts_of(const struct tt_saver_config *config, struct tt_writer_file *out, size_t e,
                              const tt_param *param, const struct tt_source_piece *in_file)
{
    for (int u = 0; u < config->model->unit_count; u++) {
        for (size_t p = 0; p < tt_unit_piece_count(config->units[u]); p++) {
            struct tt_piece piece = tt_unit_piece(config->units[u], p);
            if (piece.param != param || piece.count == 0) continue;
            struct tt_writer_part part = {
                .from = tt_snapshot_data(config->snapshot, u, p, out->file->slots[e]),
                .dtype = piece.dtype,
                .entry = &out->file->entries[e],
            };
            if (out->file->slots[e] != TT_SLOT_MASTER)
                set_state_part(config, out->file, e, &piece, &part);
            else
                set_weight_part(out->file, e, in_file, &piece, &part);
            if (part.count > 0) TT_TRY(tt_writer_add_part(out, &part));
        }
    }
    return TT_OK;
}

static tt_status add_parts(const struct tt_saver_config *config, struct tt_writer_file *out)
{
    const struct tt_weights_file *file = out->file;
    for (size_t e = 0; e < file->count; e++)
        if (file->params[e] != NULL) TT_TRY(add_parts_of(config, out, e, file->params[e], NULL));
    for (size_t p = 0; p < file->piece_count; p++)
        TT_TRY(
            add_parts_of(config, out, file->pieces[p].entry, file->pieces[p].param, &file->pieces[p].piece));
    return TT_OK;
}

/* Tables of the base beside an adapter. */
static tt_status add_copies(const struct tt_saver *saver, struct tt_writer_file *out)
{
    const struct tt_weights_file *file = out->file;
    for (size_t c = 0; c < saver->weights.copy_count; c++) {
        const struct tt_base_copy *copy = &saver->weights.copies[c];
        struct tt_writer_part part = {.stored = copy->base, .dtype = copy->base->dtype};
        part.file = tt_model_folder_file(saver->config.base, copy->base);
        part.count = tt_safetensors_elements(copy->base);
        for (size_t e = 0; e < file->count; e++)
            if (file->entries[e].name == copy->name) part.entry = &file->entries[e];
        if (part.entry == NULL || part.file == NULL)
            return tt_fail(TT_ERR_INTERNAL, "'%s' has no place in the adapter's file", copy->name);
        TT_TRY(tt_writer_add_part(out, &part));
    }
    return TT_OK;
}

static struct tt_weights_file *file_at(struct tt_saver *saver, size_t index)
{
    size_t own = saver->weights_files - (saver->weights.turned.count > 0);
    if (index < own) return &saver->weights.files[index];
    return index < saver->weights_files ? &saver->weights.turned
                                        : &saver->state.files[index - saver->weights_files];
}

static tt_status plan_files(struct tt_saver *saver)
{
    const struct tt_saver_config *config = &saver->config;
    saver->weights_files =
        saver->weights.file_count - saver->weights.of_first + (saver->weights.turned.count > 0);
    size_t count = saver->weights_files + saver->state.file_count;
    saver->writer.files = tt_calloc(count + 1, sizeof *saver->writer.files);
    if (saver->writer.files == NULL) return TT_ERR_MEMORY;
    saver->writer.file_count = count;
    for (size_t f = 0; f < saver->writer.file_count; f++) {
        struct tt_writer_file *file = &saver->writer.files[f];
        bool state = f >= saver->weights_files;
        file->file = file_at(saver, f);
        file->writes_header = (state && config->sharded) || saver->first;
        if (config->writes) TT_TRY(add_parts(config, file));
        if (saver->first && f == 0) TT_TRY(add_copies(saver, file));
    }
    return TT_OK;
}

static tt_status ask_who_writes(struct tt_saver *saver)
{
    struct tt_comm *comm = saver->config.comm;
    bool mine = saver->config.writes || saver->first;
    saver->expected = tt_calloc((size_t)tt_comm_world_size(comm), sizeof *saver->expected);
    TT_TRY(tt_comm_agree(comm, saver->expected != NULL ? TT_OK : TT_ERR_MEMORY));
    return tt_comm_host_all_gather(comm, &mine, saver->expected, sizeof mine);
}

/* A model whose config.json ties two tables that differ is saved as what it is, and so is one with a new head, or with
 * rows of new tokens. */
static tt_status change_config(const void *context, struct tt_json_value *config)
{
    const struct tt_model_facts *facts = context;
    if (facts->own_head) tt_text_part_untie(config);
    if (facts->grown_from > 0) tt_new_rows_describe(facts, config);
    return facts->label_count > 0 ? tt_model_scores_describe(facts, config) : TT_OK;
}

static tt_status keep_files(struct tt_saver *saver)
{
    bool whole = !saver->weights.adapter;
    TT_TRY(tt_kept_files_read(tt_model_folder_path(saver->config.base), whole, &saver->kept));
    const struct tt_model_facts *facts = &saver->config.model->facts;
    bool changes = whole && (facts->own_head || facts->label_count > 0 || facts->grown_from > 0);
    return changes ? tt_kept_files_change(&saver->kept, change_config, facts) : TT_OK;
}

tt_status tt_saver_create(const struct tt_saver_config *config, struct tt_saver **out)
{
    struct tt_saver *saver = tt_calloc(1, sizeof *saver);
    tt_status status = TT_OK;
    status = tt_comm_agree(config->comm, saver != NULL ? TT_OK : TT_ERR_MEMORY);
    if (status != TT_OK) {
        tt_free(saver);
        return status;
    }
    saver->config = *config;
    saver->first = tt_comm_rank(config->comm) == 0;
    saver->writer.rank = tt_comm_rank(config->comm);
    saver->writer.ranks_here = tt_comm_local_size(config->comm);
    saver->writer.cancelled = &saver->cancelled;
    saver->writer.all_written = &saver->all_written;
    saver->writer.stop = config->stop;
    TT_GO(ask_who_writes(saver));
    uint64_t most = config->max_file_bytes > 0 ? config->max_file_bytes : weights_file_bytes;
    struct tt_state_part part = {config->units, config->part, config->parts};
    status = tt_weights_layout_init(config->model, config->base, config->dtype, most, &saver->weights);
    if (status == TT_OK && has_state(config))
        status =
            tt_state_layout_init(config->model, config->snapshot->config.optimizer, needs_masters(config),
                                 config->sharded ? &part : NULL, config->max_file_bytes, &saver->state);
    if (status == TT_OK) status = plan_files(saver);
    if (status == TT_OK && saver->first && config->base != NULL) status = keep_files(saver);
    TT_GO(tt_comm_agree(config->comm, status));
    *out = saver;
out:
    if (status != TT_OK) tt_saver_destroy(saver);
    return status;
}

static void end_job(struct tt_saver *saver)
{
    for (int i = 0; i < TT_SAVE_TEXTS_MAX; i++) tt_str_deinit(&saver->job.texts[i].text);
    saver->job = (struct tt_save_job){0};
    atomic_store(&saver->phase, IDLE);
    atomic_store(&saver->cancelled, false);
    atomic_store(&saver->all_written, false);
}

static void remove_temporary(struct tt_saver *saver)
{
    struct tt_error error;
    if (!saver->first || saver->temporary.bytes == 0) return;
    tt_error_copy(&error);
    (void)!tt_dir_remove(tt_str_text(&saver->temporary)); /* the first error counts */
    (void)tt_error_restore(&error);
}

static tt_status join(struct tt_saver *saver)
{
    if (saver->thread == NULL) return TT_OK;
    tt_status status = tt_thread_join(saver->thread);
    saver->thread = NULL;
    return status;
}

void tt_saver_destroy(struct tt_saver *saver)
{
    if (saver == NULL) return;
    struct tt_error error;
    tt_error_copy(&error);
    atomic_store(&saver->cancelled, true);
    if (atomic_load(&saver->phase) != IDLE && join(saver) != TT_OK) remove_temporary(saver);
    end_job(saver);
    (void)tt_error_restore(&error);
    if (saver->writer.files != NULL) /* the last save may have skipped some */
        saver->writer.file_count = saver->weights_files + saver->state.file_count;
    tt_writer_deinit(&saver->writer);
    tt_weights_layout_deinit(&saver->weights);
    tt_weights_layout_deinit(&saver->state);
    tt_kept_files_deinit(&saver->kept);
    tt_str_deinit(&saver->folder);
    tt_str_deinit(&saver->temporary);
    tt_free(saver->expected);
    tt_free(saver);
}

/* Runs in the thread of the save, which must not use other calls of the device. */
static tt_status await_copies(struct tt_saver *saver)
{
    const struct timespec pause = {.tv_nsec = 200000};
    for (;;) {
        bool done;
        TT_TRY(tt_snapshot_poll(saver->config.snapshot, &done));
        if (done) break;
        if (atomic_load(&saver->cancelled)) return tt_fail(TT_ERR_CANCELLED, "the save was abandoned");
        nanosleep(&pause, NULL);
    }
    tt_snapshot_complete(saver->config.snapshot);
    atomic_store(&saver->phase, WRITING);
    return TT_OK;
}

static tt_status publish(struct tt_saver *saver, struct tt_manifest *manifest)
{
    const struct tt_saver_config *config = &saver->config;
    const char *path = config->base != NULL ? tt_model_folder_path(config->base) : NULL;
    struct tt_publication publication = {
        .model = config->model,
        .weights = &saver->weights,
        .base = config->base,
        .base_name = config->base_name != NULL ? config->base_name : path,
        .first = config->first.file != NULL ? &config->first : NULL,
        .kept = &saver->kept,
        .templates = saver->config.templates,
        .template_count = saver->config.template_count,
        .torch_name = saver->config.torch_name,
        .temporary = tt_str_text(&saver->temporary),
        .job = &saver->job,
        .manifest = manifest,
    };
    atomic_store(&saver->phase, WRITTEN);
    tt_status status =
        tt_writer_collect(&saver->writer, saver->expected, tt_comm_world_size(saver->config.comm), manifest);
    if (status == TT_OK) status = tt_publish(&publication);
    /* A checkpoint that was renamed is in its place; files of a result move one by one. */
    bool renamed = !saver->job.merge && tt_path_is_dir(tt_str_text(&saver->folder));
    return renamed ? status : tt_writer_explain(&saver->writer, !saver->job.merge, status);
}

/* The thread of one rank. */
static tt_status write_and_publish(void *argument)
{
    struct tt_saver *saver = argument;
    tt_status status = TT_OK;
    struct tt_manifest manifest = {.step = saver->job.step};
    TT_GO(await_copies(saver));
    if (saver->config.writes || saver->first) TT_GO(tt_writer_run(&saver->writer));
    if (saver->first) {
        TT_GO(publish(saver, &manifest));
        for (size_t i = 0; i < manifest.count; i++) saver->bytes += manifest.files[i].bytes;
        if (saver->job.published != NULL) TT_GO(saver->job.published(saver->job.context));
    }
out:
    if (status != TT_OK) tt_while("saving to '%s'", tt_str_text(&saver->folder));
    if (status == TT_ERR_IO)
        tt_hint(
            "make room or repair the disk; --resume_from_checkpoint true goes on from the last checkpoint "
            "that is complete");
    tt_manifest_deinit(&manifest);
    saver->end_seconds = tt_clock_seconds();
    atomic_store(&saver->phase, status == TT_OK ? DONE : FAILED);
    return status;
}

tt_status tt_saver_begin(struct tt_saver *saver, struct tt_save_job *job)
{
    double start = tt_clock_seconds();
    tt_status status = TT_OK;
    saver->job = *job;
    for (int i = 0; i < TT_SAVE_TEXTS_MAX; i++) job->texts[i].text = (struct tt_str){0};
    atomic_store(&saver->cancelled, false); /* left from a save that this rank had finished */
    saver->start_seconds = start;
    saver->stall_seconds = 0.0;
    saver->bytes = 0;
    tt_str_clear(&saver->folder);
    tt_str_clear(&saver->temporary);
    TT_GO(tt_str_append_text(&saver->folder, job->folder));
    TT_GO(tt_str_printf(&saver->temporary, "%s%s", job->folder, job->merge ? "/.saving" : ".saving"));
    saver->job.folder = tt_str_text(&saver->folder);
    saver->writer.folder = tt_str_text(&saver->temporary);
    saver->writer.file_count = saver->weights_files + (job->state ? saver->state.file_count : 0);
    TT_GO(tt_snapshot_take(saver->config.snapshot, saver->config.stream));
    atomic_store(&saver->phase, TAKEN);
    TT_GO(tt_thread_start("save", write_and_publish, saver, &saver->thread));
out:
    saver->stall_seconds = tt_clock_seconds() - start;
    if (status != TT_OK) {
        tt_while("saving to '%s'", job->folder);
        end_job(saver);
    }
    return status;
}

tt_status tt_saver_wait_copies(struct tt_saver *saver)
{
    const struct timespec pause = {.tv_nsec = 50000};
    double start = tt_clock_seconds();
    if (atomic_load(&saver->phase) != TAKEN) return TT_OK;
    TT_TRY(tt_snapshot_wait(saver->config.snapshot));
    while (atomic_load(&saver->phase) == TAKEN) nanosleep(&pause, NULL);
    saver->stall_seconds += tt_clock_seconds() - start;
    return TT_OK;
}

static void report_on(const struct tt_saver *saver, struct tt_save_report *report)
{
    *report = (struct tt_save_report){
        .seconds = saver->end_seconds - saver->start_seconds,
        .stall_seconds = saver->stall_seconds,
        .bytes = saver->bytes,
    };
    snprintf(report->folder, sizeof report->folder, "%s", tt_str_text(&saver->folder));
}

bool tt_saver_collect(struct tt_saver *saver, struct tt_save_report *report)
{
    if (atomic_load(&saver->phase) != DONE) return false;
    (void)!join(saver);
    report_on(saver, report);
    end_job(saver);
    return true;
}

bool tt_saver_failed(const struct tt_saver *saver)
{
    return atomic_load(&saver->phase) == FAILED;
}

static void wait_until_written(const struct tt_saver *saver)
{
    const struct timespec pause = {.tv_nsec = 200000};
    for (int phase = TAKEN; phase == TAKEN || phase == WRITING; phase = atomic_load(&saver->phase))
        nanosleep(&pause, NULL);
}

bool tt_saver_complete(struct tt_saver *saver, double patience_seconds, struct tt_save_report *report)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    struct tt_error error;
    bool done = false;
    if (atomic_load(&saver->phase) == IDLE) return false;
    tt_error_copy(&error);
    if (tt_saver_wait_copies(saver) == TT_OK) {
        wait_until_written(saver);
        double start = tt_clock_seconds();
        while (atomic_load(&saver->phase) == WRITTEN && tt_clock_seconds() - start < patience_seconds)
            nanosleep(&pause, NULL);
        done = tt_saver_collect(saver, report);
    }
    (void)tt_error_restore(&error);
    return done;
}

/* Result of this rank's part: its files are on disk, or the error. */
static tt_status finish_own(struct tt_saver *saver)
{
    if (atomic_load(&saver->phase) == IDLE) return TT_OK;
    TT_TRY(tt_saver_wait_copies(saver));
    wait_until_written(saver);
    return atomic_load(&saver->phase) == FAILED ? join(saver) : TT_OK;
}

tt_status tt_saver_finish(struct tt_saver *saver, struct tt_save_report *report, bool *reported)
{
    double start = tt_clock_seconds();
    struct tt_comm *comm = saver->config.comm;
    *reported = false;
    tt_status status = tt_comm_agree(comm, finish_own(saver));
    struct tt_error error;
    tt_error_copy(&error);
    atomic_store(status == TT_OK ? &saver->all_written : &saver->cancelled, true);
    tt_status joined = join(saver);
    if (status == TT_OK)
        status = tt_comm_agree(comm, joined);
    else {
        (void)!tt_comm_barrier(comm); /* all ranks have stopped writing */
        (void)tt_error_restore(&error);
    }
    if (atomic_load(&saver->phase) == IDLE) return status;
    if (status != TT_OK) remove_temporary(saver);
    saver->stall_seconds += tt_clock_seconds() - start;
    if (status == TT_OK && saver->first) {
        report_on(saver, report);
        *reported = true;
    }
    end_job(saver);
    return status;
}

tt_status tt_checkpoint_bytes(const struct tt_model *model, const struct tt_model_folder *base,
                              const struct tt_optimizer *optimizer, tt_dtype dtype, uint64_t *bytes)
{
    struct tt_weights_layout layout;
    TT_TRY(tt_weights_layout_init(model, base, dtype, UINT64_MAX, &layout));
    *bytes = layout.tensor_bytes;
    if (tt_lora_changes_base(&model->options.lora)) *bytes *= 3; /* as it trains, and of twice the rank */
    tt_weights_layout_deinit(&layout);
    if (optimizer == NULL) return TT_OK;
    TT_TRY(tt_state_layout_init(model, optimizer, dtype != TT_F32, NULL, UINT64_MAX, &layout));
    *bytes += layout.tensor_bytes;
    tt_weights_layout_deinit(&layout);
    return TT_OK;
}
