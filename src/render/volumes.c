/* Volumes of the pods: claims, Secrets and volumes of CSI drivers that exist; the paths of a run, which lie in them. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "render/render_impl.h"

const char tt_render_run_folder[] = "/run/trimtab";
const char tt_render_cache_folder[] = "/var/cache/trimtab";

/* True if `path` is `folder` or below it. */
static bool lies_in(const char *path, const char *folder)
{
    size_t bytes = strlen(folder);
    return strncmp(path, folder, bytes) == 0 && (path[bytes] == '\0' || path[bytes] == '/');
}

static bool is_plain_path(const char *path)
{
    if (path[0] != '/' || strstr(path, "/../") != NULL || tt_ends_with(path, "/..")) return false;
    return tt_render_consists_of(path + 1, strlen(path + 1), tt_render_any, "-._/");
}

static tt_status refuse_mount(const char *setting, const char *path, const char *taken)
{
    tt_status status = tt_fail(TT_ERR_USAGE, "%s: '%.120s' %s %s, which pods have of their own", setting,
                               path, lies_in(path, taken) ? "lies in" : "contains", taken);
    tt_hint("mount it elsewhere, such as at /data or /runs");
    return status;
}

/* `setting` and `entry` are of messages. */
static tt_status check_mount(const char *setting, const struct tt_render_volume *volumes, int count,
                             const char *entry)
{
    static const char *const taken[] = {
        "/dev", "/proc", "/sys", "/etc", "/tmp", tt_render_cache_folder, tt_render_run_folder};
    const struct tt_render_volume *volume = &volumes[count];
    if (!is_plain_path(volume->path))
        return tt_render_refuse(setting, entry,
                                "a path is absolute, without '..', of letters, digits and -._/");
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (lies_in(volume->path, taken[i]) || lies_in(taken[i], volume->path))
            return refuse_mount(setting, volume->path, taken[i]);
    for (int i = 0; i < count; i++)
        if (strcmp(volumes[i].path, volume->path) == 0)
            return tt_render_refuse(setting, entry, "two volumes have the same path");
    return TT_OK;
}

static tt_status parse_volume(const char *entry, struct tt_render_volume *volumes, int count)
{
    static const char rule[] = "an entry is CLAIM:PATH, CLAIM:PATH:ro or secret/NAME:PATH",
                      secret[] = "secret/";
    struct tt_render_volume *volume = &volumes[count];
    const char *name = entry, *path = strchr(entry, ':'), *end;
    volume->kind = strncmp(entry, secret, sizeof secret - 1) == 0 ? TT_RENDER_SECRET_FILES : TT_RENDER_CLAIM;
    if (volume->kind == TT_RENDER_SECRET_FILES) name += sizeof secret - 1;
    if (path == NULL) return tt_render_refuse("volumes", entry, rule);
    end = strchr(path + 1, ':');
    if (end != NULL && strcmp(end, ":ro") != 0) return tt_render_refuse("volumes", entry, rule);
    if (end == NULL) end = entry + strlen(entry);
    if (path - name >= (int)sizeof volume->name || end - path - 1 >= (int)sizeof volume->path)
        return tt_render_refuse("volumes", entry,
                                "the name of a claim or Secret has at most 63 characters, a path 255");
    snprintf(volume->name, sizeof volume->name, "%.*s", (int)(path - name), name);
    snprintf(volume->path, sizeof volume->path, "%.*s", (int)(end - path - 1), path + 1);
    volume->read_only = *end == ':' || volume->kind == TT_RENDER_SECRET_FILES;
    TT_TRY(tt_render_check_object_name(
        volume->kind == TT_RENDER_SECRET_FILES ? "volumes: secret" : "volumes: claim", volume->name));
    return check_mount("volumes", volumes, count, entry);
}

static tt_status parse_volumes(const char *text, struct tt_render_volume volumes[TT_RENDER_VOLUMES_MAX],
                               int *count)
{
    while (text != NULL && *text != '\0') {
        char entry[400];
        size_t bytes = strcspn(text, ",");
        if (bytes >= sizeof entry)
            return tt_render_refuse("volumes", text, "an entry has at most 399 characters");
        if (*count == TT_RENDER_VOLUMES_MAX)
            return tt_render_refuse("volumes", text, "there are at most 16 volumes");
        snprintf(entry, sizeof entry, "%.*s", (int)bytes, text);
        TT_TRY(parse_volume(entry, volumes, *count));
        *count += 1;
        text += bytes + (text[bytes] == ',');
    }
    return TT_OK;
}

