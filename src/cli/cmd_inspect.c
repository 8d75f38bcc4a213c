#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hub_cache.h"
#include "cli/commands.h"
#include "config/value.h"
#include "io/model_folder.h"
#include "io/pth.h"
#include "io/text_part.h"
#include "model/module.h"

/* The files to describe: a list of tensors and the configuration. */
struct subject {
    const char *path, *kind;
    const struct tt_safetensors_entry **entries; /* borrowed, in order of name */
    size_t count;
    struct tt_model_folder *folder;
    struct tt_safetensors *file;
    struct tt_json config; /* adapter_config.json, or the JSON file given as PATH */
    bool is_model;         /* `config` is a model's config.json */
    char *located;         /* owned: storage of `path` if PATH was the name of a model in the hub's cache */
};

static void subject_close(struct subject *subject)
{
    tt_free(subject->entries);
    tt_free(subject->located);
    tt_model_folder_close(subject->folder);
    tt_safetensors_close(subject->file);
    tt_json_deinit(&subject->config);
}

static int by_name(const void *a, const void *b)
{
    const struct tt_safetensors_entry *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static tt_status list_file(struct subject *subject)
{
    subject->count = tt_safetensors_count(subject->file);
    subject->entries = tt_calloc(subject->count, sizeof *subject->entries);
    if (subject->entries == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < subject->count; i++) subject->entries[i] = tt_safetensors_entry(subject->file, i);
    qsort(subject->entries, subject->count, sizeof *subject->entries, by_name);
    return TT_OK;
}

enum { CONFIG_BYTES_MAX = 4 << 20 };

static tt_status open_adapter(struct subject *subject)
{
    struct tt_path config;
    subject->kind = "PEFT adapter";
    TT_TRY(tt_path_set(&config, subject->path, "adapter_config.json"));
    TT_TRY(tt_json_read(config.text, CONFIG_BYTES_MAX, &subject->config));
    TT_TRY(tt_adapter_weights_open(subject->path, &subject->file));
    return list_file(subject);
}

static tt_status open_folder(struct subject *subject)
{
    subject->kind = "model folder";
    TT_TRY(tt_model_folder_open(subject->path, false, &subject->folder));
    subject->count = tt_model_folder_tensor_count(subject->folder);
    subject->entries = tt_calloc(subject->count, sizeof *subject->entries);
    if (subject->entries == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < subject->count; i++)
        subject->entries[i] = tt_model_folder_tensor(subject->folder, i);
    return TT_OK;
}

static tt_status open_config_file(struct subject *subject)
{
    TT_TRY(tt_json_read(subject->path, CONFIG_BYTES_MAX, &subject->config));
    if (!tt_json_is_object(subject->config.root))
        return tt_fail(TT_ERR_DATA, "%s must hold one object", subject->path);
    subject->is_model = tt_json_get(subject->config.root, "peft_type") == NULL;
    subject->kind = subject->is_model ? "configuration of a model" : "configuration of a PEFT adapter";
    return TT_OK;
}

static tt_status subject_open(struct subject *subject)
{
    if (!tt_path_exists(subject->path)) {
        TT_TRY(tt_hub_locate(subject->path, NULL, "model", &subject->located));
        subject->path = subject->located;
    }
    if (!tt_path_is_dir(subject->path)) {
        if (tt_ends_with(subject->path, ".json")) return open_config_file(subject);
        bool pickled;
        TT_TRY(tt_weights_open(subject->path, &subject->file, &pickled));
        subject->kind = pickled ? "weights of torch.save" : "safetensors file";
        return list_file(subject);
    }
    struct tt_path adapter;
    TT_TRY(tt_path_set(&adapter, subject->path, "adapter_config.json"));
    return tt_path_exists(adapter.text) ? open_adapter(subject) : open_folder(subject);
}

static double element_count(const struct tt_safetensors_entry *entry)
{
    double count = 1;
    for (int i = 0; i < entry->rank; i++) count *= (double)entry->dims[i];
    return count;
}

/* Sums over the tensors of one group or type. */
struct tally {
    const char *name;
    size_t tensors;
    double parameters, bytes;
};

enum { TALLY_MAX = 40 };

static void tally_add(struct tally *tallies, const char *name, const struct tt_safetensors_entry *entry)
{
    int i = 0;
    while (i < TALLY_MAX - 1 && tallies[i].name != NULL && strcmp(tallies[i].name, name) != 0) i++;
    tallies[i].name = i < TALLY_MAX - 1 ? name : "other";
    tallies[i].tensors++;
    tallies[i].parameters += element_count(entry);
    tallies[i].bytes += (double)entry->bytes;
}

struct sums {
    struct tally groups[TALLY_MAX], types[TALLY_MAX], all;
};

static void sum_up(const struct subject *subject, struct sums *sums)
{
    *sums = (struct sums){.all = {.name = "all"}};
    for (size_t i = 0; i < subject->count; i++) {
        const struct tt_safetensors_entry *entry = subject->entries[i];
        tally_add(sums->groups, tt_module_group(entry->name), entry);
        tally_add(sums->types, entry->dtype_name, entry);
        sums->all.tensors++;
        sums->all.parameters += element_count(entry);
        sums->all.bytes += (double)entry->bytes;
    }
}

/* Facts from config.json or adapter_config.json, as a list of pairs; the caller owns it. */
static struct tt_json_value *collect_facts(const struct subject *subject)
{
    static const char *const model_keys[] = {"model_type",
                                             "architectures",
                                             "hidden_size",
                                             "intermediate_size",
                                             "num_hidden_layers",
                                             "num_attention_heads",
                                             "num_key_value_heads",
                                             "head_dim",
                                             "vocab_size",
                                             "max_position_embeddings",
                                             "tie_word_embeddings",
                                             "dtype",
                                             "torch_dtype",
                                             "num_labels",
                                             "id2label",
                                             "problem_type",
                                             NULL};
    static const char *const adapter_keys[] = {"peft_type",
                                               "base_model_name_or_path",
                                               "r",
                                               "lora_alpha",
                                               "lora_dropout",
                                               "use_rslora",
                                               "target_modules",
                                               "target_parameters",
                                               "modules_to_save",
                                               "rank_pattern",
                                               "alpha_pattern",
                                               NULL};
    const struct tt_json_value *root =
        subject->folder != NULL ? tt_model_folder_config(subject->folder)->root : subject->config.root;
    struct tt_json_value *facts = tt_json_new_object();
    if (facts == NULL || root == NULL) return facts;
    bool is_model = subject->folder != NULL || subject->is_model;
    const struct tt_json_value *text = is_model ? tt_json_get(root, "text_config") : NULL;
    for (const char *const *key = is_model ? model_keys : adapter_keys; *key != NULL; key++) {
        const struct tt_json_value *value = tt_json_get(root, *key);
        if (value == NULL && tt_json_is_object(text)) value = tt_json_get(text, *key);
        if (value != NULL && !tt_json_is_null(value)) tt_json_set_copy(facts, *key, value);
    }
    return facts;
}

static tt_status write_dims(struct tt_str *text, const struct tt_safetensors_entry *entry)
{
    TT_TRY(tt_str_append_char(text, '['));
    for (int i = 0; i < entry->rank; i++)
        TT_TRY(tt_str_printf(text, i > 0 ? ", %lld" : "%lld", (long long)entry->dims[i]));
    return tt_str_append_char(text, ']');
}

static tt_status write_tallies(struct tt_str *text, const char *heading, const struct tally *tallies)
{
    char bytes[32];
    if (tallies[0].name == NULL) return TT_OK;
    TT_TRY(tt_str_printf(text, "\n%-16s %8s %18s %12s\n", heading, "tensors", "parameters", "size"));
    for (int i = 0; i < TALLY_MAX && tallies[i].name != NULL; i++)
        TT_TRY(tt_str_printf(text, "%-16s %8zu %18.0f %12s\n", tallies[i].name, tallies[i].tensors,
                             tallies[i].parameters, tt_format_bytes(tallies[i].bytes, bytes, sizeof bytes)));
    return TT_OK;
}

/* Whether this program supports the model; if so by which part of its class, if not why. */
struct verdict {
    bool asked, yes; /* not asked: no model */
    const struct tt_text_part *part;
    size_t left_alone;
    int64_t parameters, active; /* of a model with experts: all, those of a token; 0: there are none */
    struct tt_error error;
};

static tt_status count_active(const struct tt_model_facts *facts, struct verdict *verdict)
{
    const struct tt_model_options options = {.compute_dtype = TT_BF16, .random_init = true};
    struct tt_model *model = NULL;
    bool experts = false;
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) experts |= facts->layers[i].experts;
    if (!experts) return TT_OK;
    TT_TRY(tt_model_create(facts, &options, &model));
    verdict->parameters = model->base_param_count;
    verdict->active = tt_model_active_count(model);
    tt_model_destroy(model);
    return TT_OK;
}

