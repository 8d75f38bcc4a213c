/* Renders templates for scripts that compare with another engine:
 *
 *     render_jinja <cases.jsonl >results.jsonl
 *
 * A line of the input is {"template": TEXT, "variables": OBJECT}, or {"variables": OBJECT} for the template of the line
 * before; of the output {"output": TEXT, "generation": [[begin, end], ...]} in bytes, or {"error": TEXT}. --time N
 * renders each N times and adds "seconds", of one rendering. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "text/jinja/jinja.h"

enum { VARIABLES_MAX = 64 };

static void add_generation(struct tt_json_value *list, const struct tt_jinja_output *output)
{
    uint32_t begin = 0;
    bool open = false;
    for (size_t i = 0; i <= output->span_count; i++) {
        bool inside = i < output->span_count && output->spans[i].generation;
        uint32_t at = i > 0 ? output->spans[i - 1].end : 0;
        if (inside && !open) begin = at;
        if (!inside && open) tt_json_append(list, tt_json_pack("[I, I]", (int64_t)begin, (int64_t)at));
        open = inside;
    }
}

static struct tt_json_value *failure(void)
{
    struct tt_json_value *result = tt_json_new_object();
    tt_json_set(result, "error", tt_json_new_string(tt_error_last()->message));
    return result;
}

static struct tt_json_value *render(const struct tt_jinja *jinja, const struct tt_json_value *variables,
                                    int repeats)
{
    struct tt_jinja_variable list[VARIABLES_MAX];
    struct tt_jinja_input input = {.variables = list, .date = {2026, 3, 5, 7, 8, 9}};
    const char *key;
    const struct tt_json_value *value;
    for (size_t at = 0;
         tt_json_next_member(variables, &at, &key, &value) && input.variable_count < VARIABLES_MAX;)
        list[input.variable_count++] =
            (struct tt_jinja_variable){.name = key, .kind = TT_JINJA_JSON, .json = value};
    struct tt_jinja_output output = {0};
    double start = tt_clock_seconds();
    for (int i = 1; i < repeats; i++) {
        if (tt_jinja_render(jinja, &input, &output) != TT_OK) break;
        tt_jinja_output_deinit(&output);
    }
    if (tt_jinja_render(jinja, &input, &output) != TT_OK) return failure();
    double seconds = (tt_clock_seconds() - start) / repeats;
    struct tt_json_value *result = tt_json_new_object(), *generation = tt_json_new_list();
    tt_json_set(result, "output", tt_json_new_string(output.text));
    add_generation(generation, &output);
    tt_json_set(result, "generation", generation);
    if (repeats > 1) tt_json_set(result, "seconds", tt_json_new_real(seconds));
    tt_jinja_output_deinit(&output);
    return result;
}

int main(int argc, char **argv)
{
    int repeats = argc == 3 && strcmp(argv[1], "--time") == 0 ? atoi(argv[2]) : 1;
    char *line = NULL;
    size_t capacity = 0;
    struct tt_jinja *jinja = NULL;
    struct tt_json_value *parse_failure = NULL;
    struct tt_str text = {0};
    for (ssize_t bytes; (bytes = getline(&line, &capacity, stdin)) > 0;) {
        struct tt_json json = {0};
        if (tt_json_parse(line, (size_t)bytes, "stdin", &json) != TT_OK) {
            fprintf(stderr, "%s\n", tt_error_last()->message);
            return 1;
        }
        struct tt_span source = tt_json_span(tt_json_get(json.root, "template"));
        if (source.data != NULL) {
            tt_jinja_destroy(jinja);
            tt_json_release(parse_failure);
            jinja = NULL;
            parse_failure = NULL;
            struct tt_jinja_source template = {source.data, source.bytes, "template"};
            if (tt_jinja_parse(&template, &jinja) != TT_OK) parse_failure = failure();
        }
        struct tt_json_value *result = jinja != NULL
                                           ? render(jinja, tt_json_get(json.root, "variables"), repeats)
                                           : tt_json_copy(parse_failure);
        tt_str_clear(&text);
        if (result == NULL || tt_json_write(result, 0, false, &text) != TT_OK) return 1;
        puts(tt_str_text(&text));
        tt_json_release(result);
        tt_json_deinit(&json);
    }
    tt_str_deinit(&text);
    tt_jinja_destroy(jinja);
    tt_json_release(parse_failure);
    free(line);
    return 0;
}
