#!/usr/bin/env python3
"""Checks rendered objects of Kubernetes against strict schemas, and against rules that no schema has.

    check_objects.py FOLDER_OF_SCHEMAS OBJECTS.yaml [--plan BYTES] [--typos] [--rules]

--plan: the buffers of the ranks of a pod, which its memory must hold beside /dev/shm. --typos: plants an unknown key into
every mapping that a schema describes, and fails where that is not found. --rules: breaks every rule once, and fails where
that is not refused with the path of the field. Exits with 77 where jsonschema or yaml is missing.
"""
import argparse
import copy
import gzip
import json
import pathlib
import re
import sys

try:
    import jsonschema
    import yaml
except ImportError as missing:
    print(f"skipped: {missing} (Debian: python3-jsonschema, python3-yaml)")
    sys.exit(77)

CRDS = {
    "jobset.x-k8s.io/v1alpha2 JobSet": "jobset",
    "trainer.kubeflow.org/v1alpha1 TrainJob": "trainjob",
    "trainer.kubeflow.org/v1alpha1 ClusterTrainingRuntime": "clustertrainingruntime",
    "trainer.kubeflow.org/v1alpha1 TrainingRuntime": "clustertrainingruntime",  # has the same specification
    "kubeflow.org/v1 PyTorchJob": "pytorchjob",
    "kubeflow.org/v2beta1 MPIJob": "mpijob",
    "batch.volcano.sh/v1alpha1 Job": "volcano-job",
}
# Where a workload has its Job of Kubernetes, and what the names of its pods add.
JOBSET = ("replicatedJobs", 0, "template", "spec")
JOBS = {"Job": ("spec",), "JobSet": ("spec",) + JOBSET, "TrainingRuntime": ("spec", "template", "spec") + JOBSET}
CONTAINERS = {"TrainingRuntime": "node", "ClusterTrainingRuntime": "node", "TrainJob": "node", "PyTorchJob": "pytorch"}
PATCH = ("spec", "runtimePatches", 0, "trainingRuntimeSpec", "template", "spec") + JOBSET + ("template",)  # of a TrainJob
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")


def fail(text):
    print("FAILED:", text)
    sys.exit(1)


def at(node, path):
    for key in path:
        node = node[key]
    return node


def name_of(document):
    return f"{document['apiVersion']} {document['kind']}"


def is_volcano(document):
    return document["apiVersion"].startswith("batch.volcano.sh")


def load_schemas(folder):
    def load(name):
        with gzip.open(pathlib.Path(folder) / f"{name}.schema.json.gz") as file:
            return json.load(file)

    core = load("core")
    schemas = {kind: load(name) for kind, name in CRDS.items()}
    schemas |= {f"monitoring.coreos.com/v1 {kind}": schema for kind, schema in load("monitoring").items()}
    for kind, schema in core["kinds"].items():
        schemas[f"{schema['properties']['apiVersion']['enum'][0]} {kind}"] = schema | {"definitions": core["definitions"]}
    return schemas


def job_of(document):
    """The path of the Job's specification in a workload; None: it has none."""
    if document["kind"] == "ClusterTrainingRuntime":
        path = ("spec", "template", "spec", "replicatedJobs")
        return path + ([job["name"] for job in at(document, path)].index("node"), "template", "spec")
    return None if is_volcano(document) else JOBS.get(document["kind"])


def templates(document):
    """Paths of the pod templates of a workload."""
    spec = document.get("spec", {})
    if is_volcano(document):
        return [("spec", "tasks", i, "template") for i in range(len(spec["tasks"]))]
    if "runtimePatches" in spec:
        return [PATCH]
    for member in ("pytorchReplicaSpecs", "mpiReplicaSpecs"):
        if member in spec:
            return [("spec", member, role, "template") for role in spec[member]]
    if document["kind"] == "Deployment":
        return [("spec", "template")]
    job = job_of(document)
    return [job + ("template",)] if job else []


def find(documents, kind):
    return [document for document in documents if document["kind"] == kind and not is_volcano(document)]


# ---- Rules: each yields (path, rule) ----


def rule_host_names(documents, level, plan):
    for document in documents:
        name, spec = document["metadata"]["name"], document.get("spec", {})
        last = {"Job": lambda: f"-{spec['completions'] - 1}", "JobSet": lambda: f"-node-0-{at(spec, JOBSET)['completions'] - 1}",
                "TrainJob": lambda: f"-node-0-{spec['trainer']['numNodes'] - 1}", "PyTorchJob": lambda: "-master-0",
                "MPIJob": lambda: "-launcher"}
        if is_volcano(document):
            suffix = f"-node-{spec['tasks'][0]['replicas'] - 1}"
        elif document["kind"] in last:
            suffix = last[document["kind"]]()
        else:
            continue
        if len(name + suffix) > 63:
            yield ("metadata", "name"), "host names of pods have at most 63 characters"


