#include "hub/upload.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include <sodium.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hub_cache.h"
#include "base/json.h"
#include "base/number.h"
#include "base/sha1.h"
#include "hub/hub_impl.h"
#include "hub/send_impl.h"
#include "net/sha256.h"
#include "net/url.h"

enum { PIECE_BYTES = 1 << 20, SAMPLE_BYTES = 512, FILES_AT_ONCE = 256, REGULAR_BYTES_MAX = 64 << 20 };

/* ---- Files ---- */

static bool matches(const char *const *patterns, size_t count, const char *path)
{
    for (size_t i = 0; i < count; i++)
        if (fnmatch(patterns[i], path, 0) == 0) return true;
    return false;
}

static tt_status add_file(struct hub_sending *sending, const char *path, const char *relative)
{
    const struct tt_hub_upload *upload = sending->upload;
    tt_status status = TT_OK;
    struct hub_sent file = {0};
    struct tt_str there = {0};
    int descriptor = -1;
    if (upload->include_count > 0 && !matches(upload->include, upload->include_count, relative)) return TT_OK;
    if (matches(upload->exclude, upload->exclude_count, relative)) return TT_OK;
    if (upload->below != NULL) TT_GO(tt_str_printf(&there, "%s/", upload->below));
    TT_GO(tt_str_append_text(&there, relative));
    if (!tt_hub_is_path(there.data))
        TT_GO(tt_fail(TT_ERR_DATA, "'%s' cannot be the path of a file of the hub", there.data));
    TT_GO(tt_file_open_read(path, &descriptor, &file.bytes));
    TT_GO(tt_grow(&sending->files, sending->count, &sending->capacity));
    file.path = tt_strdup(path);
    file.there = tt_strdup(there.data);
    sending->files[sending->count++] = file;
    if (file.path == NULL || file.there == NULL) status = TT_ERR_MEMORY;
out:
    tt_file_close(descriptor);
    tt_str_deinit(&there);
    return status;
}

struct walking {
    struct hub_sending *sending;
    struct tt_str path; /* from the folder on */
    int depth;
};

static bool is_left_out(const char *name)
{
    return name[0] == '.' || strstr(name, ".tmp-") != NULL || tt_ends_with(name, ".saving") ||
           tt_ends_with(name, ".incomplete");
}

static tt_status walk(void *context, const char *name)
{
    struct walking *walking = context;
    struct tt_path path;
    size_t before = walking->path.bytes;
    if (is_left_out(name)) return TT_OK;
    TT_TRY(tt_str_printf(&walking->path, "%s%s", before > 0 ? "/" : "", name));
    TT_TRY(tt_path_set(&path, walking->sending->upload->folder, walking->path.data));
    tt_status status = TT_OK;
    if (!tt_path_is_dir(path.text)) {
        status = add_file(walking->sending, path.text, walking->path.data);
    } else if (walking->depth < 16) {
        walking->depth++;
        status = tt_dir_list(path.text, walk, walking);
        walking->depth--;
    }
    walking->path.bytes = before;
    walking->path.data[before] = '\0';
    return status;
}

static tt_status list_files(struct hub_sending *sending)
{
    const struct tt_hub_upload *upload = sending->upload;
    struct walking walking = {.sending = sending};
    tt_status status = tt_path_is_dir(upload->folder)
                           ? tt_dir_list(upload->folder, walk, &walking)
                           : add_file(sending, upload->folder, tt_path_basename(upload->folder));
    tt_str_deinit(&walking.path);
    if (status != TT_OK || sending->count > 0) return status;
    tt_fail(TT_ERR_DATA, "'%s' has no file to upload", upload->folder);
    tt_hint("files whose names begin with a dot are left out; --include names others");
    return TT_ERR_DATA;
}

