#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/answer_grammar.h"
#include "cli/commands.h"
#include "comm/launcher.h"
#include "data/chat_row.h"
#include "data/row_reader.h"
#include "infer/generator.h"
#include "job/inputs.h"
#include "job/resolve.h"
#include "run/generate_run.h"

struct generate_command {
    struct tt_generate_spec spec; /* must be first: the offsets of its settings apply here */
    const char *prompt, *prompt_file, *messages, *chat_template_path, *date, *json_schema, *regex;
    bool json, stats;
};

#define OWN(member) .offset = offsetof(struct generate_command, member)

/* One row reads as one paragraph. */
/* clang-format off */
static const struct tt_setting own_settings[] = {
    {.name = "prompt", .type = TT_SETTING_STRING, OWN(prompt), .help = "The text to complete."},
    {.name = "prompt_file", .aliases = "prompts", .type = TT_SETTING_STRING, OWN(prompt_file), .path = TT_PATH_READ,
     .help = "A file with one prompt a line: text, or a JSON object with the key prompt. - means standard input, "
             "which is also read when no prompt is given."},
    {.name = "messages", .type = TT_SETTING_STRING, OWN(messages), .path = TT_PATH_READ,
     .help = "A conversation to answer instead of a prompt: a JSON list of messages or a row with messages and "
             "tools; or a file with one such row a line."},
    {.name = "chat_template_path", .type = TT_SETTING_STRING, OWN(chat_template_path), .path = TT_PATH_READ,
     .help = "Chat template of messages: a file, or the folder of a tokenizer; not given: the tokenizer's own."},
    {.name = "date", .type = TT_SETTING_STRING, OWN(date),
     .help = "Date that the chat template prints, YYYY-MM-DD or YYYY-MM-DD HH:MM:SS; not given: now."},
    {.name = "json_schema", .type = TT_SETTING_STRING, OWN(json_schema), .path = TT_PATH_READ,
     .help = "A file with a JSON Schema: completions are JSON that it has."},
    {.name = "regex", .type = TT_SETTING_STRING, OWN(regex),
     .help = "A regular expression that completions match as a whole."},
    {.name = "json", .type = TT_SETTING_BOOL, OWN(json), .default_text = "false", .transient = true,
     .help = "Print JSON lines with prompt and completion; always on with several prompts."},
    {.name = "stats", .type = TT_SETTING_BOOL, OWN(stats), .default_text = "false", .transient = true,
     .help = "Also print, as messages, the plan of the memory, and afterwards tokens per second and the memory that "
             "was used."},
    {.name = NULL},
};
/* clang-format on */

static size_t list_sections(struct tt_setting_section *sections)
{
    const struct tt_job_rows *rows = &tt_job_rows[TT_JOB_GENERATE];
    sections[0] = (struct tt_setting_section){"Prompts", own_settings, 0};
    for (size_t i = 0; i < rows->count; i++) sections[i + 1] = rows->sections[i];
    return rows->count + 1;
}

enum { PROMPTS_BYTES_MAX = 64 << 20 };

/* Prompts and their token ids. A zeroed struct is empty. */
struct prompts {
    struct tt_arena arena;
    const char **texts; /* [count], in the arena */
    /* [count], in the arena: the adapter that the prompt names; "": the base alone; NULL: none is named */
    const char **names;
    size_t count, capacity, name_capacity;
    int *adapters;      /* [count], of the names */
    struct tt_ids *ids; /* [count] */
    size_t longest;     /* tokens of the longest prompt */
    bool conversations; /* the texts are rows with messages until they are encoded */
    size_t answered;    /* conversations that end with an answer */
    const char *images; /* in the arena: place and column of the first row with images; NULL: there is none */
};

static void prompts_deinit(struct prompts *prompts)
{
    for (size_t i = 0; prompts->ids != NULL && i < prompts->count; i++) tt_ids_deinit(&prompts->ids[i]);
    tt_free(prompts->ids);
    tt_free(prompts->texts);
    tt_free(prompts->names);
    tt_free(prompts->adapters);
    tt_arena_deinit(&prompts->arena);
}

