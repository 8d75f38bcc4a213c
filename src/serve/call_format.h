/* Forms in which models write calls of tools: one file and one line of call_formats.def each. Inside src/serve
 * only. */
#ifndef TT_SERVE_CALL_FORMAT_H
#define TT_SERVE_CALL_FORMAT_H

#include "base/json.h"
#include "text/tokenizer.h"

/* The calls that were found so far. */
struct tt_call_search {
    const struct tt_json_value *tools; /* of the request */
    uint64_t seed;                     /* of the ids */
    struct tt_json_value *calls;       /* owned by the caller */
};

/* A model that forced calls are written for; lent. */
struct tt_call_model {
    const struct tt_tokenizer *tokenizer;
    const char *chat_template;
};

struct tt_call_format {
    const char *name;
    /* Texts of chat templates that write this form: one of them is in the template; NULL ends the list. The first
     * format of the table that has one is the template's, and the last one is that of all others. */
    const char *const *marks;
    /* Texts with which calls begin, behind the answer's text; NULL: calls are the whole answer. */
    const char *const *begins;
    /* *are: `text`, from such a one on, is nothing but calls, which were added. */
    tt_status (*find)(struct tt_call_search *search, struct tt_span text, bool *are);
    /* Grammar parts (grammar/grammar.h) of a forced call, and of the texts before and between several; NULL: nothing is
     * before them; there is at most one. */
    tt_status (*write)(const struct tt_call_model *model, const struct tt_json_value *function,
                       struct tt_json_value **part);
    struct tt_json_value *(*before)(const struct tt_call_model *model);
    const char *between;
    bool shown; /* its marks say where texts end: they are shown, though they may be special tokens */
};

/* A message of harmony: its header, behind the mark of a channel, and its content. Takes over `body`. */
struct tt_json_value *tt_call_harmony_message(const struct tt_tokenizer *tokenizer,
                                              struct tt_json_value *header, struct tt_json_value *body);

#define CALL_FORMAT(name) extern const struct tt_call_format tt_call_format_##name;
#include "serve/call_formats.def"
#undef CALL_FORMAT
/* Number `index` of the table; NULL behind its end. */
const struct tt_call_format *tt_call_format_at(size_t index);
/* That of a template; NULL: no template. */
const struct tt_call_format *tt_call_format_of(const char *chat_template);

/* ---- Shared by formats ---- */

struct tt_span tt_call_trim(struct tt_span text);
/* The function that the request declares by this name; NULL: none. */
const struct tt_json_value *tt_call_function(const struct tt_json_value *tools, struct tt_span name);
/* Adds a call with arguments, an object or the text of one. *is false: no tool has the name. */
TT_MUST_USE tt_status tt_call_add(struct tt_call_search *search, struct tt_span name,
                                  const struct tt_json_value *arguments, bool *is);
/* *are: the text is one object with name and arguments or parameters, or a list of them, which were added. */
TT_MUST_USE tt_status tt_call_add_json(struct tt_call_search *search, struct tt_span text, bool *are);
/* The bytes of the JSON object at the begin of the text, up to its brace; 0: it has no end. */
size_t tt_call_object_bytes(struct tt_span text);
/* The schema of a function's arguments: its parameters, or an object without any. Owned by the caller. */
struct tt_json_value *tt_call_schema(const struct tt_json_value *function);
/* Whether a value of this schema is a text and nothing else. */
bool tt_call_is_text(const struct tt_json_value *schema);
bool tt_call_is_required(const struct tt_json_value *parameters, struct tt_span key);
/* Refuses a keyword of the schema that is none of `known`, words between spaces, and says something of values. */
TT_MUST_USE tt_status tt_call_check_keywords(const struct tt_json_value *schema, const char *known);
/* The part of a text without `end` behind it: one of enum or const, or any. Nothing of its schema is passed over. */
TT_MUST_USE tt_status tt_call_text_part(const struct tt_json_value *schema, const char *end,
                                        struct tt_json_value **part);
/* {"text": before + the name, as JSON if `quotes`, + behind}. */
struct tt_json_value *tt_call_name_part(const struct tt_json_value *function, const char *before, bool quotes,
                                        const char *behind);
/* {"token": id} of a special token, or {"text": its text}. */
struct tt_json_value *tt_call_token_part(const struct tt_tokenizer *tokenizer, const char *token);

#endif
