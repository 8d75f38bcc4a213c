#include "job/paths.h"

#include <string.h>

#include "base/json.h"
#include "data/sources.h"
#include "job/eval_sets.h"
#include "job/settings.h"

static tt_status visit_mixture(const struct tt_setting *row, const char *text, tt_job_path_visit *visit,
                               void *context)
{
    struct tt_json json = {0};
    tt_status status = tt_json_parse(text, strlen(text), row->name, &json);
    for (size_t i = 0; status == TT_OK && tt_json_is_list(json.root) && i < tt_json_count(json.root); i++) {
        struct tt_mixture_entry entry;
        status = tt_mixture_read(json.root, i, &entry);
        if (status == TT_OK) status = visit(context, row, entry.path);
    }
    tt_json_deinit(&json);
    return status;
}

struct visiting {
    const struct tt_setting *row;
    tt_job_path_visit *visit;
    void *context;
};

static tt_status visit_set(void *context, const char *name, const struct tt_mixture_entry *set)
{
    const struct visiting *visiting = context;
    (void)name;
    return visiting->visit(visiting->context, visiting->row, set->path);
}

tt_status tt_job_paths_visit(const struct tt_job_spec *job, tt_job_path_visit *visit, void *context)
{
    const struct tt_job_rows *rows = &tt_job_rows[TT_JOB_TRAIN];
    for (size_t s = 0; s < rows->count; s++) {
        const char *base = (const char *)job + rows->sections[s].base_offset;
        for (const struct tt_setting *row = rows->sections[s].rows; row->name != NULL; row++) {
            if (row->path == TT_PATH_NONE || row->transient) continue;
            const char *value = *(const char *const *)(base + row->offset);
            struct visiting sets = {row, visit, context};
            if (strcmp(row->name, "eval_dataset") == 0 && tt_eval_sets_are_named(&job->data))
                TT_TRY(tt_eval_sets_visit(&job->data, visit_set, &sets));
            else if (row->path == TT_PATH_MIXTURE && value != NULL)
                TT_TRY(visit_mixture(row, value, visit, context));
            else if (tt_setting_is_path(row, value))
                TT_TRY(visit(context, row, value));
        }
    }
    return TT_OK;
}
