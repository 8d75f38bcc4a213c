#include "net/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "net/attempt_impl.h"
#include "net/fields.h"
#include "net/url.h"

enum { REDIRECTS_MAX = 8, ATTEMPTS = 6, PAUSE_SECONDS_MAX = 60, PROXY_WRONG = -1 };

static const char *const methods[] = {"GET", "HEAD", "PUT", "POST", "DELETE"};

/* The first of the variables that is set and not empty, as owned text, or NULL. */
static tt_status copy_variable(const char *const *names, char **out)
{
    for (; *names != NULL; names++) {
        const char *text = getenv(*names);
        if (text == NULL || text[0] == '\0') continue;
        *out = tt_strdup(text);
        return *out != NULL ? TT_OK : TT_ERR_MEMORY;
    }
    return TT_OK;
}

tt_status tt_net_open(const struct tt_net_config *config, const char *what, struct tt_net **out)
{
    tt_status status = TT_OK;
    struct tt_net *net = tt_calloc(1, sizeof *net);
    if (net == NULL) return TT_ERR_MEMORY;
    pthread_mutex_init(&net->mutex, NULL);
    net->config = *config;
    if (net->config.attempts == 0) net->config.attempts = ATTEMPTS;
    if (net->config.pause_seconds == 0) net->config.pause_seconds = 1;
    if (net->config.wait_seconds == 0) net->config.wait_seconds = 300;
    if (net->config.silent_seconds == 0) net->config.silent_seconds = 60;
    TT_GO(curl_open(what, &net->curl));
    TT_GO(copy_variable((const char *const[]){"CURL_CA_BUNDLE", "SSL_CERT_FILE", NULL}, &net->ca_file));
    TT_GO(copy_variable((const char *const[]){"SSL_CERT_DIR", NULL}, &net->ca_path));
    *out = net;
    return TT_OK;
out:
    tt_net_close(net);
    return status;
}

void tt_net_close(struct tt_net *net)
{
    if (net == NULL) return;
    for (int i = 0; i < net->idle_count; i++) net->curl.easy_cleanup(net->idle[i]);
    pthread_mutex_destroy(&net->mutex);
    tt_free(net->ca_file);
    tt_free(net->ca_path);
    tt_free(net);
}

static void *take_handle(struct tt_net *net)
{
    pthread_mutex_lock(&net->mutex);
    void *easy = net->idle_count > 0 ? net->idle[--net->idle_count] : NULL;
    pthread_mutex_unlock(&net->mutex);
    return easy != NULL ? easy : net->curl.easy_init();
}

static void keep_handle(struct tt_net *net, void *easy)
{
    pthread_mutex_lock(&net->mutex);
    bool kept = net->idle_count < NET_IDLE_MAX;
    if (kept) net->idle[net->idle_count++] = easy;
    pthread_mutex_unlock(&net->mutex);
    if (!kept) net->curl.easy_cleanup(easy);
}

static bool is_retried(int code)
{
    return code == 408 || code == 429 || code == 500 || (code >= 502 && code <= 504);
}

static bool is_redirect(int code)
{
    return code == 301 || code == 302 || code == 303 || code == 307 || code == 308;
}

/* The address in HTTPS_PROXY is none, or the proxy refuses its user. libcurl has no codes of their own for these. */
static bool is_proxy_wrong(const struct net_attempt *attempt)
{
    return attempt->result != CURL_OK &&
           (tt_starts_with(attempt->error, "Unsupported proxy") ||
            (strstr(attempt->error, "CONNECT") != NULL && tt_ends_with(attempt->error, " 407")));
}

static const char *reason_of(const struct net_attempt *attempt)
{
    /* libcurl goes on with the whole address, which may have a password. */
    if (tt_starts_with(attempt->error, "Unsupported proxy"))
        return "the proxy's address is none that libcurl takes";
    return attempt->error[0] != '\0' ? attempt->error
                                     : attempt->call->net->curl.easy_strerror(attempt->result);
}

static const char proxy_hint[] = "HTTPS_PROXY, or http_proxy, is http://[USER:PASSWORD@]HOST[:PORT]; special "
                                 "characters of a password as %XX";