static tt_status add_prompt(struct prompts *prompts, const char *text, size_t bytes)
{
    if (tt_grow(&prompts->texts, prompts->count, &prompts->capacity) != 0 ||
        tt_grow(&prompts->names, prompts->count, &prompts->name_capacity) != 0)
        return TT_ERR_MEMORY;
    prompts->names[prompts->count] = NULL;
    prompts->texts[prompts->count] = tt_arena_strndup(&prompts->arena, text, bytes);
    if (prompts->texts[prompts->count] == NULL) return TT_ERR_MEMORY;
    prompts->count++;
    return TT_OK;
}

/* The adapter of the prompt that was added last: the key `adapter` of its object, a name or null. */
static tt_status name_adapter(struct prompts *prompts, const struct tt_json *json)
{
    const struct tt_json_value *value = tt_json_get(json->root, "adapter");
    const char *name = "";
    if (value == NULL) return TT_OK;
    if (!tt_json_is_null(value)) TT_TRY(tt_json_string(json, json->root, "adapter", &name));
    prompts->names[prompts->count - 1] = tt_arena_strdup(&prompts->arena, name);
    return prompts->names[prompts->count - 1] != NULL ? TT_OK : TT_ERR_MEMORY;
}

static tt_status note_images(struct prompts *prompts, const struct tt_json_value *row, const char *where)
{
    const char *column = tt_row_image_column(row);
    if (column == NULL || prompts->images != NULL) return TT_OK;
    prompts->images = tt_arena_printf(&prompts->arena, "%s: the row has '%s'", where, column);
    return prompts->images != NULL ? TT_OK : TT_ERR_MEMORY;
}

/* A model with a tower would answer without what the prompt speaks of. */
static tt_status check_images(const struct prompts *prompts, const struct tt_inputs *inputs)
{
    if (prompts->images == NULL || inputs->model_facts.part == NULL) return TT_OK;
    tt_fail(TT_ERR_UNSUPPORTED, "%s, and of this model the text part is served", prompts->images);
    tt_hint("leave out the rows with images");
    return TT_ERR_UNSUPPORTED;
}

/* Adds a conversation: a list of messages, or a row. */
static tt_status add_conversation(struct prompts *prompts, const char *text, size_t bytes)
{
    struct tt_str row = {0};
    tt_status status = TT_OK;
    bool list = bytes > 0 && text[0] == '[';
    if (bytes > 0 && text[bytes - 1] == '\r') bytes--;
    if (bytes == 0) return TT_OK;
    if (list) TT_GO(tt_str_append_text(&row, "{\"messages\": "));
    TT_GO(tt_str_append(&row, text, bytes));
    if (list) TT_GO(tt_str_append_char(&row, '}'));
    TT_GO(add_prompt(prompts, row.data, row.bytes));
out:
    tt_str_deinit(&row);
    return status;
}

/* Adds the prompt of one line: the text of the line, or of the key `prompt` of a JSON object. */
static tt_status add_line(struct prompts *prompts, const char *line, size_t bytes, const char *origin,
                          size_t number)
{
    struct tt_json json = {0};
    const char *text = NULL;
    char where[300];
    if (bytes > 0 && line[bytes - 1] == '\r') bytes--;
    if (bytes == 0) return TT_OK;
    if (memchr(line, 0, bytes) != NULL)
        return tt_fail(TT_ERR_DATA, "%s line %zu holds a 0 byte", origin, number);
    if (prompts->conversations) return add_conversation(prompts, line, bytes);
    if (line[0] != '{') return add_prompt(prompts, line, bytes);
    snprintf(where, sizeof where, "%.200s line %zu", origin, number);
    tt_status status = tt_json_parse(line, bytes, where, &json);
    if (status == TT_OK) status = tt_json_string(&json, json.root, "prompt", &text);
    if (status == TT_OK) status = add_prompt(prompts, text, strlen(text));
    if (status == TT_OK) status = name_adapter(prompts, &json);
    if (status == TT_OK) status = note_images(prompts, json.root, where);
    tt_json_deinit(&json);
    return status;
}

