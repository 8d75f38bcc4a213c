"""Makes five tasks of lm-evaluation-harness in a folder: lm_eval_tasks.py FOLDER [ITEMS, default 200].

NAME.yaml is a task of lm_eval, NAME.jsonl its items, which `trimtab eval --tasks NAME.jsonl` reads as they are. The
items are made here from a seed: nothing is downloaded."""
import json
import os
import random
import sys

folder, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 200
random.seed(20261130)
WORDS = ("apple river stone garden window letter winter summer bridge candle mirror forest island kitchen lantern market "
         "needle orange pencil rabbit saddle teacher umbrella village whistle yellow anchor basket circle dragon engine "
         "feather guitar hammer jacket kettle ladder monkey napkin ocean pillow quarter ribbon silver tunnel valley").split()
ANIMALS = ["dog", "cat", "horse", "cow", "sheep", "pig", "goat", "duck"]
PLACES = ["in the garden", "behind the house", "near the old bridge", "on the way to the market", "under a tree"]


def sums(_):
    a, b = random.randrange(2, 60), random.randrange(2, 60)
    wrong = random.sample([a + b + d for d in (-10, -3, -2, -1, 1, 2, 3, 10)], 3)
    choices = [str(value) for value in [a + b, *wrong]]
    random.shuffle(choices)
    return {"context": f"Question: What is {a} plus {b}?\nAnswer:", "choices": choices, "answer": choices.index(str(a + b))}


def pairs(_):
    """Choices of very different lengths, so that a length decides acc_norm."""
    first, second, third = random.sample(WORDS, 3)
    place, animal = random.choice(PLACES), random.choice(ANIMALS)
    right = f"the {first} and the {second}"
    choices = [right, f"the {third}", f"only the {animal} that was {place} all day"]
    random.shuffle(choices)
    return {"context": f"The {animal} found the {first} and the {second} {place}.\nIt found",
            "choices": choices, "answer": choices.index(right)}


def ends(_):
    """The last word of a text, which the model must find by itself: acc is greedy."""
    words = random.sample(WORDS, 3)
    return {"context": " ".join(words * 3 + words[:2]), "target": " " + words[2]}


def adds(_):
    a, b = random.randrange(2, 30), random.randrange(2, 30)
    shots = "".join(f"Q: {x} + {y}\nA: The answer is {x + y}.\n\n" for x, y in ((3, 4), (12, 5), (20, 7)))
    return {"context": f"{shots}Q: {a} + {b}\nA:", "target": str(a + b), "until": ["\n\n", "Q:"], "max_tokens": 24,
            "regex": "The answer is (-?[0-9]+)"}


def copies(_):
    words = " ".join(random.sample(WORDS, 2))
    return {"context": f"Copy: {random.choice(WORDS)}\nCopied: {words}\nCopy: {words}\nCopied:", "target": words, "until": ["\n"],
            "max_tokens": 12, "strip": True}


LIKELY = """output_type: multiple_choice
doc_to_choice: "{{choices}}"
doc_to_target: answer
metric_list:
  - metric: acc
  - metric: acc_norm
"""
GREEDY = """output_type: loglikelihood
doc_to_target: "{{target}}"
metric_list:
  - metric: acc
  - metric: perplexity
"""
SAID = """output_type: generate_until
doc_to_target: "{{target}}"
generation_kwargs:
  until: %s
  max_gen_toks: %d
  do_sample: false
  temperature: 0.0
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
"""
FILTER = """filter_list:
  - name: first
    filter:
      - function: regex
        regex_pattern: "%s"
      - function: take_first
"""
STRIP = """filter_list:
  - name: strip
    filter:
      - function: remove_whitespace
      - function: take_first
"""
os.makedirs(folder, exist_ok=True)
for name, make, form in (("sums", sums, LIKELY), ("pairs", pairs, LIKELY), ("ends", ends, GREEDY), ("adds", adds, None),
                         ("copies", copies, None)):
    items = [{"task": name, **make(i)} for i in range(count)]
    if form is None:
        item = items[0]
        form = SAID % (json.dumps(item["until"]), item["max_tokens"])
        form += FILTER % item["regex"] if "regex" in item else STRIP
    with open(os.path.join(folder, name + ".jsonl"), "w") as file:
        file.writelines(json.dumps(item) + "\n" for item in items)
    with open(os.path.join(folder, name + ".yaml"), "w") as file:
        path = json.dumps(os.path.abspath(os.path.join(folder, name + ".jsonl")))
        file.write(f"task: {name}\ndataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {path}\ntest_split: test\n"
                   f'doc_to_text: "{{{{context}}}}"\n{form}')
