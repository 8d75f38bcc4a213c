#include "model/scores.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "io/labels.h"
#include "io/model_folder.h"
#include "model/family.h"

/* Types of which transformers has no ForSequenceClassification. */
static const char *const without_class[] = {
    "olmoe", "gemma4_text", "ernie4_5",          "granite",       "cohere2", "granitemoehybrid",
    "lfm2",  "nemotron_h",  "muse_glimmer_text", "glm4_moe_lite", "youtu"};

static tt_status refuse_class(const struct tt_model_facts *facts)
{
    tt_status status = tt_fail(TT_ERR_UNSUPPORTED,
                               "transformers has no class of %s models with scores, so that nobody could "
                               "load the result",
                               facts->part != NULL ? facts->part->model_type : facts->model_type);
    tt_hint("docs/models.md, models with scores, lists the types that have one");
    return status;
}

static tt_status check_class(const struct tt_model_facts *facts)
{
    if (facts->part != NULL) return refuse_class(facts);
    for (size_t i = 0; i < sizeof without_class / sizeof *without_class; i++)
        if (strcmp(facts->model_type, without_class[i]) == 0) return refuse_class(facts);
    return TT_OK;
}

static tt_status count_labels(const struct tt_scores *scores, int64_t *count)
{
    struct tt_labels labels;
    *count = scores->labels;
    if (*count > 0 || scores->names == NULL) return TT_OK;
    TT_TRY(tt_labels_parse(scores->names, "id2label", &labels));
    *count = labels.count;
    tt_labels_deinit(&labels);
    return TT_OK;
}

static tt_status give(const struct tt_scores *scores, struct tt_model_facts *facts)
{
    int64_t count;
    TT_TRY(check_class(facts));
    TT_TRY(count_labels(scores, &count));
    facts->label_names = scores->names;
    if (facts->label_count > 0) {
        if (count == 0 || count == facts->label_count) return TT_OK;
        return tt_fail(TT_ERR_USAGE,
                       "the model has scores of %" PRId64 " labels, and %" PRId64 " are asked for",
                       facts->label_count, count);
    }
    if (count == 0) {
        tt_status status =
            tt_fail(TT_ERR_USAGE, "nothing says how many labels there are: the model has no scores yet");
        tt_hint("name the labels in the order of their numbers: --id2label negative positive");
        return status;
    }
    facts->label_count = count;
    facts->new_scores = true;
    facts->tie_word_embeddings = false;
    return TT_OK;
}

tt_status tt_model_facts_parse_for(const struct tt_json *json, const struct tt_scores *scores,
                                   struct tt_model_facts *out)
{
    if (!scores->wanted) return tt_model_facts_parse(json, out);
    struct tt_model_facts *facts = tt_calloc(1, sizeof *facts);
    if (facts == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_model_facts_parse_any(json, facts);
    if (status == TT_OK) status = give(scores, facts);
    if (status == TT_OK) *out = *facts;
    tt_free(facts);
    return status;
}

tt_status tt_model_facts_for(const struct tt_model_folder *folder, const struct tt_scores *scores,
                             struct tt_model_facts *out)
{
    if (!scores->wanted) return tt_model_facts_of_folder(folder, out);
    return tt_model_facts_parse_for(tt_model_folder_config(folder), scores, out);
}

/* "LlamaForSequenceClassification" of "LlamaForCausalLM"; the text model of Gemma 3 has a class of its own. */
static tt_status set_class(const struct tt_model_facts *facts, struct tt_json_value *config)
{
    static const char language[] = "ForCausalLM";
    char name[sizeof facts->architecture + 40];
    int stem = (int)strlen(facts->architecture) - (int)strlen(language);
    bool text = strcmp(facts->model_type, "gemma3_text") == 0;
    (void)snprintf(name, sizeof name, "%.*s%sForSequenceClassification", stem, facts->architecture,
                   text ? "Text" : "");
    struct tt_json_value *list = tt_json_new_list();
    if (tt_json_append(list, tt_json_new_string(name)) != 0 ||
        tt_json_set(config, "architectures", list) != 0)
        return TT_ERR_MEMORY;
    return TT_OK;
}

static tt_status set_labels(const struct tt_model_facts *facts, const struct tt_labels *names,
                            struct tt_json_value *config)
{
    struct tt_json_value *by_id = tt_json_new_object(), *by_name = tt_json_new_object();
    bool lost = by_id == NULL || by_name == NULL;
    for (int64_t i = 0; i < facts->label_count && !lost; i++) {
        char id[24], label[40];
        const char *name = names != NULL ? tt_labels_name(names, i) : label;
        (void)snprintf(id, sizeof id, "%" PRId64, i);
        (void)snprintf(label, sizeof label, "LABEL_%" PRId64, i);
        lost = tt_json_set(by_id, id, tt_json_new_string(name)) != 0 ||
               tt_json_set(by_name, name, tt_json_new_integer(i)) != 0;
    }
    lost |= tt_json_set(config, "id2label", by_id) != 0;
    lost |= tt_json_set(config, "label2id", by_name) != 0;
    return lost ? TT_ERR_MEMORY : TT_OK;
}

tt_status tt_model_scores_describe(const struct tt_model_facts *facts, struct tt_json_value *config)
{
    struct tt_labels names = {0};
    size_t own = tt_json_count(tt_json_get(config, "id2label"));
    tt_status status = TT_OK;
    TT_GO(set_class(facts, config));
    (void)tt_json_remove(config, "num_labels");
    if (facts->label_names != NULL) TT_GO(tt_labels_parse(facts->label_names, "id2label", &names));
    if (names.count > 0 || (int64_t)own != facts->label_count)
        TT_GO(set_labels(facts, names.count > 0 ? &names : NULL, config));
out:
    tt_labels_deinit(&names);
    return status;
}