/* SHA-256 of the content, and its beginning. */
static tt_status read_file(struct hub_sending *sending, struct hub_sent *file)
{
    struct tt_sha256 sum;
    unsigned char digest[TT_SHA256_BYTES], *piece = tt_alloc_aligned(PIECE_BYTES);
    int descriptor = -1;
    uint64_t now;
    tt_status status = piece != NULL ? TT_OK : TT_ERR_MEMORY;
    tt_sha256_begin(&sum);
    if (status == TT_OK) status = tt_file_open_read(file->path, &descriptor, &now);
    for (uint64_t at = 0; status == TT_OK && at < file->bytes;) {
        size_t bytes = file->bytes - at < PIECE_BYTES ? (size_t)(file->bytes - at) : PIECE_BYTES;
        status = tt_file_pread(descriptor, file->path, piece, bytes, at);
        if (status == TT_OK) tt_sha256_add(&sum, piece, bytes);
        if (status == TT_OK && at == 0)
            sodium_bin2base64(file->sample, sizeof file->sample, piece,
                              bytes < SAMPLE_BYTES ? bytes : SAMPLE_BYTES, sodium_base64_VARIANT_ORIGINAL);
        if (status == TT_OK && hub_is_stopped(sending->hub))
            status = tt_fail(TT_ERR_CANCELLED, "stopped on request");
        at += bytes;
    }
    tt_file_close(descriptor);
    tt_free(piece);
    tt_sha256_end(&sum, digest);
    if (status != TT_OK) return status;
    sodium_bin2hex(file->digest, sizeof file->digest, digest, sizeof digest);
    return TT_OK;
}

/* ---- Requests ---- */

tt_status hub_read_text(void *context, uint64_t offset, void *data, size_t bytes)
{
    memcpy(data, (const char *)context + offset, bytes);
    return TT_OK;
}

tt_status hub_post(struct hub_sending *sending, const char *url, const char *type, const struct tt_str *text,
                   bool repeatable, struct tt_net_answer *answer)
{
    const struct tt_net_header headers[] = {{.name = "Content-Type", .value = type},
                                            {.name = "Accept", .value = type}};
    const struct tt_net_source body = {.bytes = text->bytes, .read = hub_read_text, .context = text->data};
    bool plain = strcmp(type, "application/x-ndjson") == 0;
    struct tt_net_request request = {.method = TT_NET_POST,
                                     .url = url,
                                     .what = sending->what.data,
                                     .headers = headers,
                                     .header_count = plain ? 1 : 2,
                                     .body = &body,
                                     .repeatable = repeatable};
    return hub_call(sending->hub, &sending->repository, &request, answer);
}

static tt_status post_json(struct hub_sending *sending, const char *url, struct tt_json_value *value,
                           bool repeatable, struct tt_net_answer *answer)
{
    struct tt_str text = {0};
    tt_status status = tt_json_write(value, 0, false, &text);
    if (status == TT_OK) status = hub_post(sending, url, "application/json", &text, repeatable, answer);
    tt_str_deinit(&text);
    tt_json_release(value);
    return status;
}

/* The owner of the token, for a name without one. */
static tt_status complete_name(struct hub_sending *sending)
{
    struct tt_str url = {0};
    struct tt_net_answer answer = {0};
    struct tt_json json = {0};
    const char *owner;
    tt_status status = TT_OK;
    if (strchr(sending->repository.name, '/') != NULL)
        return tt_str_append_text(&sending->name, sending->repository.name);
    TT_GO(tt_str_printf(&url, "%s/api/whoami-v2", sending->hub->endpoint.data));
    struct tt_net_request request = {.url = url.data, .what = "the owner of the token"};
    TT_GO(hub_call(sending->hub, &sending->repository, &request, &answer));
    TT_GO(tt_json_parse(tt_str_text(&answer.body), answer.body.bytes, url.data, &json));
    TT_GO(tt_json_string(&json, json.root, "name", &owner));
    TT_GO(tt_str_printf(&sending->name, "%s/%s", owner, sending->repository.name));
    if (!tt_hub_is_name(sending->name.data))
        TT_GO(tt_fail(TT_ERR_DATA, "'%.200s' is no name of a repository", sending->name.data));
    sending->repository.name = sending->name.data;
out:
    tt_json_deinit(&json);
    tt_str_deinit(&url);
    tt_net_answer_deinit(&answer);
    return status;
}

