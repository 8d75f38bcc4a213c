#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/dpo/: what TRL's DPOTrainer makes of rows, and what it logs.

    rows.jsonl         preferences: texts, with a prompt and without one, and lists of messages
    ids_NAME.jsonl     one line per row of rows.jsonl, [chosen ids, rejected ids, ids of the prompt], as the trainer's data
                       set and collator have them with a max_length of 96; null where the trainer leaves the row out or
                       refuses it. NAME is a chat template of ../chat/templates
    train.jsonl        rows of a training
    tokenizer/         a token for each byte and an end token: the 257 ids of ../llama2/model
    train.json         log_history of 8 steps of AdamW on the rows of train.jsonl, 4 pairs a step in one micro batch, from
                       ../llama2/adapter_init, whose B is zero, with an evaluation of 6 rows in one batch after steps 4
                       and 8: one with the loss sigmoid, one with robust, one from ../llama2/adapter_random, whose
                       reference is a copy of that adapter, one of all weights, two whose losses sort pairs, and two with use_weighting

    defaults.json      the defaults of DPOConfig that SFTConfig does not have, or has otherwise

How to run, after make_models.py, make_tokenizers.py and make_chat.py, with trl 1.16.0, transformers 5.24.0, peft 0.21.2:

    OMP_NUM_THREADS=1 python tests/golden/dpo/make_pairs.py
