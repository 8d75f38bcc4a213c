#!/usr/bin/env python3
"""Checks rendered objects of Kubernetes against strict schemas, and that their names fit together.

    check_objects.py jobset.schema.json.gz OBJECTS.yaml [--typos]

--typos: plants an unknown key into every mapping of the workload that the schema describes and fails where that is not
found. Exits with 77 where jsonschema or yaml is missing.
"""
import copy
import gzip
import json
import sys

try:
    import jsonschema
    import yaml
except ImportError as missing:
    print(f"skipped: {missing} (Debian: python3-jsonschema, python3-yaml)")
    sys.exit(77)


def fail(text):
    print("FAILED:", text)
    sys.exit(1)


def workload(documents, schema):
    """The JobSet or Job among them, with the schema of its spec and the specification of its Job."""
    for document in documents:
        if document["kind"] == "JobSet":
            return document, schema, document["spec"]["replicatedJobs"][0]["template"]["spec"]
        if document["kind"] == "Job":
            jobs = schema["properties"]["spec"]["properties"]["replicatedJobs"]["items"]["properties"]
            shape = {"type": "object", "properties": {"spec": jobs["template"]["properties"]["spec"]}}
            return document, shape, document["spec"]
    return fail("neither a JobSet nor a Job")


def check_names(documents, job):
    pod = job["template"]["spec"]
    container = pod["containers"][0]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = [mount["name"] for mount in container["volumeMounts"]]
    if sorted(volumes) != sorted(mounts):
        fail(f"volumes {sorted(volumes)}, mounts {sorted(mounts)}")
    there = {(document["kind"], document["metadata"]["name"]) for document in documents}
    if ("ConfigMap", volumes["config"]["configMap"]["name"]) not in there:
        fail("the ConfigMap of the pods is not rendered")
    if "run" in volumes and ("PersistentVolumeClaim", volumes["run"]["persistentVolumeClaim"]["claimName"]) not in there:
        fail("the claim of the pods is not rendered")
    if "subdomain" in pod and ("Service", pod["subdomain"]) not in there:
        fail("the Service of the subdomain is not rendered")
    for name, amount in container["resources"]["limits"].items():
        if "/" in name and container["resources"]["requests"].get(name) != amount:
            fail(f"limit and request of {name} differ")
    codes = [code for rule in job["podFailurePolicy"]["rules"] for code in rule.get("onExitCodes", {}).get("values", [])]
    if 0 in codes or len(set(codes)) != len(codes) or pod["restartPolicy"] != "Never":
        fail(f"podFailurePolicy with the codes {codes}")
    if any(document["kind"] == "Secret" for document in documents):
        fail("a Secret is rendered")


def mappings(node, schema, path=()):
    """Paths of the mappings whose keys the schema lists."""
    if isinstance(node, dict):
        if schema.get("additionalProperties") is False:
            yield path
        for key, value in node.items():
            yield from mappings(value, schema.get("properties", {}).get(key, {}), path + (key,))
    if isinstance(node, list):
        for index, value in enumerate(node):
            yield from mappings(value, schema.get("items", {}), path + (index,))


def main():
    with gzip.open(sys.argv[1]) as file:
        schema = json.load(file)
    with open(sys.argv[2]) as file:
        documents = list(yaml.safe_load_all(file))
    run, shape, job = workload(documents, schema)
    validator = jsonschema.Draft7Validator(shape)
    for error in validator.iter_errors(run):
        fail(f"{'/'.join(map(str, error.absolute_path))}: {error.message}")
    check_names(documents, job)
    if sys.argv[3:] == ["--typos"]:
        paths = list(mappings(run, shape))
        for path in paths:
            broken = copy.deepcopy(run)
            node = broken
            for key in path:
                node = node[key]
            node["backoffLimitt"] = 1
            if validator.is_valid(broken):
                fail(f"an unknown key in {'/'.join(map(str, path))} is not found")
        if len(paths) < 20:
            fail(f"only {len(paths)} mappings are checked")


main()
