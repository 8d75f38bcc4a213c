#include "run/hub_names.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hub_cache.h"
#include "base/json.h"
#include "job/data_files.h"
#include "job/eval_sets.h"

static tt_status fetch_model(const char *name, const char *revision, const char *what)
{
    char *folder = NULL, plain[TT_HUB_NAME_BYTES], own[TT_HUB_NAME_BYTES];
    if (name == NULL || tt_path_exists(name) || !tt_hub_parse_name(name, plain, own)) return TT_OK;
    const struct tt_hub_want want = {
        .kind = "models", .name = plain, .revision = own[0] != '\0' ? own : revision, .what = what};
    tt_status status = tt_hub_obtain(&want, &folder);
    tt_free(folder);
    return status;
}

/* The names of a list with commas, as the inputs read it. */
static tt_status fetch_adapters(const char *given)
{
    tt_status status = TT_OK;
    if (given == NULL || tt_path_exists(given)) return TT_OK;
    for (const char *at = given; status == TT_OK && *at != '\0';) {
        at += strspn(at, " ,");
        size_t bytes = strcspn(at, " ,");
        char *name = bytes > 0 ? tt_strndup(at, bytes) : NULL;
        if (bytes > 0) status = name != NULL ? fetch_model(name, NULL, "adapter") : TT_ERR_MEMORY;
        tt_free(name);
        at += bytes;
    }
    return status;
}

/* Files of data that are missing are an error of who opens them, with its hints; what the hub says is one of this. */
static tt_status fetch_data(const struct tt_mixture_entry *data)
{
    const char *name = data->path;
    struct tt_sources sources = {0};
    if (name == NULL || tt_path_exists(name)) return TT_OK;
    size_t bytes = strcspn(name, ":");
    char *plain = tt_strndup(name, bytes);
    if (plain == NULL) return TT_ERR_MEMORY;
    bool named = tt_hub_is_name(plain) && !tt_data_files_has_ending(name);
    tt_free(plain);
    if (!named) return TT_OK;
    tt_status status = tt_data_files_add(&sources, data);
    tt_sources_deinit(&sources);
    return status;
}

static tt_status fetch_set(void *context, const char *name, const struct tt_mixture_entry *set)
{
    (void)context;
    (void)name;
    return fetch_data(set);
}

static tt_status fetch_mixture(const char *text, const char *split)
{
    struct tt_json json = {0};
    tt_status status = tt_json_parse(text, strlen(text), "datasets", &json);
    for (size_t i = 0; status == TT_OK && i < tt_json_count(json.root); i++) {
        struct tt_mixture_entry entry;
        status = tt_mixture_read(json.root, i, &entry);
        if (status == TT_OK && entry.split == NULL) entry.split = split;
        if (status == TT_OK) status = fetch_data(&entry);
    }
    tt_json_deinit(&json);
    return status;
}

static tt_status fetch_all(const struct tt_job_spec *job)
{
    const struct tt_data_config *data = &job->data;
    TT_TRY(fetch_model(job->model.model_name_or_path, job->model.model_revision, "model"));
    TT_TRY(fetch_adapters(job->model.adapter_name_or_path));
    const struct tt_mixture_entry train = tt_data_files_named(data, data->dataset_train_split),
                                  eval = {.path = data->eval_dataset,
                                          .split = data->dataset_test_split,
                                          .weight = 1};
    TT_TRY(tt_eval_sets_are_named(data) ? tt_eval_sets_visit(data, fetch_set, NULL) : fetch_data(&eval));
    if (data->streaming) return TT_OK; /* each process reads what it needs */
    TT_TRY(fetch_data(&train));
    return data->datasets != NULL ? fetch_mixture(data->datasets, data->dataset_train_split) : TT_OK;
}

tt_status tt_run_fetch_names(const struct tt_job_spec *job, struct tt_world *world)
{
    if (world->local_count == world->world_size) return TT_OK;
    return tt_world_agree(world, world->first_rank == 0 ? fetch_all(job) : TT_OK);
}
