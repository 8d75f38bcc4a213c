/* The facts of a small model from the text of its config.json. */
#ifndef TT_TESTS_SUPPORT_MODEL_FACTS_H
#define TT_TESTS_SUPPORT_MODEL_FACTS_H

#include <string.h>

#include "model/model.h"

static inline tt_status test_facts(const char *text, struct tt_model_facts *facts)
{
    struct tt_json json = {0};
    tt_status status = tt_json_parse(text, strlen(text), "config.json", &json);
    if (status == TT_OK) status = tt_model_facts_parse(&json, facts);
    tt_json_deinit(&json);
    return status;
}

#endif
