#include "run/first_adapter.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/lapack.h"
#include "base/number.h"
#include "base/thread.h"
#include "checkpoint/first_values.h"
#include "model/lora_init.h"

enum { THREADS_MAX = 8 }; /* each has a matrix in memory, twice as double */

static const struct tt_lora_init *kind_of(const struct tt_run *run)
{
    return tt_lora_init_of(&run->data.inputs.model_options.lora, NULL);
}

tt_status tt_first_adapter_check(const struct tt_run *run, const struct tt_model *model)
{
    const struct tt_lora_init *kind = kind_of(run);
    const char *name = model->options.lora.init_weights;
    if (kind == NULL) return TT_OK;
    if (run->data.inputs.source.folder == NULL && (kind->uses & TT_LORA_INIT_READS_WEIGHT) != 0)
        return tt_fail(TT_ERR_USAGE,
                       "init_lora_weights is %s, which needs the weights of a folder, and init is random",
                       name);
    const struct tt_lapack *lapack;
    if ((kind->uses & TT_LORA_INIT_LAPACK) != 0 && run->resume.folder == NULL)
        TT_TRY(tt_lapack_open(&lapack));
    if (kind->changes_base && tt_run_save_dtype(run->job.watch->save_dtype, model) != TT_F32) {
        tt_status status = tt_fail(TT_ERR_USAGE,
                                   "init_lora_weights is %s, and save_dtype is not float32: a resumed run "
                                   "needs the exact first values",
                                   name);
        tt_hint("leave save_dtype out");
        return status;
    }
    return TT_OK;
}

static tt_status path_of(const struct tt_run *run, struct tt_path *folder, struct tt_path *file)
{
    TT_TRY(tt_path_set(folder, run->job.run->output_dir, TT_FIRST_VALUES_FOLDER));
    return tt_path_set(file, folder->text, "adapter_model.safetensors");
}

static tt_status make(struct tt_run *run)
{
    const struct tt_inputs *inputs = &run->data.inputs;
    struct tt_path folder, file;
    struct tt_model *model = NULL;
    char line[300];
    double start = tt_clock_seconds();
    TT_TRY(path_of(run, &folder, &file));
    TT_TRY(tt_model_create(&inputs->model_facts, &inputs->model_options, &model));
    int threads = tt_cpu_count() < THREADS_MAX ? tt_cpu_count() : THREADS_MAX;
    const struct tt_first_values first = {.model = model,
                                          .folder = inputs->folder,
                                          .seed = inputs->source.seed,
                                          .threads = threads,
                                          .cancel = run->job.cancel,
                                          .base_name = run->job.model->model_name_or_path};
    tt_status status = tt_first_values_write(&first, folder.text);
    tt_snprintf(line, sizeof line, "first values of the adapter (%s) in %.1f s, kept in '%.150s'",
                model->options.lora.init_weights, tt_clock_seconds() - start, folder.text);
    if (status == TT_OK) tt_run_report_line(&run->job, line);
    tt_model_destroy(model);
    return status;
}

static tt_status open_made(struct tt_run *run)
{
    struct tt_path folder, file;
    TT_TRY(path_of(run, &folder, &file));
    TT_TRY(tt_safetensors_open(file.text, &run->data.first_values));
    run->data.inputs.source.first =
        (struct tt_first_adapter){.file = run->data.first_values, .changes_base = kind_of(run)->changes_base};
    return TT_OK;
}

tt_status tt_first_adapter_make(struct tt_run *run, struct tt_world *world)
{
    if (kind_of(run) == NULL || run->resume.folder != NULL) return TT_OK;
    TT_TRY(tt_world_agree(world, world->first_rank == 0 ? make(run) : TT_OK));
    return tt_world_agree(world, open_made(run));
}
