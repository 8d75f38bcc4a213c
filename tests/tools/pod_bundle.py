#!/usr/bin/env python3
"""A pod of a rendered Job or JobSet as a bundle that an OCI runtime starts (crun run --bundle, runc run --bundle).

    pod_bundle.py OBJECTS.yaml BUNDLE --index N --netns PATH --cgroup PATH [--rootfs FOLDER] [--claim NAME=FOLDER]...
        [--secret NAME=FOLDER]... [--hosts FILE] [--seccomp FILE] [--attempt N] [--args WORDS...]

Everything comes from the rendered objects: arguments, variables, user, groups, capabilities, limits, mounts. What a cluster
adds is added as its parts do: the Job's controller gives JOB_COMPLETION_INDEX and labels, the kubelet host name, hosts file,
/dev/termination-log, secrets and configurations as files, memory and processors as limits of a control group; the container
runtime a profile of system calls (--seccomp: one in the form of containers-common, as RuntimeDefault). BUNDLE gets
config.json and `pod.env`, variables of a shell: host, subdomain, grace, and the codes of podFailurePolicy.

Sources: config.md, config-linux.md and runtime.md of opencontainers/runtime-spec 1.0.2 for config.json; the conventions of
host names, labels and mounts from the pages of Kubernetes on Jobs, DNS for pods and termination messages, and of JobSet.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import stat
import sys

try:
    import yaml
except ImportError:
    print("skipped: there is no yaml (Debian: python3-yaml)")
    sys.exit(77)

SIZES = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "": 1}
MASKED = ["/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
          "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware"]
READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]


def bytes_of(quantity):
    number, unit = re.fullmatch(r"(\d+)(Ki|Mi|Gi|)", str(quantity)).groups()
    return int(number) * SIZES[unit]


class Pod:
    """What the controllers of a rendered workload would create as pod `index`."""

    def __init__(self, documents, index, attempt):
        self.configs = {d["metadata"]["name"]: d["data"] for d in documents if d["kind"] == "ConfigMap"}
        workload = next(d for d in documents if d["kind"] in ("Job", "JobSet"))
        name = workload["metadata"]["name"]
        self.labels = {"batch.kubernetes.io/job-completion-index": str(index)}
        if workload["kind"] == "Job":
            job = workload["spec"]
            self.host, self.labels["batch.kubernetes.io/controller-uid"] = f"{name}-{index}", "8d5e0b1c-job"
        else:
            replicated = workload["spec"]["replicatedJobs"][0]
            job = replicated["template"]["spec"]
            self.host = f"{name}-{replicated['name']}-0-{index}"
            self.labels |= {"jobset.sigs.k8s.io/jobset-uid": "8d5e0b1c-set",
                            "jobset.sigs.k8s.io/restart-attempt": str(attempt)}
        assert job["completionMode"] == "Indexed" and index < job["completions"]
        self.spec = job["template"]["spec"]
        self.labels |= job["template"]["metadata"]["labels"]
        self.subdomain = self.spec.get("subdomain") or workload["spec"]["network"]["subdomain"]
        self.index = index
        (self.container,) = self.spec["containers"]
        self.codes = {rule["action"] + str(i): rule["onExitCodes"]["values"]
                      for i, rule in enumerate(job["podFailurePolicy"]["rules"]) if "onExitCodes" in rule}

    def environment(self, image, secrets):
        values = dict(entry.split("=", 1) for entry in image.get("Env") or ["PATH=/usr/bin:/bin"])
        values |= {"HOSTNAME": self.host, "JOB_COMPLETION_INDEX": str(self.index),
                   "KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
        for entry in self.container["env"]:
            if "value" in entry:
                values[entry["name"]] = entry["value"]
                continue
            if "secretKeyRef" in entry["valueFrom"]:
                key = entry["valueFrom"]["secretKeyRef"]
                values[entry["name"]] = (pathlib.Path(secrets[key["name"]]) / key["key"]).read_text()
                continue
            field = entry["valueFrom"]["fieldRef"]["fieldPath"]
            label = re.fullmatch(r"metadata\.labels\['(.*)'\]", field)
            # A label that is not there is an empty text.
            values[entry["name"]] = self.labels.get(label[1], "") if label else {"spec.nodeName": f"node-{self.index}"}[field]
        return [f"{name}={value}" for name, value in values.items()]


def files(folder, contents, user, mode):
    folder.mkdir(parents=True)
    for name, text in contents.items():
        (folder / name).write_bytes(text)
        os.chown(folder / name, 0, user["fsGroup"])
        os.chmod(folder / name, mode)
    os.chmod(folder, 0o755)
    return folder


def mount(source, target, read_only, *options):
    return {"destination": target, "type": "bind", "source": str(source),
            "options": ["rbind", "rprivate", "ro" if read_only else "rw", *options]}


def volume_mounts(pod, bundle, arguments):
    """The volumes as the kubelet mounts them: an emptyDir belongs to fsGroup, a claim's folder is given."""
    user, claims, secrets = pod.spec["securityContext"], dict(arguments.claim), dict(arguments.secret)
    volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
    for at in pod.container["volumeMounts"]:
        volume, target, read_only = volumes[at["name"]], at["mountPath"], at.get("readOnly", False)
        folder = bundle / "volumes" / at["name"]
        if "emptyDir" in volume:
            size = bytes_of(volume["emptyDir"].get("sizeLimit", "1Gi"))
            options = ["nosuid", "nodev", "mode=1777", f"size={size}"]
            yield {"destination": target, "type": "tmpfs", "source": "tmpfs", "options": options}
        elif "configMap" in volume:
            data = pod.configs[volume["configMap"]["name"]]
            yield mount(files(folder, {k: v.encode() for k, v in data.items()}, user, 0o644), target, read_only)
        elif "secret" in volume:
            source = pathlib.Path(secrets[volume["secret"]["secretName"]])
            data = {file.name: file.read_bytes() for file in source.iterdir()}
            yield mount(files(folder, data, user, volume["secret"]["defaultMode"]), target, read_only)
        else:
            claim = volume["persistentVolumeClaim"]
            folder = pathlib.Path(claims[claim["claimName"]])
            if not (read_only or claim.get("readOnly")) and folder.stat().st_gid != user["fsGroup"]:
                os.chown(folder, -1, user["fsGroup"])  # OnRootMismatch
                os.chmod(folder, stat.S_IMODE(folder.stat().st_mode) | 0o2770)
            yield mount(folder, target, read_only or claim.get("readOnly", False))


