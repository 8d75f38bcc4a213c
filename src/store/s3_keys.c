#include "store/s3_keys.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/number.h"
#include "net/url.h"
#include "store/s3_time.h"
#include "store/xml.h"

enum { FILE_BYTES_MAX = 1 << 20, ANSWER_BYTES_MAX = 1 << 20 };

static void wipe(struct tt_str *text)
{
    if (text->data != NULL) sodium_memzero(text->data, text->capacity);
    tt_str_deinit(text);
}

void tt_s3_keys_deinit(struct tt_s3_keys *keys)
{
    wipe(&keys->access);
    wipe(&keys->secret);
    wipe(&keys->token);
    *keys = (struct tt_s3_keys){0};
}

tt_status tt_s3_keys_copy(const struct tt_s3_keys *from, struct tt_s3_keys *to)
{
    to->expires = from->expires;
    TT_TRY(tt_str_append(&to->access, tt_str_text(&from->access), from->access.bytes));
    TT_TRY(tt_str_append(&to->secret, tt_str_text(&from->secret), from->secret.bytes));
    return tt_str_append(&to->token, tt_str_text(&from->token), from->token.bytes);
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* ---- 1. The environment ---- */

static tt_status of_environment(struct tt_s3_keys *keys)
{
    const char *access = variable("AWS_ACCESS_KEY_ID"), *secret = variable("AWS_SECRET_ACCESS_KEY");
    const char *token = variable("AWS_SESSION_TOKEN");
    if (access == NULL || secret == NULL) return TT_OK;
    TT_TRY(tt_str_append_text(&keys->access, access));
    TT_TRY(tt_str_append_text(&keys->secret, secret));
    return token != NULL ? tt_str_append_text(&keys->token, token) : TT_OK;
}

/* ---- 3. Shared files ---- */

static struct tt_span trim(const char *text, size_t bytes)
{
    while (bytes > 0 && tt_ascii_is_space(text[bytes - 1])) bytes--;
    while (bytes > 0 && tt_ascii_is_space(*text)) text++, bytes--;
    return (struct tt_span){text, bytes};
}

bool tt_s3_ini_value(const char *text, const char *section, const char *member, struct tt_str *value)
{
    const char *dot = strchr(member, '.');
    struct tt_span group = {member, dot != NULL ? (size_t)(dot - member) : 0};
    bool inside = false, grouped = false;
    if (dot != NULL) member = dot + 1;
    for (const char *at = text; *at != '\0';) {
        size_t bytes = strcspn(at, "\n");
        struct tt_span line = trim(at, bytes);
        bool indented = bytes > 0 && tt_ascii_is_space(at[0]);
        at += bytes + (at[bytes] == '\n');
        if (line.bytes == 0 || line.data[0] == '#' || line.data[0] == ';') continue;
        if (line.data[0] == '[') {
            const char *end = memchr(line.data, ']', line.bytes);
            struct tt_span name = end != NULL ? trim(line.data + 1, (size_t)(end - line.data) - 1) : line;
            inside = tt_span_equals(name, section);
            continue;
        }
        const char *equals = memchr(line.data, '=', line.bytes);
        if (!inside || equals == NULL) continue;
        struct tt_span name = trim(line.data, (size_t)(equals - line.data));
        if (!indented) grouped = name.bytes == group.bytes && memcmp(name.data, group.data, group.bytes) == 0;
        if (indented != (dot != NULL) || (indented && !grouped)) continue;
        struct tt_span found = trim(equals + 1, line.bytes - (size_t)(equals + 1 - line.data));
        if (!tt_span_equals(name, member)) continue;
        tt_str_clear(value);
        return found.bytes > 0 && tt_str_append(value, found.data, found.bytes) == TT_OK;
    }
    return false;
}

/* The file that `name` says, else ~/.aws/`file`; false: there is none. */
static bool read_shared(const char *name, const char *file, struct tt_str *text)
{
    struct tt_path path;
    const char *home = variable("HOME"), *given = variable(name);
    bool named = given != NULL  ? tt_path_set(&path, given, "") == TT_OK
                 : home != NULL ? tt_path_set(&path, home, file) == TT_OK
                                : false;
    if (given != NULL)
        named = (size_t)tt_snprintf(path.text, sizeof path.text, "%s", given) < sizeof path.text;
    bool found = named && tt_path_exists(path.text) && tt_file_read(path.text, FILE_BYTES_MAX, text) == TT_OK;
    if (!found) tt_error_clear();
    return found;
}

bool tt_s3_profile(const char *member, bool config, struct tt_str *value)
{
    struct tt_str text = {0}, section = {0};
    const char *profile = variable("AWS_PROFILE");
    bool found = false;
    if (profile == NULL) profile = "default";
    if (!config && read_shared("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials", &text))
        found = tt_s3_ini_value(tt_str_text(&text), profile, member, value);
    wipe(&text);
    if (!found && read_shared("AWS_CONFIG_FILE", ".aws/config", &text)) {
        bool is_default = strcmp(profile, "default") == 0;
        if (is_default) found = tt_s3_ini_value(tt_str_text(&text), profile, member, value);
        if (!found && tt_str_printf(&section, "profile %s", profile) == TT_OK)
            found = tt_s3_ini_value(tt_str_text(&text), tt_str_text(&section), member, value);
    }
    wipe(&text);
    tt_str_deinit(&section);
    return found;
}

static tt_status of_files(struct tt_s3_keys *keys)
{
    if (!tt_s3_profile("aws_access_key_id", false, &keys->access) ||
        !tt_s3_profile("aws_secret_access_key", false, &keys->secret)) {
        tt_s3_keys_deinit(keys);
        return TT_OK;
    }
    (void)tt_s3_profile("aws_session_token", false, &keys->token);
    return TT_OK;
}

/* ---- 2. Web identity ---- */

static tt_status take_text(void *context, const char *path, const char *text)
{
    static const char start[] =
        "AssumeRoleWithWebIdentityResponse/AssumeRoleWithWebIdentityResult/Credentials/";
    struct tt_s3_keys *keys = context;
    if (!tt_starts_with(path, start)) return TT_OK;
    const char *name = path + sizeof start - 1;
    if (strcmp(name, "AccessKeyId") == 0) return tt_str_append_text(&keys->access, text);
    if (strcmp(name, "SecretAccessKey") == 0) return tt_str_append_text(&keys->secret, text);
    if (strcmp(name, "SessionToken") == 0) return tt_str_append_text(&keys->token, text);
    if (strcmp(name, "Expiration") == 0 && !tt_s3_parse_time(text, &keys->expires))
        return tt_fail(TT_ERR_DATA, "STS answered with a time that is none");
    return TT_OK;
}

static tt_status read_body(void *context, uint64_t offset, void *data, size_t bytes)
{
    const struct tt_str *body = context;
    memcpy(data, body->data + offset, bytes);
    return TT_OK;
}

/* A form of what was asked, so that no address has the token. */
static tt_status make_form(const char *role, const struct tt_str *token, struct tt_str *form)
{
    const char *session = variable("AWS_ROLE_SESSION_NAME");
    struct tt_span trimmed = trim(tt_str_text(token), token->bytes);
    struct tt_str plain = {0};
    tt_status status = TT_OK;
    TT_GO(tt_str_append(&plain, trimmed.data, trimmed.bytes));
    TT_GO(tt_str_append_text(form, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn="));
    TT_GO(tt_url_append_escaped(form, role, false));
    TT_GO(tt_str_append_text(form, "&RoleSessionName="));
    TT_GO(tt_url_append_escaped(form, session != NULL ? session : "trimtab", false));
    TT_GO(tt_str_append_text(form, "&WebIdentityToken="));
    TT_GO(tt_url_append_escaped(form, tt_str_text(&plain), false));
out:
    wipe(&plain);
    return status;
}

static tt_status ask_sts(struct tt_net *net, const char *region, struct tt_str *form, struct tt_s3_keys *keys)
{
    static const struct tt_net_header headers[] = {
        {"Content-Type", "application/x-www-form-urlencoded", false}};
    const char *given = variable("AWS_ENDPOINT_URL_STS");
    struct tt_net_answer answer = {0};
    struct tt_str url = {0};
    tt_status status = TT_OK;
    const struct tt_net_source body = {.bytes = form->bytes, .read = read_body, .context = form};
    if (given != NULL) {
        TT_GO(tt_str_append_text(&url, given));
        while (tt_ends_with(tt_str_text(&url), "/")) url.data[--url.bytes] = '\0';
        TT_GO(tt_str_append_char(&url, '/'));
    } else {
        TT_GO(tt_str_printf(&url, "https://sts.%s.amazonaws.com%s/", region,
                            tt_starts_with(region, "cn-") ? ".cn" : ""));
    }
    const struct tt_net_request request = {.method = TT_NET_POST,
                                           .url = tt_str_text(&url),
                                           .what = "credentials for a web identity",
                                           .headers = headers,
                                           .header_count = 1,
                                           .redirects = TT_NET_STAY,
                                           .body = &body,
                                           .answer_bytes = ANSWER_BYTES_MAX,
                                           .repeatable = true};
    TT_GO(tt_net_call(net, &request, &answer));
    if (answer.code != 200) {
        status = tt_net_fail(&request, &answer);
        tt_hint("the role of AWS_ROLE_ARN must trust the identity of AWS_WEB_IDENTITY_TOKEN_FILE");
        goto out;
    }
    TT_GO(tt_xml_visit(tt_str_text(&answer.body), answer.body.bytes, "the answer of STS", take_text, keys));
    if (keys->access.bytes == 0 || keys->secret.bytes == 0)
        status = tt_fail(TT_ERR_DATA, "the answer of STS has no credentials");
out:
    wipe(&answer.body);
    tt_net_answer_deinit(&answer);
    tt_str_deinit(&url);
    return status;
}

static tt_status of_web_identity(struct tt_net *net, const char *region, struct tt_s3_keys *keys)
{
    const char *file = variable("AWS_WEB_IDENTITY_TOKEN_FILE"), *role = variable("AWS_ROLE_ARN");
    struct tt_str token = {0}, form = {0};
    tt_status status = TT_OK;
    if (file == NULL || role == NULL) return TT_OK;
    TT_GO(tt_file_read(file, FILE_BYTES_MAX, &token));
    TT_GO(make_form(role, &token, &form));
    TT_GO(ask_sts(net, region, &form, keys));
out:
    wipe(&token);
    wipe(&form);
    return status;
}

/* ---- 4. and 5. A server beside the container or below the machine ---- */

static tt_status take_member(const struct tt_json *json, const char *name, struct tt_str *text)
{
    const char *value = tt_json_text(tt_json_get(json->root, name));
    return value != NULL ? tt_str_append_text(text, value) : TT_OK;
}

static tt_status read_answer(const struct tt_str *body, const char *what, struct tt_s3_keys *keys)
{
    struct tt_json json = {0};
    tt_status status = TT_OK;
    TT_GO(tt_json_parse(tt_str_text(body), body->bytes, what, &json));
    TT_GO(take_member(&json, "AccessKeyId", &keys->access));
    TT_GO(take_member(&json, "SecretAccessKey", &keys->secret));
    TT_GO(take_member(&json, "Token", &keys->token));
    const char *expires = tt_json_text(tt_json_get(json.root, "Expiration"));
    if (keys->access.bytes == 0 || keys->secret.bytes == 0 ||
        (expires != NULL && !tt_s3_parse_time(expires, &keys->expires)))
        status = tt_fail(TT_ERR_DATA, "%s has no credentials", what);
out:
    tt_json_deinit(&json);
    return status;
}

/* One GET or PUT of a text. `token`: the value of `header`, or NULL. */
static tt_status ask(struct tt_net *net, enum tt_net_method method, const char *url, const char *header,
                     const char *token, const char *what, struct tt_str *body)
{
    struct tt_net_answer answer = {0};
    const struct tt_net_header headers[] = {{header, token, true}};
    const struct tt_net_request request = {.method = method,
                                           .url = url,
                                           .what = what,
                                           .headers = headers,
                                           .header_count = token != NULL,
                                           .redirects = TT_NET_STAY,
                                           .answer_bytes = ANSWER_BYTES_MAX};
    tt_status status = tt_net_call(net, &request, &answer);
    if (status == TT_OK && answer.code != 200) status = tt_net_fail(&request, &answer);
    if (status == TT_OK) status = tt_str_append(body, tt_str_text(&answer.body), answer.body.bytes);
    wipe(&answer.body);
    tt_net_answer_deinit(&answer);
    return status;
}

/* AWS' own programs do the same: without TLS only an address of this machine or of the two agents. */
static tt_status check_container(const char *url)
{
    static const char *const hosts[] = {"localhost",     "127.0.0.1",      "[::1]",
                                        "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"};
    struct tt_url_origin origin;
    bool known = tt_url_origin(url, &origin), secure = known && tt_span_equals(origin.scheme, "https");
    for (size_t i = 0; known && !secure && i < sizeof hosts / sizeof *hosts; i++)
        secure = tt_span_equals(origin.host, hosts[i]);
    if (secure) return TT_OK;
    return tt_fail(TT_ERR_USAGE,
                   "AWS_CONTAINER_CREDENTIALS_FULL_URI is no https:// address, nor one of this machine");
}

static tt_status of_container(struct tt_net *net, struct tt_s3_keys *keys)
{
    static const char what[] = "credentials of the container";
    const char *full = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    const char *relative = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *file = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *given = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    struct tt_str url = {0}, token = {0}, body = {0};
    tt_status status = TT_OK;
    if (full == NULL && relative == NULL) return TT_OK;
    if (relative != NULL)
        TT_GO(tt_str_printf(&url, "http://169.254.170.2%s", relative));
    else
        TT_GO(tt_str_append_text(&url, full));
    TT_GO(check_container(tt_str_text(&url)));
    if (file != NULL)
        TT_GO(tt_file_read(file, FILE_BYTES_MAX, &token));
    else if (given != NULL)
        TT_GO(tt_str_append_text(&token, given));
    while (token.bytes > 0 && tt_ascii_is_space(token.data[token.bytes - 1]))
        token.data[--token.bytes] = '\0';
    TT_GO(ask(net, TT_NET_GET, tt_str_text(&url), "Authorization",
              token.bytes > 0 ? tt_str_text(&token) : NULL, what, &body));
    TT_GO(read_answer(&body, what, keys));
out:
    wipe(&token);
    wipe(&body);
    tt_str_deinit(&url);
    return status;
}

/* Version 2 of the service: a token by PUT, then the name of the role, then its credentials. */
static tt_status of_instance(struct tt_s3_keys *keys)
{
    static const char what[] = "credentials of the instance";
    const char *endpoint = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const struct tt_net_config patience = {.attempts = 1, .whole_seconds = 1};
    struct tt_str token = {0}, role = {0}, body = {0}, url = {0};
    struct tt_net *net = NULL;
    tt_status status = TT_OK;
    size_t bytes = endpoint != NULL ? strlen(endpoint) : 0;
    if (bytes == 0) return TT_OK;
    while (bytes > 0 && endpoint[bytes - 1] == '/') bytes--;
    TT_GO(tt_net_open(&patience, "an s3:// path", &net));
    TT_GO(tt_str_printf(&url, "%.*s/latest/api/token", (int)bytes, endpoint));
    TT_GO(ask(net, TT_NET_PUT, tt_str_text(&url), "X-aws-ec2-metadata-token-ttl-seconds", "21600", what,
              &token));
    tt_str_clear(&url);
    TT_GO(tt_str_printf(&url, "%.*s/latest/meta-data/iam/security-credentials/", (int)bytes, endpoint));
    TT_GO(ask(net, TT_NET_GET, tt_str_text(&url), "X-aws-ec2-metadata-token", tt_str_text(&token), what,
              &role));
    TT_GO(tt_url_append_escaped(&url, tt_str_text(&role), false));
    TT_GO(ask(net, TT_NET_GET, tt_str_text(&url), "X-aws-ec2-metadata-token", tt_str_text(&token), what,
              &body));
    TT_GO(read_answer(&body, what, keys));
out:
    tt_net_close(net);
    wipe(&token);
    wipe(&body);
    tt_str_deinit(&role);
    tt_str_deinit(&url);
    return status;
}

tt_status tt_s3_keys_find(struct tt_net *net, const char *region, struct tt_s3_keys *keys)
{
    TT_TRY(of_environment(keys));
    if (keys->access.bytes == 0) TT_TRY(of_web_identity(net, region, keys));
    if (keys->access.bytes == 0) TT_TRY(of_files(keys));
    if (keys->access.bytes == 0) TT_TRY(of_container(net, keys));
    if (keys->access.bytes == 0) TT_TRY(of_instance(keys));
    if (keys->access.bytes > 0) return TT_OK;
    tt_status status = tt_fail(TT_ERR_USAGE, "there are no credentials for s3:// paths");
    tt_hint(
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile in ~/.aws/credentials (AWS_PROFILE), or in a "
        "cluster a service account with a role: docs/object-storage.md");
    return status;
}
