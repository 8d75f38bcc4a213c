/* Gemma's calls: call:NAME{key:value, ...} between <|tool_call> and <tool_call|> (Gemma 4) or <start_function_call>
 * and <end_function_call> (FunctionGemma). Texts stand between <|"|> or <escape>; where these are special tokens,
 * which are not shown, a text goes to the next comma or brace. Other values are numbers, words, lists and objects
 * of the same form. */
#include <string.h>

#include "base/alloc.h"
#include "serve/call_format.h"

enum { DEPTH_MAX = 32, WRITTEN_DEPTH_MAX = 12 };
static const char *const marks[] = {"<|tool_call>", "<start_function_call>", NULL};
static const char *const ends[] = {"<tool_call|>", "<end_function_call>"};
static const char *const quotes[] = {"<|\"|>", "<escape>", "\""};

static bool take(struct tt_span *text, const char *word)
{
    if (!tt_span_starts_with(*text, word)) return false;
    text->data += strlen(word);
    text->bytes -= strlen(word);
    return true;
}

static void take_one_of(struct tt_span *text, const char *const *words, size_t count)
{
    *text = tt_call_trim(*text);
    for (size_t i = 0; i < count; i++)
        if (take(text, words[i])) break;
    *text = tt_call_trim(*text);
}

/* The bytes up to one of the characters of `stops`, without them. */
static struct tt_span take_plain(struct tt_span *text, const char *stops)
{
    struct tt_span out = {text->data, 0};
    while (out.bytes < text->bytes && strchr(stops, text->data[out.bytes]) == NULL) out.bytes++;
    text->data += out.bytes;
    text->bytes -= out.bytes;
    return tt_call_trim(out);
}

static struct tt_json_value *take_value(struct tt_span *text, int depth);

/* A text between quotes; false: none begins here, or it has no end. */
static bool take_quoted(struct tt_span *text, struct tt_span *out)
{
    for (size_t i = 0; i < sizeof quotes / sizeof *quotes; i++) {
        struct tt_span rest = *text;
        if (!take(&rest, quotes[i])) continue;
        const char *end = rest.bytes > 0 ? memmem(rest.data, rest.bytes, quotes[i], strlen(quotes[i])) : NULL;
        if (end == NULL) return false;
        *out = (struct tt_span){rest.data, (size_t)(end - rest.data)};
        text->bytes = rest.bytes - out->bytes - strlen(quotes[i]);
        text->data = end + strlen(quotes[i]);
        return true;
    }
    return false;
}

/* The members or elements up to the closing bracket, which is taken; NULL: the form is broken. */
static struct tt_json_value *take_items(struct tt_span *text, char close, int depth)
{
    struct tt_json_value *out = close == '}' ? tt_json_new_object() : tt_json_new_list();
    const char end[2] = {close, 0};
    for (bool good = depth < DEPTH_MAX; good;) {
        struct tt_span key = {0};
        *text = tt_call_trim(*text);
        if (take(text, end)) return out;
        if (close == '}' && !take_quoted(text, &key)) key = take_plain(text, ":,{}[]");
        good = close == ']' || take(text, ":");
        struct tt_json_value *value = good ? take_value(text, depth + 1) : NULL;
        good = value != NULL &&
               (close == '}' ? tt_json_set_span(out, key, value) : tt_json_append(out, value)) == 0;
        *text = tt_call_trim(*text);
        good = good && (take(text, ",") || tt_span_starts_with(*text, end));
    }
    tt_json_release(out);
    return NULL;
}

static struct tt_json_value *take_value(struct tt_span *text, int depth)
{
    struct tt_span quoted;
    struct tt_json json = {0};
    *text = tt_call_trim(*text);
    if (take_quoted(text, &quoted)) return tt_json_new_text(quoted);
    if (take(text, "{")) return take_items(text, '}', depth);
    if (take(text, "[")) return take_items(text, ']', depth);
    struct tt_span plain = take_plain(text, ",{}[]");
    if (plain.bytes == 0) return NULL;
    struct tt_json_value *value = NULL;
    tt_status status = tt_json_parse(plain.data, plain.bytes, "a value", &json);
    if (status == TT_ERR_DATA) tt_error_clear();
    if (status != TT_ERR_MEMORY) value = status == TT_OK ? tt_json_copy(json.root) : tt_json_new_text(plain);
    tt_json_deinit(&json);
    return value;
}

static tt_status add_one(struct tt_call_search *search, struct tt_span *text, bool *is)
{
    take_one_of(text, marks, 2);
    *is = take(text, "call:");
    struct tt_span name = *is ? take_plain(text, "{") : (struct tt_span){0};
    *is = *is && tt_call_function(search->tools, name) != NULL && take(text, "{");
    struct tt_json_value *arguments = *is ? take_items(text, '}', 0) : NULL;
    if (*is && arguments == NULL && tt_error_last()->status == TT_ERR_MEMORY) return TT_ERR_MEMORY;
    *is = arguments != NULL;
    tt_status status = *is ? tt_call_add(search, name, arguments, is) : TT_OK;
    tt_json_release(arguments);
    take_one_of(text, ends, 2);
    return status;
}

