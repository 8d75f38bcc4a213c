#include "job/language_inputs.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hub_cache.h"
#include "base/log.h"
#include "checkpoint/unread.h"
#include "data/cache.h"
#include "data/row_flow.h"
#include "data/stream.h"
#include "job/data_files.h"
#include "job/data_key.h"
#include "job/eval_sets.h"
#include "job/spec.h"
#include "model/adapter_config.h"

/* Reads an adapter whose folder and first settings are there. */
static tt_status read_adapter(const struct tt_inputs *inputs, const double *dropout, struct tt_arena *arena,
                              struct tt_inputs_adapter *adapter)
{
    TT_TRY(tt_adapter_config_read(adapter->folder, arena, &adapter->lora));
    if (dropout != NULL) adapter->lora.dropout = *dropout;
    adapter->lora.save_embedding_layers = inputs->model_options.lora.save_embedding_layers;
    TT_TRY(tt_adapter_config_check(&adapter->lora, &inputs->model_facts));
    return tt_adapter_open_for(adapter->folder, &inputs->model_facts, &adapter->lora, &adapter->file);
}

tt_status tt_inputs_open_adapter(const struct tt_inputs *inputs, const char *folder, struct tt_arena *arena,
                                 struct tt_inputs_adapter *adapter)
{
    char *path = tt_arena_strndup(arena, folder, strlen(folder));
    if (path == NULL) return TT_ERR_MEMORY;
    *adapter = (struct tt_inputs_adapter){.name = tt_path_basename(path), .folder = path};
    tt_status status = read_adapter(inputs, NULL, arena, adapter);
    if (status != TT_OK) tt_while("opening the adapter '%s'", folder);
    return status;
}

static tt_status open_adapter(const struct tt_inputs_config *config, const char *given,
                              struct tt_inputs *inputs)
{
    tt_status status = TT_OK;
    struct tt_inputs_adapter *adapter = &inputs->adapters[inputs->adapter_count++];
    const double dropout = inputs->model_options.lora.dropout;
    adapter->name = tt_path_basename(given);
    TT_GO(tt_hub_locate(given, NULL, "adapter", &adapter->folder));
    adapter->lora = inputs->model_options.lora;
    TT_GO(read_adapter(inputs, config->sets_dropout ? &dropout : NULL, &inputs->arena, adapter));
    if (config->use == TT_INPUTS_TRAIN)
        tt_info(
            "the adapter '%s' has its own rank (%lld), alpha (%g) and targets; the lora_* settings of the "
            "run are ignored%s",
            adapter->folder, (long long)adapter->lora.r, adapter->lora.alpha,
            config->sets_dropout ? ", lora_dropout excepted" : "");
out:
    if (status != TT_OK) tt_while("opening the adapter '%s'", given);
    return status;
}

static tt_status check_adapter_names(const struct tt_inputs *inputs)
{
    for (size_t i = 0; i < inputs->adapter_count; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(inputs->adapters[i].name, inputs->adapters[j].name) == 0)
                return tt_fail(TT_ERR_USAGE, "two adapters have the name '%s', the last part of their paths",
                               inputs->adapters[i].name);
    return TT_OK;
}

/* A name with commas is a list where the model generates, unless there is a folder of that name. Blanks around a path
 * and slashes behind it do not count. */
static tt_status open_adapters(const struct tt_inputs_config *config, struct tt_inputs *inputs)
{
    const char *given = config->model->adapter_name_or_path;
    if (given == NULL) return TT_OK;
    bool listed = config->use == TT_INPUTS_GENERATE && strchr(given, ',') != NULL && !tt_path_exists(given);
    size_t count = 1;
    for (const char *at = given; listed && *at != 0; at++) count += *at == ',';
    inputs->adapters = tt_calloc(count, sizeof *inputs->adapters);
    if (inputs->adapters == NULL) return TT_ERR_MEMORY;
    for (const char *at = given; inputs->adapter_count < count;) {
        size_t blank = listed ? strspn(at, " ") : 0, bytes = listed ? strcspn(at, ",") : strlen(at);
        const char *next = at + bytes + 1;
        bytes -= blank;
        at += blank;
        while (listed && bytes > 0 && at[bytes - 1] == ' ') bytes--;
        while (bytes > 1 && at[bytes - 1] == '/') bytes--;
        const char *path = tt_arena_strndup(&inputs->arena, at, bytes);
        if (path == NULL) return TT_ERR_MEMORY;
        if (bytes == 0) return tt_fail(TT_ERR_USAGE, "adapter_name_or_path '%s' has an empty part", given);
        TT_TRY(open_adapter(config, path, inputs));
        at = next;
    }
    TT_TRY(check_adapter_names(inputs));
    inputs->adapter = inputs->adapters[0].file;
    inputs->adapter_folder = inputs->adapters[0].folder;
    inputs->model_options.lora = inputs->adapters[0].lora;
    return TT_OK;
}

