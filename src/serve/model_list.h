/* The models of a server: the base model, then its adapters, as /v1/models shows them. Any thread. */
#ifndef TT_SERVE_MODEL_LIST_H
#define TT_SERVE_MODEL_LIST_H

#include "base/str.h"
#include "serve/adapters.h"

struct tt_model_names {
    const char *base;
    struct tt_serve_adapters *adapters;
};

bool tt_serve_has_model(const struct tt_model_names *names, const char *name);
/* Appends one model that there is as JSON; NULL: the list of all. */
TT_MUST_USE tt_status tt_serve_write_models(const struct tt_model_names *names, const char *name,
                                            struct tt_str *text);

#endif
