#include "store/s3_client.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/ascii.h"
#include "base/clock.h"
#include "base/number.h"
#include "base/utf8.h"
#include "net/url.h"
#include "store/s3_request_impl.h"
#include "store/s3_time.h"
#include "store/xml.h"

enum { WHAT_BYTES = 1200, CONDITION_HEADERS = 1, HURRIED_SECONDS = 20 };

/* ---- Opening ---- */

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static tt_status read_style(enum tt_s3_style *style)
{
    static const char *const words[] = {"auto", "path", "virtual"}; /* as enum tt_s3_style */
    const char *given = variable("AWS_S3_ADDRESSING_STYLE");
    struct tt_str text = {0};
    tt_status status = TT_ERR_USAGE;
    if (given == NULL)
        given = tt_s3_profile("s3.addressing_style", true, &text) ? tt_str_text(&text) : "auto";
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(given, words[i]) != 0) continue;
        *style = (enum tt_s3_style)i;
        status = TT_OK;
    }
    if (status != TT_OK) {
        tt_fail(TT_ERR_USAGE, "the addressing style of s3:// paths is '%.40s'", given);
        tt_hint("AWS_S3_ADDRESSING_STYLE, or addressing_style of the profile, is auto, path or virtual");
    }
    tt_str_deinit(&text);
    return status;
}

tt_status tt_s3_config_read(struct tt_s3_config *config, struct tt_str *endpoint, struct tt_str *region)
{
    const char *address = variable("AWS_ENDPOINT_URL_S3"), *named = variable("AWS_REGION");
    if (address == NULL) address = variable("AWS_ENDPOINT_URL");
    if (named == NULL) named = variable("AWS_DEFAULT_REGION");
    if (address != NULL)
        TT_TRY(tt_str_append_text(endpoint, address));
    else
        (void)tt_s3_profile("endpoint_url", true, endpoint);
    if (named != NULL)
        TT_TRY(tt_str_append_text(region, named));
    else if (!tt_s3_profile("region", true, region))
        TT_TRY(tt_str_append_text(region, "us-east-1"));
    config->endpoint = endpoint->bytes > 0 ? tt_str_text(endpoint) : NULL;
    config->region = tt_str_text(region);
    return read_style(&config->style);
}

static bool is_hurried(void *context)
{
    const struct tt_s3 *s3 = context;
    double since = atomic_load(&s3->hurried);
    return since > 0 && tt_clock_seconds() - since > HURRIED_SECONDS;
}

tt_status tt_s3_open(const struct tt_s3_config *config, struct tt_s3 **out)
{
    tt_status status = TT_OK;
    struct tt_s3 *s3 = tt_calloc(1, sizeof *s3);
    if (s3 == NULL) return TT_ERR_MEMORY;
    pthread_mutex_init(&s3->mutex, NULL);
    s3->part_bytes = config->part_bytes;
    s3->style = config->style;
    if (config->endpoint != NULL) TT_GO(tt_str_append_text(&s3->endpoint, config->endpoint));
    while (tt_ends_with(tt_str_text(&s3->endpoint), "/")) s3->endpoint.data[--s3->endpoint.bytes] = '\0';
    TT_GO(tt_str_append_text(&s3->region, config->region));
    TT_GO(tt_net_open(&(struct tt_net_config){.attempts = config->attempts,
                                              .pause_seconds = config->pause_seconds,
                                              .cancelled = is_hurried,
                                              .context = s3},
                      "an s3:// path", &s3->net));
    *out = s3;
    s3 = NULL;
out:
    tt_s3_close(s3);
    return status;
}

void tt_s3_close(struct tt_s3 *s3)
{
    if (s3 == NULL) return;
    tt_net_close(s3->net);
    tt_s3_keys_deinit(&s3->keys);
    tt_str_deinit(&s3->endpoint);
    tt_str_deinit(&s3->region);
    pthread_mutex_destroy(&s3->mutex);
    tt_free(s3);
}

void tt_s3_hurry(struct tt_s3 *s3, bool hurried)
{
    if (!hurried || atomic_load(&s3->hurried) <= 0)
        atomic_store(&s3->hurried, hurried ? tt_clock_seconds() : 0);
}

/* ---- Names ---- */

/* One part of a key, which a path of a disk could have too. */
static bool is_plain(const char *text, size_t bytes)
{
    if (bytes == 0 || (bytes == 1 && text[0] == '.') || (bytes == 2 && memcmp(text, "..", 2) == 0))
        return false;
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f || text[i] == '/' || text[i] == '\\')
            return false;
    return tt_utf8_invalid_at(text, bytes) == bytes;
}