/* Source: Kubernetes' API reference, CSIVolumeSource: `driver` is needed; the rest is optional. */
static tt_status check_csi_member(const char *name, const struct tt_json_value *value)
{
    static const char setting[] = "csi_volumes";
    const char *key = NULL;
    const struct tt_json_value *item = NULL;
    if (strcmp(name, "driver") == 0 || strcmp(name, "fsType") == 0) {
        const char *text = tt_json_text(value);
        if (text == NULL || strlen(text) > 63 ||
            !tt_render_consists_of(text, strlen(text), tt_render_any, "-."))
            return tt_render_refuse(setting, name, "a text of at most 63 letters, digits, '-' and '.'");
        return TT_OK;
    }
    if (strcmp(name, "readOnly") == 0)
        return tt_json_is_bool(value) ? TT_OK : tt_render_refuse(setting, name, "true or false");
    if (strcmp(name, "nodePublishSecretRef") == 0) {
        const char *secret = tt_json_text(tt_json_get(value, "name"));
        return secret != NULL ? tt_render_check_object_name("csi_volumes: secret", secret)
                              : tt_render_refuse(setting, name, "it is {\"name\": SECRET}");
    }
    if (strcmp(name, "volumeAttributes") != 0)
        return tt_render_refuse(
            setting, name, "keys are driver, readOnly, fsType, volumeAttributes and nodePublishSecretRef");
    if (!tt_json_is_object(value)) return tt_render_refuse(setting, name, "it is an object of texts");
    for (size_t at = 0; tt_json_next_member(value, &at, &key, &item);) {
        const char *text = tt_json_text(item);
        if (text == NULL || !tt_render_is_printable(text) || !tt_render_is_printable(key) ||
            strlen(key) > 63 || strlen(text) > 255)
            return tt_render_refuse(
                setting, key,
                "a name and a text of printable ASCII without quotes and backslashes, of at "
                "most 63 and 255 characters; numbers need quotes");
    }
    return TT_OK;
}

static tt_status add_csi(const char *path, const struct tt_json_value *source,
                         struct tt_render_volume *volumes, int *count)
{
    const char *name = NULL;
    const struct tt_json_value *value = NULL;
    struct tt_render_volume *volume = &volumes[*count];
    if (*count == TT_RENDER_VOLUMES_MAX)
        return tt_render_refuse("csi_volumes", path, "there are at most 16 volumes");
    if (strlen(path) >= sizeof volume->path || tt_json_text(tt_json_get(source, "driver")) == NULL)
        return tt_render_refuse("csi_volumes", path, "a path of at most 255 characters, with a `driver`");
    for (size_t at = 0; tt_json_next_member(source, &at, &name, &value);)
        TT_TRY(check_csi_member(name, value));
    *volume = (struct tt_render_volume){.kind = TT_RENDER_CSI};
    snprintf(volume->path, sizeof volume->path, "%s", path);
    volume->read_only = tt_json_is_true(tt_json_get(source, "readOnly"));
    TT_TRY(check_mount("csi_volumes", volumes, *count, path));
    *count += 1;
    return TT_OK;
}

static tt_status parse_csi(const char *text, struct tt_json *json)
{
    TT_TRY(tt_json_parse(text, strlen(text), "csi_volumes", json));
    if (tt_json_is_object(json->root)) return TT_OK;
    return tt_render_refuse("csi_volumes", "",
                            "write paths and their volumes: {\"/data\": {\"driver\": \"...\"}}");
}

tt_status tt_render_volumes(const struct tt_render_spec *spec,
                            struct tt_render_volume volumes[TT_RENDER_VOLUMES_MAX], int *count)
{
    tt_status status = TT_OK;
    struct tt_json json = {0};
    const char *path = NULL;
    const struct tt_json_value *source = NULL;
    *count = 0;
    TT_TRY(parse_volumes(spec->volumes, volumes, count));
    if (spec->csi_volumes == NULL) return TT_OK;
    TT_GO(parse_csi(spec->csi_volumes, &json));
    for (size_t at = 0; tt_json_next_member(json.root, &at, &path, &source);)
        TT_GO(add_csi(path, source, volumes, count));
out:
    tt_json_deinit(&json);
    return status;
}