struct tt_lora_config tt_inputs_reserved_lora(int64_t rank)
{
    return (struct tt_lora_config){.enabled = true,
                                   .from_adapter = true,
                                   .r = rank,
                                   .alpha = (double)rank,
                                   .target_modules = "all-linear"};
}

/* Several adapters, and those that may come, lie side by side (infer/adapter_set.h). */
static tt_status place_adapters(const struct tt_model_spec *model, struct tt_inputs *inputs)
{
    struct tt_model_options *options = &inputs->model_options;
    size_t known = inputs->adapter_count, count = 0;
    if (model->adapter_places > 0 && (size_t)model->adapter_places < known)
        return tt_fail(TT_ERR_USAGE, "max_loras %lld is less than the %zu adapters that are given",
                       (long long)model->adapter_places, known);
    if (model->adapter_places == 0 && known < 2) return TT_OK;
    struct tt_lora_config *more = tt_arena_alloc(&inputs->arena, (known + 1) * sizeof *more);
    if (more == NULL) return TT_ERR_MEMORY;
    for (size_t i = 1; i < known; i++) more[count++] = inputs->adapters[i].lora;
    if (model->adapter_places > 0 && known > 0) more[count++] = tt_inputs_reserved_lora(model->adapter_rank);
    if (known == 0) options->lora = tt_inputs_reserved_lora(model->adapter_rank);
    options->more_lora = more;
    options->more_lora_count = count;
    options->adapter_places = model->adapter_places > 0 ? model->adapter_places : (int64_t)known;
    return TT_OK;
}

static tt_status open_tokenizer(struct tt_inputs *inputs)
{
    struct tt_path path;
    if (inputs->tokenizer != NULL) return TT_OK;
    TT_TRY(tt_path_set(&path, tt_model_folder_path(inputs->folder), "tokenizer.json"));
    /* pre-tokenized rows need none; others are refused by the data layer */
    if (!tt_path_exists(path.text)) return TT_OK;
    TT_TRY(tt_tokenizer_load(tt_model_folder_path(inputs->folder), &inputs->tokenizer));
    int64_t ids = tt_tokenizer_vocab_size(inputs->tokenizer), rows = inputs->model_facts.vocab_size;
    if (ids > rows)
        tt_warn(
            "the tokenizer has %lld ids, the model %lld embeddings: rows with ids beyond the embeddings are "
            "refused",
            (long long)ids, (long long)rows);
    return TT_OK;
}

/* The files that the templates are stored as, for names that transformers would find there. */
static tt_status name_templates(struct tt_inputs *inputs)
{
    size_t count = inputs->templates.template_count, more = inputs->new_tokens.file_count;
    inputs->template_files =
        tt_arena_alloc(&inputs->arena, (count + more + 1) * sizeof *inputs->template_files);
    if (inputs->template_files == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < more; i++) inputs->template_files[count + i] = inputs->new_tokens.files[i];
    inputs->template_file_count = count + more;
    for (size_t i = 0; i < count; i++) {
        const struct tt_chat_template *template = &inputs->templates.templates[i];
        char name[256] = "chat_template.jinja";
        if (template->name[0] == '.' || strlen(template->name) > 200 || strchr(template->name, '/') != NULL)
            return tt_fail(TT_ERR_DATA, "%s: a chat template named '%.200s' cannot be stored as a file",
                           template->path, template->name);
        if (strcmp(template->name, "default") != 0)
            snprintf(name, sizeof name, "additional_chat_templates/%s.jinja", template->name);
        inputs->template_files[i] =
            (struct tt_save_template){tt_arena_strndup(&inputs->arena, name, strlen(name)), template->text};
        if (inputs->template_files[i].name == NULL) return TT_ERR_MEMORY;
    }
    return TT_OK;
}

