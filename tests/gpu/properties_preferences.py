"""Checks of whole runs with objective dpo (docs/preferences.md), of which tests/gpu/properties.py makes a list."""
from suite import GOLDEN, RANKS, Failure, folder_with_tokenizer, rounding_on_the_cpu, within, within_rounding

# Numbers of the log, with the size below which their distances are absolute: rewards begin at zero.
NUMBERS = {"loss": 0, "rewards/chosen": 1, "rewards/rejected": 1, "rewards/margins": 1, "logps/chosen": 0,
           "logps/rejected": 0}


def as_on_the_cpu(suite, ranks, kind, **settings):
    """Losses, rewards and log p: in fp32 those of the CPU, in bf16 within its rounding."""
    suite.needs_gpus(ranks)
    model = folder_with_tokenizer(suite, GOLDEN / "llama2/model", GOLDEN / "dpo/tokenizer")
    more = {"objective": "dpo", "model_name_or_path": model, "dataset_name": GOLDEN / "dpo/train.jsonl",
            "learning_rate": 0.001, **settings}
    cpu = rounding_on_the_cpu(suite, ("dpo", kind), "llama2", NUMBERS, **more)
    split = suite.split("llama2", ranks, recompute="block" if ranks > 1 else "none", **more)
    ours, rounded = suite.together(suite.train, [{**split, "bf16": bf16} for bf16 in ("false", "true")])
    text = [f"{number}: {within([ours.curve(number)], ['fp32'], exact, 1e-4, floor)}"
            for number, (exact, _, floor) in cpu.items()]
    if max(ours.curve("rewards/margins")) < 0.1:
        raise Failure("the rewards stay at zero, which proves nothing")
    return f"{text[0]}; {within_rounding([rounded], ['bf16'], cpu)}"


def add_checks(suite):
    adapter = {"adapter_name_or_path": GOLDEN / "llama2/adapter_random"}
    for ranks in RANKS:
        suite.check(f"DPO as on the CPU, ranks {ranks}", as_on_the_cpu, ranks, "a new adapter")
        suite.check(f"DPO as on the CPU, an adapter that goes on, ranks {ranks}", as_on_the_cpu, ranks, "goes on", **adapter)
        suite.check(f"DPO as on the CPU, losses of sorted pairs, ranks {ranks}", as_on_the_cpu, ranks, "sorted",
                    loss_type="aot")