static bool is_message(const struct tt_json_value *value)
{
    return tt_json_get(value, "role") != NULL || tt_json_get(value, "from") != NULL;
}

/* Whether each element of a list is a row: an object, or among conversations a list of messages. */
static bool has_rows(const struct prompts *prompts, const struct tt_json_value *list)
{
    size_t count = tt_json_count(list);
    for (size_t i = 0; i < count; i++) {
        const struct tt_json_value *value = tt_json_at(list, i);
        bool row = prompts->conversations && tt_json_is_list(value);
        if (!row && !(tt_json_is_object(value) && !is_message(value))) return false;
    }
    return count > 0;
}

/* A file that is one JSON list, over any number of lines: of rows, or the messages of one conversation. *taken is false
 * for all others, which are read line by line. */
static tt_status add_list(struct prompts *prompts, const char *text, size_t bytes, const char *origin,
                          bool *taken)
{
    struct tt_json json = {0};
    struct tt_str row = {0};
    tt_status status = TT_OK;
    size_t blanks = strspn(text, " \t\r\n");
    *taken = false;
    if (blanks >= bytes || text[blanks] != '[') return TT_OK;
    status = tt_json_parse(text, bytes, origin, &json);
    if (status == TT_ERR_DATA) {
        tt_error_clear(); /* lines that are lists */
        return TT_OK;
    }
    TT_GO(status);
    *taken = has_rows(prompts, json.root);
    for (size_t i = 0; *taken && i < tt_json_count(json.root); i++) {
        tt_str_clear(&row);
        TT_GO(tt_json_write(tt_json_at(json.root, i), 0, false, &row));
        TT_GO(add_line(prompts, tt_str_text(&row), row.bytes, origin, i + 1));
    }
    if (!*taken && prompts->conversations && is_message(tt_json_at(json.root, 0))) {
        *taken = true;
        TT_GO(add_conversation(prompts, text + blanks, bytes - blanks));
    }
out:
    tt_json_deinit(&json);
    tt_str_deinit(&row);
    return status;
}

static tt_status add_lines(struct prompts *prompts, const struct tt_str *data, const char *origin)
{
    const char *text = tt_str_text(data);
    size_t number = 1, begin = tt_starts_with(text, "\xef\xbb\xbf") ? 3 : 0; /* a byte order mark */
    bool taken;
    TT_TRY(add_list(prompts, text + begin, data->bytes - begin, origin, &taken));
    for (size_t at = taken ? data->bytes : begin; at < data->bytes; number++) {
        const char *end = memchr(text + at, '\n', data->bytes - at);
        size_t bytes = end != NULL ? (size_t)(end - text) - at : data->bytes - at;
        TT_TRY(add_line(prompts, text + at, bytes, origin, number));
        at += bytes + 1;
    }
    return TT_OK;
}

static tt_status read_standard_input(struct tt_str *data)
{
    char buffer[65536];
    for (;;) {
        ssize_t bytes = read(STDIN_FILENO, buffer, sizeof buffer);
        if (bytes < 0) return tt_fail(TT_ERR_IO, "cannot read standard input");
        if (bytes == 0) return TT_OK;
        if (data->bytes + (size_t)bytes > PROMPTS_BYTES_MAX)
            return tt_fail(TT_ERR_DATA, "standard input holds more than %d MiB of prompts",
                           PROMPTS_BYTES_MAX >> 20);
        TT_TRY(tt_str_append(data, buffer, (size_t)bytes));
    }
}

