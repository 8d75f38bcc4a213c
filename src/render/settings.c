/* Settings of `trimtab render` and `trimtab render-deployment`. */
#include <math.h>
#include <stddef.h>

#include "render/render.h"

#define FIELD(member) .offset = offsetof(struct tt_render_spec, member), .transient = true
#define COUNT(name_, least, most, default_)                                                                  \
    .name = #name_, .type = TT_SETTING_INT, FIELD(name_), .minimum = least, .maximum = most,                 \
    .default_text = default_
#define TEXT(name_) .name = #name_, .type = TT_SETTING_STRING, FIELD(name_)
#define SIZE(name_, default_) .name = #name_, .type = TT_SETTING_BYTES, FIELD(name_), .default_text = default_

/* One row reads as one paragraph. */
/* clang-format off */
const struct tt_setting tt_render_settings[] = {
    {TEXT(name), .default_text = "trimtab", .help = "Name of the objects."},
    {COUNT(nodes, 0, 4096, "0"), .help = "Number of pods, one for each node; 0: num_machines."},
    {TEXT(weights_file), .path = TT_PATH_READ, .of = "detection",
     .help = "Detection: a copy of the weights on this machine, for the plan; not given: weights_path itself."},
    {TEXT(storage_class),
     .help = "storageClassName of the rendered claim, which several nodes write; not given: the cluster's."},
    {SIZE(claim_size, "0"), .help = "Size of the rendered claim; 0: by the plan and save_total_limit."},
    {COUNT(checkpoints, 1, 1 << 20, "10"), .needs = "!save_total_limit",
     .help = "Checkpoints that the claim has room for where save_total_limit keeps all."},
    {SIZE(storage_rate, "200MB"), .help = "Bytes a second that a checkpoint is written at, for the grace period."},
    {.name = "step_seconds", .type = TT_SETTING_DOUBLE, FIELD(step_seconds), .default_text = "0", .minimum = 0,
     .maximum = INFINITY, .help = "Time of an optimizer step, for the grace period; 0: by the plan, on processors 30."},
    {COUNT(grace_period, 0, 1 << 20, "0"),
     .help = "Seconds from SIGTERM to SIGKILL; 0: twice the time of two steps and a save, at least 60."},
    {COUNT(spot_notice, 0, 1 << 20, "0"),
     .help = "Seconds from a notice to the end of a machine that may be taken away; less than a stop takes is warned "
             "about."},
    {COUNT(max_restarts, 0, 1000, "3"), .help = "Restarts of the run after failures that a retry may cure."},
    {TEXT(queue), .help = "Queue of Kueue (label kueue.x-k8s.io/queue-name); of Volcano for volcano."},
    {TEXT(rdma), .help = "Name of the RDMA device in limits, such as rdma/hca_shared_devices_a; also adds IPC_LOCK."},
    {TEXT(networks), .help = "Annotation k8s.v1.cni.cncf.io/networks, for devices of SR-IOV."},
    {.name = "host_network", .type = TT_SETTING_BOOL, FIELD(host_network), .default_text = "false",
     .help = "Pods in the network of their node; no NetworkPolicy applies to them."},
    {.name = "gang", .type = TT_SETTING_BOOL, FIELD(gang), .default_text = "false",
     .help = "Pods start all or none: a PodGroup of Kubernetes 1.37 for job and jobset, the pod groups of the "
             "operators for trainjob, pytorchjob and mpijob. Volcano always does."},
    {TEXT(monitoring_namespace),
     .help = "Namespace of Prometheus, which the pods then let in: adds a PodMonitor and a PrometheusRule "
             "(monitoring.coreos.com/v1)."},
    {TEXT(runtime),
     .help = "ClusterTrainingRuntime of the cluster that a trainjob patches, such as torch-distributed (Trainer 2.3 or "
             "later); not given: a TrainingRuntime of its own."},
    {TEXT(model_initializer), .default_text = "ghcr.io/kubeflow/trainer/model-initializer:v2.3.0",
     .help = "Image that a ClusterTrainingRuntime fetches the model with, where it is in /workspace/model."},
    {TEXT(dataset_initializer), .default_text = "ghcr.io/kubeflow/trainer/dataset-initializer:v2.3.0",
     .help = "Image that a ClusterTrainingRuntime fetches the data with, where they are in /workspace/dataset."},
    {TEXT(secret), .help = "Secret with the job secret under the key `secret`; not given: NAME-secret."},
    {.name = NULL},
};