static tt_status find(struct tt_call_search *search, struct tt_span text, bool *are)
{
    *are = false;
    if (text.bytes == 0) return TT_OK;
    for (*are = true; *are && text.bytes > 0;) TT_TRY(add_one(search, &text, are));
    return TT_OK;
}

/* ---- Forced calls ---- */

/* Parts are copied while they are written: the values of all copies together are bounded. */
enum { WRITTEN_VALUES_MAX = 1 << 16, WRITTEN_MEMBERS_MAX = 1024 /* of an object */ };

struct writing {
    const struct tt_call_model *model;
    size_t left; /* of WRITTEN_VALUES_MAX */
};

static size_t count_values(const struct tt_json_value *value)
{
    size_t count = 1;
    for (size_t i = 0; i < tt_json_count(value); i++)
        count +=
            count_values(tt_json_is_object(value) ? tt_json_member(value, i).value : tt_json_at(value, i));
    return count;
}

/* A copy of a part, paid for. */
static tt_status copy_part(struct writing *writing, const struct tt_json_value *part,
                           struct tt_json_value **copy)
{
    size_t count = count_values(part);
    if (count > writing->left)
        return tt_fail(TT_ERR_USAGE, "the parameters are too many, or nested too deep, for calls of this "
                                     "model's form");
    writing->left -= count;
    *copy = tt_json_copy(part);
    return *copy != NULL ? TT_OK : TT_ERR_MEMORY;
}

static tt_status write_value(struct writing *writing, const struct tt_json_value *schema, int depth,
                             struct tt_json_value **part);

/* The marks of a template: those of Gemma 4, or of FunctionGemma. */
static size_t marks_of(const struct tt_call_model *model)
{
    return strstr(model->chat_template, marks[0]) != NULL ? 0 : 1;
}

static struct tt_json_value *mark_part(const struct tt_call_model *model, const char *const *words)
{
    return tt_call_token_part(model->tokenizer, words[marks_of(model)]);
}

static struct tt_json_value *text_part(const char *text)
{
    return tt_json_pack("{s:s}", "text", text);
}

/* One part behind the other; takes over both. */
static struct tt_json_value *join(struct tt_json_value *first, struct tt_json_value *second)
{
    return tt_json_pack("{s:[o, o]}", "sequence", first, second);
}

static struct tt_json_value *maybe(struct tt_json_value *part)
{
    return tt_json_pack("{s:[o, o]}", "choice", text_part(""), part);
}

/* "KEY:" and the value of a member. */
static tt_status write_member(struct writing *writing, struct tt_json_member member, int depth,
                              struct tt_json_value **part)
{
    struct tt_json_value *value = NULL;
    if (strpbrk(member.key.data, ":,{}[]\"") != NULL || member.key.bytes == 0)
        return tt_fail(TT_ERR_USAGE, "the key '%.60s' cannot be written in calls of this model's form",
                       member.key.data);
    TT_TRY(write_value(writing, member.value, depth, &value));
    *part = join(join(tt_json_pack("{s:t}", "text", member.key), text_part(":")), value);
    return TT_OK;
}

/* The members of an object from number `first` on, behind it those that may be left out with their commas. */
static tt_status members_from(struct writing *writing, const struct tt_json_value *ones, const bool *required,
                              size_t first, struct tt_json_value **part)
{
    struct tt_json_value *parts = tt_json_new_list(), *one = NULL;
    tt_status status = copy_part(writing, tt_json_at(ones, first), &one);
    if (status == TT_OK) tt_json_append(parts, one);
    for (size_t i = first + 1; i < tt_json_count(ones) && status == TT_OK; i++) {
        status = copy_part(writing, tt_json_at(ones, i), &one);
        if (status != TT_OK) break;
        one = join(text_part(","), one);
        tt_json_append(parts, required[i] ? one : maybe(one));
    }
    *part = tt_json_pack("{s:o}", "sequence", parts);
    if (status != TT_OK) tt_json_release(*part);
    return status;
}

/* The choice of beginnings: any member up to the first that is required, or none. */
static tt_status write_beginnings(struct writing *writing, const struct tt_json_value *ones,
                                  const bool *required, struct tt_json_value *begins)
{
    struct tt_json_value *part = NULL;
    for (size_t i = 0; i < tt_json_count(ones); i++) {
        TT_TRY(members_from(writing, ones, required, i, &part));
        tt_json_append(begins, part);
        if (required[i]) return TT_OK;
    }
    tt_json_append(begins, text_part(""));
    return TT_OK;
}

