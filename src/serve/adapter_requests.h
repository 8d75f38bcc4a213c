/* /v1/load_lora_adapter and /v1/unload_lora_adapter, with vLLM's members, answers and errors
 * (vllm/entrypoints/openai/models/serving.py). A path is that of a local folder: nothing is downloaded. */
#ifndef TT_SERVE_ADAPTER_REQUESTS_H
#define TT_SERVE_ADAPTER_REQUESTS_H

#include "http/server.h"
#include "infer/generation_team.h"
#include "serve/adapters.h"
#include "serve/api_request.h"

/* All lent. */
struct tt_serve_adapter_call {
    struct tt_http_exchange *exchange;
    const struct tt_api_request *request;
    const char *base; /* the name of the base model, which no adapter may have */
    struct tt_serve_adapters *adapters;
    bool takes; /* places were reserved; else the addresses are not there */
};

/* Takes a place for the adapter. False: the exchange has been answered. *place < 0: none was taken. Any thread, as the
 * next one. */
bool tt_serve_load_begin(const struct tt_serve_adapter_call *call, int *place);
void tt_serve_unload(const struct tt_serve_adapter_call *call);
/* Loads and answers. The leader's thread, between steps. */
void tt_serve_load(const struct tt_serve_adapter_call *call, struct tt_generation_team *team, int place);

#endif