const struct tt_setting tt_render_pod_settings[] = {
    {TEXT(namespace), .help = "Namespace of the objects; not given: that of kubectl's context."},
    {.name = "object_labels", .type = TT_SETTING_JSON, FIELD(object_labels),
     .help = "Labels of all objects and pods: {\"team\": \"a\"}."},
    {.name = "object_annotations", .type = TT_SETTING_JSON, FIELD(object_annotations),
     .help = "Annotations of all objects and pods: {\"gke-gcsfuse/volumes\": \"true\"}."},
    {TEXT(image), .help = "Image whose entry point is trimtab, best with its digest. Needed but for sbatch."},
    {COUNT(gpus_per_node, 0, 64, "0"),
     .help = "GPUs of a pod, one rank each; 0: ranks, or num_processes / num_machines. None with device cpu."},
    {COUNT(cpus_per_node, 1, 4096, "8"), .help = "Processors that a pod requests; with device cpu also its limit."},
    {TEXT(chip), .help = "Kind of the GPUs, for the plan: h200, rtx4090, ... (as device of trimtab plan)."},
    {TEXT(config_json), .path = TT_PATH_READ,
     .help = "The model's config.json on this machine, for the plan; not given: that of model_name_or_path."},
    {TEXT(volumes),
     .help = "Claims that exist and where pods mount them: models:/models:ro,data:/data:ro; secret/NAME:/path mounts "
             "the keys of a Secret as files. Files of the run lie in them; an output_dir in /run/trimtab gets a claim "
             "of its own."},
    {.name = "csi_volumes", .type = TT_SETTING_JSON, FIELD(csi_volumes),
     .help = "Volumes of CSI drivers by the paths where pods mount them, with Kubernetes' keys: {\"/data\": "
             "{\"driver\": \"gcsfuse.csi.storage.gke.io\", \"readOnly\": true, \"volumeAttributes\": {\"bucketName\": "
             "\"rows\"}}}."},
    {SIZE(memory, "0"), .help = "Memory of a pod; 0: by the plan. Less than the plan's is an error."},
    {SIZE(reserve_memory, "8GiB"),
     .help = "Memory of a pod beyond the plan's buffers: program, driver, tokenizer, data."},
    {SIZE(tmp_size, "0"),
     .help = "Size of /tmp; 0: 1 GiB, and room for a checkpoint where output_dir is in a store."},
    {SIZE(shm_size, "1GiB"), .help = "Size of /dev/shm, part of the memory; NCCL needs it."},
    {TEXT(priority_class), .help = "priorityClassName of the pods."},
    {TEXT(image_pull_secret), .help = "Secret of the registry (imagePullSecrets); not given: the service account's."},
    {.name = "node_selector", .type = TT_SETTING_JSON, FIELD(node_selector),
     .help = "Labels of the nodes: {\"nvidia.com/gpu.product\": \"NVIDIA-H200\"}."},
    {.name = "pod_env", .type = TT_SETTING_JSON, FIELD(pod_env),
     .help = "Variables of the pods, such as NCCL's: {\"NCCL_SOCKET_IFNAME\": \"eth0\"}. No secrets."},
    {TEXT(pod_secrets),
     .help = "Variables of the pods from Secrets that exist: AWS_ACCESS_KEY_ID=s3-keys/id,"
             "AWS_SECRET_ACCESS_KEY=s3-keys/secret. Values are never written."},
    {TEXT(service_account), .help = "serviceAccountName of the pods, such as one with a role for object storage."},
    {TEXT(gpu_resource), .default_text = "nvidia.com/gpu", .help = "Name of the GPUs in limits."},
    {.name = NULL},
};

const struct tt_setting tt_render_server_settings[] = {
    {TEXT(name), .default_text = "trimtab", .help = "Name of the objects."},
    {COUNT(replicas, 1, 1000, "1"), .help = "Number of pods, each with the whole model."},
    {TEXT(client_namespace),
     .help = "Namespace of clients, such as that of an ingress controller, besides the server's own."},
    {.name = NULL},
};
/* clang-format on */