/* Chat templates that replace the model folder's: of the settings, else of the adapter. They are stored with the
 * result, so links that leave their folder are refused. */
static tt_status open_templates(const struct tt_inputs_config *config, struct tt_inputs *inputs)
{
    const char *given = config->data != NULL ? config->data->chat_template_path : NULL;
    const char *text = config->data != NULL ? config->data->chat_template : NULL;
    if (text != NULL && given != NULL)
        return tt_fail(TT_ERR_USAGE, "chat_template and chat_template_path are both given");
    if (text != NULL) {
        TT_TRY(tt_chat_files_take_text(text, &inputs->templates));
        return name_templates(inputs);
    }
    const char *path = given != NULL ? given : inputs->adapter_folder;
    if (path == NULL) return name_templates(inputs);
    if (tt_path_is_dir(path)) TT_TRY(tt_model_folder_check_copied(path, false));
    TT_TRY(given != NULL ? tt_chat_files_take_template(path, &inputs->templates)
                         : tt_chat_files_add_templates(path, &inputs->templates));
    if (inputs->templates.template_count > 0) inputs->template_path = path;
    return name_templates(inputs);
}

static tt_status open_model(const struct tt_inputs_config *config, struct tt_inputs *inputs)
{
    bool random = config->model->init == TT_INIT_RANDOM, weightless = random || config->use == TT_INPUTS_DATA;
    char *folder = NULL;
    TT_TRY(tt_hub_locate(config->model->model_name_or_path, config->model->model_revision, "model", &folder));
    tt_status status = tt_model_folder_open(folder, !weightless, &inputs->folder);
    if (status != TT_OK && strcmp(folder, config->model->model_name_or_path) != 0)
        tt_hint("a download may be incomplete: trimtab download %s", config->model->model_name_or_path);
    tt_free(folder);
    if (status != TT_OK) return status;
    TT_TRY(tt_model_facts_for(inputs->folder, &config->model->scores, &inputs->model_facts));
    TT_TRY(tt_model_facts_balance(&inputs->model_facts, config->model->router_aux_loss_coef));
    TT_TRY(tt_model_folder_join(inputs->folder, &inputs->model_facts.sources));
    TT_TRY(tt_new_tokens_open(config, !weightless, inputs));
    if (!weightless) {
        TT_TRY(tt_quantization_inspect(inputs->folder, &inputs->arena, &inputs->model_facts));
        TT_TRY(tt_tied_head_compare(inputs->folder, &config->share, &inputs->model_facts,
                                    &inputs->head_differs));
        if (config->share.all == 0) tt_inputs_settle(inputs, inputs->head_differs);
    }
    inputs->model_options = tt_job_model_options(config->model, config->lora, config->device, random);
    inputs->model_options.lora.new_tokens = inputs->new_tokens.ids.data;
    inputs->model_options.lora.new_count = (int64_t)inputs->new_tokens.ids.count;
    TT_TRY(tt_quantization_resolve(config->quantization, &inputs->model_facts,
                                   inputs->model_options.compute_dtype, &inputs->model_options.quant));
    TT_TRY(open_adapters(config, inputs));
    TT_TRY(place_adapters(config->model, inputs));
    inputs->source = (struct tt_load_source){
        .folder = random ? NULL : inputs->folder,
        /* infer/adapter_set.h loads those that have places */
        .adapter = inputs->model_options.adapter_places == 0 ? inputs->adapter : NULL,
        .seed = (uint64_t)config->seed,
        .share = config->share,
    };
    return TT_OK;
}

tt_status tt_inputs_inspect(const struct tt_model_folder *folder, struct tt_arena *arena,
                            struct tt_model_facts *facts)
{
    TT_TRY(tt_quantization_inspect(folder, arena, facts));
    return tt_tied_head_inspect(folder, facts);
}

int64_t tt_inputs_max_length(const struct tt_data_config *data, const struct tt_model_facts *model)
{
    if (data->max_length == 0) return model->max_position_embeddings;
    if (data->max_length <= model->max_position_embeddings) return data->max_length;
    tt_warn("max_length %lld is more than the model's %lld positions; longer rows are handled as "
            "over-length",
            (long long)data->max_length, (long long)model->max_position_embeddings);
    return model->max_position_embeddings;
}

