#include "run/disk_space.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/number.h"
#include "base/store.h"
#include "checkpoint/manifest.h"
#include "checkpoint/save.h"

/* Estimates the number of saves. */
static int64_t count_saves(const struct tt_watch_spec *watch, const struct tt_run_length *length)
{
    int64_t every = watch->save_strategy == TT_INTERVAL_BEST ? length->eval_steps : length->save_steps;
    int64_t left = length->total_steps - length->first_step;
    return every > 0 ? left / every + (left % every != 0) : 0;
}

/* The sizes of the tokenizer's files, which each checkpoint and the result have, in whole blocks. */
struct copied {
    const char *folder;
    uint64_t bytes, block;
};

static uint64_t round_up(uint64_t bytes, uint64_t block)
{
    return (bytes + block - 1) / block * block;
}

static tt_status add_size(void *context, const char *name)
{
    struct copied *copied = context;
    int descriptor;
    uint64_t bytes = 0;
    TT_TRY(tt_file_open_inside(copied->folder, name, TT_MODEL_FOLDER_COPY_BYTES_MAX, &descriptor, &bytes));
    tt_file_close(descriptor);
    copied->bytes += round_up(bytes, copied->block);
    return TT_OK;
}

static tt_status count_copied(const struct tt_model_folder *folder, const struct tt_model *model,
                              struct copied *copied)
{
    if (folder == NULL) return TT_OK;
    copied->folder = tt_model_folder_path(folder);
    return tt_model_folder_list_tokenizer(copied->folder, model->adapter_param_count == 0, add_size, copied);
}

/* Rows of the log until the end; each is in metrics.jsonl, in TensorBoard's file and in trainer_state.json. */
static double count_rows(const struct tt_run_length *length)
{
    double rows = 2; /* of the end */
    if (length->logging_steps > 0) rows += (double)(length->total_steps / length->logging_steps);
    if (length->eval_steps > 0) rows += (double)(length->total_steps / length->eval_steps);
    return rows;
}

/* Measured on checkpoints, rounded up: a row has 320 bytes, of an evaluation more; training_state.json 12 kB, and 60
 * bytes for each tensor of the base; a tensor 110 in the header of its file. */
enum {
    ROW_BYTES = 400,
    TENSOR_BYTES = 128,
    TEXT_BYTES = 16 << 10,
    /* two configurations, manifest, trainer_state, training_state, an index of the weights */
    TEXT_FILES = 6,
    RECORD_FILES = 8
};

/* The bytes of a checkpoint, or of the result, besides the values of its tensors and the rows of the log. */
static uint64_t text_bytes(const struct tt_model *model, uint64_t block)
{
    uint64_t tensors = model->param_count + (uint64_t)model->facts.num_hidden_layers;
    uint64_t texts = TEXT_BYTES + 4 * TENSOR_BYTES * tensors;
    return texts + (TEXT_FILES + 2) * block; /* of the tensors' files, too, the last block is not full */
}

/* The log grows with the steps, and few runs of very many steps are left to run to their end: a warning. `room`: what
 * the checkpoints and the result leave of the disk. */
static void check_log(const struct tt_run *run, int64_t kept, uint64_t room)
{
    char have[32], need[32];
    double rows = count_rows(&run->length), bytes = ROW_BYTES * rows * ((double)kept + 3);
    if (bytes <= (double)room) return;
    tt_warn("output_dir '%s' has %s free for the log, and its %.0f rows take up to %s until the last step, "
            "in each "
            "checkpoint's trainer_state.json, too: a larger --logging_steps writes fewer, --save_total_limit "
            "keeps "
            "fewer checkpoints",
            run->job.run->output_dir, tt_format_bytes((double)room, have, sizeof have), rows,
            tt_format_bytes(bytes, need, sizeof need));
}

tt_status tt_disk_space_check(const struct tt_run *run, const struct tt_model *model)
{
    const char *output_dir = run->job.run->output_dir;
    tt_dtype dtype = tt_run_save_dtype(run->job.watch->save_dtype, model);
    uint64_t available, weights, one, beside;
    int64_t *steps = NULL;
    size_t there = 0;
    char have[32], need[32], each[32];
    struct copied copied = {0};
    TT_TRY(tt_checkpoint_bytes(model, run->data.inputs.folder, NULL, dtype, &weights));
    const struct tt_optimizer *saved = run->job.watch->save_only_model ? NULL : run->rank_config.optimizer;
    TT_TRY(tt_checkpoint_bytes(model, run->data.inputs.folder, saved, dtype, &one));
    TT_TRY(tt_dir_free_bytes(output_dir, &available, &copied.block));
    TT_TRY(count_copied(run->data.inputs.folder, model, &copied));
    beside = copied.bytes + text_bytes(model, copied.block);
    one += beside;
    weights += beside + RECORD_FILES * copied.block;
    TT_TRY(tt_checkpoint_list(output_dir, &steps, &there));
    tt_free(steps);
    int64_t saves = count_saves(run->job.watch, &run->length), limit = run->job.watch->save_total_limit;
    /* one more exists while the newest is written */
    int64_t kept = limit > 0 && limit < saves ? limit + 1 : saves;
    bool stored = !tt_store_can(output_dir, TT_STORE_CAN_RENAME);
    /* One save at a time is on this machine, and then stored. */
    if (stored)
        kept = kept > 0;
    else if (limit > 0 && kept > 0)
        kept = kept > (int64_t)there ? kept - (int64_t)there : 1;
    uint64_t needed, all;
    if (__builtin_mul_overflow((uint64_t)kept, one, &all) || __builtin_add_overflow(weights, all, &needed))
        needed = UINT64_MAX;
    if (needed <= available) {
        check_log(run, kept, available - needed);
        return TT_OK;
    }
    tt_status status =
        tt_fail(TT_ERR_IO,
                "output_dir '%s' has %s free, and the run needs %s: %lld checkpoint%s of %s and the result",
                output_dir, tt_format_bytes((double)available, have, sizeof have),
                tt_format_bytes((double)needed, need, sizeof need), (long long)kept, kept == 1 ? "" : "s",
                tt_format_bytes((double)one, each, sizeof each));
    if (stored)
        tt_hint("a save lies in the folder for temporary files before it is stored: make room there, or name "
                "another with "
                "TMPDIR");
    tt_hint("make room, choose an --output_dir on another disk, or keep fewer with --save_total_limit");
    return status;
}
