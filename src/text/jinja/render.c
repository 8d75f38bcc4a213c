/* A rendering from start to end: the input as values, limits, and the output with its spans. */
#include <stdarg.h>
#include <string.h>

#include "base/alloc.h"
#include "base/number.h"
#include "base/utf8.h"
#include "text/jinja/render.h"

/* ---- Limits and errors ---- */

tt_status jinja_fail(struct jinja_render *render, const char *format, ...)
{
    char message[500];
    va_list arguments;
    va_start(arguments, format);
    tt_vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return jinja_fail_at(render->jinja, render->at != NULL ? render->at->offset : 0, "%s", message);
}

void *jinja_alloc(struct jinja_render *render, size_t bytes)
{
    if (bytes > TT_JINJA_MEMORY_MAX - render->memory) {
        render->is_full = true;
        (void)!jinja_fail(render, "the values of a rendering may take at most %d MiB of memory",
                          TT_JINJA_MEMORY_MAX >> 20);
        return NULL;
    }
    render->memory += bytes + sizeof(void *) * 2;
    if (render->memory > TT_JINJA_MEMORY_MAX) render->memory = TT_JINJA_MEMORY_MAX;
    return tt_arena_alloc(&render->arena, bytes);
}

tt_status jinja_charge(struct jinja_render *render, size_t steps)
{
    render->steps += steps;
    if (render->steps <= TT_JINJA_STEPS_MAX) return TT_OK;
    return jinja_fail(render, "a rendering may take at most %d steps", TT_JINJA_STEPS_MAX);
}

/* ---- Input ---- */

static tt_status add_origin(struct jinja_render *render, struct tt_jinja_origin origin, uint32_t *id)
{
    TT_TRY(tt_grow(&render->origins, render->origin_count, &render->origin_capacity));
    *id = (uint32_t)render->origin_count;
    render->origins[render->origin_count++] = origin;
    return TT_OK;
}

static tt_status convert(struct jinja_render *render, const struct tt_json_value *json, uint32_t origin,
                         int depth, struct jinja_value *out);

static tt_status convert_text(struct jinja_render *render, struct tt_span span, uint32_t origin,
                              struct jinja_value *out)
{
    return jinja_text_of(render, span.data, span.bytes, origin, out);
}

static tt_status convert_huge(struct jinja_render *render, const struct tt_json_value *json,
                              struct jinja_value *out)
{
    struct tt_str text = {0};
    tt_status status = tt_json_write(json, 0, false, &text);
    if (status == TT_OK) status = jinja_new_text(render, text.data, text.bytes, out);
    tt_str_deinit(&text);
    out->type = JINJA_HUGE;
    return status;
}

static tt_status convert_list(struct jinja_render *render, const struct tt_json_value *json, uint32_t origin,
                              int depth, struct jinja_value *out)
{
    TT_TRY(jinja_new_list(render, tt_json_count(json), false, out));
    out->origin = origin;
    for (size_t i = 0; i < out->list->count; i++) {
        uint32_t element;
        TT_TRY(
            add_origin(render, (struct tt_jinja_origin){.parent = origin, .index = (uint32_t)i}, &element));
        TT_TRY(convert(render, tt_json_at(json, i), element, depth + 1, &out->list->elements[i]));
    }
    return TT_OK;
}

static tt_status convert_object(struct jinja_render *render, const struct tt_json_value *json,
                                uint32_t origin, int depth, struct jinja_value *out)
{
    TT_TRY(jinja_new_dict(render, out));
    out->origin = origin;
    for (size_t i = 0;; i++) {
        struct tt_json_member member = tt_json_member(json, i);
        struct jinja_value key, value;
        uint32_t id;
        if (member.value == NULL) return TT_OK;
        struct tt_jinja_origin of = {.parent = origin, .key = member.key.data, .key_bytes = member.key.bytes};
        TT_TRY(add_origin(render, of, &id));
        TT_TRY(convert_text(render, member.key, id, &key));
        TT_TRY(convert(render, member.value, id, depth + 1, &value));
        TT_TRY(jinja_dict_set(render, out->dict, key, value));
    }
}

static tt_status convert(struct jinja_render *render, const struct tt_json_value *json, uint32_t origin,
                         int depth, struct jinja_value *out)
{
    if (depth > TT_JSON_DEPTH_MAX) return jinja_fail(render, "the input is nested too deeply");
    switch (tt_json_type(json)) {
    case TT_JSON_NULL:
        *out = jinja_none();
        break;
    case TT_JSON_FALSE:
    case TT_JSON_TRUE:
        *out = jinja_bool(tt_json_is_true(json));
        break;
    case TT_JSON_INTEGER:
        *out = jinja_integer(tt_json_integer(json));
        break;
    case TT_JSON_REAL:
        *out = jinja_float(tt_json_number(json));
        break;
    case TT_JSON_HUGE:
        TT_TRY(convert_huge(render, json, out));
        break;
    case TT_JSON_STRING:
        return convert_text(render, tt_json_span(json), origin, out);
    case TT_JSON_LIST:
        return convert_list(render, json, origin, depth, out);
    default:
        return convert_object(render, json, origin, depth, out);
    }
    out->origin = origin;
    return TT_OK;
}

