/* config.json, in the spellings of transformers 4 (rope_theta, rope_scaling, torch_dtype) and 5 (rope_parameters,
 * dtype): the keys of all families. Source: the families' configuration_*.py of transformers 5. Everything that sizes
 * memory is checked against a limit, so that later products cannot overflow. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "io/model_folder.h"
#include "model/family.h"
#include "model/missing.h"
#include "model/quantization.h"

const struct tt_model_family *tt_model_family_find(const char *model_type)
{
    const struct tt_model_family *family;
    for (size_t i = 0; (family = tt_model_family_at(i)) != NULL; i++)
        if (strcmp(family->model_type, model_type) == 0 ||
            (family->other_type != NULL && strcmp(family->other_type, model_type) == 0))
            return family;
    return NULL;
}

/* The family's architecture, or that of its models without a head: LlamaForCausalLM, LlamaModel; Gemma3TextModel. */
static bool is_architecture(const char *name, const char *of_family)
{
    static const char *const heads[] = {"ForCausalLM", "ForConditionalGeneration"};
    size_t stem = strlen(of_family);
    for (int i = 0; i < 2; i++)
        if (tt_ends_with(of_family, heads[i])) stem = strlen(of_family) - strlen(heads[i]);
    if (strcmp(name, of_family) == 0) return true;
    if (strncmp(name, of_family, stem) != 0) return false;
    return strcmp(name + stem, "Model") == 0 || strcmp(name + stem, "TextModel") == 0;
}

/* ForSequenceClassification of a family: LlamaForSequenceClassification, Gemma3TextForSequenceClassification. */
static bool is_classifier(const char *name, const char *of_family)
{
    static const char language[] = "ForCausalLM", text[] = "Text";
    size_t stem = strlen(of_family) - (tt_ends_with(of_family, language) ? strlen(language) : 0);
    if (strncmp(name, of_family, stem) != 0) return false;
    if (strncmp(name + stem, text, strlen(text)) == 0) stem += strlen(text);
    return strcmp(name + stem, "ForSequenceClassification") == 0;
}

/* The configuration of the text model: that of its own file, or text_config of a class with other parts. */
struct text_config {
    const struct tt_json *whole; /* config.json */
    struct tt_json json;         /* the part of it that the family reads; owns nothing */
    const struct tt_text_part *part;
    const struct tt_model_family *family;
    bool classifies;
};

/* The nearest thing that is missing, behind "models of this type are not supported". */
static tt_status write_nearest(const struct text_config *text, struct tt_str *why)
{
    const struct tt_json_value *root = text->json.root;
    const char *inner = tt_json_text(tt_json_get(tt_json_get(root, "text_config"), "model_type"));
    if (inner != NULL && tt_model_family_find(inner) != NULL)
        return tt_str_printf(why, ": its text model '%s' is, but a folder of this class is not", inner);
    TT_TRY(tt_str_append_text(why, ": needs "));
    size_t before = why->bytes;
    TT_TRY(tt_missing_write(root, why));
    return why->bytes > before
               ? TT_OK
               : tt_str_append_text(why, "a family of its own; its keys name no part that is missing");
}

/* The supported name that differs least from `model_type`, by two letters at most; NULL: there is none. */
static const char *nearest_type(const char *model_type)
{
    const char *best = NULL;
    int least = 3;
    for (size_t i = 0; tt_model_family_at(i) != NULL || tt_text_part_at(i) != NULL; i++) {
        const struct tt_model_family *family = tt_model_family_at(i);
        const struct tt_text_part *part = tt_text_part_at(i);
        const char *names[] = {family != NULL ? family->model_type : NULL,
                               part != NULL ? part->model_type : NULL};
        for (int n = 0; n < 2; n++) {
            int distance = names[n] != NULL ? tt_edit_distance(model_type, names[n]) : least;
            if (distance < least) {
                least = distance;
                best = names[n];
            }
        }
    }
    return best;
}

