#include "job/eval_sets.h"

#include <string.h>

#include "base/json.h"

enum { NAME_BYTES_MAX = 60 };

bool tt_eval_sets_are_named(const struct tt_data_config *data)
{
    return data->eval_dataset != NULL && data->eval_dataset[0] == '{';
}

static bool is_name(const char *name)
{
    static const char known[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t bytes = strlen(name);
    return bytes > 0 && bytes <= NAME_BYTES_MAX && strspn(name, known) == bytes;
}

static tt_status visit_set(const struct tt_data_config *data, const char *name,
                           const struct tt_json_value *value, tt_eval_set_visit *visit, void *context)
{
    struct tt_mixture_entry set = {.path = tt_json_text(value), .weight = 1};
    if (!is_name(name)) {
        tt_fail(TT_ERR_USAGE, "eval_dataset: '%.80s' is no name of an evaluation set", name);
        tt_hint("a name has at most %d letters, digits, '.', '_' and '-'", NAME_BYTES_MAX);
        return TT_ERR_USAGE;
    }
    if (tt_json_is_object(value)) {
        struct tt_json_value *list = tt_json_new_list();
        tt_json_append(list, tt_json_copy(value));
        tt_status status = list != NULL ? tt_mixture_read(list, 0, &set) : TT_ERR_MEMORY;
        if (status == TT_OK && set.weight != 1)
            status = tt_fail(TT_ERR_USAGE, "the evaluation set has a weight");
        if (set.split == NULL) set.split = data->dataset_test_split;
        if (status == TT_OK) status = visit(context, name, &set);
        tt_json_release(list);
        if (status != TT_OK) tt_while("reading the evaluation set '%s' of eval_dataset", name);
        return status;
    }
    set.split = data->dataset_test_split;
    if (set.path != NULL && *set.path != '\0') return visit(context, name, &set);
    return tt_fail(TT_ERR_USAGE, "eval_dataset: '%s' is neither a path or name of a data set nor an object",
                   name);
}

tt_status tt_eval_sets_visit(const struct tt_data_config *data, tt_eval_set_visit *visit, void *context)
{
    struct tt_json json = {0};
    const struct tt_json_value *value;
    const char *name;
    tt_status status = TT_OK;
    TT_GO(tt_json_parse(data->eval_dataset, strlen(data->eval_dataset), "eval_dataset", &json));
    if (tt_json_count(json.root) == 0)
        TT_GO(tt_fail(TT_ERR_USAGE, "eval_dataset has no evaluation set: give {NAME: FILE, ...}"));
    for (size_t at = 0; tt_json_next_member(json.root, &at, &name, &value);)
        TT_GO(visit_set(data, name, value, visit, context));
out:
    tt_json_deinit(&json);
    return status;
}

struct seeking {
    const char *wanted;
    size_t count, set;
    const char *metric;
};

static tt_status seek(void *context, const char *name, const struct tt_mixture_entry *set)
{
    static const char *const metrics[] = {"loss", "mean_token_accuracy"};
    struct seeking *seeking = context;
    size_t bytes = strlen(name), number = seeking->count++;
    (void)set;
    if (strncmp(seeking->wanted, name, bytes) != 0 || seeking->wanted[bytes] != '_') return TT_OK;
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++) {
        if (strcmp(seeking->wanted + bytes + 1, metrics[i]) != 0) continue;
        seeking->set = number;
        seeking->metric = metrics[i];
    }
    return TT_OK;
}

tt_status tt_eval_sets_find(const struct tt_data_config *data, const char *name, size_t *set,
                            const char **metric)
{
    static const char prefix[] = "eval_";
    *metric = NULL;
    if (name == NULL || !tt_eval_sets_are_named(data)) return TT_OK;
    struct seeking seeking = {.wanted = name};
    if (strncmp(name, prefix, sizeof prefix - 1) == 0) seeking.wanted += sizeof prefix - 1;
    TT_TRY(tt_eval_sets_visit(data, seek, &seeking));
    *set = seeking.set;
    *metric = seeking.metric;
    return TT_OK;
}