def rule_labels(documents, level, plan):
    for document in documents:
        places = [("metadata", "labels")] + [path + ("metadata", "labels") for path in templates(document)]
        for place in places:
            for key, value in at(document, place).items():
                if not LABEL.match(value):
                    yield place + (key,), "a value of a label"


def rule_failure_policy(documents, level, plan):
    for document in documents:
        path = job_of(document)
        if path is None:
            continue
        job = at(document, path)
        rules = job["podFailurePolicy"]["rules"]
        if len(rules) > 20:
            yield path + ("podFailurePolicy", "rules"), "at most 20 rules"
        for i, rule in enumerate(rules):
            place = path + ("podFailurePolicy", "rules", i, "onExitCodes")
            codes = rule.get("onExitCodes", {}).get("values", [])
            if len(codes) > 255:
                yield place + ("values",), "at most 255 codes"
            if 0 in codes or len(set(codes)) != len(codes):
                yield place + ("values",), "no 0 with In, and no code twice"
            names = [container["name"] for container in job["template"]["spec"]["containers"]]
            if "onExitCodes" in rule and rule["onExitCodes"]["containerName"] not in names:
                yield place + ("containerName",), "a container of the pod"
        if job["template"]["spec"].get("restartPolicy") != "Never":
            yield path + ("template", "spec", "restartPolicy"), "Never with a podFailurePolicy"


def rule_indexed(documents, level, plan):
    for document in documents:
        path = job_of(document)
        if path and at(document, path).get("completionMode") == "Indexed" and "completions" not in at(document, path):
            yield path + ("completions",), "needed by Indexed"


def rule_subdomain(documents, level, plan):
    services = [document["metadata"]["name"] for document in find(documents, "Service")]
    for document in find(documents, "Job"):
        if document["spec"]["template"]["spec"].get("subdomain") not in services:
            yield ("spec", "template", "spec", "subdomain"), "the name of a headless Service"


def rule_failure_rules(documents, level, plan):
    for document in find(documents, "JobSet") + find(documents, "TrainingRuntime"):
        path = JOBS[document["kind"]][: -len(JOBSET)] + ("failurePolicy", "rules")
        names = [rule.get("name") for rule in at(document, path)]
        for i, name in enumerate(names):
            if not name or name in names[:i]:
                yield path + (i, "name"), "each rule has a name of its own"


def rule_processes(documents, level, plan):
    for document in find(documents, "TrainJob"):
        if type(document["spec"]["trainer"].get("numProcPerNode")) is not int:
            yield ("spec", "trainer", "numProcPerNode"), "an integer"
    for document in find(documents, "PyTorchJob"):
        if not isinstance(document["spec"].get("nprocPerNode"), str):
            yield ("spec", "nprocPerNode"), "a text"


def containers(documents):
    for document in documents:
        for path in templates(document):
            place = path + ("spec", "containers", 0)
            yield document, place, at(document, place), at(document, path + ("spec",))


def rule_order(documents, level, plan):
    """Jobs that fetch are done before the training."""
    for document in find(documents, "ClusterTrainingRuntime"):
        path = ("spec", "template", "spec", "replicatedJobs")
        jobs = at(document, path)
        before = sorted(job["name"] for job in jobs if job["name"] != "node")
        if sorted(one["name"] for one in jobs[-1].get("dependsOn", [])) != before:
            yield path + (len(jobs) - 1, "dependsOn"), "the initializers"
        for i, job in enumerate(jobs):
            step = job["template"]["metadata"]["labels"].get("trainer.kubeflow.org/trainjob-ancestor-step")
            if step != {"node": "trainer"}.get(job["name"], job["name"]):
                yield path + (i, "template", "metadata", "labels"), "the label by which Trainer finds the step"


def rule_reserved(documents, level, plan):
    for _, place, container, _ in containers(documents):
        for i, variable in enumerate(container.get("env", [])):
            if variable["name"].startswith("PET_"):
                yield place + ("env", i, "name"), "PET_... is reserved"
    for document in find(documents, "TrainJob"):
        for i, variable in enumerate(document["spec"]["trainer"].get("env", [])):
            if variable["name"].startswith("PET_"):
                yield ("spec", "trainer", "env", i, "name"), "PET_... is reserved"
        for path in templates(document):
            if "env" in at(document, path + ("spec", "containers", 0)):
                yield path + ("spec", "containers", 0, "env"), "variables of the container node are those of trainer"


