/* Rules that the API server would enforce after the objects are sent, and rules of our own. */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "render/render_impl.h"

const char tt_render_lower[] = "abcdefghijklmnopqrstuvwxyz0123456789";
const char tt_render_any[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

bool tt_render_consists_of(const char *text, size_t bytes, const char *ends, const char *inside)
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
        {"namespace", "metadata.namespace"},
        {"object_labels", "metadata.labels"},
        {"object_annotations", "metadata.annotations"},
        {"pod_env", "containers[0].env"},
        {"pod_secrets", "containers[0].env[].valueFrom.secretKeyRef"},
        {"service_account", "serviceAccountName"},
        {"runtime", "TrainJob.spec.runtimeRef.name"},
        {"queue", "metadata.labels[kueue.x-k8s.io/queue-name]"},
        {"client_namespace", "NetworkPolicy.spec.ingress[].from[].namespaceSelector"},
        {"monitoring_namespace", "NetworkPolicy.spec.ingress[].from[].namespaceSelector"},
        {"gpu_resource", "containers[0].resources.limits"},
        {"rdma", "containers[0].resources.limits"},
        {"volumes", "containers[0].volumeMounts"},
        {"volumes: claim", "volumes[].persistentVolumeClaim.claimName"},
        {"volumes: secret", "volumes[].secret.secretName"},
        {"csi_volumes", "volumes[].csi"},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (strcmp(fields[i][0], setting) == 0) return fields[i][1];
    return NULL;
}

tt_status tt_render_refuse(const char *setting, const char *value, const char *rule)
{
    const char *field = field_of(setting);
    tt_status status = tt_fail(TT_ERR_USAGE, "%s '%.120s' is not valid%s%s", setting, value,
                               field != NULL ? " as " : "", field != NULL ? field : "");
    tt_hint("%s", rule);
    return status;
}