static tt_status judge(const struct subject *subject, struct verdict *verdict)
{
    *verdict = (struct verdict){.asked = subject->folder != NULL || subject->is_model};
    if (!verdict->asked) return TT_OK;
    struct tt_model_facts *config = tt_calloc(1, sizeof *config);
    if (config == NULL) return TT_ERR_MEMORY;
    tt_status status = subject->folder != NULL ? tt_model_facts_of_folder(subject->folder, config)
                                               : tt_model_facts_parse(&subject->config, config);
    verdict->part = config->part;
    if (status == TT_OK) status = count_active(config, verdict);
    tt_free(config);
    struct tt_model_folder *whole = NULL; /* opened for its error if no weights were found */
    if (status == TT_OK && subject->folder != NULL && subject->count == 0)
        status = tt_model_folder_open(subject->path, true, &whole);
    tt_model_folder_close(whole);
    if (status == TT_ERR_MEMORY) return status;
    verdict->yes = status == TT_OK;
    if (subject->folder != NULL) verdict->left_alone = tt_model_folder_left_alone(subject->folder);
    if (verdict->yes) return TT_OK;
    verdict->error = *tt_error_last();
    tt_error_clear();
    return TT_OK;
}

static tt_status write_active(struct tt_str *text, const struct verdict *verdict)
{
    if (verdict->active == 0) return TT_OK;
    return tt_str_printf(text, "  active parameters       %lld of %lld, for each token\n",
                         (long long)verdict->active, (long long)verdict->parameters);
}

