"""Writes every expression of a Grafana dashboard as a recording rule, for promtool; checks what the dashboard promises: a
variable for the data source, no fixed ids, and only metrics that a training has.

    check_deploy.py DASHBOARD.json METRICS.txt RULES.yaml

METRICS.txt is an answer of /metrics, RULES.yaml is written.
"""
import json
import re
import sys


def main():
    board = json.load(open(sys.argv[1]))
    known = set(re.findall(r"^(trimtab_\w+?)(?:\{| )", open(sys.argv[2]).read(), re.M))
    sources = {variable["type"] for variable in board["templating"]["list"]}
    assert "datasource" in sources and "id" not in board and "uid" not in board, "a dashboard of one installation"
    expressions = []
    for panel in board["panels"]:
        assert "id" not in panel and panel["datasource"]["uid"] == "${datasource}", panel["title"]
        expressions += [target["expr"] for target in panel["targets"]]
    assert len(expressions) >= 15
    names = {name for expression in expressions for name in re.findall(r"\btrimtab_\w+", expression)}
    assert not names - known, f"no such metrics: {sorted(names - known)}"
    with open(sys.argv[3], "w") as rules:
        rules.write("groups:\n- name: panels\n  rules:\n")
        for i, expression in enumerate(expressions):
            plain = expression.replace("$__rate_interval", "5m").replace("$job", ".*").replace("$instance", ".*")
            rules.write(f"  - record: panel:{i}\n    expr: {json.dumps(plain)}\n")
    alerts = sys.argv[4:]
    for path in alerts:
        missing = set(re.findall(r"\btrimtab_\w+", re.sub(r"(?m)^ *(summary|description):.*$", "", open(path).read()))) - known
        assert not missing, f"{path}: no such metrics: {sorted(missing)}"


main()