static tt_status collect_prompts(const struct generate_command *command, struct prompts *prompts)
{
    struct tt_str data = {0};
    const char *file = command->prompt_file, *messages = command->messages;
    tt_status status = TT_OK;
    if (messages != NULL && (command->prompt != NULL || file != NULL))
        return tt_fail(TT_ERR_USAGE, "messages cannot be given together with prompt or prompt_file");
    prompts->conversations = messages != NULL;
    if (messages != NULL && (*messages == '[' || *messages == '{'))
        return add_conversation(prompts, messages, strlen(messages));
    if (messages != NULL) file = messages;
    if (command->prompt != NULL) status = add_prompt(prompts, command->prompt, strlen(command->prompt));
    if (file == NULL && command->prompt == NULL && !isatty(STDIN_FILENO)) file = "-";
    if (status == TT_OK && file != NULL) {
        bool standard = strcmp(file, "-") == 0;
        if (messages != NULL && !standard && !tt_path_exists(file)) {
            tt_fail(TT_ERR_DATA, "--messages: there is no file '%.200s'", file);
            tt_hint(
                "messages are a file, or a list: --messages '[{\"role\": \"user\", \"content\": \"...\"}]'; "
                "trimtab chat takes a question as it is typed");
            return TT_ERR_DATA;
        }
        status = standard ? read_standard_input(&data) : tt_file_read(file, PROMPTS_BYTES_MAX, &data);
        if (status == TT_OK) status = add_lines(prompts, &data, standard ? "standard input" : file);
    }
    tt_str_deinit(&data);
    if (status != TT_OK || prompts->count > 0) return status;
    status = tt_fail(TT_ERR_USAGE, "there is no prompt");
    tt_hint(
        "give --prompt TEXT, --prompt_file FILE, --messages FILE, or prompts on standard input, one a line");
    return status;
}

/* Whether the last message of a row is the assistant's. */
static bool ends_with_answer(const struct tt_json_value *row)
{
    const struct tt_json_value *list = tt_json_get(row, "messages");
    const char *role = tt_json_text(tt_json_get(tt_json_at(list, tt_json_count(list) - 1), "role"));
    return role != NULL && strcmp(role, "assistant") == 0;
}

/* Replaces the text of a conversation by its rendering. */
static tt_status encode_conversation(struct prompts *prompts, size_t index, const struct tt_inputs *inputs,
                                     struct tt_chat *chat, struct tt_tokenizer_scratch *scratch)
{
    struct tt_json row = {0};
    struct tt_str text = {0};
    char where[40];
    tt_status status = TT_OK;
    snprintf(where, sizeof where, "conversation %zu", index + 1);
    TT_GO(tt_json_parse(prompts->texts[index], strlen(prompts->texts[index]), where, &row));
    TT_GO(note_images(prompts, row.root, where));
    TT_GO(check_images(prompts, inputs));
    TT_GO(tt_chat_prompt(chat, scratch, &row, &text, &prompts->ids[index]));
    if (ends_with_answer(row.root) && prompts->answered++ == 0)
        tt_warn(
            "conversation %zu ends with an answer of the assistant, and the model is asked for another one "
            "behind it",
            index + 1);
    const struct tt_json_value *adapter = tt_json_get(row.root, "adapter");
    if (adapter != NULL) {
        const char *name = tt_json_is_null(adapter) ? "" : tt_json_text(adapter);
        prompts->names[index] = name != NULL ? tt_arena_strdup(&prompts->arena, name) : NULL;
        if (prompts->names[index] == NULL) TT_GO(tt_fail(TT_ERR_DATA, "adapter must be a name or null"));
    }
    prompts->texts[index] = tt_arena_strndup(&prompts->arena, tt_str_text(&text), text.bytes);
    if (prompts->texts[index] == NULL) status = TT_ERR_MEMORY;
out:
    tt_json_deinit(&row);
    tt_str_deinit(&text);
    return status;
}

