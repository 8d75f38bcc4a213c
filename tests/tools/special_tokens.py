"""Adds special tokens to the tokenizer of a model, behind those there are: special_tokens.py MODEL TOKEN..."""
import json
import os
import sys

path = os.path.join(sys.argv[1], "tokenizer.json")
tokenizer = json.load(open(path))
last = max([*tokenizer["model"]["vocab"].values(), *(token["id"] for token in tokenizer["added_tokens"])])
for content in sys.argv[2:]:
    last += 1
    tokenizer["added_tokens"].append({"id": last, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                                      "normalized": False, "special": True})
if last >= json.load(open(os.path.join(sys.argv[1], "config.json")))["vocab_size"]:
    sys.exit(f"the model has no room for token {last}")
with open(path, "w") as file:
    json.dump(tokenizer, file)
