/* Which hub, and as whom: the environment of the hub's tools; requests, and the remedies of their errors. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/ascii.h"
#include "base/file.h"
#include "hub/hub_impl.h"
#include "net/url.h"

enum { TOKEN_BYTES_MAX = 4096 };

static const char *variable(const char *name)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? text : NULL;
}

/* constants.py: ENV_VARS_TRUE_VALUES. */
static bool is_true(const char *name)
{
    const char *text = variable(name);
    return text != NULL && (strcmp(text, "1") == 0 || tt_ascii_same(text, "on") ||
                            tt_ascii_same(text, "yes") || tt_ascii_same(text, "true"));
}

static tt_status take_token(struct tt_hub *hub, const char *text)
{
    const char *first = text + strspn(text, " \r\n\t");
    size_t bytes = strcspn(first, " \r\n\t");
    return bytes > 0 ? tt_str_printf(&hub->token, "Bearer %.*s", (int)bytes, first) : TT_OK;
}

static tt_status token_file(struct tt_str *path)
{
    const char *given = variable("HF_TOKEN_PATH"), *home = variable("HF_HOME"),
               *xdg = variable("XDG_CACHE_HOME"), *user = variable("HOME");
    if (given != NULL) return tt_str_append_text(path, given);
    if (home != NULL) return tt_str_printf(path, "%s/token", home);
    if (xdg != NULL) return tt_str_printf(path, "%s/huggingface/token", xdg);
    return tt_str_printf(path, "%s/.cache/huggingface/token", user != NULL ? user : "");
}

static tt_status read_token(struct tt_hub *hub)
{
    const char *given = variable("HF_TOKEN");
    struct tt_str path = {0}, text = {0};
    tt_status status = TT_OK;
    if (given == NULL) given = variable("HUGGING_FACE_HUB_TOKEN");
    if (given != NULL) return take_token(hub, given);
    if (is_true("HF_HUB_DISABLE_IMPLICIT_TOKEN")) return TT_OK;
    TT_GO(token_file(&path));
    if (!tt_path_exists(path.data) || tt_path_is_dir(path.data)) goto out;
    TT_GO(tt_file_read(path.data, TOKEN_BYTES_MAX, &text));
    status = take_token(hub, text.data);
out:
    tt_str_deinit(&path);
    tt_str_deinit(&text);
    return status;
}

tt_status tt_hub_open(const struct tt_hub_config *config, struct tt_hub **out)
{
    tt_status status = TT_OK;
    struct tt_hub *hub = tt_calloc(1, sizeof *hub);
    if (hub == NULL) return TT_ERR_MEMORY;
    const char *endpoint = variable("HF_ENDPOINT");
    hub->config = *config;
    hub->offline = is_true("HF_HUB_OFFLINE") || is_true("TRANSFORMERS_OFFLINE");
    TT_GO(tt_str_append_text(&hub->endpoint, endpoint != NULL ? endpoint : "https://huggingface.co"));
    while (hub->endpoint.bytes > 0 && hub->endpoint.data[hub->endpoint.bytes - 1] == '/')
        hub->endpoint.data[--hub->endpoint.bytes] = '\0';
    TT_GO(config->token != NULL ? take_token(hub, config->token) : read_token(hub));
    *out = hub;
    return TT_OK;
out:
    tt_hub_close(hub);
    return status;
}

void tt_hub_close(struct tt_hub *hub)
{
    if (hub == NULL) return;
    hub_ranges_close(hub);
    tt_net_close(hub->net);
    tt_str_deinit(&hub->endpoint);
    tt_str_deinit(&hub->token);
    tt_free(hub);
}

/* A run that reads its rows by ranges finishes its step at the first request to stop. */
bool hub_is_stopped(void *context)
{
    const struct tt_hub *hub = context;
    const int most = hub->ranges != NULL ? 1 : 0;
    return atomic_load(&hub->stop) ||
           (hub->config.cancel != NULL && atomic_load(&hub->config.cancel->requests) > most);
}

tt_status hub_connect(struct tt_hub *hub)
{
    struct tt_url_origin origin;
    if (hub->offline) {
        tt_fail(TT_ERR_USAGE, "HF_HUB_OFFLINE forbids to ask the hub");
        tt_hint("unset HF_HUB_OFFLINE, or give what is in the cache or a local path");
        return TT_ERR_USAGE;
    }
    if (!tt_url_origin(hub->endpoint.data, &origin)) {
        const bool named = strchr(hub->endpoint.data, '@') == NULL; /* else it may have a password */
        tt_fail(TT_ERR_USAGE, "HF_ENDPOINT is %s%.200s%s, which is no address of a hub", named ? "'" : "",
                named ? hub->endpoint.data : "of a user", named ? "'" : "");
        tt_hint("an address is https://host[:port], without a user");
        return TT_ERR_USAGE;
    }
    if (hub->net != NULL) return TT_OK;
    struct tt_net_config config = {.attempts = 5, .cancelled = hub_is_stopped, .context = hub};
    return tt_net_open(&config, "the hub", &hub->net);
}

tt_status hub_append_api(const struct tt_hub *hub, const char *kind, const char *name, struct tt_str *url)
{
    return tt_str_printf(url, "%s/api/%s/%s", hub->endpoint.data, kind, name);
}