/* 409: it is there already. */
static tt_status create_repository(struct hub_sending *sending)
{
    struct tt_str url = {0};
    struct tt_net_answer answer = {0};
    tt_status status = TT_OK;
    const char *name = strchr(sending->repository.name, '/') + 1;
    char owner[200];
    snprintf(owner, sizeof owner, "%.*s", (int)(name - 1 - sending->repository.name),
             sending->repository.name);
    struct tt_json_value *value = tt_json_pack("{s:s,s:s}", "name", name, "organization", owner);
    if (strcmp(sending->repository.kind, "datasets") == 0)
        tt_json_set(value, "type", tt_json_new_string("dataset"));
    if (sending->upload->is_private) tt_json_set(value, "private", tt_json_new_bool(true));
    status = tt_str_printf(&url, "%s/api/repos/create", sending->hub->endpoint.data);
    if (status == TT_OK)
        status = post_json(sending, url.data, value, true, &answer);
    else
        tt_json_release(value);
    if (status != TT_OK && answer.code == 409) {
        tt_error_clear();
        status = TT_OK;
    }
    tt_str_deinit(&url);
    tt_net_answer_deinit(&answer);
    return status;
}

/* Which files are LFS files, for at most FILES_AT_ONCE of them from `first` on. */
static tt_status ask_modes(struct hub_sending *sending, size_t first)
{
    struct tt_str url = {0};
    struct tt_net_answer answer = {0};
    struct tt_json json = {0};
    const struct tt_json_value *list;
    tt_status status = TT_OK;
    size_t count = sending->count - first < FILES_AT_ONCE ? sending->count - first : FILES_AT_ONCE;
    struct tt_json_value *files = tt_json_new_list();
    for (size_t i = first; i < first + count; i++)
        tt_json_append(files,
                       tt_json_pack("{s:s,s:s,s:I}", "path", sending->files[i].there, "sample",
                                    sending->files[i].sample, "size", (int64_t)sending->files[i].bytes));
    struct tt_json_value *value = tt_json_pack("{s:o}", "files", files);
    status = hub_append_api(sending->hub, sending->repository.kind, sending->repository.name, &url);
    if (status == TT_OK) status = tt_str_append_text(&url, "/preupload/");
    if (status == TT_OK) status = tt_url_append_escaped(&url, sending->repository.revision, false);
    if (status != TT_OK) {
        tt_json_release(value);
        goto out;
    }
    TT_GO(post_json(sending, url.data, value, true, &answer));
    TT_GO(tt_json_parse(tt_str_text(&answer.body), answer.body.bytes, url.data, &json));
    TT_GO(tt_json_array(&json, json.root, "files", &list));
    for (size_t i = 0; i < tt_json_count(list); i++) {
        const char *path, *mode;
        TT_GO(tt_json_string(&json, tt_json_at(list, i), "path", &path));
        TT_GO(tt_json_string(&json, tt_json_at(list, i), "uploadMode", &mode));
        for (size_t f = first; f < first + count; f++) {
            struct hub_sent *file = &sending->files[f];
            if (strcmp(file->there, path) != 0) continue;
            const char *known = tt_json_text(tt_json_get(tt_json_at(list, i), "oid"));
            tt_snprintf(file->known, sizeof file->known, "%s", known != NULL ? known : "");
            /* An empty file has no LFS object. */
            file->large = strcmp(mode, "lfs") == 0 && file->bytes > 0;
            file->ignored = tt_json_is_true(tt_json_get(tt_json_at(list, i), "shouldIgnore"));
        }
    }
out:
    tt_json_deinit(&json);
    tt_str_deinit(&url);
    tt_net_answer_deinit(&answer);
    return status;
}

/* ---- The commit ---- */

static tt_status add_line(struct tt_str *text, const char *key, struct tt_json_value *value)
{
    struct tt_json_value *line = tt_json_pack("{s:s,s:o}", "key", key, "value", value);
    tt_status status = tt_json_write(line, 0, false, text);
    tt_json_release(line);
    return status == TT_OK ? tt_str_append_char(text, '\n') : status;
}