/* The template is that of the settings, else of the adapter, else of the tokenizer. */
static tt_status encode_prompts(struct prompts *prompts, const struct generate_command *command,
                                const struct tt_inputs *inputs, const struct tt_tokenizer *tokenizer)
{
    struct tt_data_config config = {.chat_template_path = command->chat_template_path, .date = command->date};
    if (config.chat_template_path == NULL) config.chat_template_path = inputs->template_path;
    struct tt_tokenizer_scratch *scratch = NULL;
    struct tt_chat *chat = NULL;
    TT_TRY(check_images(prompts, inputs));
    tt_status status = tt_tokenizer_scratch_create(tokenizer, &scratch);
    prompts->ids = tt_calloc(prompts->count, sizeof *prompts->ids);
    if (status == TT_OK && prompts->ids == NULL) status = TT_ERR_MEMORY;
    if (status == TT_OK && prompts->conversations) status = tt_chat_create(&config, tokenizer, &chat);
    for (size_t i = 0; i < prompts->count && status == TT_OK; i++) {
        if (chat != NULL)
            status = encode_conversation(prompts, i, inputs, chat, scratch);
        else
            status = tt_tokenizer_encode(tokenizer, scratch, prompts->texts[i], strlen(prompts->texts[i]),
                                         true, &prompts->ids[i]);
        if (status != TT_OK) tt_while("tokenizing prompt %zu", i + 1);
        if (status == TT_OK && prompts->ids[i].count == 0)
            status = tt_fail(TT_ERR_USAGE, "prompt %zu has no tokens", i + 1);
        if (prompts->ids[i].count > prompts->longest) prompts->longest = prompts->ids[i].count;
    }
    tt_tokenizer_scratch_destroy(scratch);
    tt_chat_destroy(chat);
    return status;
}

/* The numbers of the adapters that prompts name. */
static tt_status find_adapters(struct prompts *prompts, const struct tt_inputs *inputs)
{
    prompts->adapters = tt_calloc(prompts->count, sizeof *prompts->adapters);
    if (prompts->adapters == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < prompts->count; i++) {
        const char *name = prompts->names[i];
        size_t a = 0;
        if (name == NULL) continue;
        while (a < inputs->adapter_count && strcmp(name, inputs->adapters[a].name) != 0) a++;
        if (*name != 0 && a == inputs->adapter_count)
            return tt_fail(TT_ERR_USAGE, "prompt %zu names the adapter '%.100s', which is not loaded", i + 1,
                           name);
        prompts->adapters[i] = *name == 0 ? -1 : (int)a;
    }
    return TT_OK;
}

/* `adapter`: a name; "": the base alone; NULL: is not printed. */
static tt_status print_completion(struct tt_cli *cli, const char *prompt, const struct tt_str *completion,
                                  const char *adapter, bool json)
{
    struct tt_str line = {0};
    tt_status status;
    if (json) {
        struct tt_json_value *object =
            tt_json_pack("{s:s,s:t}", "prompt", prompt, "completion",
                         (struct tt_span){tt_str_text(completion), completion->bytes});
        if (adapter != NULL)
            tt_json_set(object, "adapter", *adapter != 0 ? tt_json_new_string(adapter) : tt_json_new_null());
        status = tt_json_write(object, 0, false, &line);
        tt_json_release(object);
    } else {
        status = tt_str_append(&line, tt_str_text(completion), completion->bytes);
    }
    if (status == TT_OK) status = tt_str_append_char(&line, '\n');
    if (status == TT_OK) status = tt_report_print_raw(cli->report, tt_str_text(&line), line.bytes);
    tt_str_deinit(&line);
    return status;
}

struct printer {
    struct tt_cli *cli;
    const struct tt_tokenizer *tokenizer;
    const struct prompts *prompts;
    const struct tt_inputs *inputs;
    struct tt_str text;
    bool json;
    bool streams; /* a person watches one completion */
    struct tt_tokenizer_stream stream;
    tt_status status;     /* of the stream */
    size_t tokens, empty; /* empty: completions without a token */
};

static tt_status print_piece(struct printer *printer)
{
    TT_TRY(tt_report_print_raw(printer->cli->report, tt_str_text(&printer->text), printer->text.bytes));
    tt_str_clear(&printer->text);
    return TT_OK;
}

static bool on_token(void *context, int index, int32_t token)
{
    struct printer *printer = context;
    (void)index;
    if (!printer->streams || printer->status != TT_OK) return printer->status == TT_OK;
    printer->status = tt_tokenizer_stream_push(printer->tokenizer, &printer->stream, token, &printer->text);
    if (printer->status == TT_OK) printer->status = print_piece(printer);
    return printer->status == TT_OK;
}