static tt_status refuse_type(const struct text_config *text, const char *model_type)
{
    struct tt_str why = {0};
    TT_TRY(write_nearest(text, &why));
    tt_status status = tt_fail(TT_ERR_UNSUPPORTED, "%s: models of model_type '%s' are not supported%s%s",
                               text->whole->origin, model_type, text->part != NULL ? " as a text part" : "",
                               tt_str_text(&why));
    tt_str_deinit(&why);
    const char *nearest = nearest_type(model_type);
    tt_hint("docs/models.md lists all that are supported%s%s%s",
            nearest != NULL ? "; the nearest name is '" : "", nearest != NULL ? nearest : "",
            nearest != NULL ? "'" : "");
    return status;
}

/* Old files have the text model's keys beside the others, and the whole's model_type. */
static const char *text_type(const struct text_config *text)
{
    const char *name = tt_json_text(tt_json_get(text->json.root, "model_type"));
    return name != NULL && text->json.root != text->whole->root ? name : text->part->text_type;
}

static tt_status find_family(const struct tt_json *json, struct text_config *text)
{
    const char *model_type = NULL;
    TT_TRY(tt_json_string(json, json->root, "model_type", &model_type));
    *text = (struct text_config){.whole = json, .json = *json, .part = tt_text_part_find(json->root)};
    if (text->part != NULL) {
        text->json.root = tt_text_part_config(json->root);
        model_type = text_type(text);
    }
    text->family = tt_model_family_find(model_type);
    if (text->family == NULL) return refuse_type(text, model_type);
    const char *wanted = text->part != NULL ? text->part->architecture : text->family->architecture;
    const struct tt_json_value *architectures = tt_json_get(json->root, "architectures");
    const char *architecture = tt_json_text(tt_json_at(architectures, 0));
    if (architecture == NULL || is_architecture(architecture, wanted)) return TT_OK;
    text->classifies = text->part == NULL && is_classifier(architecture, wanted);
    if (text->classifies) return TT_OK;
    tt_status status = tt_fail(
        TT_ERR_UNSUPPORTED, "%s: the architecture '%s' is not supported (for model_type '%s' it is %s)",
        json->origin, architecture, text->part != NULL ? text->part->model_type : model_type, wanted);
    tt_hint("docs/models.md lists what is supported");
    return status;
}

/* The keys of the whole count where both have them. */
static tt_status read_either(const struct text_config *text, const char *key, const char **value)
{
    TT_TRY(tt_json_opt_string(text->whole, text->json.root, key, value));
    return tt_json_opt_string(text->whole, text->whole->root, key, value);
}

static tt_status read_dtype(const struct text_config *text, struct tt_model_facts *facts)
{
    const char *name = "float32";
    TT_TRY(read_either(text, "torch_dtype", &name));
    TT_TRY(read_either(text, "dtype", &name));
    facts->dtype = tt_dtype_from_torch_name(name);
    if (facts->dtype == TT_F32 || facts->dtype == TT_BF16 || facts->dtype == TT_F16) return TT_OK;
    return tt_fail(TT_ERR_UNSUPPORTED,
                   "%s: weights of type '%s' are not supported (float32, bfloat16, float16 are)",
                   text->whole->origin, name);
}

static tt_status read_tokens(const struct tt_json *json, struct tt_model_facts *facts)
{
    facts->bos_token_id = -1;
    TT_TRY(tt_json_opt_int(json, json->root, "bos_token_id", &facts->bos_token_id));
    TT_TRY(tt_family_check_range(json, "bos_token_id", facts->bos_token_id, -1, facts->vocab_size - 1));
    const struct tt_json_value *eos = tt_json_get(json->root, "eos_token_id");
    if (eos == NULL || tt_json_is_null(eos)) return TT_OK;
    size_t count = tt_json_is_list(eos) ? tt_json_count(eos) : 1;
    size_t room = sizeof facts->eos_token_ids / sizeof facts->eos_token_ids[0];
    if (count > room)
        return tt_fail(TT_ERR_DATA, "%s: eos_token_id has %zu entries, at most %zu are supported",
                       json->origin, count, room);
    for (size_t i = 0; i < count; i++) {
        const struct tt_json_value *item = tt_json_is_list(eos) ? tt_json_at(eos, i) : eos;
        if (!tt_json_is_integer(item))
            return tt_fail(TT_ERR_DATA, "%s: eos_token_id is not an integer or a list of integers",
                           json->origin);
        int64_t id = tt_json_integer(item);
        TT_TRY(tt_family_check_range(json, "eos_token_id", id, -1, facts->vocab_size - 1));
        if (id >= 0) facts->eos_token_ids[facts->eos_token_count++] = id;
    }
    return TT_OK;
}

