#include "http/hosts.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/ascii.h"
#include "base/str.h"

enum { NAME_BYTES_MAX = 253 }; /* of a name of the DNS, RFC 1035 */

/* A setting of several words is a text, or a list of JSON; no name contains these characters. */
static const char separators[] = " \t,[]\"";

/* The next word behind *at; data NULL: there is none. */
static struct tt_span next_word(const char **at)
{
    *at += strspn(*at, separators);
    struct tt_span word = {*at, strcspn(*at, separators)};
    *at += word.bytes;
    return word.bytes > 0 ? word : (struct tt_span){NULL, 0};
}

static bool is_same(struct tt_span a, struct tt_span b)
{
    return a.bytes == b.bytes && tt_ascii_same_start(a.data, b.data, a.bytes);
}

/* Whether `name` is the word, or ends as "*.example.com" does. */
static bool is_of(struct tt_span name, struct tt_span word)
{
    if (tt_span_equals(word, "*")) return true;
    if (!tt_span_starts_with(word, "*.")) return is_same(name, word);
    struct tt_span ending = {word.data + 1, word.bytes - 1};
    if (name.bytes <= ending.bytes) return false;
    return is_same((struct tt_span){name.data + name.bytes - ending.bytes, ending.bytes}, ending);
}

/* An address in numbers; IPv6 stands in brackets. */
static bool is_number(struct tt_span host)
{
    char text[INET6_ADDRSTRLEN];
    unsigned char address[16];
    bool six = host.bytes > 2 && host.data[0] == '[' && host.data[host.bytes - 1] == ']';
    if (six) host = (struct tt_span){host.data + 1, host.bytes - 2};
    if (host.bytes >= sizeof text) return false;
    memcpy(text, host.data, host.bytes);
    text[host.bytes] = '\0';
    return inet_pton(six ? AF_INET6 : AF_INET, text, address) == 1;
}

/* The name or the address of a header; data NULL: it is malformed. */
static struct tt_span without_port(const char *host)
{
    size_t bytes = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    if (bytes > strlen(host)) return (struct tt_span){NULL, 0};
    const char *port = host + bytes;
    if (*port != '\0' && (*port != ':' || port[1 + strspn(port + 1, "0123456789")] != '\0'))
        return (struct tt_span){NULL, 0};
    if (bytes > 1 && host[bytes - 1] == '.') bytes--; /* the root of the DNS */
    return (struct tt_span){host, bytes};
}

bool tt_http_host_is_allowed(const struct tt_http_hosts *hosts, const char *host)
{
    if (host == NULL) return true;
    struct tt_span name = without_port(host), word;
    if (name.data == NULL) return false;
    if (is_number(name) || is_same(name, tt_span_of("localhost"))) return true;
    const char *at = hosts->allowed != NULL ? hosts->allowed : "";
    bool named = false;
    while ((word = next_word(&at)).data != NULL) {
        named = true;
        if (is_of(name, word)) return true;
    }
    return hosts->open && !named;
}

static bool is_name(struct tt_span word)
{
    if (tt_span_equals(word, "*")) return true;
    size_t begin = tt_span_starts_with(word, "*.") ? 2 : 0;
    for (size_t i = begin; i < word.bytes; i++) {
        char c = word.data[i];
        if (!tt_ascii_is_letter(c) && !tt_ascii_is_digit(c) && c != '-' && c != '_' && c != '.') return false;
    }
    return word.bytes > begin && word.bytes <= NAME_BYTES_MAX && word.data[begin] != '.';
}

tt_status tt_http_hosts_check(const char *allowed, const char *setting)
{
    struct tt_span word;
    const char *at = allowed != NULL ? allowed : "";
    while ((word = next_word(&at)).data != NULL) {
        if (is_name(word)) continue;
        tt_fail(TT_ERR_USAGE, "%s: '%.*s' is no host name", setting,
                (int)(word.bytes < 100 ? word.bytes : 100), word.data);
        tt_hint("names without scheme and port, as trimtab.example.com or *.example.com; * allows all");
        return TT_ERR_USAGE;
    }
    return TT_OK;
}

bool tt_http_path_is_one_of(const char *path, const char *const *paths)
{
    for (; paths != NULL && *paths != NULL; paths++)
        if (strcmp(path, *paths) == 0) return true;
    return false;
}
