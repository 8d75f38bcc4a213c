/* A prompt made from the fields of a row: "Question: {question}\nAnswer:". A literal brace is doubled, as in Python's
 * str.format. */
#ifndef TT_DATA_PROMPT_TEMPLATE_H
#define TT_DATA_PROMPT_TEMPLATE_H

#include "base/json.h"
#include "base/str.h"

/* Checks the text once, before any row is read: TT_ERR_USAGE for a lone brace or a field without a name. */
TT_MUST_USE tt_status tt_prompt_template_check(const char *text);
/* Calls `field` with the name of each field, which points into `text`, as often as it is named. */
typedef tt_status tt_prompt_template_field(void *context, struct tt_span name);
TT_MUST_USE tt_status tt_prompt_template_fields(const char *text, tt_prompt_template_field *field,
                                                void *context);
/* Appends the prompt of `row` to `prompt`. A missing field, or one that is not a text, number or truth value, is
 * TT_ERR_DATA. */
TT_MUST_USE tt_status tt_prompt_template_render(const char *text, const struct tt_json_value *row,
                                                struct tt_str *prompt);

#endif