int64_t tt_inputs_pack_length(const struct tt_inputs *inputs, const struct tt_data_config *data)
{
    bool streams = data->packing_strategy == TT_PACKING_WRAPPED && data->max_length > 0;
    return streams ? inputs->max_length : data->max_length;
}

/* Adds the hint how to export a data set of the hub to a file of rows. */
static tt_status hint_at_export(tt_status status, const char *name, const char *split)
{
    if (tt_path_is_dir(name))
        tt_hint("for files of other names give one of them, or a pattern such as '%s/*.jsonl'; the split is "
                "chosen by "
                "dataset_train_split and dataset_test_split",
                name);
    else if (tt_hub_is_name(name) && !tt_data_files_has_ending(name))
        tt_hint(
            "rows are read from local .jsonl, .json, .csv, .txt or .parquet files; a data set of the hub is "
            "exported with: "
            "python -c \"from datasets import load_dataset; load_dataset('%s', "
            "split='%.40s').to_json('%.40s.jsonl')\"",
            name, split, split);
    return status;
}

/* Adds the files of a data set; none where a folder has no such split. */
static tt_status add_source(struct tt_sources *sources, const struct tt_mixture_entry *named)
{
    tt_status status = tt_data_files_add(sources, named);
    if (status == TT_ERR_DATA && !tt_path_exists(named->path))
        return hint_at_export(status, named->path, named->split);
    return status;
}

static tt_status add_entry(const struct tt_mixture_entry *entry, size_t index, struct tt_sources *sources)
{
    size_t before = sources->file_count;
    TT_TRY(add_source(sources, entry));
    if (sources->file_count > before) return TT_OK;
    return tt_fail(TT_ERR_DATA, "datasets[%zu]: '%s' has no files of rows for the split '%s'", index,
                   entry->path, entry->split);
}

static tt_status add_mixture(const char *text, const char *split, bool streams, struct tt_sources *sources)
{
    struct tt_json json = {0};
    tt_status status = TT_OK;
    TT_GO(tt_json_parse(text, strlen(text), "datasets", &json));
    if (!tt_json_is_list(json.root) || tt_json_count(json.root) == 0)
        TT_GO(tt_fail(TT_ERR_USAGE, "'datasets' must be a list of {path, weight}"));
    for (size_t i = 0; i < tt_json_count(json.root); i++) {
        struct tt_mixture_entry entry;
        TT_GO(tt_mixture_read(json.root, i, &entry));
        if (entry.split == NULL) entry.split = split;
        entry.streams = streams;
        TT_GO(add_entry(&entry, i, sources));
    }
    status = tt_sources_check(sources);
out:
    tt_json_deinit(&json);
    return status;
}

/* A small weight of few rows is no row. */
static void warn_of_unused(const struct tt_dataset *dataset, const struct tt_sources *files)
{
    size_t count;
    const struct tt_dataset_part *parts = tt_dataset_parts(dataset, &count);
    for (size_t i = 0; i < count; i++) {
        const struct tt_source *source = &files->sources[parts[i].source];
        if (parts[i].report.samples == 0)
            tt_warn("no row of '%s' is used: %g times its %lld rows is less than half a row", source->name,
                    source->weight, (long long)parts[i].report.rows);
    }
}

/* The settings as rows are read by them. */
static struct tt_data_config limit(const struct tt_inputs *inputs, const struct tt_data_config *data,
                                   bool packs)
{
    struct tt_data_config limited = *data;
    limited.packing = packs;
    limited.max_length_of_model = data->max_length == 0;
    limited.max_length = inputs->max_length;
    limited.chat_template_path = inputs->template_path;
    limited.text_part = inputs->model_facts.part != NULL;
    return limited;
}

static tt_status open_stream(const struct tt_data_config *data, struct tt_inputs *inputs)
{
    inputs->streamed = tt_calloc(1, sizeof *inputs->streamed);
    if (inputs->streamed == NULL) return TT_ERR_MEMORY;
    inputs->streamed->data = limit(inputs, data, data->packing);
    return tt_sources_sum(&inputs->train_files, &inputs->streamed->sum, &inputs->streamed->bytes);
}