def seccomp(path):
    """The profile of containers-common for this machine and a container without capabilities, as config.json has it."""
    profile, rules = json.loads(pathlib.Path(path).read_text()), []
    for rule in profile["syscalls"]:
        includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
        arches = includes.get("arches", ["amd64"])
        if includes.get("caps") or "amd64" not in arches or "amd64" in excludes.get("arches", []):
            continue
        kept = {key: rule[key] for key in ("names", "action") if key in rule}
        if rule.get("args"):
            kept["args"] = rule["args"]
        if "errnoRet" in rule:
            kept["errnoRet"] = rule["errnoRet"]
        rules.append(kept)
    return {"defaultAction": profile["defaultAction"], "defaultErrnoRet": profile.get("defaultErrnoRet", 1),
            "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"], "syscalls": rules}


def system_mounts(bundle, hosts):
    log = bundle / "termination-log"  # the kubelet makes it, writable for every user
    log.touch()
    os.chmod(log, 0o666)
    (bundle / "resolv.conf").write_text("search default.svc.cluster.local svc.cluster.local\noptions ndots:5\n")
    return [
        {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]},
        {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
         "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]},
        {"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue", "options": ["nosuid", "noexec", "nodev"]},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]},
        {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": ["nosuid", "noexec", "nodev", "ro"]},
        mount(hosts, "/etc/hosts", False), mount(bundle / "resolv.conf", "/etc/resolv.conf", False),
        mount(log, "/dev/termination-log", False),
    ]