/* Git's sum of a file: that of "blob", the size, a 0 byte and the content. */
static void sum_of_blob(const struct tt_str *content, char digits[TT_HUB_DIGEST_BYTES])
{
    unsigned char digest[TT_SHA1_BYTES];
    struct tt_sha1 sum;
    char head[40];
    int bytes = snprintf(head, sizeof head, "blob %zu", content->bytes);
    tt_sha1_init(&sum);
    tt_sha1_update(&sum, head, (size_t)bytes + 1);
    tt_sha1_update(&sum, tt_str_text(content), content->bytes);
    tt_sha1_final(&sum, digest);
    sodium_bin2hex(digits, TT_HUB_DIGEST_BYTES, digest, sizeof digest);
}

/* Nothing where the repository has this content. */
static tt_status add_content(struct tt_str *text, const struct hub_sent *file)
{
    struct tt_str content = {0};
    char *encoded = NULL, sum[TT_HUB_DIGEST_BYTES];
    tt_status status = TT_OK;
    TT_GO(tt_file_read(file->path, REGULAR_BYTES_MAX, &content));
    sum_of_blob(&content, sum);
    if (strcmp(sum, file->known) == 0) goto out;
    size_t room = sodium_base64_ENCODED_LEN(content.bytes, sodium_base64_VARIANT_ORIGINAL);
    encoded = tt_calloc(room, 1);
    if (encoded == NULL) TT_GO(TT_ERR_MEMORY);
    sodium_bin2base64(encoded, room, (const unsigned char *)tt_str_text(&content), content.bytes,
                      sodium_base64_VARIANT_ORIGINAL);
    TT_GO(add_line(
        text, "file",
        tt_json_pack("{s:s,s:s,s:s}", "content", encoded, "path", file->there, "encoding", "base64")));
out:
    tt_free(encoded);
    tt_str_deinit(&content);
    return status;
}

/* The header, and a line for each file that the repository has not or has with another content; *changes: whether there
 * is one. */
static tt_status list_changes(const struct hub_sending *sending, struct tt_str *text, bool *changes)
{
    const char *given = sending->upload->summary;
    const char *summary = given != NULL ? given : "Upload files with trimtab";
    TT_TRY(add_line(text, "header", tt_json_pack("{s:s,s:s}", "summary", summary, "description", "")));
    const size_t header = text->bytes;
    for (size_t i = 0; i < sending->count; i++) {
        const struct hub_sent *file = &sending->files[i];
        if (file->ignored || (file->large && strcmp(file->known, file->digest) == 0)) continue;
        if (!file->large)
            TT_TRY(add_content(text, file));
        else
            TT_TRY(add_line(text, "lfsFile",
                            tt_json_pack("{s:s,s:s,s:s,s:I}", "path", file->there, "algo", "sha256", "oid",
                                         file->digest, "size", (int64_t)file->bytes)));
    }
    *changes = text->bytes > header;
    return TT_OK;
}

/* The address of the commit that the branch is at. */
static tt_status newest_commit(struct hub_sending *sending, struct tt_str *url)
{
    TT_TRY(hub_resolve(sending->hub, &sending->repository));
    TT_TRY(hub_append_page(sending->hub, sending->repository.kind, sending->repository.name, url));
    return tt_str_printf(url, "/commit/%s", sending->repository.commit);
}

