"""Reads manifests from its standard input, with the packages of tools.py.

  check   validates each against the schemas of Kubernetes, strictly, of 1.31 and all newer releases
  pods    prints a Pod for each Pod and each template of one, and all ConfigMaps
"""

import sys

import kubernetes_validate
import yaml

OLDEST = 31
CUSTOM = ("monitoring.coreos.com/", "k8s.cni.cncf.io/")
"""Groups of custom resources, which have no schema in Kubernetes."""


def check(documents):
    """Returns what is wrong with the manifests, a line each."""
    newest = int(kubernetes_validate.latest_version().split(".")[1])
    faults = []
    for document in documents:
        if document["apiVersion"].startswith(CUSTOM):
            continue
        for release in range(OLDEST, newest + 1):
            try:
                kubernetes_validate.validate(document, f"1.{release}", strict=True)
            except Exception as error:
                what = f"{document['kind']} {document['metadata'].get('name')}"
                faults.append(f"{what}, Kubernetes 1.{release}: {str(error).splitlines()[0]}")
    return faults


def pods(documents):
    """Returns Pods and ConfigMaps, with the Pods of Jobs and the like as Pods of their name."""
    found = [document for document in documents if document["kind"] in ("ConfigMap", "Pod")]
    for document in documents:
        template = document.get("spec", {}).get("template")
        if template:
            metadata = {**template.get("metadata", {}), "name": document["metadata"]["name"]}
            found.append({**template, "apiVersion": "v1", "kind": "Pod", "metadata": metadata})
    return found


def main():
    """Returns the exit status."""
    documents = [document for document in yaml.safe_load_all(sys.stdin) if document]
    if sys.argv[1] == "pods":
        print(yaml.safe_dump_all(pods(documents), sort_keys=False), end="")
        return 0
    faults = check(documents)
    print("\n".join(faults) or f"{len(documents)} manifests")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