tt_status tt_s3_name_of(const char *path, struct tt_s3_name *name)
{
    const char *bucket = path + 5;
    size_t bytes = tt_starts_with(path, "s3://") ? strcspn(bucket, "/") : 0;
    bool valid = bytes >= 3 && bytes < sizeof name->bucket;
    for (size_t i = 0; valid && i < bytes; i++)
        valid = (bucket[i] >= 'a' && bucket[i] <= 'z') || tt_ascii_is_digit(bucket[i]) || bucket[i] == '-' ||
                bucket[i] == '.' || bucket[i] == '_';
    if (!valid) {
        tt_status status = tt_fail(TT_ERR_USAGE, "'%.300s' names no bucket", path);
        tt_hint("a path of an object is s3://BUCKET/NAME");
        return status;
    }
    memcpy(name->bucket, bucket, bytes);
    name->bucket[bytes] = '\0';
    name->key = bucket + bytes + (bucket[bytes] == '/');
    name->key_bytes = strlen(name->key);
    while (name->key_bytes > 0 && name->key[name->key_bytes - 1] == '/') name->key_bytes--;
    for (size_t at = 0; at < name->key_bytes;) {
        size_t part = strcspn(name->key + at, "/");
        if (part > name->key_bytes - at) part = name->key_bytes - at;
        if (!is_plain(name->key + at, part))
            return tt_fail(TT_ERR_USAGE, "'%.300s' has a part that no object's name may have here", path);
        at += part + 1;
    }
    if (name->key_bytes > 1024)
        return tt_fail(TT_ERR_USAGE, "'%.300s...' is longer than an object's name", path);
    return TT_OK;
}

/* A request for the object of a path; `what` is for messages. */
static tt_status begin(const char *path, enum tt_net_method method, struct tt_s3_name *name,
                       char what[WHAT_BYTES], struct s3_request *request)
{
    TT_TRY(tt_s3_name_of(path, name));
    (void)tt_snprintf(what, WHAT_BYTES, "'%.1100s'", path);
    *request = (struct s3_request){
        .method = method, .bucket = name->bucket, .key = {name->key, name->key_bytes}, .what = what};
    return TT_OK;
}

/* ---- Reading ---- */

static void read_facts(const struct tt_net_answer *answer, struct tt_s3_object *object)
{
    char date[64];
    if (!tt_net_header(&answer->headers, "etag", object->etag, sizeof object->etag)) object->etag[0] = '\0';
    if (tt_net_header(&answer->headers, "last-modified", date, sizeof date))
        (void)tt_s3_parse_date(date, &object->changed);
    if (tt_net_header(&answer->headers, "date", date, sizeof date))
        (void)tt_s3_parse_date(date, &object->now);
}

static bool read_number(const char *text, uint64_t *number)
{
    *number = 0;
    if (*text == '\0' || strlen(text) > 18) return false;
    for (; *text != '\0'; text++) {
        if (!tt_ascii_is_digit(*text)) return false;
        *number = *number * 10 + (uint64_t)(*text - '0');
    }
    return true;
}

tt_status tt_s3_head(struct tt_s3 *s3, const char *path, struct tt_s3_object *object)
{
    char what[WHAT_BYTES], length[32];
    struct tt_s3_name name;
    struct s3_request request;
    struct tt_net_answer answer = {0};
    tt_status status = TT_OK;
    *object = (struct tt_s3_object){0};
    TT_GO(begin(path, TT_NET_HEAD, &name, what, &request));
    if (name.key_bytes == 0) goto out;
    TT_GO(s3_send(s3, &request, &answer));
    if (answer.code == 404) goto out;
    if (answer.code != 200) {
        TT_GO(tt_s3_list(s3, path, 1, NULL, NULL)); /* an answer to HEAD has no text that says why */
        TT_GO(s3_fail(s3, &request, &answer));
    }
    read_facts(&answer, object);
    object->exists = tt_net_header(&answer.headers, "content-length", length, sizeof length) &&
                     read_number(length, &object->bytes);
    if (!object->exists) status = tt_fail(TT_ERR_DATA, "the server does not say how large %s is", what);
out:
    tt_net_answer_deinit(&answer);
    return status;
}

struct taking {
    char *data;
    size_t bytes, got;
};

static tt_status take_bytes(void *context, const void *data, size_t bytes)
{
    struct taking *taking = context;
    if (bytes > taking->bytes - taking->got)
        return tt_fail(TT_ERR_DATA, "the server sent more bytes than were asked for");
    memcpy(taking->data + taking->got, data, bytes);
    taking->got += bytes;
    return TT_OK;
}

