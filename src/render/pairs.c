/* Settings that are a JSON object of texts: variables of the pods, labels of their nodes. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "render/render_impl.h"

static tt_status refuse_pairs(const char *setting, const char *what, const char *rule)
{
    tt_status status = tt_fail(TT_ERR_USAGE, "%s: %s", setting, what);
    tt_hint("%s", rule);
    return status;
}

bool tt_render_is_printable(const char *text)
{
    for (const char *c = text; *c != '\0'; c++)
        if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\') return false;
    return true;
}

static tt_status add_pair(const char *setting, const char *name, const char *value,
                          struct tt_render_pairs *pairs)
{
    char what[200];
    struct tt_render_pair *pair = &pairs->items[pairs->count];
    snprintf(what, sizeof what, "'%.100s' is not valid", name);
    if (pairs->count == TT_RENDER_PAIRS_MAX) return refuse_pairs(setting, "too many", "at most 32");
    if (strlen(name) >= sizeof pair->name || !tt_render_is_printable(name) || name[0] == '\0')
        return refuse_pairs(setting, what, "a name is printable ASCII of at most 127 characters");
    if (value == NULL || strlen(value) >= sizeof pair->value || !tt_render_is_printable(value))
        return refuse_pairs(setting, what,
                            "its value is a text of printable ASCII without quotes and backslashes, at most "
                            "255 characters; numbers need quotes");
    snprintf(pair->name, sizeof pair->name, "%s", name);
    snprintf(pair->value, sizeof pair->value, "%s", value);
    pairs->count++;
    return TT_OK;
}

static tt_status add_secret(const char *entry, size_t bytes, struct tt_render_pairs *secrets)
{
    static const char rule[] =
        "an entry is NAME=SECRET/KEY: a variable, the name of a Secret, and a key of it";
    char name[128], value[256], what[200];
    const char *equals = memchr(entry, '=', bytes), *slash = memchr(entry, '/', bytes);
    snprintf(what, sizeof what, "'%.*s' is not valid", bytes < 100 ? (int)bytes : 100, entry);
    if (equals == NULL || slash == NULL || slash < equals + 2 || slash + 1 == entry + bytes)
        return refuse_pairs("pod_secrets", what, rule);
    size_t name_bytes = (size_t)(equals - entry), value_bytes = bytes - name_bytes - 1;
    if (name_bytes >= sizeof name || value_bytes >= sizeof value)
        return refuse_pairs("pod_secrets", what, rule);
    snprintf(name, sizeof name, "%.*s", (int)name_bytes, entry);
    snprintf(value, sizeof value, "%.*s", (int)value_bytes, equals + 1);
    return add_pair("pod_secrets", name, value, secrets);
}

tt_status tt_render_read_secrets(const char *text, struct tt_render_pairs *secrets)
{
    *secrets = (struct tt_render_pairs){0};
    while (text != NULL && *text != '\0') {
        size_t bytes = strcspn(text, ", ");
        if (bytes > 0) TT_TRY(add_secret(text, bytes, secrets));
        text += bytes + (text[bytes] != '\0');
    }
    return TT_OK;
}

/* The port of http://HOST:PORT/..., or else of the scheme; 0: the text is no address. */
static int port_of(const char *address)
{
    const char *host = strstr(address, "://");
    const int usual = strncmp(address, "http:", 5) == 0 ? 80 : strncmp(address, "https:", 6) == 0 ? 443 : 0;
    if (host == NULL) return 0;
    host += 3;
    size_t bytes = strcspn(host, "/?#");
    long port = 0;
    const char *colon = memrchr(host, ':', bytes);
    if (colon == NULL || memchr(colon, ']', bytes - (size_t)(colon - host)) != NULL) return usual;
    for (const char *c = colon + 1; c < host + bytes && *c >= '0' && *c <= '9' && port < 65536; c++)
        port = port * 10 + (*c - '0');
    return port > 0 && port < 65536 ? (int)port : 0;
}

tt_status tt_render_ports(const char *pod_env, int ports[TT_RENDER_PORTS_MAX], int *count)
{
    struct tt_render_pairs env;
    *count = 0;
    TT_TRY(tt_render_read_pairs("pod_env", pod_env, &env));
    for (int i = 0; i < env.count; i++) {
        int port = port_of(env.items[i].value);
        bool known = port == 0 || *count == TT_RENDER_PORTS_MAX;
        for (int k = 0; k < *count; k++) known |= ports[k] == port;
        if (!known) ports[(*count)++] = port;
    }
    return TT_OK;
}

tt_status tt_render_read_pairs(const char *setting, const char *text, struct tt_render_pairs *pairs)
{
    struct tt_json json = {0};
    const struct tt_json_value *value;
    const char *name;
    *pairs = (struct tt_render_pairs){0};
    if (text == NULL) return TT_OK;
    tt_status status = tt_json_parse(text, strlen(text), setting, &json);
    if (status == TT_OK && !tt_json_is_object(json.root))
        status = refuse_pairs(setting, "it is no object", "write names and values: {\"NAME\": \"value\"}");
    for (size_t at = 0; status == TT_OK && tt_json_next_member(json.root, &at, &name, &value);)
        status = add_pair(setting, name, tt_json_text(value), pairs);
    tt_json_deinit(&json);
    return status;
}