static tt_status write_csi_source(const struct tt_json_value *source, const struct tt_render_sheet *pod)
{
    char scalar[TT_RENDER_SCALAR_BYTES];
    const char *name = NULL, *fs = tt_json_text(tt_json_get(source, "fsType")),
               *secret = tt_json_text(tt_json_get(tt_json_get(source, "nodePublishSecretRef"), "name"));
    const struct tt_json_value *attributes = tt_json_get(source, "volumeAttributes"), *value = NULL;
    TT_TRY(LINE(pod, 2, "driver: \"%s\"", tt_json_text(tt_json_get(source, "driver"))));
    if (tt_json_is_true(tt_json_get(source, "readOnly"))) TT_TRY(LINE(pod, 2, "readOnly: true"));
    if (fs != NULL) TT_TRY(LINE(pod, 2, "fsType: \"%s\"", fs));
    if (secret != NULL) TT_TRY(LINE(pod, 2, "nodePublishSecretRef: {name: \"%s\"}", secret));
    if (attributes != NULL) TT_TRY(LINE(pod, 2, "volumeAttributes:"));
    for (size_t at = 0; attributes != NULL && tt_json_next_member(attributes, &at, &name, &value);)
        TT_TRY(LINE(pod, 3, "%s: \"%s\"", tt_render_scalar(name, scalar), tt_json_text(value)));
    return TT_OK;
}

static tt_status write_csi(const struct tt_render_work *work, int index, const struct tt_render_sheet *pod)
{
    tt_status status = TT_OK;
    struct tt_json json = {0};
    TT_GO(parse_csi(work->run->spec->csi_volumes, &json));
    TT_GO(LINE(pod, 0, "- name: volume-%d", index));
    TT_GO(LINE(pod, 1, "csi:"));
    TT_GO(write_csi_source(tt_json_get(json.root, work->volumes[index].path), pod));
out:
    tt_json_deinit(&json);
    return status;
}

tt_status tt_render_write_volumes(const struct tt_render_work *work, const struct tt_render_sheet *pod)
{
    for (int i = 0; i < work->volume_count; i++) {
        const struct tt_render_volume *volume = &work->volumes[i];
        if (volume->kind == TT_RENDER_CSI)
            TT_TRY(write_csi(work, i, pod));
        else if (volume->kind == TT_RENDER_SECRET_FILES)
            TT_TRY(LINE(pod, 0, "- {name: volume-%d, secret: {secretName: \"%s\", defaultMode: 288}}",
                        i, /* 0440 */
                        volume->name));
        else
            TT_TRY(LINE(pod, 0, "- {name: volume-%d, persistentVolumeClaim: {claimName: \"%s\"%s}}", i,
                        volume->name, volume->read_only ? ", readOnly: true" : ""));
    }
    return TT_OK;
}

static tt_status check_path(const struct tt_render_path *path, const struct tt_render_volume *volumes,
                            int count)
{
    const struct tt_render_volume *found = NULL;
    if (path->path == NULL) return TT_OK;
    if (path->path[0] == '/' && lies_in(path->path, tt_render_run_folder)) return TT_OK;
    for (int i = 0; i < count; i++)
        if (lies_in(path->path, volumes[i].path) &&
            (found == NULL || strlen(volumes[i].path) > strlen(found->path)))
            found = &volumes[i];
    if (found != NULL && !(found->read_only && path->written)) return TT_OK;
    tt_status status = tt_fail(TT_ERR_USAGE, "%s '%.200s' lies in no volume of the pods%s", path->setting,
                               path->path, found != NULL ? " that they may write" : "");
    if (path->written)
        tt_hint("use a folder in /run/trimtab, which gets a claim of its own, or name a volume that is not "
                "read-only");
    else
        tt_hint("use the absolute path in the pods, and mount its claim: --volumes models:/models:ro");
    return status;
}

tt_status tt_render_check_paths(const struct tt_render_run *run, bool *claims)
{
    struct tt_render_volume volumes[TT_RENDER_VOLUMES_MAX];
    int count;
    *claims = false;
    TT_TRY(tt_render_volumes(run->spec, volumes, &count));
    for (int i = 0; i < run->path_count; i++) {
        const struct tt_render_path *path = &run->paths[i];
        TT_TRY(check_path(path, volumes, count));
        if (path->path != NULL && lies_in(path->path, tt_render_run_folder)) *claims = true;
    }
    return TT_OK;
}
