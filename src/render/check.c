/* Rules that the API server would enforce after the objects are sent, and rules of our own. */
#include <stdio.h>
#include <string.h>

#include "render/render.h"

const char tt_render_run_folder[] = "/run/trimtab";

static const char lower[] = "abcdefghijklmnopqrstuvwxyz0123456789";
static const char any[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

static bool consists_of(const char *text, size_t bytes, const char *ends, const char *inside)
{
    if (bytes == 0) return false;
    for (size_t i = 0; i < bytes; i++) {
        bool good = strchr(ends, text[i]) != NULL;
        if (!good && (i == 0 || i + 1 == bytes || strchr(inside, text[i]) == NULL)) return false;
    }
    return true;
}

/* The field of the objects that a setting becomes. */
static const char *field_of(const char *setting)
{
    static const char *const fields[][2] = {
        {"name", "metadata.name"},
        {"image", "containers[0].image"},
        {"networks", "metadata.annotations[k8s.v1.cni.cncf.io/networks]"},
        {"storage_class", "PersistentVolumeClaim.spec.storageClassName"},
        {"priority_class", "priorityClassName"},
        {"secret", "volumes[secret].secret.secretName"},
        {"image_pull_secret", "imagePullSecrets"},
        {"node_selector", "nodeSelector"},
        {"pod_env", "containers[0].env"},
        {"pod_secrets", "containers[0].env[].valueFrom.secretKeyRef"},
        {"service_account", "serviceAccountName"},
        {"runtime", "TrainJob.spec.runtimeRef.name"},
        {"queue", "metadata.labels[kueue.x-k8s.io/queue-name]"},
        {"monitoring_namespace", "NetworkPolicy.spec.ingress[].from[].namespaceSelector"},
        {"gpu_resource", "containers[0].resources.limits"},
        {"rdma", "containers[0].resources.limits"},
        {"volumes", "containers[0].volumeMounts"},
        {"volumes: claim", "volumes[].persistentVolumeClaim.claimName"},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (strcmp(fields[i][0], setting) == 0) return fields[i][1];
    return NULL;
}

static tt_status refuse(const char *setting, const char *value, const char *rule)
{
    const char *field = field_of(setting);
    tt_status status = tt_fail(TT_ERR_USAGE, "%s '%.120s' is not valid%s%s", setting, value,
                               field != NULL ? " as " : "", field != NULL ? field : "");
    tt_hint("%s", rule);
    return status;
}

/* Names of claims, classes, secrets: RFC 1123 subdomains, here at most 63 bytes. */
static tt_status check_object_name(const char *setting, const char *value)
{
    if (value == NULL) return TT_OK;
    if (strlen(value) > 63 || !consists_of(value, strlen(value), lower, "-."))
        return refuse(
            setting, value,
            "at most 63 lower case letters, digits, '-' and '.', with a letter or digit at both ends");
    return TT_OK;
}

/* A name of a Service is an RFC 1035 label, and the name of a pod, which ends in its number, is a host name. */
static tt_status check_name(enum tt_render_kind kind, const struct tt_render_spec *spec)
{
    char suffix[48];
    size_t bytes = strlen(spec->name);
    const struct tt_render_kind_facts *facts = tt_render_kind_facts(kind);
    if (facts->is_script || (spec->nodes <= 1 && facts->first_alone))
        snprintf(suffix, sizeof suffix, "%s", facts->first);
    else
        snprintf(suffix, sizeof suffix, "%s%lld%s", facts->last,
                 (long long)(spec->nodes > 0 ? spec->nodes - 1 : 0), facts->counted);
    if (!consists_of(spec->name, bytes, lower, "-") || (spec->name[0] >= '0' && spec->name[0] <= '9'))
        return refuse("name", spec->name,
                      "lower case letters, digits and '-', first a letter, last a letter or digit");
    if (bytes + strlen(suffix) <= 63) return TT_OK;
    tt_status status =
        tt_fail(TT_ERR_USAGE, "name '%.120s' (metadata.name) has %zu characters, and the last pod adds '%s'",
                spec->name, bytes, suffix);
    tt_hint("the name of a pod has at most 63 characters: a name of at most %zu", 63 - strlen(suffix));
    return status;
}

/* "rdma/hca_shared_devices_a": the name of an extended resource. */
static tt_status check_resource(const char *setting, const char *value)
{
    if (value == NULL) return TT_OK;
    const char *slash = strchr(value, '/');
    if (slash == NULL || !consists_of(value, (size_t)(slash - value), lower, "-.") ||
        strlen(slash + 1) > 63 || !consists_of(slash + 1, strlen(slash + 1), any, "-._"))
        return refuse(setting, value,
                      "the name of a resource is DOMAIN/NAME, as in rdma/hca_shared_devices_a");
    return TT_OK;
}

static tt_status check_printable(const char *setting, const char *value, bool blanks)
{
    if (value == NULL) return TT_OK;
    for (const char *c = value; *c != '\0'; c++)
        if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\' || (*c == ' ' && !blanks))
            return refuse(setting, value, "printable ASCII without quotes and backslashes");
    return value[0] != '\0' ? TT_OK : refuse(setting, value, "it is empty");
}

static tt_status refuse_image(const char *message, const char *hint)
{
    tt_status status = tt_fail(TT_ERR_USAGE, "%s", message);
    tt_hint("%s", hint);
    return status;
}

static tt_status check_kind(enum tt_render_kind kind, const struct tt_render_spec *spec)
{
    const struct tt_render_kind_facts *facts = tt_render_kind_facts(kind);
    tt_status status;
    if (facts->needs_workers != NULL && spec->nodes < 2) {
        status = tt_fail(TT_ERR_USAGE, "%s", facts->needs_workers);
        tt_hint("give --nodes 2 or more, or render a job");
        return status;
    }
    if (!facts->is_script || !spec->gang) return TT_OK;
    status = tt_fail(TT_ERR_USAGE, "gang is given, but Slurm starts all tasks of a job together anyway");
    tt_hint("leave gang out");
    return status;
}

/* A TrainJob may patch some fields of the pods only. */
static tt_status check_runtime(enum tt_render_kind kind, const struct tt_render_spec *spec)
{
    const char *fixed = spec->gang                           ? "gang (podGroupPolicy)"
                        : spec->host_network                 ? "host_network (hostNetwork)"
                        : spec->priority_class != NULL       ? "priority_class (priorityClassName)"
                        : spec->monitoring_namespace != NULL ? "monitoring_namespace (containers[0].ports)"
                                                             : NULL;
    tt_status status;
    if (spec->runtime == NULL) return TT_OK;
    if (!tt_render_kind_facts(kind)->has_runtime) {
        status = tt_fail(TT_ERR_USAGE, "runtime is given, but only a TrainJob has one (spec.runtimeRef)");
        tt_hint("render a trainjob, or leave runtime out");
        return status;
    }
    if (fixed == NULL) return TT_OK;
    status = tt_fail(TT_ERR_USAGE, "%s is given, but runtimePatches of a TrainJob cannot change it", fixed);
    tt_hint("leave it out, or leave runtime out: then the run has a runtime of its own");
    return status;
}

/* Variables in which launchers pass the identity of a process, and variables that the pods already have. */
static bool is_reserved(const char *name)
{
    static const char *const starts[] = {"PET_", "TRIMTAB_", "OMPI_", "PMIX_",
                                         "PMI_", "LWS_",     "VC_",   "JOB_COMPLETION"};
    static const char *const names[] = {"RANK",        "WORLD_SIZE",  "LOCAL_RANK",   "LOCAL_WORLD_SIZE",
                                        "GROUP_RANK",  "MASTER_ADDR", "MASTER_PORT",  "RUN_UID",
                                        "RUN_ATTEMPT", "NODE_NAME",   "VK_TASK_INDEX"};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (strncmp(name, starts[i], strlen(starts[i])) == 0) return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static tt_status check_env(const char *text)
{
    static const char *const secrets[] = {"TOKEN", "SECRET", "PASSWORD", "API_KEY"};
    struct tt_render_pairs env;
    TT_TRY(tt_render_read_pairs("pod_env", text, &env));
    for (int i = 0; i < env.count; i++) {
        const char *name = env.items[i].name;
        if (!consists_of(name, strlen(name), any, "_"))
            return refuse("pod_env", name, "a variable has letters, digits and '_'");
        if (name[0] >= '0' && name[0] <= '9')
            return refuse("pod_env", name, "a variable begins with a letter");
        if (is_reserved(name))
            return refuse("pod_env", name, "the pods, or the controller that makes them, set this variable");
        for (size_t k = 0; k < sizeof secrets / sizeof *secrets; k++)
            if (strstr(name, secrets[k]) != NULL)
                return refuse("pod_env", name,
                              "everyone who may see a pod sees its variables: mount a Secret instead");
    }
    return TT_OK;
}

static tt_status check_secrets(const struct tt_render_spec *spec)
{
    struct tt_render_pairs secrets, env;
    TT_TRY(tt_render_read_pairs("pod_env", spec->pod_env, &env));
    TT_TRY(tt_render_read_secrets(spec->pod_secrets, &secrets));
    for (int i = 0; i < secrets.count; i++) {
        const char *name = secrets.items[i].name, *value = secrets.items[i].value,
                   *slash = strchr(value, '/');
        char object[256];
        if (!consists_of(name, strlen(name), any, "_") || (name[0] >= '0' && name[0] <= '9'))
            return refuse("pod_secrets", name,
                          "a variable has letters, digits and '_', and begins with a letter");
        if (is_reserved(name))
            return refuse("pod_secrets", name,
                          "the pods, or the controller that makes them, set this variable");
        for (int k = 0; k < env.count; k++)
            if (strcmp(env.items[k].name, name) == 0)
                return refuse("pod_secrets", name, "pod_env has this variable, too");
        snprintf(object, sizeof object, "%.*s", (int)(slash - value), value);
        TT_TRY(check_object_name("pod_secrets", object));
        if (!consists_of(slash + 1, strlen(slash + 1), any, "-._"))
            return refuse("pod_secrets", slash + 1, "a key of a Secret has letters, digits and -._");
    }
    return TT_OK;
}

/* A label is [DOMAIN/]NAME. */
static tt_status check_selector(const char *text)
{
    struct tt_render_pairs labels;
    TT_TRY(tt_render_read_pairs("node_selector", text, &labels));
    for (int i = 0; i < labels.count; i++) {
        const char *name = labels.items[i].name, *value = labels.items[i].value, *slash = strchr(name, '/');
        const char *last = slash != NULL ? slash + 1 : name;
        if ((slash != NULL && !consists_of(name, (size_t)(slash - name), lower, "-.")) || strlen(last) > 63 ||
            !consists_of(last, strlen(last), any, "-._"))
            return refuse("node_selector", name,
                          "a label is [DOMAIN/]NAME, the name of at most 63 characters");
        if (strlen(value) > 63 || (value[0] != '\0' && !consists_of(value, strlen(value), any, "-._")))
            return refuse("node_selector", value, "at most 63 letters, digits, '-', '.' and '_'");
    }
    return TT_OK;
}

tt_status tt_render_check(enum tt_render_kind kind, const struct tt_render_spec *spec)
{
    bool is_script = tt_render_kind_facts(kind)->is_script;
    TT_TRY(check_name(kind, spec));
    TT_TRY(check_kind(kind, spec));
    TT_TRY(check_runtime(kind, spec));
    if (is_script && spec->image != NULL)
        return refuse_image("image is given, but a batch script runs the program of the nodes",
                            "leave image out");
    if (!is_script && spec->image == NULL)
        return refuse_image("image is missing", "give the image of the pods, whose entry point is trimtab");
    TT_TRY(check_printable("image", spec->image, false));
    TT_TRY(check_printable("networks", spec->networks, true));
    TT_TRY(check_object_name("storage_class", spec->storage_class));
    TT_TRY(check_object_name("priority_class", spec->priority_class));
    TT_TRY(check_object_name("secret", spec->secret));
    TT_TRY(check_object_name("image_pull_secret", spec->image_pull_secret));
    TT_TRY(check_object_name("service_account", spec->service_account));
    TT_TRY(check_env(spec->pod_env));
    TT_TRY(check_secrets(spec));
    TT_TRY(check_selector(spec->node_selector));
    TT_TRY(check_object_name("runtime", spec->runtime));
    TT_TRY(check_object_name("queue", spec->queue));
    TT_TRY(check_object_name("monitoring_namespace", spec->monitoring_namespace));
    TT_TRY(check_resource("gpu_resource", spec->gpu_resource));
    TT_TRY(check_resource("rdma", spec->rdma));
    if (spec->storage_rate == 0) return refuse("storage_rate", "0", "a rate above 0");
    return TT_OK;
}

/* True if `path` is `folder` or below it. */
static bool lies_in(const char *path, const char *folder)
{
    size_t bytes = strlen(folder);
    return strncmp(path, folder, bytes) == 0 && (path[bytes] == '\0' || path[bytes] == '/');
}

static bool is_plain_path(const char *path)
{
    if (path[0] != '/' || strstr(path, "/../") != NULL || tt_ends_with(path, "/..")) return false;
    return consists_of(path + 1, strlen(path + 1), any, "-._/");
}

static tt_status refuse_mount(const char *path, const char *taken)
{
    tt_status status = tt_fail(TT_ERR_USAGE, "volumes: '%.120s' %s %s, which pods have of their own", path,
                               lies_in(path, taken) ? "lies in" : "contains", taken);
    tt_hint("mount the claim elsewhere, such as at /data or /runs");
    return status;
}

static tt_status check_mount(const struct tt_render_volume *volumes, int count, const char *entry)
{
    static const char *const taken[] = {"/dev", "/proc", "/sys", "/etc", "/tmp", tt_render_run_folder};
    const struct tt_render_volume *volume = &volumes[count];
    if (!is_plain_path(volume->path))
        return refuse("volumes", entry, "a path is absolute, without '..', of letters, digits and -._/");
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (lies_in(volume->path, taken[i]) || lies_in(taken[i], volume->path))
            return refuse_mount(volume->path, taken[i]);
    for (int i = 0; i < count; i++)
        if (strcmp(volumes[i].path, volume->path) == 0)
            return refuse("volumes", entry, "two volumes have the same path");
    return TT_OK;
}

static tt_status parse_volume(const char *entry, struct tt_render_volume *volumes, int count)
{
    static const char rule[] = "an entry is CLAIM:PATH or CLAIM:PATH:ro";
    struct tt_render_volume *volume = &volumes[count];
    const char *path = strchr(entry, ':'), *end;
    if (path == NULL) return refuse("volumes", entry, rule);
    end = strchr(path + 1, ':');
    if (end != NULL && strcmp(end, ":ro") != 0) return refuse("volumes", entry, rule);
    if (end == NULL) end = entry + strlen(entry);
    if (path - entry >= (int)sizeof volume->claim || end - path - 1 >= (int)sizeof volume->path)
        return refuse("volumes", entry, "a claim's name has at most 63 characters, a path 255");
    snprintf(volume->claim, sizeof volume->claim, "%.*s", (int)(path - entry), entry);
    snprintf(volume->path, sizeof volume->path, "%.*s", (int)(end - path - 1), path + 1);
    volume->read_only = *end == ':';
    TT_TRY(check_object_name("volumes: claim", volume->claim));
    return check_mount(volumes, count, entry);
}

tt_status tt_render_volumes(const char *text, struct tt_render_volume volumes[TT_RENDER_VOLUMES_MAX],
                            int *count)
{
    *count = 0;
    while (text != NULL && *text != '\0') {
        char entry[400];
        size_t bytes = strcspn(text, ",");
        if (bytes >= sizeof entry) return refuse("volumes", text, "an entry has at most 399 characters");
        if (*count == TT_RENDER_VOLUMES_MAX) return refuse("volumes", text, "there are at most 16 volumes");
        snprintf(entry, sizeof entry, "%.*s", (int)bytes, text);
        TT_TRY(parse_volume(entry, volumes, *count));
        *count += 1;
        text += bytes + (text[bytes] == ',');
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
    TT_TRY(tt_render_volumes(run->spec->volumes, volumes, &count));
    for (int i = 0; i < run->path_count; i++) {
        const struct tt_render_path *path = &run->paths[i];
        TT_TRY(check_path(path, volumes, count));
        if (path->path != NULL && lies_in(path->path, tt_render_run_folder)) *claims = true;
    }
    return TT_OK;
}