static tt_status write_supported(struct tt_str *text, const struct subject *subject)
{
    struct verdict verdict;
    TT_TRY(judge(subject, &verdict));
    const struct tt_text_part *part = verdict.part;
    if (!verdict.asked) return TT_OK;
    if (!verdict.yes) {
        TT_TRY(tt_str_printf(text, "  supported               no: %s\n", verdict.error.message));
        if (verdict.error.hint[0] == '\0') return TT_OK;
        return tt_str_printf(text, "    hint: %s\n", verdict.error.hint);
    }
    if (part == NULL) {
        TT_TRY(tt_str_append_text(text, "  supported               yes\n"));
        return write_active(text, &verdict);
    }
    TT_TRY(tt_str_printf(text, "  supported               the text part, '%s'\n", part->path));
    TT_TRY(write_active(text, &verdict));
    return tt_str_printf(text, "  left alone              %zu tensors of the %s\n", verdict.left_alone,
                         part->what);
}

static tt_status write_facts(struct tt_str *text, const struct subject *subject)
{
    const char *key;
    const struct tt_json_value *value;
    struct tt_json_value *facts = collect_facts(subject);
    tt_status status = facts != NULL ? TT_OK : tt_fail(TT_ERR_MEMORY, "out of memory while listing facts");
    struct tt_str one = {0};
    for (size_t member = 0; tt_json_next_member(facts, &member, &key, &value);) {
        tt_str_clear(&one);
        if (status != TT_OK) break;
        status = tt_json_is_string(value) ? tt_value_write_comment(tt_json_text(value), &one)
                                          : tt_json_write(value, 0, false, &one);
        if (status == TT_OK) status = tt_str_printf(text, "  %-24s%s\n", key, tt_str_text(&one));
    }
    tt_str_deinit(&one);
    tt_json_release(facts);
    return status;
}

static tt_status write_report(struct tt_str *text, const struct subject *subject, bool list)
{
    struct sums sums;
    char bytes[32];
    sum_up(subject, &sums);
    TT_TRY(tt_str_printf(text, "%s: %s\n", subject->path, subject->kind));
    TT_TRY(write_facts(text, subject));
    TT_TRY(write_supported(text, subject));
    TT_TRY(tt_str_printf(text, "  %zu tensors, %.0f parameters, %s\n", sums.all.tensors, sums.all.parameters,
                         tt_format_bytes(sums.all.bytes, bytes, sizeof bytes)));
    TT_TRY(write_tallies(text, "part", sums.groups));
    TT_TRY(write_tallies(text, "type", sums.types));
    if (!list) return TT_OK;
    TT_TRY(tt_str_append_char(text, '\n'));
    for (size_t i = 0; i < subject->count; i++) {
        TT_TRY(tt_str_printf(text, "%-6s ", subject->entries[i]->dtype_name));
        TT_TRY(tt_value_write_comment(subject->entries[i]->name, text));
        TT_TRY(tt_str_append_char(text, ' '));
        TT_TRY(write_dims(text, subject->entries[i]));
        TT_TRY(tt_str_append_char(text, '\n'));
    }
    return TT_OK;
}

