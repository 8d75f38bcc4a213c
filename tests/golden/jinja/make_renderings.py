"""Makes renderings.jsonl: each template of templates/ with each conversation of conversations.py, in the format of
make_jinja.py, but with the name of the template's file.

    python tests/golden/jinja/make_renderings.py
"""
import json
import pathlib

from conversations import conversations
from reference import render

HERE = pathlib.Path(__file__).parent
# The reference counts where a block of generation begins from what the template has put out already, and so is wrong in
# a macro: no ranges are compared.
GENERATION_IN_MACRO = {"call_blocks.jinja"}


def main():
    sets = conversations()
    lines = [json.dumps({"name": name, "values": values}) for name, values in sets.items()]
    results = []
    for path in sorted((HERE / "templates").glob("*.jinja")):
        template = path.read_text()
        for name, values in sets.items():
            result = render(template, values)
            if path.name in GENERATION_IN_MACRO:
                result.pop("generation", None)
            results.append({"file": path.name, "variables": name, **result})
    (HERE / "renderings.jsonl").write_text("\n".join(lines + [json.dumps(each) for each in results]) + "\n")
    print(len(results), "renderings", sum("error" in each for each in results), "refused by the reference")


if __name__ == "__main__":
    main()