static tt_status fail_transfer(const struct net_attempt *attempt)
{
    const struct net_call *call = attempt->call;
    const char *url = call->url.data, *what = call->request->what;
    tt_status status = TT_ERR_IO;
    const char *hint = "the connection failed several times: try again later, or look for what lies between";
    switch (is_proxy_wrong(attempt) ? PROXY_WRONG : attempt->result) {
    case PROXY_WRONG:
        status = TT_ERR_USAGE;
        hint = proxy_hint;
        break;
    case CURL_UNSUPPORTED_PROTOCOL:
    case CURL_MALFORMED_URL:
        status = TT_ERR_USAGE;
        hint = "an address is http://host[:port]/path or https://host[:port]/path";
        break;
    case CURL_NO_ADDRESS:
    case CURL_NO_PROXY_ADDRESS:
    case CURL_NO_CONNECTION:
        hint = "is there a way to this host? behind a proxy set HTTPS_PROXY; names in NO_PROXY go around it";
        break;
    case CURL_CERTIFICATE_REFUSED:
    case CURL_ISSUER_REFUSED:
        status = TT_ERR_DATA;
        hint = "certificates are always verified: install ca-certificates, or name a file with the authority "
               "of this "
               "server or proxy in SSL_CERT_FILE";
        break;
    case CURL_BAD_CA_FILE:
        status = TT_ERR_DATA;
        hint = "CURL_CA_BUNDLE or SSL_CERT_FILE names a file of PEM certificates; without them those of this "
               "machine "
               "hold (ca-certificates)";
        break;
    case CURL_OUT_OF_MEMORY:
        status = TT_ERR_MEMORY;
        break;
    default:
        break;
    }
    tt_fail(status, "%s%s%s %.*s: %s", what != NULL ? what : "", what != NULL ? ": " : "",
            methods[call->request->method], (int)strcspn(url, "?#"), url, reason_of(attempt));
    if (status != TT_ERR_MEMORY) tt_hint("%s", hint);
    return status;
}

/* Whether another attempt may cure how this one ended. */
static bool may_retry(const struct net_attempt *attempt, bool redirected)
{
    const struct tt_net_request *request = attempt->call->request;
    if (attempt->status != TT_OK || is_proxy_wrong(attempt)) return false;
    bool refused = attempt->result == CURL_OK && attempt->call->answer->code == 429; /* without an effect */
    if (request->method == TT_NET_POST && !request->repeatable && !refused) return false;
    if (attempt->call->done > 0 && request->method != TT_NET_GET) return false;
    switch (attempt->result) {
    case CURL_OK:
        /* A URL that a redirect signed may have expired: the first server makes another one. */
        return is_retried(attempt->call->answer->code) || (redirected && attempt->call->answer->code == 403);
    case CURL_UNSUPPORTED_PROTOCOL:
    case CURL_MALFORMED_URL:
    case CURL_OUT_OF_MEMORY:
    case CURL_CERTIFICATE_REFUSED:
    case CURL_ISSUER_REFUSED:
    case CURL_BAD_CA_FILE:
        return false;
    default:
        return true;
    }
}

/* The pause before the next attempt: that of the server, or one that doubles, less up to a quarter, so that many
 * clients do not come back at once. */
static double pause_of(const struct net_attempt *attempt, int failures)
{
    const struct tt_str *headers = &attempt->call->answer->headers;
    double seconds = attempt->call->net->config.pause_seconds;
    char value[128];
    if (attempt->result == CURL_OK) {
        double asked;
        if (tt_net_header(headers, "retry-after", value, sizeof value) &&
            tt_parse_retry_after(value, tt_clock_unix_seconds(), &asked))
            return asked;
        if (tt_net_header(headers, "ratelimit", value, sizeof value) && tt_parse_rate_limit(value, &asked))
            return asked;
    }
    for (int i = 1; i < failures && seconds < PAUSE_SECONDS_MAX; i++) seconds *= 2;
    if (seconds > PAUSE_SECONDS_MAX) seconds = PAUSE_SECONDS_MAX;
    double clock = tt_clock_seconds() * 1e6, fraction = clock - (double)(uint64_t)clock;
    return seconds * (1 - 0.25 * fraction);
}