/* Keys that change results and that training here does not have. */
static tt_status warn_of_dropout(const struct tt_json *json)
{
    double dropout = 0;
    TT_TRY(tt_json_opt_double(json, json->root, "attention_dropout", &dropout));
    if (dropout != 0) tt_warn("%s: attention_dropout %g is not applied in training", json->origin, dropout);
    return TT_OK;
}

/* transformers ties what the configuration of the whole class says. */
static tt_status read_tie(const struct text_config *text, struct tt_model_facts *facts)
{
    static const char key[] = "tie_word_embeddings";
    const struct tt_json *json = text->whole;
    bool of_text = false;
    if (text->part == NULL) return tt_json_opt_bool(json, json->root, key, &facts->tie_word_embeddings);
    facts->tie_word_embeddings = text->part->tied;
    TT_TRY(tt_json_opt_bool(json, json->root, key, &facts->tie_word_embeddings));
    if (text->part->text_ties) TT_TRY(tt_json_opt_bool(json, text->json.root, key, &of_text));
    facts->tie_word_embeddings |= of_text;
    return TT_OK;
}

/* transformers' num_labels is the number of entries of id2label, 2 unless the configuration has it
 * (PreTrainedConfig, configuration_utils.py, 5.24). */
static tt_status read_labels(const struct tt_json *json, struct tt_model_facts *facts)
{
    const struct tt_json_value *labels = tt_json_get(json->root, "id2label");
    facts->label_count = 2;
    facts->tie_word_embeddings = false;
    if (labels != NULL && tt_json_is_object(labels))
        facts->label_count = (int64_t)tt_json_count(labels);
    else
        TT_TRY(tt_json_opt_int(json, json->root, "num_labels", &facts->label_count));
    return tt_family_check_range(json, "num_labels", facts->label_count, 1, 1 << 20);
}

static tt_status copy_sources(const struct tt_model_family *family, struct tt_model_facts *facts)
{
    const struct tt_param_source *row = family->sources;
    facts->sources.path = tt_model_text_path(facts);
    facts->sources.renames = family->renames;
    for (int i = 0; row != NULL && row->param != NULL; i++, row++) {
        if (i == TT_PARAM_SOURCES_MAX)
            return tt_fail(TT_ERR_INTERNAL, "'%s' has more than %d rows of sources", family->model_type,
                           TT_PARAM_SOURCES_MAX);
        facts->sources.rows[i] = *row;
    }
    return TT_OK;
}

static tt_status parse_text(const struct text_config *text, struct tt_model_facts *facts)
{
    const struct tt_json *json = &text->json;
    const struct tt_model_family *family = text->family;
    const char *architecture = text->part != NULL ? text->part->architecture : family->architecture;
    memcpy(facts->model_type, family->model_type, strlen(family->model_type) + 1);
    memcpy(facts->architecture, architecture, strlen(architecture) + 1);
    facts->family = family;
    facts->part = text->part;
    TT_TRY(copy_sources(family, facts));
    facts->image_layers = (int64_t)tt_json_count(
        tt_json_get(tt_json_get(text->whole->root, "vision_config"), "deepstack_visual_indexes"));
    facts->initializer_range = 0.02;
    TT_TRY(tt_quantization_read(text->whole, facts));
    TT_TRY(tt_json_opt_double(json, json->root, "initializer_range", &facts->initializer_range));
    TT_TRY(tt_family_check_positive(json, "initializer_range", facts->initializer_range, 1e3));
    TT_TRY(read_dtype(text, facts));
    TT_TRY(warn_of_dropout(json));
    TT_TRY(read_tie(text, facts));
    bool tied = facts->tie_word_embeddings;
    TT_TRY(family->parse(json, facts));
    /* The default of a family is that of its own class. */
    if (text->part != NULL) facts->tie_word_embeddings = tied;
    if (text->classifies) TT_TRY(read_labels(json, facts));
    bool whole = tt_json_get(text->whole->root, "eos_token_id") != NULL;
    return read_tokens(whole ? text->whole : json, facts);
}

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct text_config text;
    TT_TRY(find_family(json, &text));
    tt_status status = parse_text(&text, facts);
    if (status != TT_OK && text.json.root != json->root) tt_while("reading text_config");
    return status;
}

