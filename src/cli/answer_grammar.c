#include "cli/answer_grammar.h"

#include "base/json.h"
#include "infer/constraint.h"

enum { SCHEMA_BYTES_MAX = 16 << 20 };

static tt_status write(struct tt_json_value *value, struct tt_str *source)
{
    tt_status status = tt_json_write(value, 0, false, source);
    tt_json_release(value);
    return status;
}

static tt_status check(const struct tt_inputs *inputs, const struct tt_str *source)
{
    struct tt_constraints *constraints = NULL;
    struct tt_grammar *grammar = NULL;
    TT_TRY(tt_constraints_create(inputs, &constraints));
    tt_status status =
        tt_constraints_get(constraints, (struct tt_span){source->data, source->bytes}, &grammar);
    tt_grammar_release(grammar);
    tt_constraints_destroy(constraints);
    return status;
}

tt_status tt_answer_grammar_make(const char *json_schema, const char *regex, const struct tt_inputs *inputs,
                                 struct tt_str *source)
{
    struct tt_json json = {0};
    tt_status status = TT_OK;
    if (json_schema != NULL && regex != NULL)
        return tt_fail(TT_ERR_USAGE, "json_schema and regex both constrain the answers: give one of them");
    if (json_schema == NULL && regex == NULL) return TT_OK;
    if (json_schema != NULL) {
        TT_GO(tt_json_read(json_schema, SCHEMA_BYTES_MAX, &json));
        TT_GO(write(tt_json_pack("{s:O}", "json", json.root), source));
    } else {
        TT_GO(write(tt_json_pack("{s:s}", "regex", regex), source));
    }
    status = check(inputs, source);
    if (status != TT_OK) tt_while("reading %s", json_schema != NULL ? json_schema : "the setting regex");
out:
    tt_json_deinit(&json);
    return status;
}