/* The members of an object in their order, which begins with any of them up to the first that is required. */
static tt_status write_members(struct writing *writing, const struct tt_json_value *schema, int depth,
                               struct tt_json_value **part)
{
    const struct tt_json_value *properties = tt_json_get(schema, "properties");
    size_t count = tt_json_count(properties);
    if (count > WRITTEN_MEMBERS_MAX || tt_json_count(tt_json_get(schema, "required")) > WRITTEN_MEMBERS_MAX)
        return tt_fail(TT_ERR_USAGE,
                       "an object with more than %d members is not supported in calls of this model's form",
                       WRITTEN_MEMBERS_MAX);
    bool *required = tt_calloc(count + 1, sizeof *required);
    if (required == NULL) return TT_ERR_MEMORY;
    struct tt_json_value *ones = tt_json_new_list(), *begins = tt_json_new_list(), *one = NULL;
    tt_status status = TT_OK;
    for (size_t i = 0; i < count && status == TT_OK; i++) {
        required[i] = tt_call_is_required(schema, tt_json_member(properties, i).key);
        status = write_member(writing, tt_json_member(properties, i), depth, &one);
        if (status == TT_OK) tt_json_append(ones, one);
    }
    if (status == TT_OK) status = write_beginnings(writing, ones, required, begins);
    tt_json_release(ones);
    tt_free(required);
    *part = tt_json_pack("{s:[{s:s}, {s:o}, {s:s}]}", "sequence", "text", "{", "choice", begins, "text", "}");
    if (status != TT_OK) tt_json_release(*part);
    return status;
}

static tt_status write_object(struct writing *writing, const struct tt_json_value *schema, int depth,
                              struct tt_json_value **part)
{
    TT_TRY(tt_call_check_keywords(schema, " type properties required additionalProperties "));
    const struct tt_json_value *more = tt_json_get(schema, "additionalProperties");
    if (tt_json_is_object(more))
        return tt_fail(TT_ERR_USAGE, "additionalProperties with a schema is not supported in calls of this "
                                     "model's form");
    return write_members(writing, schema, depth, part);
}

static tt_status write_list(struct writing *writing, const struct tt_json_value *schema, int depth,
                            struct tt_json_value **part)
{
    struct tt_json_value *item = NULL, *again = NULL;
    TT_TRY(tt_call_check_keywords(schema, " type items "));
    TT_TRY(write_value(writing, tt_json_get(schema, "items"), depth, &item));
    tt_status status = copy_part(writing, item, &again);
    if (status != TT_OK) {
        tt_json_release(item);
        return status;
    }
    struct tt_json_value *more = tt_json_pack("{s:o}", "repeat", join(text_part(","), again));
    *part = tt_json_pack("{s:[{s:s}, o, {s:s}]}", "sequence", "text", "[", maybe(join(item, maybe(more))),
                         "text", "]");
    return TT_OK;
}

static tt_status write_text(struct writing *writing, const struct tt_json_value *schema,
                            struct tt_json_value **part)
{
    const struct tt_call_model *model = writing->model;
    struct tt_json_value *text = NULL;
    TT_TRY(tt_call_text_part(schema, quotes[marks_of(model)], &text));
    *part =
        tt_json_pack("{s:[o, o, o]}", "sequence", mark_part(model, quotes), text, mark_part(model, quotes));
    return TT_OK;
}

static tt_status write_value(struct writing *writing, const struct tt_json_value *schema, int depth,
                             struct tt_json_value **part)
{
    static const char *const plain[] = {"integer", "number", "boolean", "null"};
    struct tt_span type = tt_json_span(tt_json_get(schema, "type"));
    if (depth > WRITTEN_DEPTH_MAX)
        return tt_fail(
            TT_ERR_USAGE,
            "parameters that are more than %d deep are not supported in calls of this model's form",
            WRITTEN_DEPTH_MAX);
    if (tt_json_count(schema) > 0 && tt_call_is_text(schema)) return write_text(writing, schema, part);
    if (type.data != NULL && tt_span_equals(type, "object"))
        return write_object(writing, schema, depth + 1, part);
    if (type.data != NULL && tt_span_equals(type, "array"))
        return write_list(writing, schema, depth + 1, part);
    for (size_t i = 0; type.data != NULL && i < sizeof plain / sizeof *plain; i++) {
        if (!tt_span_equals(type, plain[i])) continue;
        *part = tt_json_pack("{s:O}", "json", schema);
        return TT_OK;
    }
    return tt_fail(TT_ERR_USAGE, "a value without one 'type' is not supported in calls of this model's form");
}

static tt_status write(const struct tt_call_model *model, const struct tt_json_value *function,
                       struct tt_json_value **part)
{
    struct tt_json_value *schema = tt_call_schema(function), *arguments = NULL;
    struct writing writing = {model, WRITTEN_VALUES_MAX};
    tt_status status = write_object(&writing, schema, 0, &arguments);
    tt_json_release(schema);
    if (status != TT_OK) return status;
    *part = tt_json_pack("{s:[o, o, o, o]}", "sequence", mark_part(model, marks),
                         tt_call_name_part(function, "call:", false, ""), arguments, mark_part(model, ends));
    return *part != NULL ? TT_OK : TT_ERR_MEMORY;
}

const struct tt_call_format tt_call_format_gemma = {.name = "gemma",
                                                    .marks = marks,
                                                    .begins = marks,
                                                    .find = find,
                                                    .write = write,
                                                    .between = "",
                                                    .shown = true};
