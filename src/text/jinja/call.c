/* Calls: arguments, macros, and all other callable values. */
#include <string.h>

#include "text/jinja/render.h"

static tt_status set_named(struct jinja_render *render, struct jinja_call *call,
                           const struct jinja_text *name, struct jinja_value value)
{
    if (jinja_dict_get(&call->named, name->data, name->bytes) != NULL)
        return jinja_fail(render, "got multiple values for keyword argument '%.*s'", (int)name->bytes,
                          name->data);
    struct jinja_value key = {.type = JINJA_TEXT, .text = name};
    return jinja_dict_set(render, &call->named, key, value);
}

/* *arguments and **arguments */
static tt_status eval_star(struct jinja_render *render, struct jinja_scope *scope,
                           const struct jinja_node *node, struct jinja_call *call)
{
    struct jinja_value value, list;
    TT_TRY(jinja_eval(render, scope, node, &value));
    render->at = node;
    TT_TRY(jinja_collect(render, &value, &list));
    size_t count = call->count + list.list->count;
    struct jinja_value *all = jinja_alloc(render, count * sizeof *all);
    if (all == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < call->count; i++) all[i] = call->positional[i];
    for (size_t i = 0; i < list.list->count; i++) all[call->count + i] = list.list->elements[i];
    call->positional = all;
    call->count = count;
    return TT_OK;
}

static tt_status eval_star_star(struct jinja_render *render, struct jinja_scope *scope,
                                const struct jinja_node *node, struct jinja_call *call)
{
    struct jinja_value value;
    TT_TRY(jinja_eval(render, scope, node, &value));
    render->at = node;
    if (value.type != JINJA_DICT)
        return jinja_fail(render, "argument after ** must be a mapping, not %s", jinja_type_name(&value));
    for (size_t i = 0; i < value.dict->count; i++) {
        const struct jinja_entry *entry = &value.dict->entries[i];
        if (entry->key.type != JINJA_TEXT) return jinja_fail(render, "keywords must be strings");
        TT_TRY(set_named(render, call, entry->key.text, entry->value));
    }
    return TT_OK;
}

tt_status jinja_eval_arguments(struct jinja_render *render, struct jinja_scope *scope,
                               const struct jinja_arguments *arguments, struct jinja_call *call)
{
    const struct jinja_nodes *positional = &arguments->positional;
    if (positional->count > 0) {
        call->positional = jinja_alloc(render, positional->count * sizeof *call->positional);
        if (call->positional == NULL) return TT_ERR_MEMORY;
    }
    for (; call->count < positional->count; call->count++)
        TT_TRY(jinja_eval(render, scope, positional->at[call->count], &call->positional[call->count]));
    for (uint32_t i = 0; i < arguments->named_count; i++) {
        struct jinja_value value;
        TT_TRY(jinja_eval(render, scope, arguments->named[i].value, &value));
        TT_TRY(set_named(render, call, arguments->named[i].name, value));
    }
    if (arguments->star != NULL) TT_TRY(eval_star(render, scope, arguments->star, call));
    return arguments->star_star != NULL ? eval_star_star(render, scope, arguments->star_star, call) : TT_OK;
}

/* The place of a name in "name,other"; -1: none. */
static int name_place(const char *names, const struct jinja_text *name)
{
    for (int place = 0; *names != '\0'; place++) {
        size_t bytes = strcspn(names, ",");
        if (bytes == name->bytes && memcmp(names, name->data, bytes) == 0) return place;
        names += bytes + (names[bytes] == ',');
    }
    return -1;
}

static size_t name_count(const char *names)
{
    size_t count = names[0] != '\0';
    for (; *names != '\0'; names++) count += *names == ',';
    return count;
}

tt_status jinja_bind(struct jinja_render *render, const char *what, const struct jinja_call *call,
                     const char *names, size_t least, struct jinja_value *values)
{
    size_t most = name_count(names);
    bool given[16] = {false};
    if (call->count > most)
        return jinja_fail(render, "%s takes at most %zu arguments, %zu are given", what, most, call->count);
    for (size_t i = 0; i < call->count; i++) {
        values[i] = call->positional[i];
        given[i] = true;
    }
    for (size_t i = 0; i < call->named.count; i++) {
        const struct jinja_text *name = call->named.entries[i].key.text;
        int place = name_place(names, name);
        if (place < 0)
            return jinja_fail(render, "%s has no argument '%.*s'", what, (int)name->bytes, name->data);
        if (given[place])
            return jinja_fail(render, "%s got two values for the argument '%.*s'", what, (int)name->bytes,
                              name->data);
        values[place] = call->named.entries[i].value;
        given[place] = true;
    }
    for (size_t i = 0; i < least; i++)
        if (!given[i])
            return jinja_fail(render, "%s needs %zu arguments, %zu are given", what, least, call->count);
    return TT_OK;
}

/* ---- Macros ---- */

struct macro_call {
    const struct jinja_macro *macro;
    const struct jinja_signature *signature;
    struct jinja_call *call;
    bool *used; /* of the named arguments */
    struct jinja_scope scope;
};

/* The value of a named argument, which is then used; NULL when it is not given. */
static const struct jinja_value *take_named(struct macro_call *of, const char *name, size_t bytes)
{
    const struct jinja_value *value = jinja_dict_get(&of->call->named, name, bytes);
    if (value == NULL) return NULL;
    const struct jinja_entry *entry =
        (const struct jinja_entry *)(const void *)((const char *)value - offsetof(struct jinja_entry, value));
    size_t index = (size_t)(entry - of->call->named.entries);
    if (of->used[index]) return NULL;
    of->used[index] = true;
    return value;
}