static tt_status on_done(void *context, int index, const int32_t *ids, size_t count)
{
    struct printer *printer = context;
    printer->tokens += count;
    printer->empty += count == 0;
    TT_TRY(printer->status);
    if (printer->streams) {
        TT_TRY(tt_tokenizer_stream_finish(printer->tokenizer, &printer->stream, &printer->text));
        TT_TRY(tt_str_append_char(&printer->text, '\n'));
        return print_piece(printer);
    }
    TT_TRY(tt_tokenizer_decode(printer->tokenizer, ids, count, true, &printer->text));
    const struct tt_inputs *inputs = printer->inputs;
    int adapter = printer->prompts->adapters[index];
    const char *name = inputs->adapter_count < 2 ? NULL : adapter < 0 ? "" : inputs->adapters[adapter].name;
    return print_completion(printer->cli, printer->prompts->texts[index], &printer->text, name,
                            printer->json);
}

/* One call of the command. */
struct generation {
    struct tt_cli *cli;
    struct generate_command *command;
    struct prompts prompts;
    struct tt_tokenizer *tokenizer;
    struct tt_plan plan;
    struct tt_str grammar; /* the source; empty: none */
};

static tt_status planned(void *context, const struct tt_plan *plan, enum tt_shard_strategy strategy)
{
    struct generation *generation = context;
    struct tt_str text = {0};
    generation->plan = *plan;
    if (!generation->command->stats) return TT_OK;
    tt_status status = tt_plan_format(plan, &text);
    if (status == TT_OK && plan->ranks.count > 1)
        status = tt_str_printf(&text, "\n%s: %s", tt_shard_strategy_name(strategy),
                               strategy == TT_NO_SHARD ? "each rank holds the whole model"
                                                       : "the ranks split the model");
    if (status == TT_OK) tt_report_line(generation->cli->report, tt_str_text(&text));
    tt_str_deinit(&text);
    return status;
}

static tt_status report_stats(const struct generation *generation, const struct tt_generation_team *team,
                              size_t tokens, double seconds)
{
    struct tt_str text = {0};
    size_t count = generation->prompts.count;
    const struct tt_generation_engine *engine = tt_generation_team_engine(team);
    const struct tt_generation_load load = tt_generation_load_of(engine);
    int64_t slots = tt_generation_limits_of(engine)->slots;
    tt_status status = tt_plan_compare(&generation->plan, tt_generation_device(engine), &text);
    if (status == TT_OK)
        status = tt_str_printf(&text, "\n%zu completion%s, %zu new tokens in %.2f s: %.1f tokens/s", count,
                               count == 1 ? "" : "s", tokens, seconds,
                               seconds > 0 ? (double)tokens / seconds : 0.0);
    if (status == TT_OK)
        status =
            tt_str_printf(&text, "\n%lld pass%s of rank 0, %lld of them launched as recorded work",
                          (long long)load.passes, load.passes == 1 ? "" : "es", (long long)load.recorded);
    if (status == TT_OK)
        status = tt_str_printf(&text, "\nat most %lld prompt%s at a time on a rank", (long long)slots,
                               slots == 1 ? "" : "s");
    if (status == TT_OK) tt_report_line(generation->cli->report, tt_str_text(&text));
    tt_str_deinit(&text);
    return status;
}