static tt_status convert_variable(struct jinja_render *render, const struct tt_jinja_variable *variable,
                                  struct jinja_value *out)
{
    uint32_t origin;
    struct tt_jinja_origin of = {.key = variable->name, .key_bytes = strlen(variable->name)};
    TT_TRY(add_origin(render, of, &origin));
    switch (variable->kind) {
    case TT_JINJA_NONE:
        *out = jinja_none();
        break;
    case TT_JINJA_BOOL:
        *out = jinja_bool(variable->flag);
        break;
    case TT_JINJA_TEXT:
        if (tt_utf8_invalid_at(variable->text.data, variable->text.bytes) < variable->text.bytes)
            return tt_fail(TT_ERR_DATA, "the variable '%s' of a template is not UTF-8", variable->name);
        return convert_text(render, variable->text, origin, out);
    case TT_JINJA_JSON:
        return convert(render, variable->json, origin, 0, out);
    }
    out->origin = origin;
    return TT_OK;
}

/* The value of each name of the template: of the input, or a function. */
static tt_status make_context(struct jinja_render *render)
{
    const struct tt_jinja *jinja = render->jinja;
    const struct tt_jinja_input *input = render->input;
    uint32_t root;
    TT_TRY(add_origin(render, (struct tt_jinja_origin){0}, &root));
    render->context = jinja_alloc(render, jinja->symbol_count * sizeof *render->context);
    if (render->context == NULL) return TT_ERR_MEMORY;
    for (uint32_t i = 0; i < jinja->symbol_count; i++) {
        const struct jinja_text *name = jinja->symbols[i];
        const struct tt_jinja_variable *found = NULL;
        for (size_t j = input->variable_count; j-- > 0 && found == NULL;)
            if (strcmp(input->variables[j].name, name->data) == 0) found = &input->variables[j];
        if (found != NULL)
            TT_TRY(convert_variable(render, found, &render->context[i]));
        else
            jinja_global(name, &render->context[i]);
    }
    return TT_OK;
}

/* ---- Output ---- */

static tt_status make_output(struct jinja_render *render, const struct jinja_writer *writer,
                             struct tt_jinja_output *output)
{
    output->text = tt_calloc(writer->bytes + 1, 1);
    output->spans = tt_calloc(writer->run_count, sizeof *output->spans);
    if (output->text == NULL || output->spans == NULL) return TT_ERR_MEMORY;
    if (writer->bytes > 0) memcpy(output->text, writer->data, writer->bytes);
    output->bytes = writer->bytes;
    for (size_t i = 0; i < writer->run_count; i++)
        output->spans[i] =
            (struct tt_jinja_span){.end = writer->runs[i].end,
                                   .origin = writer->runs[i].origin & ~JINJA_GENERATION,
                                   .generation = (writer->runs[i].origin & JINJA_GENERATION) != 0};
    output->span_count = writer->run_count;
    output->origins = render->origins;
    output->origin_count = render->origin_count;
    render->origins = NULL;
    return TT_OK;
}

tt_status tt_jinja_render(const struct tt_jinja *jinja, const struct tt_jinja_input *input,
                          struct tt_jinja_output *output)
{
    struct jinja_render render = {.jinja = jinja, .input = input};
    struct tt_jinja_output made = {0};
    struct jinja_scope scope;
    struct jinja_writer writer = jinja_writer_new(&render);
    enum jinja_flow flow;
    tt_status status = TT_OK;
    writer.limit = TT_JINJA_OUTPUT_MAX;
    writer.limit_name = "the output";
    render.out = &writer;
    TT_GO(make_context(&render));
    TT_GO(jinja_enter_frame(&render, jinja->frame, NULL, &scope));
    TT_GO(jinja_exec(&render, &scope, &jinja->body, &flow));
    TT_GO(make_output(&render, &writer, &made));
    *output = made;
    made = (struct tt_jinja_output){0};
out:
    if (render.is_full) status = TT_ERR_DATA;
    tt_jinja_output_deinit(&made);
    tt_free(render.origins);
    tt_arena_deinit(&render.arena);
    return status;
}

void tt_jinja_output_deinit(struct tt_jinja_output *output)
{
    tt_free(output->text);
    tt_free(output->spans);
    tt_free(output->origins);
    *output = (struct tt_jinja_output){0};
}

/* ---- Origins ---- */

tt_status tt_jinja_origin_path(const struct tt_jinja_output *output, uint32_t origin, struct tt_str *path)
{
    if (origin == 0) return TT_OK;
    const struct tt_jinja_origin *of = &output->origins[origin];
    TT_TRY(tt_jinja_origin_path(output, of->parent, path));
    if (of->key == NULL) return tt_str_printf(path, "[%u]", (unsigned)of->index);
    if (of->parent != 0) TT_TRY(tt_str_append_char(path, '.'));
    return tt_str_append(path, of->key, of->key_bytes);
}

bool tt_jinja_origin_element(const struct tt_jinja_output *output, uint32_t origin, const char *variable,
                             uint32_t *index, uint32_t *member)
{
    uint32_t inner = 0, element = 0, at = origin;
    while (at != 0 && output->origins[at].parent != 0) {
        inner = element;
        element = at;
        at = output->origins[at].parent;
    }
    if (at == 0 || element == 0 || output->origins[element].key != NULL) return false;
    if (!tt_span_equals((struct tt_span){output->origins[at].key, output->origins[at].key_bytes}, variable))
        return false;
    *index = output->origins[element].index;
    *member = inner;
    return true;
}