tt_status tt_model_facts_parse_any(const struct tt_json *json, struct tt_model_facts *out)
{
    if (!tt_json_is_object(json->root)) return tt_fail(TT_ERR_DATA, "%s is not a JSON object", json->origin);
    struct tt_model_facts *facts = tt_calloc(1, sizeof *facts);
    if (facts == NULL) return TT_ERR_MEMORY;
    tt_status status = parse(json, facts);
    if (status == TT_OK) *out = *facts;
    tt_free(facts);
    return status;
}

bool tt_model_facts_have_experts(const struct tt_model_facts *facts)
{
    for (int64_t i = 0; i < facts->num_hidden_layers; i++)
        if (facts->layers[i].experts) return true;
    return false;
}

tt_status tt_model_facts_balance(struct tt_model_facts *facts, double coefficient)
{
    if (coefficient < 0) return TT_OK;
    if (coefficient > 0 && facts->balance.experts == 0)
        return tt_fail(
            TT_ERR_USAGE,
            "router_aux_loss_coef is %g, and a %s model has no experts whose load could be balanced",
            coefficient, facts->model_type);
    facts->balance.coefficient = coefficient;
    return TT_OK;
}

/* `what`: the class, or the tensor, that says so. */
static tt_status refuse_scores(const char *where, const char *what, int64_t labels)
{
    tt_status status =
        tt_fail(TT_ERR_UNSUPPORTED,
                "%s: '%s' gives each sequence scores of %lld label%s, and this needs a language model", where,
                what, (long long)labels, labels == 1 ? "" : "s");
    tt_hint("use the folder of the model that it was made from, which has a head of words, lm_head "
            "(docs/models.md, models with scores)");
    return status;
}

tt_status tt_model_facts_parse(const struct tt_json *json, struct tt_model_facts *out)
{
    struct tt_model_facts *facts = tt_calloc(1, sizeof *facts);
    if (facts == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_model_facts_parse_any(json, facts);
    if (status == TT_OK && facts->label_count > 0)
        status =
            refuse_scores(json->origin, tt_json_text(tt_json_at(tt_json_get(json->root, "architectures"), 0)),
                          facts->label_count);
    if (status == TT_OK) *out = *facts;
    tt_free(facts);
    return status;
}

tt_status tt_model_facts_of_folder(const struct tt_model_folder *folder, struct tt_model_facts *out)
{
    static const char score[] = TT_MODEL_SCORE ".weight";
    const struct tt_safetensors_entry *entry = tt_model_folder_find(folder, score);
    struct tt_model_facts *facts = tt_calloc(1, sizeof *facts);
    if (facts == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_model_facts_parse(tt_model_folder_config(folder), facts);
    if (status == TT_OK && entry != NULL)
        status = refuse_scores(tt_model_folder_path(folder), score, entry->dims[0]);
    if (status == TT_OK) *out = *facts;
    tt_free(facts);
    return status;
}

const char *tt_model_table_name(const struct tt_model_facts *facts)
{
    if (facts->part != NULL) return facts->part->table;
    return facts->family->table != NULL ? facts->family->table : "model." TT_MODEL_EMBEDDING ".weight";
}