static tt_status prepare(void *context, const struct tt_inputs *inputs, int ranks,
                         struct tt_generation_limits *limits)
{
    struct generation *generation = context;
    const struct tt_job_spec *job = &generation->command->spec.job;
    const struct tt_generate_options options =
        tt_generate_options_of(&generation->command->spec.generate, job->run.seed);
    struct prompts *prompts = &generation->prompts;
    if (prompts->count == 0) TT_TRY(collect_prompts(generation->command, prompts));
    TT_TRY(tt_inputs_load_tokenizer(inputs, &generation->tokenizer));
    TT_TRY(encode_prompts(prompts, generation->command, inputs, generation->tokenizer));
    TT_TRY(find_adapters(prompts, inputs));
    TT_TRY(tt_answer_grammar_make(generation->command->json_schema, generation->command->regex, inputs,
                                  &generation->grammar));
    int64_t batch = job->run.per_device_eval_batch_size;
    int64_t share = ((int64_t)prompts->count + ranks - 1) / ranks;
    bool chooses = generation->command->spec.generate.chooses_batch;
    TT_TRY(tt_generator_limits(inputs, batch < share && !chooses ? batch : share, (int64_t)prompts->longest,
                               &options, limits));
    if (chooses) limits->slots_least = batch;
    return TT_OK;
}

/* Prints each completion as soon as those before it are there. */
static tt_status lead(void *context, const struct tt_inputs *inputs, struct tt_generation_team *team)
{
    struct generation *generation = context;
    const struct generate_command *command = generation->command;
    const struct prompts *prompts = &generation->prompts;
    struct tt_generate_options options =
        tt_generate_options_of(&command->spec.generate, command->spec.job.run.seed);
    struct printer printer = {
        .cli = generation->cli,
        .tokenizer = generation->tokenizer,
        .prompts = prompts,
        .inputs = inputs,
        .json = command->json || prompts->count > 1,
        .stream = {.skip_special = true},
    };
    const struct tt_generate_visitor visitor = {on_token, on_done, &printer};
    struct tt_generator *generator = NULL;
    double start = tt_clock_seconds();
    options.adapters = prompts->adapters;
    options.grammar = (struct tt_span){generation->grammar.data, generation->grammar.bytes};
    printer.streams = !printer.json && isatty(fileno(printer.cli->report->out)) == 1;
    tt_status status = tt_generator_borrow(team, &options, &generator);
    if (status == TT_OK)
        status =
            tt_generator_run(generator, prompts->ids, (int)prompts->count, &visitor, generation->cli->cancel);
    if (status == TT_OK && command->stats)
        status = report_stats(generation, team, printer.tokens, tt_clock_seconds() - start);
    if (status == TT_OK && printer.empty > 0 && !prompts->conversations &&
        tt_tokenizer_chat_template(printer.tokenizer) != NULL)
        tt_warn("%zu of %zu completions %s empty: the model ends there; it is made for conversations, which "
                "--messages and trimtab chat hold",
                printer.empty, prompts->count, printer.empty == 1 ? "is" : "are");
    tt_generator_destroy(generator);
    tt_tokenizer_stream_deinit(&printer.stream);
    tt_str_deinit(&printer.text);
    return status;
}

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    struct generation generation = {.cli = cli, .command = call->target};
    const struct tt_generate_hooks hooks = {
        .prepare = prepare, .planned = planned, .lead = lead, .context = &generation};
    bool alone = !tt_launcher_is_per_rank() && generation.command->spec.job.launch.num_machines <= 1;
    tt_status status = TT_OK;
    cli->report->once = true; /* the prompts are counted with a tokenizer of their own */
    /* Prompts are read before the model is opened, unless another process may have them. */
    if (alone) status = collect_prompts(generation.command, &generation.prompts);
    if (status == TT_OK) status = tt_generate_run(&generation.command->spec, cli->cancel, &hooks);
    tt_tokenizer_destroy(generation.tokenizer);
    tt_str_deinit(&generation.grammar);
    prompts_deinit(&generation.prompts);
    return status;
}

static tt_status resolve(void *target, struct tt_settings *settings)
{
    struct generate_command *command = target;
    return tt_generate_resolve(settings, &command->spec.job, &command->spec.generate);
}

const struct tt_command_ops tt_cmd_generate = {
    .usage =
        " --model_name_or_path FOLDER [--adapter_name_or_path FOLDER] --prompt TEXT | --prompt_file FILE | "
        "--messages FILE",
    .sections = list_sections,
    .target_bytes = sizeof(struct generate_command),
    .resolve = resolve,
    .run = run,
};
