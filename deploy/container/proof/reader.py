"""Reads manifests from its standard input, with the packages of tools.py.

  check   validates each strictly against the schemas of Kubernetes, of 1.31 and all newer releases
          that have its interface
  same    compares manifests: all before a document of the text "other" with those after it, up to
          the text "end"; then the next
  pods    prints a Pod for each Pod, each template of one and each index of a Job, and the
          ConfigMaps and claims
"""

import copy
import functools
import sys

import yaml

OLDEST = 31
OLDEST_OF = {"resource.k8s.io/v1": 34}
"""The first release that has an interface, where it is newer than OLDEST."""
KINDS = ("ConfigMap", "PersistentVolumeClaim", "Pod")
CUSTOM = ("monitoring.coreos.com/", "k8s.cni.cncf.io/")
"""Groups of custom resources, which have no schema in Kubernetes."""


def check(documents):
    """Returns what is wrong with the manifests, a line each."""
    # Needed here alone, and slow to import.
    import kubernetes_validate

    # It reads megabytes for each manifest, most of them again and again.
    contents = kubernetes_validate.utils.schema_contents
    kubernetes_validate.utils.schema_contents = functools.cache(contents)
    newest = int(kubernetes_validate.latest_version().split(".")[1])
    faults = []
    for document in documents:
        if document["apiVersion"].startswith(CUSTOM):
            continue
        for release in range(OLDEST_OF.get(document["apiVersion"], OLDEST), newest + 1):
            try:
                kubernetes_validate.validate(document, f"1.{release}", strict=True)
            except Exception as error:
                what = f"{document['kind']} {document['metadata'].get('name')}"
                faults.append(f"{what}, Kubernetes 1.{release}: {str(error).splitlines()[0]}")
    return faults


def same(documents):
    """Returns the names of manifests that the two parts of a comparison do not have in common."""
    faults = []
    while documents:
        middle, end = documents.index("other"), documents.index("end")
        one, other = normal(documents[:middle]), normal(documents[middle + 1:end])
        faults += [f"{name} differs" for name in sorted({*one, *other})
                   if one.get(name) != other.get(name)]
        documents = documents[end + 1:]
    return faults


def normal(documents):
    """Manifests by kind and name, without what may differ: Kustomize's names of ConfigMaps have a
    hash, comments are comments, and containers and volumes have names instead of an order."""
    found = {}
    for document in documents:
        kind, name = document["kind"], document["metadata"]["name"]
        if kind == "ConfigMap":
            name = document["metadata"]["name"] = "node"
            document["data"] = {
                file: [line for line in text.splitlines() if not line.startswith("#")]
                for file, text in document["data"].items()
            }
        if kind == "Pod":
            for volume in document["spec"]["volumes"]:
                if "configMap" in volume:
                    volume["configMap"]["name"] = "node"
            for part in ("containers", "volumes"):
                document["spec"][part].sort(key=lambda each: each["name"])
        found[f"{kind} {name}"] = document
    return found


def pods(documents):
    """Returns Pods and what they mount; a Job's template is a Pod of the Job's name."""
    found = [document for document in documents if document["kind"] in KINDS]
    for document in documents:
        spec, name = document.get("spec", {}), document["metadata"]["name"]
        if spec.get("completionMode") == "Indexed":
            found += [indexed(spec["template"], name, at) for at in range(spec["completions"])]
        elif "template" in spec:
            found.append(named(spec["template"], name))
    return found


def named(template, name):
    """The Pod of a template."""
    pod = {**copy.deepcopy(template), "apiVersion": "v1", "kind": "Pod"}
    pod.setdefault("metadata", {})["name"] = name
    return pod


def indexed(template, name, index):
    """The Pod of an index of a Job, with what Kubernetes adds: the index and the Job's label."""
    pod = named(template, f"{name}-{index}")
    pod["metadata"].setdefault("labels", {})["batch.kubernetes.io/controller-uid"] = "job"
    for container in pod["spec"]["containers"]:
        variable = {"name": "JOB_COMPLETION_INDEX", "value": str(index)}
        container.setdefault("env", []).append(variable)
    return pod


def main():
    """Returns the exit status."""
    documents = [document for document in yaml.safe_load_all(sys.stdin) if document]
    if sys.argv[1] == "pods":
        print(yaml.safe_dump_all(pods(documents), sort_keys=False), end="")
        return 0
    faults = same(documents) if sys.argv[1] == "same" else check(documents)
    print("\n".join(faults) or f"{len(documents)} manifests")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