"""

import json
import tempfile
from pathlib import Path

import accelerate
import jinja2
import peft
import torch
import transformers
import trl
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl.trainer.dpo_trainer import DataCollatorForPreference

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent
VERSIONS = {m.__name__: m.__version__.split("+")[0] for m in (torch, transformers, trl, peft, accelerate)}
TOKENIZERS = {"qwen2": ("<|im_end|>", None), "llama2": ("</s>", "<s>")}
TEMPLATES = {"chatml": "qwen2", "think": "qwen2", "parts": "qwen2", "turns": "llama2", "final_eos": "llama2"}
MAX_LENGTH = 96


def said(role, text):
    return {"role": role, "content": text}


def user(text):
    return said("user", text)


def answer(text):
    return said("assistant", text)


TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]
ROWS = [
    {"prompt": "The sky is", "chosen": " blue.", "rejected": " green, and so is the sea."},
    {"prompt": "Two words: ", "chosen": "yes", "rejected": "no"},
    {"prompt": "", "chosen": "alone", "rejected": "beside"},
    {"prompt": "Join wor", "chosen": "ds", "rejected": "k"},
    {"prompt": "é", "chosen": " naïve café", "rejected": "日本語"},
    {"prompt": "Ends", "chosen": " here</s>", "rejected": " here<|im_end|>"},
    {"prompt": "word " * 60, "chosen": "cut " * 60, "rejected": "short"},
    {"prompt": "word " * 200, "chosen": "lost", "rejected": "gone"},
    {"chosen": "The sky is blue.", "rejected": "The sky is green."},
    {"chosen": "Name: é", "rejected": "Name: è"},
    {"chosen": "same start", "rejected": "same start, and more"},
    {"chosen": "a", "rejected": "b"},
    {"prompt": [user("What color is the sky?")], "chosen": [answer("It is blue.")], "rejected": [answer("Green.")]},
    {"prompt": [said("system", "Be brief."), user("1+1?"), answer("2"), user("And 2+2?")], "chosen": [answer("4")],
     "rejected": [answer("It is five, I think.")]},
    {"prompt": [user("Think.")], "chosen": [answer("<think>\nplan A\n</think>\n\nBecause.")],
     "rejected": [answer("No.")]},
    {"prompt": [user("Two turns")], "chosen": [answer("a"), user("b"), answer("c")], "rejected": [answer("a")]},
    {"chosen": [user("Where is the sun?"), answer("In the sky.")], "rejected": [user("Where is the sun?"), answer("In the sea.")]},
    {"chosen": [said("system", "S"), user("x"), answer("y")], "rejected": [said("system", "S"), user("x"), answer("z"), user("w")]},
    {"chosen": [user("same"), answer("same")], "rejected": [user("same"), answer("same")]},
    {"prompt": [user("Weather?")], "chosen": [answer("21 °C")], "rejected": [answer("?")], "tools": TOOLS},
    {"prompt": [user([{"type": "text", "text": "look "}, {"type": "text", "text": "here"}])],
     "chosen": [answer([{"type": "text", "text": "seen"}])], "rejected": [answer([{"type": "text", "text": "no"}])]},
    {"prompt": [user("x " * 40)], "chosen": [answer("y " * 80)], "rejected": [answer("z")]},
]
TRAIN = [{"prompt": f"Question {i}: which is larger, {i} or {7 - i}?", "chosen": f" {max(i, 7 - i)} is." * (1 + i % 3),
          "rejected": f" It is {min(i, 7 - i)}, of course." * (1 + i % 2)} for i in range(12)]
SETTINGS = dict(
    per_device_train_batch_size=4, gradient_accumulation_steps=1, max_steps=8, weight_decay=0.0, warmup_steps=2,
    lr_scheduler_type="linear", logging_steps=1, eval_strategy="steps", eval_steps=4, per_device_eval_batch_size=6,
    learning_rate=0.01, beta=0.3,
)
KEYS = ["loss", "grad_norm", "learning_rate", "entropy", "mean_token_accuracy", "rewards/chosen", "rewards/rejected",
        "rewards/accuracies", "rewards/margins", "logps/chosen", "logps/rejected", "logits/chosen", "logits/rejected"]


def tokenizer_of(name, template=None):
    end, begin = TOKENIZERS[name]
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(GOLDEN / f"tokenizer/{name}/tokenizer.json"), eos_token=end,
                                        bos_token=begin, pad_token=end)
    if template is not None:
        tokenizer.chat_template = (GOLDEN / f"chat/templates/{template}.jinja").read_text()
    return tokenizer


def config_of(folder, **more):
    return trl.DPOConfig(output_dir=folder, use_cpu=True, bf16=False, report_to="none", disable_tqdm=True,
                         gradient_checkpointing=False, save_strategy="no", **more)


def defaults_of(config):
    return {key: value for key, value in vars(config).items() if key not in ("output_dir", "distributed_state") and not key.startswith("_")}


def make_defaults():
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = (defaults_of(config(output_dir=folder, use_cpu=True)) for config in (trl.DPOConfig, trl.SFTConfig))
    kept = {key: value for key, value in ours.items() if key not in theirs or theirs[key] != value}
    (HERE / "defaults.json").write_text(json.dumps(kept, indent=1, default=str) + "\n")


def tokenize(trainer, args, row, tokenizer):
    """The row as a data set of its own: TRL decides by the first row of a data set how all of them are read."""
    try:
        rows = trainer._prepare_dataset(Dataset.from_list([row]), tokenizer, args, "train")
    except (jinja2.TemplateError, TypeError):
        return None
    if len(rows) == 0:
        return None
    batch = DataCollatorForPreference(pad_token_id=0, max_length=args.max_length)([rows[0]])
    ids = [ids[mask.bool()].tolist() for ids, mask in zip(batch["input_ids"], batch["attention_mask"])]
    return [*ids, len(rows[0]["prompt_ids"])]


def make_ids(name):
    tokenizer = tokenizer_of(TEMPLATES[name], name)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                                         num_attention_heads=1))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)  # the trainer loads the reference from there
        model = AutoModelForCausalLM.from_pretrained(folder)
        args = config_of(folder, max_length=MAX_LENGTH)
        trainer = trl.DPOTrainer(model, args=args, train_dataset=Dataset.from_list(ROWS[:1]), processing_class=tokenizer)
        lines = [json.dumps(tokenize(trainer, args, row, tokenizer)) for row in ROWS]
    (HERE / f"ids_{name}.jsonl").write_text("\n".join(lines) + "\n")


def make_tokenizer():
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["</s>"])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", pad_token="</s>").save_pretrained(HERE / "tokenizer")


def run(adapter="adapter_init", **more):
    model = AutoModelForCausalLM.from_pretrained(GOLDEN / "llama2/model", attn_implementation="eager")
    if adapter is not None:
        model = peft.PeftModel.from_pretrained(model, GOLDEN / "llama2" / adapter, is_trainable=True)
    with tempfile.TemporaryDirectory() as folder:
        args = config_of(folder, optim="adamw_torch", train_sampling_strategy="sequential", **{**SETTINGS, **more})
        trainer = trl.DPOTrainer(model, args=args, train_dataset=Dataset.from_list(TRAIN),
                                 eval_dataset=Dataset.from_list(TRAIN[:6]), processing_class=PreTrainedTokenizerFast.from_pretrained(HERE / "tokenizer"))
        trainer.train()
    keys = [*KEYS, *("eval_" + key for key in KEYS)]
    log = [{key: row[key] for key in keys if key in row} for row in trainer.state.log_history]
    return [row for row in log if "loss" in row or "eval_loss" in row]


def main():
    torch.set_num_threads(1)
    for name, rows in ("rows", ROWS), ("train", TRAIN):
        (HERE / f"{name}.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    make_defaults()
    for name in TEMPLATES:
        make_ids(name)
    make_tokenizer()
    runs = {"sigmoid": run(), "robust": run(loss_type=["robust"], label_smoothing=0.1),
            "continued": run("adapter_random"), "full": run(None, learning_rate=1e-3),
            "aot": run(loss_type=["aot"], label_smoothing=0.1), "aot_unpaired": run(loss_type=["aot_unpaired", "sft"]),
            "weighted": run(use_weighting=True),
            "weighted_robust": run("adapter_random", use_weighting=True, loss_type=["robust", "sigmoid_norm"], label_smoothing=0.1)}
    (HERE / "train.json").write_text(json.dumps({"versions": VERSIONS, "settings": SETTINGS, "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