tt_status hub_append_page(const struct tt_hub *hub, const char *kind, const char *name, struct tt_str *url)
{
    return tt_str_printf(url, "%s/%s%s", hub->endpoint.data, strcmp(kind, "datasets") == 0 ? "datasets/" : "",
                         name);
}

/* Sources of the codes: huggingface_hub, utils/_http.py (hf_raise_for_status): X-Error-Code. */
static void hint_at(const struct tt_hub *hub, const struct hub_repository *repository,
                    const struct tt_net_answer *answer)
{
    char code[64] = "";
    bool known = hub->token.bytes > 0;
    (void)tt_net_header(&answer->headers, "x-error-code", code, sizeof code);
    const char *section = strcmp(repository->kind, "datasets") == 0 ? "datasets/" : "";
    if (strcmp(code, "GatedRepo") == 0)
        tt_hint("its owner gives access: agree to the terms at %s/%s%s%s", hub->endpoint.data, section,
                repository->name,
                known ? " with the account of the token" : ", and set HF_TOKEN to a token of that account");
    else if (strcmp(code, "RevisionNotFound") == 0)
        tt_hint("there is no branch, tag or commit '%s': see %s/%s%s/tree/main", repository->revision,
                hub->endpoint.data, section, repository->name);
    else if (strcmp(code, "EntryNotFound") == 0)
        tt_hint("see the files at %s/%s%s/tree/main", hub->endpoint.data, section, repository->name);
    else if (answer->code == 401 && known)
        tt_hint("the hub refuses the token of HF_TOKEN or of its file: it may have expired; make one at "
                "%s/settings/tokens, or unset it for what is public",
                hub->endpoint.data);
    else if (answer->code == 401 || answer->code == 404)
        tt_hint("is the name right? what is private or gated needs HF_TOKEN; a data set is asked for as one, "
                "and a "
                "local folder by its path");
    else if (answer->code == 403)
        tt_hint("the token has no right to this: make one with it at %s/settings/tokens", hub->endpoint.data);
}

tt_status hub_call(struct tt_hub *hub, const struct hub_repository *repository,
                   struct tt_net_request *request, struct tt_net_answer *answer)
{
    struct tt_net_header headers[8];
    size_t count = 0;
    for (; count < request->header_count && count < 7; count++) headers[count] = request->headers[count];
    if (hub->token.bytes > 0)
        headers[count++] = (struct tt_net_header){"Authorization", hub->token.data, true};
    struct tt_net_request own = *request;
    own.headers = headers;
    own.header_count = count;
    TT_TRY(tt_net_call(hub->net, &own, answer));
    if (answer->code >= 200 && answer->code <= 299) return TT_OK;
    tt_status status = tt_net_fail(&own, answer);
    hint_at(hub, repository, answer);
    return status;
}

tt_status hub_resolve(struct tt_hub *hub, struct hub_repository *repository)
{
    struct tt_str url = {0}, what = {0};
    struct tt_net_answer answer = {0};
    tt_status status = TT_OK;
    TT_GO(hub_append_api(hub, repository->kind, repository->name, &url));
    TT_GO(tt_str_append_text(&url, "/revision/"));
    TT_GO(tt_url_append_escaped(&url, repository->revision, false));
    TT_GO(tt_str_printf(&what, "'%s'", repository->name));
    struct tt_net_request request = {.url = url.data, .what = what.data};
    TT_GO(hub_call(hub, repository, &request, &answer));
    TT_GO(tt_hub_parse_commit(tt_str_text(&answer.body), answer.body.bytes, url.data, repository->commit));
out:
    tt_str_deinit(&url);
    tt_str_deinit(&what);
    tt_net_answer_deinit(&answer);
    return status;
}

tt_status hub_list(struct tt_hub *hub, const struct hub_repository *repository,
                   struct tt_hub_listing *listing)
{
    struct tt_str url = {0}, what = {0};
    struct tt_net_answer answer = {0};
    char link[8192], next[4096];
    tt_status status = TT_OK;
    TT_GO(hub_append_api(hub, repository->kind, repository->name, &url));
    TT_GO(tt_str_printf(&url, "/tree/%s?recursive=true&expand=false", repository->commit));
    TT_GO(tt_str_printf(&what, "the files of '%s'", repository->name));
    for (bool more = true; more;) {
        struct tt_net_request request = {.url = url.data, .what = what.data};
        TT_GO(hub_call(hub, repository, &request, &answer));
        size_t before = listing->count;
        TT_GO(tt_hub_listing_add(listing, tt_str_text(&answer.body), answer.body.bytes, what.data));
        more = tt_net_header(&answer.headers, "link", link, sizeof link) &&
               tt_hub_next_page(link, next, sizeof next);
        if (more && (!tt_url_same_origin(next, url.data) || listing->count == before))
            TT_GO(tt_fail(TT_ERR_DATA, "%s: the next page is another server's, or the last page was empty",
                          what.data));
        if (!more) break;
        tt_str_clear(&url);
        TT_GO(tt_str_append_text(&url, next));
    }
out:
    tt_str_deinit(&url);
    tt_str_deinit(&what);
    tt_net_answer_deinit(&answer);
    return status;
}