tt_status tt_s3_get(struct tt_s3 *s3, const char *path, const char *etag, uint64_t offset, void *data,
                    size_t bytes, size_t *got)
{
    char what[WHAT_BYTES];
    struct tt_s3_name name;
    struct s3_request request;
    struct tt_net_answer answer = {0};
    struct taking taking = {.data = data, .bytes = bytes};
    const struct tt_net_sink sink = {.write = take_bytes, .context = &taking};
    const struct tt_net_header condition[CONDITION_HEADERS] = {{"If-Match", etag, false}};
    tt_status status = TT_OK;
    *got = 0;
    if (bytes == 0) return TT_OK;
    TT_GO(begin(path, TT_NET_GET, &name, what, &request));
    request.headers = condition;
    request.header_count = etag != NULL && etag[0] != '\0';
    request.ranged = true;
    request.first = offset;
    request.count = bytes;
    request.sink = &sink;
    TT_GO(s3_send(s3, &request, &answer));
    if (answer.code == 412) {
        status = tt_fail(TT_ERR_DATA, "%s changed while it was read", what);
        goto out;
    }
    if (answer.code == 416) goto out; /* behind the end */
    if (answer.code != 200 && answer.code != 206) TT_GO(s3_fail(s3, &request, &answer));
    *got = taking.got;
out:
    tt_net_answer_deinit(&answer);
    return status;
}

tt_status tt_s3_get_all(struct tt_s3 *s3, const char *path, size_t max_bytes, struct tt_str *data,
                        struct tt_s3_object *object)
{
    char what[WHAT_BYTES];
    struct tt_s3_name name;
    struct s3_request request;
    struct tt_net_answer answer = {0};
    tt_status status = TT_OK;
    *object = (struct tt_s3_object){0};
    TT_GO(begin(path, TT_NET_GET, &name, what, &request));
    request.answer_bytes = max_bytes;
    TT_GO(s3_send(s3, &request, &answer));
    if (answer.code == 404) goto out;
    if (answer.code != 200) TT_GO(s3_fail(s3, &request, &answer));
    read_facts(&answer, object);
    object->exists = true;
    object->bytes = answer.body.bytes;
    status = tt_str_append(data, tt_str_text(&answer.body), answer.body.bytes);
out:
    tt_net_answer_deinit(&answer);
    return status;
}

/* ---- Writing ---- */

tt_status tt_s3_put(struct tt_s3 *s3, const char *path, const void *data, size_t bytes,
                    const struct tt_s3_condition *condition, bool *kept, char *etag)
{
    char what[WHAT_BYTES];
    struct tt_s3_name name;
    struct s3_request request;
    struct tt_net_answer answer = {0};
    struct tt_net_header headers[CONDITION_HEADERS];
    tt_status status = TT_OK;
    TT_GO(begin(path, TT_NET_PUT, &name, what, &request));
    request.body = data != NULL ? data : "";
    request.body_bytes = bytes;
    request.headers = headers;
    if (condition != NULL && condition->missing)
        headers[request.header_count++] = (struct tt_net_header){"If-None-Match", "*", false};
    else if (condition != NULL && condition->etag != NULL)
        headers[request.header_count++] = (struct tt_net_header){"If-Match", condition->etag, false};
    TT_GO(s3_send(s3, &request, &answer));
    /* 409: another conditional request came first. 404: If-Match, and the object is gone. */
    if (kept != NULL)
        *kept = answer.code == 412 || answer.code == 409 || (answer.code == 404 && condition->etag != NULL);
    if (kept != NULL && *kept) goto out;
    if (answer.code != 200) TT_GO(s3_fail(s3, &request, &answer));
    if (etag != NULL && !tt_net_header(&answer.headers, "etag", etag, TT_S3_ETAG_BYTES)) etag[0] = '\0';
out:
    tt_net_answer_deinit(&answer);
    return status;
}

tt_status tt_s3_delete(struct tt_s3 *s3, const char *path)
{
    char what[WHAT_BYTES];
    struct tt_s3_name name;
    struct s3_request request;
    struct tt_net_answer answer = {0};
    tt_status status = TT_OK;
    TT_GO(begin(path, TT_NET_DELETE, &name, what, &request));
    if (name.key_bytes == 0) goto out;
    TT_GO(s3_send(s3, &request, &answer));
    if (answer.code != 204 && answer.code != 200 && answer.code != 404)
        status = s3_fail(s3, &request, &answer);
out:
    tt_net_answer_deinit(&answer);
    return status;
}

/* ---- Listing ---- */

struct listing {
    const char *prefix; /* of every key: "a/b/", or "" */
    size_t prefix_bytes, count;
    bool tree, truncated;
    struct tt_str next; /* the continuation token */
    tt_s3_visit_name *visit;
    void *context;
};