static tt_status commit(struct hub_sending *sending, char **address)
{
    struct tt_str url = {0}, text = {0};
    struct tt_net_answer answer = {0};
    struct tt_json json = {0};
    const char *made = NULL;
    bool changes;
    tt_status status = TT_OK;
    TT_GO(list_changes(sending, &text, &changes));
    if (!changes) {
        TT_GO(newest_commit(sending, &url));
        *address = tt_strdup(url.data);
        if (*address == NULL) status = TT_ERR_MEMORY;
        goto out;
    }
    TT_GO(hub_append_api(sending->hub, sending->repository.kind, sending->repository.name, &url));
    TT_GO(tt_str_append_text(&url, "/commit/"));
    TT_GO(tt_url_append_escaped(&url, sending->repository.revision, false));
    TT_GO(hub_post(sending, url.data, "application/x-ndjson", &text, false, &answer));
    TT_GO(tt_json_parse(tt_str_text(&answer.body), answer.body.bytes, url.data, &json));
    TT_GO(tt_json_opt_string(&json, json.root, "commitUrl", &made));
    tt_str_clear(&url);
    TT_GO(hub_append_page(sending->hub, sending->repository.kind, sending->repository.name, &url));
    *address = tt_strdup(made != NULL ? made : url.data);
    if (*address == NULL) status = TT_ERR_MEMORY;
out:
    tt_json_deinit(&json);
    tt_str_deinit(&url);
    tt_str_deinit(&text);
    tt_net_answer_deinit(&answer);
    return status;
}

static tt_status check(const struct hub_sending *sending)
{
    const struct tt_hub_upload *upload = sending->upload;
    if (!tt_hub_is_name(upload->name) || !tt_hub_is_revision(sending->repository.revision)) {
        tt_fail(TT_ERR_USAGE, "'%.200s' at '%.100s' is no name of a repository and its branch", upload->name,
                sending->repository.revision);
        tt_hint("a name is OWNER/NAME: letters, digits, '.', '_' and '-'");
        return TT_ERR_USAGE;
    }
    if (sending->hub->token.bytes > 0 || sending->hub->offline) return TT_OK;
    tt_fail(TT_ERR_USAGE, "an upload to '%s' needs a token", upload->name);
    tt_hint("set HF_TOKEN to a token with the right to write, of %s/settings/tokens",
            sending->hub->endpoint.data);
    return TT_ERR_USAGE;
}

/* The account, the name and the repository. */
static tt_status begin(struct hub_sending *sending)
{
    TT_TRY(check(sending));
    TT_TRY(hub_connect(sending->hub));
    TT_TRY(tt_str_printf(&sending->what, "'%s'", sending->upload->name));
    TT_TRY(complete_name(sending));
    return create_repository(sending);
}

static struct hub_sending sending_of(struct tt_hub *hub, const struct tt_hub_upload *upload)
{
    const char *revision = upload->revision != NULL ? upload->revision : "main";
    return (struct hub_sending){
        .hub = hub, .upload = upload, .repository = {upload->kind, upload->name, revision, ""}};
}

static void end(struct hub_sending *sending)
{
    for (size_t i = 0; i < sending->count; i++) {
        tt_free(sending->files[i].path);
        tt_free(sending->files[i].there);
    }
    tt_free(sending->files);
    tt_str_deinit(&sending->name);
    tt_str_deinit(&sending->what);
}

tt_status tt_hub_prepare_upload(struct tt_hub *hub, const struct tt_hub_upload *upload)
{
    struct hub_sending sending = sending_of(hub, upload);
    tt_status status = begin(&sending);
    end(&sending);
    return status;
}

tt_status tt_hub_upload(struct tt_hub *hub, const struct tt_hub_upload *upload, char **address)
{
    tt_status status = TT_OK;
    struct hub_sending sending = sending_of(hub, upload);
    if (!tt_path_exists(upload->folder))
        TT_GO(tt_fail(TT_ERR_DATA, "there is no file or folder '%s' to upload", upload->folder));
    TT_GO(check(&sending));
    TT_GO(list_files(&sending));
    TT_GO(begin(&sending));
    for (size_t i = 0; i < sending.count; i++) TT_GO(read_file(&sending, &sending.files[i]));
    for (size_t i = 0; i < sending.count; i += FILES_AT_ONCE) TT_GO(ask_modes(&sending, i));
    TT_GO(hub_send_objects(&sending));
    TT_GO(commit(&sending, address));
out:
    end(&sending);
    if (status != TT_OK) tt_while("uploading '%s' to '%s'", upload->folder, upload->name);
    return status;
}
