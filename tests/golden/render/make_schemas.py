#!/usr/bin/env python3
"""Makes the strict schemas that tests/tools/check_objects.py reads.

    make_schemas.py core KUBERNETES_VALIDATE     core.schema.json.gz from the package kubernetes-validate 1.37.0 (its
                                                 folder kubernetes_validate): Kubernetes' OpenAPI, unknown keys refused
    make_schemas.py monitoring PACKAGES          monitoring.schema.json.gz from the package
                                                 cloudcoil-models-prometheus-operator (the folder that it is installed
                                                 in): models of prometheus-operator's CRDs, unknown keys refused
    make_schemas.py crd FOLDER                   from the strict schemas of CustomResourceDefinitions in FOLDER, as
                                                 VERSIONS.md lists them
Descriptions are dropped; all of it is Apache-2.0 data.
"""
import gzip
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
KINDS = {
    "ConfigMap": "configmap-v1",
    "Service": "service-v1",
    "PersistentVolumeClaim": "persistentvolumeclaim-v1",
    "NetworkPolicy": "networkpolicy-networking-v1",
    "PodGroup": "podgroup-scheduling-v1beta1",
    "Job": "job-batch-v1",
    "Deployment": "deployment-apps-v1",
    "PodDisruptionBudget": "poddisruptionbudget-policy-v1",
}
CRDS = ["jobset", "trainjob", "clustertrainingruntime", "pytorchjob", "mpijob", "volcano-job"]
PREFIX = "/api/_definitions.json#/$defs/"


def clean(node):
    """Without texts for people, and with references into one file."""
    if isinstance(node, list):
        return [clean(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {}
    for key, value in node.items():
        if key in ("description", "$id", "$schema", "format") and isinstance(value, str):
            continue
        if key.startswith("x-kubernetes"):
            continue
        if key == "$ref":
            value = "#/definitions/" + value.removeprefix(PREFIX).removeprefix("#/$defs/")
        kept[key] = {name: clean(item) for name, item in value.items()} if key == "properties" else clean(value)
    return kept


def references(node):
    if isinstance(node, list):
        for item in node:
            yield from references(item)
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value.removeprefix("#/definitions/")
            else:
                yield from references(value)


def write(name, schema):
    text = json.dumps(schema, sort_keys=True, separators=(",", ":")).encode()
    (HERE / name).write_bytes(gzip.compress(text, 9, mtime=0))


def make_core(folder):
    strict = pathlib.Path(folder) / "kubernetes-json-schema" / "v1.37.0-local-strict"
    everything = json.loads((strict / "_definitions.json").read_text())["$defs"]
    kinds = {kind: clean(json.loads((strict / f"{name}.json").read_text())) for kind, name in KINDS.items()}
    definitions, waiting = {}, list(references(kinds))
    while waiting:
        name = waiting.pop()
        if name not in definitions:
            definitions[name] = clean(everything[name])
            waiting += references(definitions[name])
    write("core.schema.json.gz", {"kinds": kinds, "definitions": definitions})


def make_crds(folder):
    for name in CRDS:
        write(f"{name}.schema.json.gz", json.loads((pathlib.Path(folder) / f"{name}.schema.json").read_text()))


def strict(node, definitions):
    """A model's schema as that of a CRD: no nulls, titles and defaults, references resolved."""
    if isinstance(node, list):
        return [strict(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return strict(definitions[node["$ref"].removeprefix("#/$defs/")], definitions)
    choices = [choice for choice in node.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) == 1:
        return strict(choices[0], definitions)
    kept = {}
    for key, value in node.items():
        if key in ("$defs", "title", "default", "description") and not isinstance(value, dict):
            continue
        if key == "pattern":
            value = value.replace("^(?i)", "(?i)^")
        if key == "properties":
            kept[key] = {name: strict(item, definitions) for name, item in value.items()}
            kept["additionalProperties"] = False
        elif key != "$defs":
            kept[key] = strict(choices if key == "anyOf" else value, definitions)
    return kept


def make_monitoring(folder):
    sys.path.insert(0, folder)
    from cloudcoil.models.prometheus_operator import v1

    kinds = {}
    for model in (v1.PodMonitor, v1.PrometheusRule):
        schema = model.model_json_schema(by_alias=True)
        kinds[model.__name__] = kind = strict(schema, schema["$defs"])
        kind["properties"]["apiVersion"] = {"enum": ["monitoring.coreos.com/v1"]}
        kind["properties"]["kind"] = {"enum": [model.__name__]}
        kind["required"] = ["apiVersion", "kind", "metadata", "spec"]
    write("monitoring.schema.json.gz", kinds)


{"core": make_core, "crd": make_crds, "monitoring": make_monitoring}[sys.argv[1]](sys.argv[2])