static tt_status collect_varargs(struct jinja_render *render, const struct macro_call *of)
{
    const struct jinja_call *call = of->call;
    size_t used = of->signature->count;
    if (of->signature->varargs_slot < 0) {
        if (call->count > used)
            return jinja_fail(render, "a macro takes not more than %zu argument(s)", used);
        return TT_OK;
    }
    struct jinja_value *list = &of->scope.slots[of->signature->varargs_slot];
    TT_TRY(jinja_new_list(render, call->count > used ? call->count - used : 0, true, list));
    for (size_t i = 0; i < list->list->count; i++) list->list->elements[i] = call->positional[used + i];
    return TT_OK;
}

static tt_status collect_kwargs(struct jinja_render *render, const struct macro_call *of)
{
    const struct jinja_dict *named = &of->call->named;
    bool collects = of->signature->kwargs_slot >= 0;
    struct jinja_value rest = {0};
    if (collects) TT_TRY(jinja_new_dict(render, &rest));
    for (size_t i = 0; i < named->count; i++) {
        if (of->used[i]) continue;
        const struct jinja_text *name = named->entries[i].key.text;
        if (!collects)
            return jinja_fail(render, "a macro takes no keyword argument '%.*s'", (int)name->bytes,
                              name->data);
        TT_TRY(jinja_dict_set(render, rest.dict, named->entries[i].key, named->entries[i].value));
    }
    if (collects) of->scope.slots[of->signature->kwargs_slot] = rest;
    return TT_OK;
}

static tt_status bind_parameters(struct jinja_render *render, struct macro_call *of)
{
    const struct jinja_signature *signature = of->signature;
    struct jinja_call *call = of->call;
    bool has_caller = signature->caller_slot == -2 && call->count >= signature->count;
    for (uint32_t i = 0; i < signature->count; i++) {
        const struct jinja_text *name = signature->parameters[i]->text;
        struct jinja_value *slot = &of->scope.slots[signature->parameters[i]->slot];
        const struct jinja_value *named = NULL;
        if (i >= call->count) {
            named = take_named(of, name->data, name->bytes);
            if (tt_span_equals((struct tt_span){name->data, name->bytes}, "caller")) has_caller = true;
        }
        if (i < call->count)
            *slot = call->positional[i];
        else if (named != NULL)
            *slot = *named;
    }
    if (signature->caller_slot >= 0 && !has_caller) {
        static const struct jinja_text caller_name = {.data = "caller", .bytes = 6, .points = 6};
        const struct jinja_value *caller = take_named(of, "caller", 6);
        of->scope.slots[signature->caller_slot] =
            caller != NULL && caller->type != JINJA_NONE ? *caller : jinja_undefined(NULL, &caller_name);
    }
    TT_TRY(collect_kwargs(render, of));
    return collect_varargs(render, of);
}

static tt_status fill_defaults(struct jinja_render *render, struct macro_call *of)
{
    const struct jinja_signature *signature = of->signature;
    uint32_t first = signature->count - signature->default_count;
    for (uint32_t i = 0; i < signature->count; i++) {
        struct jinja_value *slot = &of->scope.slots[signature->parameters[i]->slot];
        if (slot->type != JINJA_MISSING) continue;
        if (i < first)
            *slot = jinja_undefined(NULL, signature->parameters[i]->text);
        else
            TT_TRY(jinja_eval(render, &of->scope, signature->defaults[i - first], slot));
    }
    return TT_OK;
}

static tt_status run_macro(struct jinja_render *render, struct macro_call *of, struct jinja_value *out)
{
    const struct jinja_node *node = of->macro->node;
    struct jinja_writer writer = jinja_writer_new(render), *outer = render->out;
    enum jinja_flow flow = JINJA_FLOW_NEXT;
    TT_TRY(jinja_enter_frame(render, node->frame, of->macro->scope, &of->scope));
    TT_TRY(bind_parameters(render, of));
    TT_TRY(fill_defaults(render, of));
    render->out = &writer;
    TT_TRY(jinja_exec(render, &of->scope, &node->body, &flow));
    render->out = outer;
    return jinja_writer_value(&writer, out);
}

tt_status jinja_call_macro(struct jinja_render *render, const struct jinja_macro *macro,
                           struct jinja_call *call, struct jinja_value *out)
{
    struct macro_call of = {.macro = macro, .signature = macro->node->signature, .call = call};
    if (render->calls >= TT_JINJA_CALLS_MAX)
        return jinja_fail(render, "more than %d calls of macros within each other", TT_JINJA_CALLS_MAX);
    of.used = jinja_alloc(render, call->named.count * sizeof *of.used);
    if (of.used == NULL) return TT_ERR_MEMORY;
    const struct jinja_node *at = render->at;
    render->calls++;
    TT_TRY(run_macro(render, &of, out));
    render->calls--;
    render->at = at;
    return TT_OK;
}

tt_status jinja_call(struct jinja_render *render, const struct jinja_value *callee, struct jinja_call *call,
                     struct jinja_value *out)
{
    switch (callee->type) {
    case JINJA_MACRO:
        return jinja_call_macro(render, callee->macro, call, out);
    case JINJA_METHOD:
        return jinja_call_method(render, callee->method->id, &callee->method->self, call, out);
    case JINJA_FUNCTION:
        return jinja_call_function(render, callee, call, out);
    case JINJA_UNDEFINED:
        return jinja_fail_undefined(render, callee);
    case JINJA_LOOP:
        return jinja_fail(render, "recursive loops are not supported");
    default:
        return jinja_fail(render, "'%s' object is not callable", jinja_type_name(callee));
    }
}