/* Names of claims, classes, secrets: RFC 1123 subdomains, here at most 63 bytes. */
tt_status tt_render_check_object_name(const char *setting, const char *value)
{
    if (value == NULL) return TT_OK;
    if (strlen(value) > 63 || !tt_render_consists_of(value, strlen(value), tt_render_lower, "-."))
        return tt_render_refuse(
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
    if (!tt_render_consists_of(spec->name, bytes, tt_render_lower, "-") ||
        (spec->name[0] >= '0' && spec->name[0] <= '9'))
        return tt_render_refuse("name", spec->name,
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
    if (slash == NULL || !tt_render_consists_of(value, (size_t)(slash - value), tt_render_lower, "-.") ||
        strlen(slash + 1) > 63 || !tt_render_consists_of(slash + 1, strlen(slash + 1), tt_render_any, "-._"))
        return tt_render_refuse(setting, value,
                                "the name of a resource is DOMAIN/NAME, as in rdma/hca_shared_devices_a");
    return TT_OK;
}

static tt_status check_printable(const char *setting, const char *value, bool blanks)
{
    if (value == NULL) return TT_OK;
    for (const char *c = value; *c != '\0'; c++)
        if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\' || (*c == ' ' && !blanks))
            return tt_render_refuse(setting, value, "printable ASCII without quotes and backslashes");
    return value[0] != '\0' ? TT_OK : tt_render_refuse(setting, value, "it is empty");
}

static tt_status refuse_image(const char *message, const char *hint)
{
    tt_status status = tt_fail(TT_ERR_USAGE, "%s", message);
    tt_hint("%s", hint);
    return status;
}

/* Objects of a namespace cannot stand beside one of the cluster. */
static tt_status check_shared(enum tt_render_kind kind, const struct tt_render_spec *spec)
{
    const char *given = spec->namespace != NULL              ? "namespace"
                        : spec->monitoring_namespace != NULL ? "monitoring_namespace"
                        : spec->queue != NULL                ? "queue"
                                                             : NULL;
    if (!tt_render_kind_facts(kind)->is_shared || given == NULL) return TT_OK;
    tt_status status =
        tt_fail(TT_ERR_USAGE, "%s is given, but a ClusterTrainingRuntime is in no namespace", given);
    tt_hint("leave it out; a TrainJob has its own namespace and queue");
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

/* A variable that names a file has no secret itself. */
static bool is_secret(const char *name)
{
    static const char *const words[] = {"TOKEN",   "SECRET",     "PASSWORD",     "PASSWD",
                                        "API_KEY", "ACCESS_KEY", "CUSTOMER_KEY", "PRIVATE_KEY"};
    if (tt_ends_with(name, "_FILE") || tt_ends_with(name, "_PATH")) return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(name, words[i]) != NULL) return true;
    return false;
}

/* "scheme://user:password@host" */
static bool has_password(const char *value)
{
    const char *host = strstr(value, "://");
    if (host == NULL) return false;
    host += 3;
    const char *end = host + strcspn(host, "/?#"), *at = memchr(host, '@', (size_t)(end - host));
    return at != NULL && memchr(host, ':', (size_t)(at - host)) != NULL;
}

static tt_status check_env(const char *text)
{
    struct tt_render_pairs env;
    TT_TRY(tt_render_read_pairs("pod_env", text, &env));
    for (int i = 0; i < env.count; i++) {
        const char *name = env.items[i].name;
        if (!tt_render_consists_of(name, strlen(name), tt_render_any, "_"))
            return tt_render_refuse("pod_env", name, "a variable has letters, digits and '_'");
        if (name[0] >= '0' && name[0] <= '9')
            return tt_render_refuse("pod_env", name, "a variable begins with a letter");
        if (is_reserved(name))
            return tt_render_refuse("pod_env", name,
                                    "the pods, or the controller that makes them, set this variable");
        if (is_secret(name))
            return tt_render_refuse("pod_env", name,
                                    "everyone who may see a pod sees its variables: mount a Secret instead");
        if (has_password(env.items[i].value))
            return tt_render_refuse("pod_env", name,
                                    "its address has a password, which everyone who may see a pod would see: "
                                    "keep it in a Secret (pod_secrets)");
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
        if (!tt_render_consists_of(name, strlen(name), tt_render_any, "_") ||
            (name[0] >= '0' && name[0] <= '9'))
            return tt_render_refuse("pod_secrets", name,
                                    "a variable has letters, digits and '_', and begins with a letter");
        if (is_reserved(name))
            return tt_render_refuse("pod_secrets", name,
                                    "the pods, or the controller that makes them, set this variable");
        for (int k = 0; k < env.count; k++)
            if (strcmp(env.items[k].name, name) == 0)
                return tt_render_refuse("pod_secrets", name, "pod_env has this variable, too");
        snprintf(object, sizeof object, "%.*s", (int)(slash - value), value);
        TT_TRY(tt_render_check_object_name("pod_secrets", object));
        if (!tt_render_consists_of(slash + 1, strlen(slash + 1), tt_render_any, "-._"))
            return tt_render_refuse("pod_secrets", slash + 1,
                                    "a key of a Secret has letters, digits and -._");
    }
    return TT_OK;
}

/* Labels and annotations that the objects have of their own, with the setting that says them. */
static tt_status check_own(const char *setting, const char *name)
{
    static const char *const owned[][2] = {
        {"trimtab/run", "name"},
        {"kueue.x-k8s.io/queue-name", "queue"},
        {"k8s.v1.cni.cncf.io/networks", "networks"},
        {"trainer.kubeflow.org/trainjob-ancestor-step", "name"},
        {"trainer.kubeflow.org/framework", "name"},
    };
    char rule[80];
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) {
        if (strcmp(name, owned[i][0]) != 0) continue;
        snprintf(rule, sizeof rule, "it follows from the setting `%s`", owned[i][1]);
        return tt_render_refuse(setting, name, rule);
    }
    return TT_OK;
}

/* The name of a label or annotation is [DOMAIN/]NAME. The values of labels are names too. */
static tt_status check_labels(const char *setting, const char *text, bool any_value)
{
    struct tt_render_pairs labels;
    TT_TRY(tt_render_read_pairs(setting, text, &labels));
    for (int i = 0; i < labels.count; i++) {
        const char *name = labels.items[i].name, *value = labels.items[i].value, *slash = strchr(name, '/');
        const char *last = slash != NULL ? slash + 1 : name;
        if ((slash != NULL && !tt_render_consists_of(name, (size_t)(slash - name), tt_render_lower, "-.")) ||
            strlen(last) > 63 || !tt_render_consists_of(last, strlen(last), tt_render_any, "-._"))
            return tt_render_refuse(setting, name,
                                    "a label is [DOMAIN/]NAME, the name of at most 63 characters");
        if (!any_value &&
            (strlen(value) > 63 ||
             (value[0] != '\0' && !tt_render_consists_of(value, strlen(value), tt_render_any, "-._"))))
            return tt_render_refuse(setting, value, "at most 63 letters, digits, '-', '.' and '_'");
        if (strcmp(setting, "node_selector") != 0) TT_TRY(check_own(setting, name));
    }
    return TT_OK;
}

static tt_status check_namespace(const char *value)
{
    if (value == NULL ||
        (strlen(value) <= 63 && tt_render_consists_of(value, strlen(value), tt_render_lower, "-")))
        return TT_OK;
    return tt_render_refuse(
        "namespace", value,
        "at most 63 lower case letters, digits and '-', with a letter or digit at both ends");
}

tt_status tt_render_check(enum tt_render_kind kind, const struct tt_render_spec *spec)
{
    bool is_script = tt_render_kind_facts(kind)->is_script;
    TT_TRY(check_name(kind, spec));
    TT_TRY(check_kind(kind, spec));
    TT_TRY(check_runtime(kind, spec));
    TT_TRY(check_shared(kind, spec));
    TT_TRY(check_printable("model_initializer", spec->model_initializer, false));
    TT_TRY(check_printable("dataset_initializer", spec->dataset_initializer, false));
    if (is_script && spec->image != NULL)
        return refuse_image("image is given, but a batch script runs the program of the nodes",
                            "leave image out");
    if (!is_script && spec->image == NULL)
        return refuse_image("image is missing", "give the image of the pods, whose entry point is trimtab");
    TT_TRY(check_printable("image", spec->image, false));
    TT_TRY(check_printable("networks", spec->networks, true));
    TT_TRY(tt_render_check_object_name("storage_class", spec->storage_class));
    TT_TRY(tt_render_check_object_name("priority_class", spec->priority_class));
    TT_TRY(tt_render_check_object_name("secret", spec->secret));
    TT_TRY(tt_render_check_object_name("image_pull_secret", spec->image_pull_secret));
    TT_TRY(tt_render_check_object_name("service_account", spec->service_account));
    TT_TRY(check_env(spec->pod_env));
    TT_TRY(check_secrets(spec));
    TT_TRY(check_labels("node_selector", spec->node_selector, false));
    TT_TRY(check_labels("object_labels", spec->object_labels, false));
    TT_TRY(check_labels("object_annotations", spec->object_annotations, true));
    TT_TRY(check_namespace(spec->namespace));
    TT_TRY(tt_render_check_object_name("runtime", spec->runtime));
    TT_TRY(tt_render_check_object_name("queue", spec->queue));
    TT_TRY(tt_render_check_object_name("monitoring_namespace", spec->monitoring_namespace));
    TT_TRY(tt_render_check_object_name("client_namespace", spec->client_namespace));
    TT_TRY(check_resource("gpu_resource", spec->gpu_resource));
    TT_TRY(check_resource("rdma", spec->rdma));
    if (!tt_render_kind_facts(kind)->serves && spec->storage_rate == 0)
        return tt_render_refuse("storage_rate", "0", "a rate above 0");
    return TT_OK;
}