def rule_container_name(documents, level, plan):
    for document, place, container, _ in containers(documents):
        if document["kind"] in CONTAINERS and container["name"] != CONTAINERS[document["kind"]]:
            yield place + ("name",), "the name that the operator requires"


def rule_security(documents, level, plan):
    for _, place, container, pod in containers(documents):
        spec, own = place[:-2], container["securityContext"]
        if level != "privileged" and (own["capabilities"].get("add") or pod.get("hostNetwork")):
            yield place + ("securityContext", "capabilities"), f"not in level {level}"
        if level == "restricted" and not pod["securityContext"].get("runAsNonRoot"):
            yield spec + ("securityContext", "runAsNonRoot"), "true in level restricted"
        if level == "restricted" and pod["securityContext"].get("seccompProfile", {}).get("type") != "RuntimeDefault":
            yield spec + ("securityContext", "seccompProfile"), "RuntimeDefault in level restricted"
        if level == "restricted" and (own["capabilities"]["drop"] != ["ALL"] or own.get("allowPrivilegeEscalation") is not False):
            yield place + ("securityContext",), "drops ALL in level restricted"


def resources(documents):
    for _, place, container, pod in containers(documents):
        if "resources" in container:
            yield documents, place + ("resources",), container["resources"], pod
    for document in find(documents, "TrainJob"):
        runtime = (find(documents, "TrainingRuntime") or [document])[0]
        pod = at(runtime, templates(runtime)[0] + ("spec",))
        yield documents, ("spec", "trainer", "resourcesPerNode"), document["spec"]["trainer"]["resourcesPerNode"], pod


def rule_extended(documents, level, plan):
    for _, place, amounts, _ in resources(documents):
        for name, amount in amounts["limits"].items():
            if "/" in name and amounts["requests"].get(name) != amount:
                yield place + ("limits", name), "limit and request are equal"


def mebibytes(text):
    return int(text.removesuffix("Mi")) if text.endswith("Mi") else int(text.removesuffix("Gi")) * 1024


def rule_memory(documents, level, plan):
    for _, place, amounts, pod in resources(documents):
        shm = [volume["emptyDir"]["sizeLimit"] for volume in pod["volumes"] if volume["name"] == "shm"][0]
        if mebibytes(amounts["limits"]["memory"]) < mebibytes(shm) + plan / 2**20:
            yield place + ("limits", "memory"), "at least the plan and /dev/shm"


def rule_references(documents, level, plan):
    there = {(document["kind"], document["metadata"]["name"]) for document in documents}
    for document, place, container, pod in containers(documents):
        path = place[:-2] + ("volumes",)
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        if sorted(volumes) != sorted(mount["name"] for mount in container["volumeMounts"]):
            yield path, "volumes are those that are mounted"
        if document["kind"] == "ClusterTrainingRuntime":
            if {"configMap", "namespace"} & {key for volume in pod["volumes"] for key in volume}:
                yield path, "a runtime of the cluster names no ConfigMap"
        elif ("ConfigMap", volumes["config"]["configMap"]["name"]) not in there:
            yield path, "the ConfigMap is rendered"
        if "run" in volumes and ("PersistentVolumeClaim", volumes["run"]["persistentVolumeClaim"]["claimName"]) not in there:
            yield path, "the claim is rendered"
        if "schedulingGroup" in pod and ("PodGroup", pod["schedulingGroup"]["podGroupName"]) not in there:
            yield place[:-2] + ("schedulingGroup", "podGroupName"), "the PodGroup is rendered"


def rule_selectors(documents, level, plan):
    labels = [at(document, path)["metadata"]["labels"] for document in documents for path in templates(document)]
    selectors = {"NetworkPolicy": ("podSelector", "matchLabels"), "PodMonitor": ("selector", "matchLabels"), "Service": ("selector",),
                 "PodDisruptionBudget": ("selector", "matchLabels"), "Deployment": ("selector", "matchLabels")}
    for document in [found for kind in selectors for found in find(documents, kind)]:
        path = ("spec",) + selectors[document["kind"]]
        if any(not at(document, path).items() <= own.items() for own in labels):
            yield path, "selects the pods of the run"