static tt_status load_dataset(const struct tt_inputs *inputs, const struct tt_data_config *data, bool packs,
                              const struct tt_sources *files, int64_t max_samples, uint64_t seed,
                              struct tt_dataset **out, double *seconds)
{
    tt_status status = TT_OK;
    const struct tt_data_config limited = limit(inputs, data, packs);
    struct tt_str key = {0};
    double start = tt_clock_seconds();
    bool keeps = data->prepared_path != NULL, hit = false;
    const struct tt_dataset_request request = {
        files, &limited, inputs->tokenizer, inputs->model_facts.vocab_size, max_samples, seed};
    const struct tt_data_key_source source = {&limited,
                                              tt_model_folder_path(inputs->folder),
                                              &inputs->templates,
                                              inputs->new_tokens.files,
                                              inputs->new_tokens.file_count,
                                              inputs->dated};
    if (keeps) TT_GO(tt_data_key_make(&source, &key, &keeps));
    if (data->prepared_path != NULL && !keeps)
        tt_notice("the chat template prints the date, which is that of this run: its tokenized rows are not "
                  "kept for "
                  "others unless 'date' is given");
    const struct tt_dataset_cache cache = {data->prepared_path, tt_str_text(&key), TT_DATA_KEY_RULES};
    TT_GO(keeps ? tt_dataset_load_cached(&cache, &request, out, &hit)
                : tt_dataset_load_sources(&request, out));
    warn_of_unused(*out, files);
    *seconds = hit ? 0 : tt_clock_seconds() - start;
out:
    tt_str_deinit(&key);
    return status;
}

static tt_status load_train(const struct tt_inputs_config *config, struct tt_inputs *inputs)
{
    const struct tt_data_config *data = config->data;
    struct tt_mixture_entry named = tt_data_files_named(data, data->dataset_train_split);
    const bool streams = named.streams = data->streaming && config->use == TT_INPUTS_TRAIN;
    bool held_out = config->evaluates && tt_data_holds_out(data);
    bool packs = data->packing || (held_out && tt_data_packs_eval(data));
    if (data->dataset_name == NULL && data->datasets == NULL) {
        (void)tt_fail(TT_ERR_USAGE, "no training data");
        tt_hint("give a file with --dataset_name train.jsonl, or a folder that holds train.jsonl");
        return TT_ERR_USAGE;
    }
    if (data->datasets != NULL)
        TT_TRY(add_mixture(data->datasets, data->dataset_train_split, streams, &inputs->train_files));
    else
        TT_TRY(add_source(&inputs->train_files, &named));
    if (inputs->train_files.file_count == 0)
        return hint_at_export(tt_fail(TT_ERR_USAGE, "'%s' has no %s.jsonl, .json, .csv, .txt or .parquet",
                                      data->dataset_name, data->dataset_train_split),
                              data->dataset_name, data->dataset_train_split);
    if (streams) return open_stream(data, inputs);
    tt_status status = load_dataset(inputs, data, packs, &inputs->train_files, data->max_train_samples,
                                    (uint64_t)config->seed, &inputs->train, &inputs->train_seconds);
    if (status == TT_OK && data->shuffle_dataset)
        status = tt_dataset_shuffle(inputs->train, (uint64_t)config->seed);
    return status;
}

/* A source with a weight above 1 has copies of its rows: those of a held out row must not train. */
static bool has_copies(const struct tt_sources *sources)
{
    for (size_t i = 0; i < sources->count; i++)
        if (sources->sources[i].weight > 1) return true;
    return false;
}

/* Both sides of a split were loaded alike, as a stream where one of them is packed as one. */
static tt_status part_streams(const struct tt_data_config *data, struct tt_inputs *inputs)
{
    struct tt_data_config limited = *data;
    bool eval_packs = tt_data_packs_eval(data);
    limited.max_length = inputs->max_length;
    if (data->packing_strategy != TT_PACKING_WRAPPED || data->packing == eval_packs) return TT_OK;
    return eval_packs ? tt_stream_part(inputs->train, &limited, "training data")
                      : tt_stream_part(inputs->eval, &limited, "evaluation data");
}