static tt_status wait_seconds(const struct tt_net *net, double seconds)
{
    for (double end = tt_clock_seconds() + seconds, left = seconds; left > 0;
         left = end - tt_clock_seconds()) {
        if (net->config.cancelled != NULL && net->config.cancelled(net->config.context))
            return tt_fail(TT_ERR_CANCELLED, "stopped on request");
        double step = left < 0.1 ? left : 0.1;
        struct timespec time = {.tv_nsec = (long)(step * 1e9)};
        nanosleep(&time, NULL);
    }
    return TT_OK;
}

/* `location`, which may be relative, seen from call->url. */
static tt_status resolve(struct net_call *call, const char *location)
{
    const struct curl *curl = &call->net->curl;
    void *url = curl->url();
    char *whole = NULL;
    tt_status status = TT_OK;
    if (url == NULL) return tt_fail(TT_ERR_MEMORY, "no memory for a URL");
    if (curl->url_set(url, CURL_URL_WHOLE, call->url.data, 0) != 0 ||
        curl->url_set(url, CURL_URL_WHOLE, location, 0) != 0 ||
        curl->url_set(url, CURL_PART_FRAGMENT, NULL, 0) != 0 ||
        curl->url_get(url, CURL_URL_WHOLE, &whole, 0) != 0) {
        status = tt_fail(TT_ERR_DATA, "'%.200s' leads to what is no URL", call->url.data);
        goto out;
    }
    struct tt_url_origin from, to;
    if (!tt_url_origin(whole, &to) || !tt_url_origin(call->url.data, &from) ||
        (from.scheme.bytes == 5 && to.scheme.bytes == 4)) {
        status = tt_fail(TT_ERR_DATA, "%.*s leads from https to what is not",
                         (int)strcspn(call->url.data, "?#"), call->url.data);
        tt_hint("only addresses of http and https are followed, and none away from https");
        goto out;
    }
    tt_str_clear(&call->url);
    status = tt_str_append_text(&call->url, whole);
out:
    if (whole != NULL) curl->free(whole);
    curl->url_cleanup(url);
    return status;
}

/* Follows a redirect; *followed false: the answer is the call's. */
static tt_status follow(struct net_call *call, int redirects, bool *followed)
{
    const struct tt_net_request *request = call->request;
    struct tt_net_answer *answer = call->answer;
    char location[8192];
    bool reads = request->method == TT_NET_GET || request->method == TT_NET_HEAD;
    *followed = false;
    if (!is_redirect(answer->code) || request->redirects == TT_NET_STAY) return TT_OK;
    if (!reads && answer->code < 307) return TT_OK;
    if (!tt_net_header(&answer->headers, "location", location, sizeof location)) return TT_OK;
    if (redirects >= REDIRECTS_MAX)
        return tt_fail(TT_ERR_DATA, "%.*s: more than %d redirects", (int)strcspn(request->url, "?#"),
                       request->url, REDIRECTS_MAX);
    TT_TRY(resolve(call, location));
    if (request->redirects == TT_NET_SAME_HOST && !tt_url_same_origin(request->url, call->url.data))
        return TT_OK;
    if (answer->first.bytes == 0)
        TT_TRY(tt_str_append(&answer->first, answer->headers.data, answer->headers.bytes));
    *followed = true;
    return TT_OK;
}

/* Says that the call goes on, and waits; *again false: it does not go on. */
static tt_status pause_before_next(const struct net_attempt *attempt, int failures, bool *again)
{
    const struct net_call *call = attempt->call;
    const struct tt_net_config *config = &call->net->config;
    const char *url = call->request->url, *what = call->request->what;
    double seconds = pause_of(attempt, failures);
    char why[CURL_ERROR_BYTES], text[32];
    *again = failures < config->attempts && seconds <= config->wait_seconds;
    if (!*again) return TT_OK;
    if (attempt->result == CURL_OK)
        snprintf(why, sizeof why, "the server answered %d", call->answer->code);
    else
        snprintf(why, sizeof why, "%s", reason_of(attempt));
    tt_notice("%s%s%.*s: %s; trying again in %s", what != NULL ? what : "", what != NULL ? ": " : "",
              (int)strcspn(url, "?#"), url, why, tt_format_duration(seconds, text, sizeof text));
    return wait_seconds(call->net, seconds);
}