static struct tt_json_value *tallies_to_json(const struct tally *tallies)
{
    struct tt_json_value *object = tt_json_new_object();
    for (int i = 0; i < TALLY_MAX && tallies[i].name != NULL; i++)
        tt_json_set(object, tallies[i].name,
                    tt_json_pack("{s:I,s:I,s:I}", "tensors", (int64_t)tallies[i].tensors, "parameters",
                                 (int64_t)tallies[i].parameters, "bytes", (int64_t)tallies[i].bytes));
    return object;
}

static struct tt_json_value *tensors_to_json(const struct subject *subject)
{
    struct tt_json_value *object = tt_json_new_object();
    for (size_t i = 0; i < subject->count; i++) {
        const struct tt_safetensors_entry *entry = subject->entries[i];
        struct tt_json_value *shape = tt_json_new_list();
        for (int d = 0; d < entry->rank; d++) tt_json_append(shape, tt_json_new_integer(entry->dims[d]));
        tt_json_set(object, entry->name,
                    tt_json_pack("{s:s,s:o,s:I}", "dtype", entry->dtype_name, "shape", shape, "bytes",
                                 (int64_t)entry->bytes));
    }
    return object;
}

static tt_status write_json(struct tt_str *text, const struct subject *subject, bool list)
{
    struct sums sums;
    struct verdict verdict;
    TT_TRY(judge(subject, &verdict));
    sum_up(subject, &sums);
    struct tt_json_value *root =
        tt_json_pack("{s:s,s:s,s:o,s:I,s:I,s:I,s:o,s:o}", "path", subject->path, "kind", subject->kind,
                     "config", collect_facts(subject), "tensors", (int64_t)sums.all.tensors, "parameters",
                     (int64_t)sums.all.parameters, "bytes", (int64_t)sums.all.bytes, "parts",
                     tallies_to_json(sums.groups), "types", tallies_to_json(sums.types));
    if (list) tt_json_set(root, "list", tensors_to_json(subject));
    if (verdict.asked) tt_json_set(root, "supported", tt_json_new_bool(verdict.yes));
    if (verdict.active > 0) tt_json_set(root, "active_parameters", tt_json_new_integer(verdict.active));
    if (verdict.part != NULL) tt_json_set(root, "text_part", tt_json_new_string(verdict.part->path));
    if (verdict.asked && !verdict.yes) tt_json_set(root, "reason", tt_json_new_string(verdict.error.message));
    tt_status status = tt_json_write(root, 2, false, text);
    tt_json_release(root);
    return status == TT_OK ? tt_str_append_char(text, '\n') : status;
}

/* Other commands' names for a path that inspect accepts. */
static bool is_path_flag(const char *word)
{
    return strcmp(word, "--model_name_or_path") == 0 || strcmp(word, "--adapter_name_or_path") == 0;
}

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    int argc = call->argc;
    char *const *argv = call->argv;
    struct subject subject = {0};
    struct tt_str text = {0};
    bool json = false, list = false;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (strcmp(argv[i], "--tensors") == 0)
            list = true;
        else if (is_path_flag(argv[i]) && i + 1 < argc && subject.path == NULL)
            subject.path = argv[++i];
        else if (argv[i][0] == '-' || subject.path != NULL)
            return tt_fail(TT_ERR_USAGE, "inspect takes one path, --json and --tensors, not '%.100s'",
                           argv[i]);
        else
            subject.path = argv[i];
    }
    if (subject.path == NULL) {
        tt_status status = tt_fail(TT_ERR_USAGE, "inspect needs a path");
        tt_hint("name a model folder, an adapter folder, a file of weights or a config.json");
        return status;
    }
    tt_status status = subject_open(&subject);
    if (status == TT_OK)
        status = json ? write_json(&text, &subject, list) : write_report(&text, &subject, list);
    if (status == TT_OK) status = tt_report_print_wrapped(cli->report, tt_str_text(&text), json ? -1 : 24);
    subject_close(&subject);
    tt_str_deinit(&text);
    return status;
}

const struct tt_command_ops tt_cmd_inspect = {
    .usage = " PATH [--json] [--tensors]\n\n"
             "PATH is a model folder, a PEFT adapter folder, a safetensors file, a .pth or "
             ".bin file\nof torch.save, or a config.json; also as --model_name_or_path PATH or "
             "--adapter_name_or_path PATH.\n"
             "--json prints one JSON object; --tensors also lists every tensor.",
    .run = run,
};
