#include "serve/adapter_requests.h"

#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/number.h"
#include "serve/adapters.h"
#include "serve/refuse.h"

/* vLLM's words for what is wrong with a request. */
static const char input_error[] = "InvalidUserInput", not_found[] = "NotFoundError",
                  bad_request[] = "BadRequestError";

enum { MESSAGE_BYTES = TT_SERVE_ADAPTER_NAME_MAX + 200 };

/* The message names the adapter of the request between `before` and `after`. */
static void refuse(const struct tt_serve_adapter_call *call, int code, const char *type, const char *before,
                   const char *after)
{
    char text[MESSAGE_BYTES];
    (void)tt_snprintf(text, sizeof text, "%s'%s'%s", before, call->request->lora_name, after);
    tt_serve_refuse(call->exchange, code, type, "lora_name", NULL, text);
}

static void succeed(const struct tt_serve_adapter_call *call, const char *what)
{
    char text[MESSAGE_BYTES];
    (void)tt_snprintf(text, sizeof text, "Success: LoRA adapter '%s' %s successfully.",
                      call->request->lora_name, what);
    tt_http_answer(call->exchange, 200, "text/plain", text, strlen(text));
}

/* Places are reserved at the start, or the addresses do nothing. */
static bool takes_adapters(const struct tt_serve_adapter_call *call)
{
    if (call->takes) return true;
    tt_serve_refuse(call->exchange, 404, not_found, NULL, NULL,
                    "this server takes no adapters while it runs: start it with --max_loras");
    return false;
}

/* A folder of this machine that looks like an adapter's. Other places than folders are never asked. */
static bool is_adapter_folder(const char *path)
{
    struct tt_path config;
    bool local = strstr(path, "://") == NULL && strlen(path) < sizeof config.text / 2;
    bool is = local && tt_path_is_dir(path) && tt_path_set(&config, path, "adapter_config.json") == TT_OK &&
              tt_path_exists(config.text);
    tt_error_clear();
    return is;
}

bool tt_serve_load_begin(const struct tt_serve_adapter_call *call, int *place)
{
    const char *name = call->request->lora_name, *path = call->request->lora_path;
    int found;
    *place = -1;
    if (!takes_adapters(call)) return false;
    if (name == NULL || path == NULL) {
        tt_serve_refuse(call->exchange, 400, input_error, name == NULL ? "lora_name" : "lora_path", NULL,
                        "Both 'lora_name' and 'lora_path' must be provided.");
        return false;
    }
    enum tt_serve_adapter_answer answer = strcmp(name, call->base) == 0
                                              ? TT_SERVE_ADAPTER_THERE
                                              : tt_serve_adapters_begin(call->adapters, name, &found);
    if (answer == TT_SERVE_ADAPTER_DONE) *place = found;
    if (answer == TT_SERVE_ADAPTER_THERE)
        refuse(call, 400, input_error, "The lora adapter ", " has already been loaded.");
    else if (answer == TT_SERVE_ADAPTER_FULL)
        refuse(call, 400, bad_request, "there is no place for ",
               ": unload an adapter, or start with more --max_loras");
    else if (answer == TT_SERVE_ADAPTER_NONE)
        tt_serve_fail(call->exchange, TT_ERR_MEMORY, NULL);
    else if (!is_adapter_folder(path))
        refuse(call, 404, not_found, "Loading lora ", " failed: No adapter found at lora_path");
    else
        return true;
    return false;
}

void tt_serve_unload(const struct tt_serve_adapter_call *call)
{
    const char *name = call->request->lora_name;
    if (!takes_adapters(call)) return;
    if (name == NULL)
        tt_serve_refuse(call->exchange, 400, input_error, "lora_name", NULL,
                        "'lora_name' needs to be provided to unload a LoRA adapter.");
    else if (tt_serve_adapters_remove(call->adapters, name) != TT_SERVE_ADAPTER_DONE)
        refuse(call, 404, not_found, "The lora adapter ", " cannot be found.");
    else
        succeed(call, "removed");
}

void tt_serve_load(const struct tt_serve_adapter_call *call, struct tt_generation_team *team, int place)
{
    tt_status verdict = TT_OK;
    tt_status status = tt_generation_team_load_adapter(team, call->request->lora_path, place, &verdict);
    tt_serve_adapters_end(call->adapters, place, status == TT_OK && verdict == TT_OK);
    if (status == TT_OK && verdict == TT_OK) {
        tt_info("loaded the adapter '%s' from '%s'", call->request->lora_name, call->request->lora_path);
        succeed(call, "added");
        return;
    }
    bool theirs = status == TT_OK &&
                  (verdict == TT_ERR_USAGE || verdict == TT_ERR_DATA || verdict == TT_ERR_UNSUPPORTED);
    if (theirs)
        tt_serve_refuse(call->exchange, 400, bad_request, "lora_path", NULL, tt_error_record()->message);
    else
        tt_serve_refuse(call->exchange, 500, "InternalServerError", NULL, NULL,
                        "the adapter cannot be loaded");
    tt_error_clear();
}