def configuration(pod, bundle, arguments, image):
    context, user = pod.container["securityContext"], pod.spec["securityContext"]
    limits = pod.container["resources"]["limits"]
    assert user["runAsNonRoot"] and context["capabilities"] == {"drop": ["ALL"]}, "not what `restricted` asks for"
    mounts = system_mounts(bundle, arguments.hosts)
    mounts += sorted(volume_mounts(pod, bundle, arguments), key=lambda entry: entry["destination"])
    memory = arguments.memory or bytes_of(limits["memory"])
    resources = {"memory": {"limit": memory, "swap": memory}, "pids": {"limit": 1024},
                 "devices": [{"allow": False, "access": "rwm"}]}
    if "cpu" in limits:
        resources["cpu"] = {"quota": int(limits["cpu"]) * 100000, "period": 100000, "shares": int(limits["cpu"]) * 1024}
    none = {kind: [] for kind in ("bounding", "effective", "permitted", "inheritable", "ambient")}
    linux = {"cgroupsPath": arguments.cgroup, "resources": resources, "maskedPaths": MASKED, "readonlyPaths": READ_ONLY,
             "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")] +
             [{"type": "network", "path": arguments.netns}]}
    if arguments.seccomp:
        linux["seccomp"] = seccomp(arguments.seccomp)
    process = {
        "terminal": False, "cwd": image.get("WorkingDir") or "/", "env": pod.environment(image, dict(arguments.secret)),
        "args": image["Entrypoint"] + (arguments.args or pod.container["args"]),
        "user": {"uid": user["runAsUser"], "gid": user["runAsGroup"], "additionalGids": [user["fsGroup"]]},
        "capabilities": none, "noNewPrivileges": not context["allowPrivilegeEscalation"],
        "oomScoreAdj": 0,
    }
    return {"ociVersion": "1.0.2", "hostname": pod.host, "process": process, "mounts": mounts, "linux": linux,
            "root": {"path": arguments.rootfs, "readonly": context["readOnlyRootFilesystem"]}}


def main():
    def pair(text):
        return text.split("=", 1)

    parser = argparse.ArgumentParser()
    parser.add_argument("objects")
    parser.add_argument("bundle", type=pathlib.Path)
    parser.add_argument("--index", type=int, required=True)
    for name in ("netns", "cgroup", "rootfs", "image", "hosts"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--seccomp")
    parser.add_argument("--attempt", type=int, default=0)
    parser.add_argument("--memory", type=int, help="a limit in bytes in place of the rendered one")
    parser.add_argument("--claim", type=pair, action="append", default=[])
    parser.add_argument("--secret", type=pair, action="append", default=[])
    parser.add_argument("--args", nargs=argparse.REMAINDER, help="in place of the rendered ones")
    arguments = parser.parse_args()
    documents = list(filter(None, yaml.safe_load_all(pathlib.Path(arguments.objects).read_text())))
    pod = Pod(documents, arguments.index, arguments.attempt)
    shutil.rmtree(arguments.bundle, ignore_errors=True)
    arguments.bundle.mkdir(parents=True)
    image = json.loads(pathlib.Path(arguments.image).read_text())["config"]
    config = configuration(pod, arguments.bundle.resolve(), arguments, image)
    (arguments.bundle / "config.json").write_text(json.dumps(config, indent=1))
    ignored = " ".join(str(code) for action, codes in pod.codes.items() if action.startswith("Ignore") for code in codes)
    failing = " ".join(str(code) for action, codes in pod.codes.items() if action.startswith("FailJob") for code in codes)
    (arguments.bundle / "pod.env").write_text(
        f"host={pod.host} subdomain={pod.subdomain} grace={pod.spec['terminationGracePeriodSeconds']}\n"
        f"memory={config['linux']['resources']['memory']['limit']}\nignored='{ignored}' failing='{failing}'\n")


if __name__ == "__main__":
    main()