def rule_probes(documents, level, plan):
    for document, place, container, _ in containers(documents):
        ports = [port["name"] for port in container.get("ports", [])]
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if probe in container and container[probe]["httpGet"]["port"] not in ports:
                yield place + (probe, "httpGet", "port"), "a port of the container"
        if document["kind"] == "PyTorchJob" and "readinessProbe" in container:
            yield place + ("readinessProbe",), "pods of a PyTorchJob find each other only when they are ready"
        grace = at(document, place[:-2]).get("terminationGracePeriodSeconds", 30)
        if grace <= container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0):
            yield place + ("lifecycle", "preStop", "sleep", "seconds"), "less than the grace period"
    for document in find(documents, "PodMonitor"):
        for i, endpoint in enumerate(document["spec"]["podMetricsEndpoints"]):
            for _, _, container, _ in containers(documents):
                if endpoint["port"] not in [port["name"] for port in container.get("ports", [])]:
                    yield ("spec", "podMetricsEndpoints", i, "port"), "a port of the pods"


def rule_secrets(documents, level, plan):
    for document in find(documents, "Secret"):
        yield ("kind",), "a Secret is not rendered"
    for _, place, container, _ in containers(documents):
        for i, variable in enumerate(container.get("env", [])):
            # Those of pod_secrets are of other programs, which read variables.
            if variable["name"] == "TRIMTAB_JOB_SECRET":
                yield place + ("env", i), "the job secret is a file"
            if "SECRET" in variable["name"] and "value" in variable and variable["name"] != "TRIMTAB_JOB_SECRET_FILE":
                yield place + ("env", i), "a secret's value is not rendered"


RULES = [value for name, value in list(globals().items()) if name.startswith("rule_")]


def broken_rules(documents, level, plan):
    return [(path, rule) for check in RULES for path, rule in check(documents, level, plan)]


# ---- Faults: each breaks one rule, and returns the path that must be named; None: it does not apply ----


