/* Bodies of requests to the server. The first byte chooses between conversations and prompts. What is accepted keeps
 * the promises of its header.
 * words: src/serve/api_request.c
 * links: tt_serve */
#include <stdint.h>
#include <stdlib.h>

#include "serve/api_request.h"

static void must(bool holds)
{
    if (!holds) abort();
}

static void check(const struct tt_api_request *request, bool chat)
{
    must(request->max_tokens >= -1 && request->max_tokens <= 1 << 20);
    must(request->temperature == -1 || (request->temperature >= 0 && request->temperature <= 2));
    must(request->top_p == -1 || (request->top_p > 0 && request->top_p <= 1));
    must(request->stop_count <= TT_API_STOPS_MAX);
    for (size_t i = 0; i < request->stop_count; i++)
        must(request->stops[i].bytes > 0 && request->stops[i].bytes <= TT_API_STOP_BYTES_MAX);
    must(request->n >= 1 && request->prompt_count >= 1);
    must(request->n * (int64_t)request->prompt_count <= TT_API_CHOICES_MAX);
    must(request->top_logprobs >= 0 && request->top_logprobs <= TT_API_TOP_LOGPROBS_MAX);
    must(request->wants_logprobs || request->top_logprobs == 0);
    if (!chat) {
        for (size_t i = 0; i < request->prompt_count; i++)
            must((request->prompts[i].text.bytes > 0) != (tt_json_count(request->prompts[i].ids) > 0));
        return;
    }
    const struct tt_json_value *messages = tt_json_get(request->row, "messages");
    must(tt_json_count(messages) > 0);
    for (size_t i = 0; i < tt_json_count(messages); i++) {
        const struct tt_json_value *message = tt_json_at(messages, i);
        must(tt_json_text(tt_json_get(message, "role")) != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tt_api_request request = {0};
    const char *param = NULL;
    if (size == 0) return 0;
    bool chat = data[0] % 2 == 0;
    struct tt_span body = {(const char *)data + 1, size - 1};
    tt_status status = tt_api_request_parse(body, chat, &request, &param);
    if (status == TT_OK)
        check(&request, chat);
    else
        must(status == TT_ERR_USAGE || status == TT_ERR_DATA);
    tt_api_request_deinit(&request);
    return 0;
}