static bool is_plain_path(const char *text, size_t bytes)
{
    for (size_t at = 0; at <= bytes;) {
        size_t part = 0;
        while (at + part < bytes && text[at + part] != '/') part++;
        if (!is_plain(text + at, part)) return false;
        at += part + 1;
    }
    return true;
}

/* Names of strangers: those that are no plain ones are as if they were not there. */
static tt_status add_name(struct listing *listing, const char *key)
{
    const char *name = key + listing->prefix_bytes;
    if (strncmp(key, listing->prefix, listing->prefix_bytes) != 0) return TT_OK;
    size_t bytes = strlen(name), plain = bytes > 0 && name[bytes - 1] == '/' ? bytes - 1 : bytes;
    if (listing->tree ? !is_plain_path(name, bytes) : !is_plain(name, plain)) return TT_OK;
    listing->count++;
    return listing->visit != NULL ? listing->visit(listing->context, name) : TT_OK;
}

static tt_status take_listed(void *context, const char *path, const char *text)
{
    struct listing *listing = context;
    if (strcmp(path, "ListBucketResult/Contents/Key") == 0 ||
        strcmp(path, "ListBucketResult/CommonPrefixes/Prefix") == 0)
        return add_name(listing, text);
    if (strcmp(path, "ListBucketResult/IsTruncated") == 0) listing->truncated = strcmp(text, "true") == 0;
    if (strcmp(path, "ListBucketResult/NextContinuationToken") == 0)
        return tt_str_append_text(&listing->next, text);
    return TT_OK;
}

static tt_status list_page(struct tt_s3 *s3, const struct tt_s3_name *name, const char *path, size_t most,
                           struct listing *listing)
{
    char what[WHAT_BYTES];
    struct tt_str query = {0};
    struct tt_net_answer answer = {0};
    tt_status status = TT_OK;
    (void)tt_snprintf(what, sizeof what, "the list of '%.1100s'", path);
    TT_GO(tt_str_append_text(&query, "list-type=2"));
    if (!listing->tree) TT_GO(tt_str_append_text(&query, "&delimiter=%2F"));
    if (most > 0) TT_GO(tt_str_printf(&query, "&max-keys=%zu", most));
    if (listing->prefix_bytes > 0) TT_GO(tt_str_append_text(&query, "&prefix="));
    TT_GO(tt_url_append_escaped(&query, listing->prefix, false));
    if (listing->next.bytes > 0) {
        TT_GO(tt_str_append_text(&query, "&continuation-token="));
        TT_GO(tt_url_append_escaped(&query, tt_str_text(&listing->next), false));
    }
    const struct s3_request request = {
        .method = TT_NET_GET, .bucket = name->bucket, .query = tt_str_text(&query), .what = what};
    TT_GO(s3_send(s3, &request, &answer));
    if (answer.code != 200) TT_GO(s3_fail(s3, &request, &answer));
    tt_str_clear(&listing->next);
    listing->truncated = false;
    TT_GO(tt_xml_visit(tt_str_text(&answer.body), answer.body.bytes, what, take_listed, listing));
    if (listing->truncated && listing->next.bytes == 0)
        status = tt_fail(TT_ERR_DATA, "%s ends too early: the server names no next page", what);
out:
    tt_net_answer_deinit(&answer);
    tt_str_deinit(&query);
    return status;
}

static tt_status list(struct tt_s3 *s3, const char *path, size_t most, bool tree, tt_s3_visit_name *visit,
                      void *context)
{
    tt_status status = TT_OK;
    struct tt_s3_name name;
    struct tt_str prefix = {0};
    struct listing listing = {.tree = tree, .visit = visit, .context = context};
    TT_GO(tt_s3_name_of(path, &name));
    if (name.key_bytes > 0) TT_GO(tt_str_printf(&prefix, "%.*s/", (int)name.key_bytes, name.key));
    listing.prefix = tt_str_text(&prefix);
    listing.prefix_bytes = prefix.bytes;
    do {
        TT_GO(list_page(s3, &name, path, most, &listing));
    } while (listing.truncated && (most == 0 || listing.count < most));
out:
    tt_str_deinit(&prefix);
    tt_str_deinit(&listing.next);
    return status;
}

tt_status tt_s3_list(struct tt_s3 *s3, const char *path, size_t most, tt_s3_visit_name *visit, void *context)
{
    return list(s3, path, most, false, visit, context);
}

tt_status tt_s3_list_tree(struct tt_s3 *s3, const char *path, tt_s3_visit_name *visit, void *context)
{
    return list(s3, path, 0, true, visit, context);
}