/* The reports have the supervised tokens that are left at the cuts of the streams. */
static void count_streams(const struct tt_data_config *data, struct tt_inputs *inputs)
{
    struct tt_data_config eval = *data;
    eval.packing = tt_data_packs_eval(data);
    if (inputs->max_length < 1) return;
    if (inputs->train != NULL && tt_data_streams(data)) tt_stream_count(inputs->train, inputs->max_length);
    if (inputs->eval != NULL && tt_data_streams(&eval)) tt_stream_count(inputs->eval, inputs->max_length);
}

static tt_status hold_out(const struct tt_inputs_config *config, struct tt_inputs *inputs)
{
    double size = config->data->eval_split_size;
    double rows = (double)(tt_dataset_count(inputs->train) / tt_dataset_group_size(inputs->train));
    if (config->data->sample_per_turn) {
        (void)tt_fail(TT_ERR_USAGE,
                      "eval_split_size would hold out samples of conversations whose other turns train "
                      "(sample_per_turn)");
        tt_hint("give conversations of their own: --eval_dataset FILE");
        return TT_ERR_USAGE;
    }
    size_t count = (size_t)(size < 1.0 ? size * rows + 0.5 : size);
    if (count < 1 || (double)count >= rows)
        return tt_fail(TT_ERR_USAGE, "eval_split_size %g of %.0f rows leaves no rows on one side", size,
                       rows);
    TT_TRY(tt_dataset_split(inputs->train, count, (uint64_t)config->seed, has_copies(&inputs->train_files),
                            &inputs->eval));
    return part_streams(config->data, inputs);
}

/* A source with the name of the set. */
static tt_status add_set(void *context, const char *name, const struct tt_mixture_entry *set)
{
    struct tt_sources *sources = context;
    size_t before = sources->count;
    TT_TRY(add_source(sources, set));
    if (sources->count == before)
        return tt_fail(TT_ERR_DATA,
                       "eval_dataset: '%s' of the set '%s' has no files of rows for the split '%s'",
                       set->path, name, set->split);
    char *own = tt_strdup(name);
    if (own == NULL) return TT_ERR_MEMORY;
    tt_free(sources->sources[before].name);
    sources->sources[before].name = own;
    return TT_OK;
}

/* Sets of one name each; max_eval_samples is of each of them. */
static tt_status load_sets(const struct tt_inputs_config *config, struct tt_inputs *inputs)
{
    struct tt_data_config each = *config->data;
    each.max_source_samples = each.max_eval_samples;
    TT_TRY(tt_eval_sets_visit(config->data, add_set, &inputs->eval_files));
    TT_TRY(tt_sources_check(&inputs->eval_files));
    return load_dataset(inputs, &each, tt_data_packs_eval(&each), &inputs->eval_files, 0,
                        (uint64_t)config->seed, &inputs->eval, &inputs->eval_seconds);
}

/* Loads the evaluation data: eval_dataset, the folder's test split, or a share of the training rows, which an
 * evaluation without training loads for that. */
static tt_status load_eval(const struct tt_inputs_config *config, struct tt_inputs *inputs)
{
    const struct tt_data_config *data = config->data;
    const struct tt_mixture_entry named = tt_data_files_named(data, data->dataset_test_split),
                                  apart = {.path = data->eval_dataset,
                                           .split = data->dataset_test_split,
                                           .weight = 1};
    if (tt_data_holds_out(data)) {
        if (inputs->train != NULL) return hold_out(config, inputs);
        TT_TRY(load_train(config, inputs));
        TT_TRY(hold_out(config, inputs));
        tt_dataset_destroy(inputs->train);
        inputs->train = NULL;
        return TT_OK;
    }
    if (tt_eval_sets_are_named(data)) {
        tt_status loaded = load_sets(config, inputs);
        if (loaded != TT_OK) tt_while("loading the evaluation data");
        return loaded;
    }
    if (data->eval_dataset != NULL)
        TT_TRY(add_source(&inputs->eval_files, &apart));
    else if (config->use == TT_INPUTS_EVALUATE && data->datasets != NULL)
        TT_TRY(add_mixture(data->datasets, data->dataset_test_split, false, &inputs->eval_files));
    else if (data->dataset_name != NULL &&
             (config->use == TT_INPUTS_EVALUATE || tt_data_files_has_splits(data->dataset_name)))
        TT_TRY(add_source(&inputs->eval_files, &named));
    if (inputs->eval_files.file_count == 0) {
        (void)tt_fail(TT_ERR_USAGE, "evaluation is on, but there is no evaluation data");
        tt_hint("give --eval_dataset FILE, a folder with %s.jsonl as dataset_name, or --eval_split_size 0.05",
                data->dataset_test_split);
        return TT_ERR_USAGE;
    }
    tt_status status =
        load_dataset(inputs, data, tt_data_packs_eval(data), &inputs->eval_files, data->max_eval_samples,
                     (uint64_t)config->seed, &inputs->eval, &inputs->eval_seconds);
    if (status != TT_OK) tt_while("loading the evaluation data");
    return status;
}

