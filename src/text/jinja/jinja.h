/* Jinja templates as chat templates use them: parsed once, rendered many times.
 *
 * The language is that of Jinja2 3.1 in the environment of transformers (trim_blocks, lstrip_blocks, the immutable
 * sandbox, loop controls, {% generation %}): the same bytes, or an error with line and column. docs/chat-templates.md
 * lists what is supported, what is refused, and the limits.
 *
 * A parsed template is immutable: many threads may render from it at once. Rendering changes nothing but its output.
 *
 * The output knows where its bytes come from: each span names the value of the input that it was made of, or none for
 * text of the template, and whether it lies in {% generation %}. A piece of a text keeps its origin through +, ~, %,
 * join, slices, strip, replace, case, macros and set blocks; what is made of a list or an object as a whole (tojson)
 * has the origin of the list or object and of the values in it. */
#ifndef TT_TEXT_JINJA_JINJA_H
#define TT_TEXT_JINJA_JINJA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/json.h"
#include "base/str.h"

struct tt_jinja; /* a parsed template */

/* Limits of templates, which may come from strangers. Beyond each, parsing or rendering ends with an error that names
 * the limit. */
enum {
    TT_JINJA_SOURCE_MAX = 1 << 20,   /* bytes of a template */
    TT_JINJA_TOKENS_MAX = 200000,    /* words and signs of a template */
    TT_JINJA_NESTING_MAX = 300,      /* blocks, brackets and expressions within each other */
    TT_JINJA_CALLS_MAX = 64,         /* macros that call each other */
    TT_JINJA_DEPTH_MAX = 1500,       /* nested evaluations, calls included; operators and members in a row */
    TT_JINJA_VALUE_DEPTH_MAX = 600,  /* lists in lists that are printed or compared */
    TT_JINJA_STEPS_MAX = 10000000,   /* of one rendering; long texts and lists count for more than one */
    TT_JINJA_RANGE_MAX = 100000,     /* elements of range() */
    TT_JINJA_TEXT_MAX = 16 << 20,    /* bytes of one text */
    TT_JINJA_MEMORY_MAX = 256 << 20, /* bytes of all values of a rendering */
    TT_JINJA_OUTPUT_MAX = 64 << 20,  /* bytes of the output */
};

struct tt_jinja_source {
    const char *text; /* borrowed during the call */
    size_t bytes;
    const char *name; /* "chat_template.jinja", "tokenizer_config.json": used in messages */
};

/* TT_ERR_DATA for a wrong template, or one that uses an unsupported feature. */
TT_MUST_USE tt_status tt_jinja_parse(const struct tt_jinja_source *source, struct tt_jinja **out);
void tt_jinja_destroy(struct tt_jinja *jinja); /* takes NULL */
/* Whether the template has a {% generation %} block. */
bool tt_jinja_has_generation(const struct tt_jinja *jinja);

enum tt_jinja_kind { TT_JINJA_NONE, TT_JINJA_BOOL, TT_JINJA_TEXT, TT_JINJA_JSON };

/* A variable of the template. All is borrowed during the call; keys of `json` as long as the output. */
struct tt_jinja_variable {
    const char *name;
    enum tt_jinja_kind kind;
    bool flag;                        /* TT_JINJA_BOOL */
    struct tt_span text;              /* TT_JINJA_TEXT: UTF-8 */
    const struct tt_json_value *json; /* TT_JINJA_JSON: parsed as a whole, no outline */
};

/* The time that strftime_now() formats. */
struct tt_jinja_date {
    int year, month, day; /* month and day from 1 */
    int hour, minute, second;
};

struct tt_jinja_input {
    const struct tt_jinja_variable *variables; /* of equal names the last one holds */
    size_t variable_count;
    struct tt_jinja_date date; /* year 0: strftime_now() is an error */
};

/* Where a value of the input is: a tree, whose root is 0. A child of the root is a variable. */
struct tt_jinja_origin {
    uint32_t parent;
    uint32_t index;  /* of an element */
    const char *key; /* a variable's name or an object's key, borrowed from the input; NULL: an element */
    size_t key_bytes;
};

struct tt_jinja_span {
    uint32_t end;    /* behind the last byte; the span begins where the one before it ends */
    uint32_t origin; /* index in `origins`; 0: text of the template, or made by it */
    bool generation; /* inside {% generation %} */
};

/* An owned rendering. A zeroed struct is empty; deinit takes it. */
struct tt_jinja_output {
    char *text; /* UTF-8, terminated; it may hold U+0000 */
    size_t bytes;
    struct tt_jinja_span *spans; /* of all bytes, in order; neighbours differ */
    size_t span_count;
    struct tt_jinja_origin *origins;
    size_t origin_count;
};

/* TT_ERR_DATA for a refusal by the template (raise_exception), an error in it, or a limit. */
TT_MUST_USE tt_status tt_jinja_render(const struct tt_jinja *jinja, const struct tt_jinja_input *input,
                                      struct tt_jinja_output *output);
void tt_jinja_output_deinit(struct tt_jinja_output *output);

/* Appends "messages[3].content"; nothing for 0. */
TT_MUST_USE tt_status tt_jinja_origin_path(const struct tt_jinja_output *output, uint32_t origin,
                                           struct tt_str *path);
/* Whether the origin is in an element of the list `variable` ("messages"): its index, and the origin of its member that
 * holds the value (0: the element as a whole). */
bool tt_jinja_origin_element(const struct tt_jinja_output *output, uint32_t origin, const char *variable,
                             uint32_t *index, uint32_t *member);

#endif