static tt_status set_text(struct tt_str *text, const char *to)
{
    tt_str_clear(text);
    return tt_str_append_text(text, to);
}

/* Attempts until one is the call's result. A retry begins with the request's own URL again. */
static tt_status attempt_until_done(struct net_call *call, void *easy)
{
    for (int failures = 0, redirects = 0;;) {
        struct net_attempt attempt = {.call = call, .easy = easy};
        uint64_t before = call->done;
        net_attempt_run(&attempt);
        if (attempt.status != TT_OK) return attempt.status;
        bool again = may_retry(&attempt, redirects > 0);
        if (again) {
            failures = call->done > before ? 1 : failures + 1;
            TT_TRY(pause_before_next(&attempt, failures, &again));
        }
        if (again) {
            TT_TRY(set_text(&call->url, call->request->url));
            redirects = 0;
            continue;
        }
        if (attempt.result != CURL_OK) return fail_transfer(&attempt);
        TT_TRY(set_text(&call->answer->url, call->url.data));
        TT_TRY(follow(call, redirects++, &again));
        if (!again) return TT_OK;
    }
}

tt_status tt_net_call(struct tt_net *net, const struct tt_net_request *request, struct tt_net_answer *answer)
{
    tt_status status = TT_OK;
    struct net_call call = {.net = net, .request = request, .answer = answer};
    struct tt_url_origin origin;
    tt_net_answer_deinit(answer);
    if (!tt_url_origin(request->url, &origin)) {
        bool has_user = strchr(request->url, '@') != NULL; /* perhaps with a password */
        tt_fail(TT_ERR_USAGE, "'%.*s' is no address of a server",
                (int)strcspn(request->url, has_user ? ":" : "?#"), request->url);
        tt_hint("an address is http://host[:port]/path or https://host[:port]/path, without a user");
        return TT_ERR_USAGE;
    }
    void *easy = take_handle(net);
    if (easy == NULL) return tt_fail(TT_ERR_MEMORY, "no memory for a transfer");
    TT_GO(set_text(&call.url, request->url));
    status = attempt_until_done(&call, easy);
out:
    keep_handle(net, easy);
    tt_str_deinit(&call.url);
    if (status != TT_OK && request->what != NULL) tt_while("transferring %s", request->what);
    return status;
}

static tt_status status_of(int code)
{
    return is_retried(code) || code >= 500 ? TT_ERR_IO : TT_ERR_DATA;
}

/* The beginning of an answer's text; pages for people are left out. */
static void excerpt(const struct tt_net_answer *answer, char *text, size_t bytes)
{
    char message[160] = "";
    text[0] = '\0';
    if (!tt_net_header(&answer->headers, "x-error-message", message, sizeof message) &&
        answer->body.bytes > 0 && tt_str_text(&answer->body)[0] != '<')
        snprintf(message, sizeof message, "%s", tt_str_text(&answer->body));
    if (message[0] != '\0') snprintf(text, bytes, " (%s)", message);
}

tt_status tt_net_fail(const struct tt_net_request *request, const struct tt_net_answer *answer)
{
    char text[180];
    const char *url = answer->url.bytes > 0 ? answer->url.data : request->url, *what = request->what;
    excerpt(answer, text, sizeof text);
    tt_status status = tt_fail(status_of(answer->code), "%s%s%s %.*s: the server answered %d%s",
                               what != NULL ? what : "", what != NULL ? ": " : "", methods[request->method],
                               (int)strcspn(url, "?#"), url, answer->code, text);
    char asked[64];
    if (answer->code == 429 && tt_net_header(&answer->headers, "retry-after", asked, sizeof asked))
        tt_hint("the server limits how often it is asked: try again after %s%s", asked,
                asked[strspn(asked, "0123456789")] == '\0' ? " s" : "");
    else if (answer->code == 429)
        tt_hint("the server limits how often it is asked: try again in some minutes");
    else if (answer->code == 407)
        tt_hint("%s", proxy_hint);
    else if (answer->code >= 500)
        tt_hint("the server has a problem of its own: try again later");
    return status;
}
