"""Texts beside their schemas, as unit_grammar_random_schemas writes them: check_schemas.py FILE. Each text must be JSON that
jsonschema finds valid. Exit code 77 where Python has no jsonschema, 1 where a text is not valid."""
import json
import sys

try:
    import jsonschema
except ImportError:
    print("skipped: no jsonschema")
    sys.exit(77)

checked = wrong = 0
for line in open(sys.argv[1]):
    row = json.loads(line)
    validator = jsonschema.Draft202012Validator(row["schema"], format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    errors = list(validator.iter_errors(json.loads(row["text"])))
    checked += 1
    if errors:
        wrong += 1
        print("FAILED:", errors[0].message[:300], "in", row["text"][:500], "by", json.dumps(row["schema"])[:2000])
print(checked, "texts,", wrong, "not valid")
sys.exit(1 if wrong or not checked else 0)