tt_status tt_language_inputs_open(const struct tt_inputs_config *config, struct tt_inputs *inputs)
{
    TT_TRY(open_model(config, inputs));
    if (config->use == TT_INPUTS_TRAIN)
        TT_TRY(tt_model_folder_check_copied(tt_model_folder_path(inputs->folder),
                                            inputs->model_options.train_base));
    TT_TRY(open_tokenizer(inputs));
    TT_TRY(open_templates(config, inputs));
    if (config->data != NULL) inputs->max_length = tt_inputs_max_length(config->data, &inputs->model_facts);
    if (config->use == TT_INPUTS_TRAIN || config->use == TT_INPUTS_DATA) TT_TRY(load_train(config, inputs));
    if (config->evaluates) TT_TRY(load_eval(config, inputs));
    if (config->data != NULL) count_streams(config->data, inputs);
    return TT_OK;
}

tt_status tt_inputs_describe_data(const struct tt_dataset *dataset, const char *what, struct tt_str *text)
{
    struct tt_dataset_report report;
    tt_dataset_report(dataset, &report);
    char samples[48] = "";
    /* weights of a mixture, turns as samples, a text in pieces, the answers of preferences */
    if (report.samples > report.rows)
        snprintf(samples, sizeof samples, " in %lld samples", (long long)report.samples);
    TT_TRY(tt_str_printf(
        text, "%s: %lld rows%s, %lld tokens, %lld supervised (%.1f %%), longest row %lld", what,
        (long long)report.rows, samples, (long long)report.tokens, (long long)report.supervised_tokens,
        report.tokens > 0 ? 100.0 * (double)report.supervised_tokens / (double)report.tokens : 0.0,
        (long long)report.longest));
    if (report.truncated > 0)
        TT_TRY(tt_str_printf(text, "; %lld truncated to max_length", (long long)report.truncated));
    if (report.dropped > 0)
        TT_TRY(tt_str_printf(text, "; %lld too long and dropped", (long long)report.dropped));
    if (report.without_supervision > 0)
        TT_TRY(tt_str_printf(text, "; %lld without a supervised token, left out",
                             (long long)report.without_supervision));
    if (report.prompt_mismatch > 0)
        TT_TRY(tt_str_printf(text, "; %lld whose prompt tokenizes differently with its completion",
                             (long long)report.prompt_mismatch));
    if (report.roles_mapped > 0)
        TT_TRY(tt_str_printf(text, "; %lld with roles by other names (human: user, gpt: assistant, ...)",
                             (long long)report.roles_mapped));
    if (report.history_differs > 0)
        TT_TRY(tt_str_printf(text,
                             "; %lld with an earlier turn that the model would write differently (the chat "
                             "template shortens history)",
                             (long long)report.history_differs));
    for (size_t i = 0; i < TT_ROLES_MAX && report.roles[i].name[0] != '\0'; i++)
        TT_TRY(tt_str_printf(
            text, "; %lld with the role '%s', which is no usual one%s, the first in row %lld",
            (long long)report.roles[i].conversations, report.roles[i].name,
            report.roles[i].masked ? " and does not train" : "", (long long)report.roles[i].row));
    if (report.answer_empty > 0)
        TT_TRY(tt_str_printf(
            text,
            "; %lld with an assistant's message that says nothing, or whose tool calls the chat "
            "template leaves out, the first in row %lld",
            (long long)report.answer_empty, (long long)report.answer_empty_row));
    return TT_OK;
}
