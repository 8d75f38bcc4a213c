/* The names of a server's adapters, and the place of each in the generation (infer/adapter_set.h). Names come and go
 * while requests run: a place whose name was taken away is free once no request has it any more. Any thread. */
#ifndef TT_SERVE_ADAPTERS_H
#define TT_SERVE_ADAPTERS_H

#include "base/error.h"
#include "base/json.h"

enum { TT_SERVE_ADAPTER_NAME_MAX = 200 }; /* bytes */

struct tt_serve_adapters;

/* `places` of them, at least `count`; the first ones have the names. */
TT_MUST_USE tt_status tt_serve_adapters_create(const char *const *names, size_t count, size_t places,
                                               struct tt_serve_adapters **out);
void tt_serve_adapters_destroy(struct tt_serve_adapters *adapters); /* takes NULL */

/* A request's use of an adapter, until it leaves. NULL for `name`: the first one there is. False: there is none.
 * *shown is its name, lent until then. */
bool tt_serve_adapters_use(struct tt_serve_adapters *adapters, const char *name, int *place,
                           const char **shown);
void tt_serve_adapters_leave(struct tt_serve_adapters *adapters, int place);
bool tt_serve_adapters_have(struct tt_serve_adapters *adapters, const char *name);

enum tt_serve_adapter_answer {
    TT_SERVE_ADAPTER_DONE,
    TT_SERVE_ADAPTER_THERE,
    TT_SERVE_ADAPTER_FULL,
    TT_SERVE_ADAPTER_NONE
};
/* Takes a place for an adapter that is loaded next: THERE: one of this name is or is being loaded; FULL; NONE: memory
 * is exhausted. end gives it the name, or makes it free again. */
enum tt_serve_adapter_answer tt_serve_adapters_begin(struct tt_serve_adapters *adapters, const char *name,
                                                     int *place);
void tt_serve_adapters_end(struct tt_serve_adapters *adapters, int place, bool loaded);
/* Takes the name away. NONE: there is none of it. */
enum tt_serve_adapter_answer tt_serve_adapters_remove(struct tt_serve_adapters *adapters, const char *name);

/* Calls `see` for each name, in order of their places; it must not call back. */
typedef void tt_serve_adapter_see(void *context, const char *name);
void tt_serve_adapters_visit(struct tt_serve_adapters *adapters, tt_serve_adapter_see *see, void *context);

#endif