def change(documents, kinds, path, value):
    for document in documents:
        if name_of(document).split()[1] not in kinds and "any" not in kinds:
            continue
        base = job_of(document) if path[0] == "job" else (templates(document) or [None])[0] if path[0] == "pod" else ()
        if base is None or (path[0] in ("job", "pod") and not base):
            continue
        full = base + tuple(path[1:] if path[0] in ("job", "pod") else path)
        try:
            parent = at(document, full[:-1])
            value = value(parent[full[-1]]) if callable(value) else value
            if value is None:
                del parent[full[-1]]
            else:
                parent[full[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue
        return full
    return None


RULE0 = ("job", "podFailurePolicy", "rules", 0, "onExitCodes")
CONTAINER = ("pod", "spec", "containers", 0)
AMOUNTS = [(("any",), CONTAINER + ("resources",)), (("TrainJob",), ("spec", "trainer", "resourcesPerNode"))]
FAULTS = [
    (("Job", "JobSet", "TrainJob", "PyTorchJob", "MPIJob"), ("metadata", "name"), "n" * 62),
    (("any",), ("pod", "metadata", "labels", "trimtab/run"), "a b"),
    (("any",), ("metadata", "labels", "trimtab/run"), "-"),
    (("any",), ("job", "podFailurePolicy", "rules"), lambda rules: rules[:1] * 21),
    (("any",), RULE0 + ("values",), list(range(1, 257))),
    (("any",), RULE0 + ("values",), [0, 2]),
    (("any",), RULE0 + ("containerName",), "other"),
    (("any",), ("job", "template", "spec", "restartPolicy"), "OnFailure"),
    (("any",), ("job", "completions"), None),
    (("Job",), ("job", "template", "spec", "subdomain"), "other"),
    (("ClusterTrainingRuntime",), ("spec", "template", "spec", "replicatedJobs", 2, "dependsOn"), []),
    (("JobSet",), ("spec", "failurePolicy", "rules", 0, "name"), None),
    (("JobSet",), ("spec", "failurePolicy", "rules", 1, "name"), "permanent"),
    (("TrainingRuntime",), ("spec", "template", "spec", "failurePolicy", "rules", 1, "name"), "permanent"),
    (("TrainJob",), ("spec", "trainer", "numProcPerNode"), "4"),
    (("PyTorchJob",), ("spec", "nprocPerNode"), 4),
    (("any",), CONTAINER + ("env", 0, "name"), "PET_NNODES"),
    (("TrainJob",), ("spec", "trainer", "env", 0, "name"), "PET_NNODES"),
    (("TrainingRuntime", "PyTorchJob"), CONTAINER + ("name",), "trimtab"),
    (("any",), CONTAINER + ("securityContext", "capabilities"), {"drop": ["ALL"], "add": ["IPC_LOCK"]}),
    (("any",), ("pod", "spec", "securityContext", "runAsNonRoot"), False),
    (("any",), ("pod", "spec", "securityContext", "seccompProfile"), None),
    (("any",), CONTAINER + ("securityContext",), {"capabilities": {"drop": []}}),
    *[(kinds, path + ("limits", "nvidia.com/gpu"), 64) for kinds, path in AMOUNTS],
    *[(kinds, path + ("limits", "memory"), "1Mi") for kinds, path in AMOUNTS],
    (("any",), ("pod", "spec", "volumes"), lambda volumes: volumes[1:]),
    (("any",), ("pod", "spec", "schedulingGroup", "podGroupName"), "other"),
    (("NetworkPolicy",), ("spec", "podSelector", "matchLabels"), {"trimtab/run": "other"}),
    (("Service",), ("spec", "selector"), {"trimtab/run": "other"}),
    (("PodDisruptionBudget", "Deployment"), ("spec", "selector", "matchLabels"), {"trimtab/run": "other"}),
    (("any",), CONTAINER + ("livenessProbe", "httpGet", "port"), "other"),
    (("any",), CONTAINER + ("lifecycle", "preStop", "sleep", "seconds"), 4000),
    (("PodMonitor",), ("spec", "selector", "matchLabels"), {"trimtab/run": "other"}),
    (("any",), CONTAINER + ("env", 0), {"name": "TRIMTAB_JOB_SECRET", "value": "x"}),
    (("any",), CONTAINER + ("startupProbe", "httpGet", "port"), "other"),
    (("PodMonitor",), ("spec", "podMetricsEndpoints", 0, "port"), "other"),
]


def check_rules(documents, level, plan):
    applied = 0
    for kinds, path, value in FAULTS:
        broken = copy.deepcopy(documents)
        full = change(broken, kinds, path, value)
        if full is None or (level != "restricted" and "securityContext" in full):
            continue
        try:
            found = broken_rules(broken, level, plan)
        except (IndexError, KeyError):  # a rule that reads the changed field
            found = []
            for check in RULES:
                try:
                    found += list(check(broken, level, plan))
                except (IndexError, KeyError):
                    pass
        if not any(place == full for place, _ in found):
            fail(f"{'.'.join(map(str, full))} with {value!r} is not refused: {found}")
        applied += 1
    if applied < 10:
        fail(f"only {applied} faults apply")


# ---- Schemas ----


def mappings(node, schema, root, path=()):
    """Paths of the mappings whose keys the schema lists."""
    if "$ref" in schema:
        schema = at(root, schema["$ref"].removeprefix("#/").split("/"))
    if isinstance(node, dict):
        if schema.get("additionalProperties") is False:
            yield path
        other = schema.get("additionalProperties")
        for key, value in node.items():
            yield from mappings(value, schema.get("properties", {}).get(key, other if isinstance(other, dict) else {}), root,
                                path + (key,))
    if isinstance(node, list):
        for index, value in enumerate(node):
            yield from mappings(value, schema.get("items", {}), root, path + (index,))


def check_typos(document, schema, validator):
    paths = list(mappings(document, schema, schema))
    for path in paths:
        broken = copy.deepcopy(document)
        at(broken, path)["backoffLimitt"] = 1
        if validator.is_valid(broken):
            fail(f"an unknown key in {'/'.join(map(str, path))} of {name_of(document)} is not found")
    return len(paths)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("schemas")
    parser.add_argument("objects")
    parser.add_argument("--plan", type=int, default=0)
    parser.add_argument("--typos", action="store_true")
    parser.add_argument("--rules", action="store_true")
    options = parser.parse_args()
    schemas = load_schemas(options.schemas)
    text = pathlib.Path(options.objects).read_text()
    documents = list(yaml.safe_load_all(text))
    level = re.search("^# Pod Security level of the namespace: (.*)$", text, re.M).group(1)
    planted = 0
    for document in documents:
        if name_of(document) not in schemas:
            fail(f"no schema for {name_of(document)}")
        schema = schemas[name_of(document)]
        validator = jsonschema.Draft7Validator(schema)
        for error in validator.iter_errors(document):
            fail(f"{name_of(document)}: {'/'.join(map(str, error.absolute_path))}: {error.message}")
        if options.typos:
            planted += check_typos(document, schema, validator)
    for path, rule in broken_rules(documents, level, options.plan):
        fail(f"{'.'.join(map(str, path))}: {rule}")
    if options.typos and planted < 25:
        fail(f"only {planted} mappings are checked")
    if options.rules:
        check_rules(documents, level, options.plan)


main()
