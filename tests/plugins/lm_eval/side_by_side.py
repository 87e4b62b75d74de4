#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares plugins/lm_eval/tessera_lm.py with the harness's backend `hf`: small models of transformers are imported, and
both score the same three local tasks (multiple choice, last words, pages). Then evaluation in training scores the requests
that the adapter wrote.

    side_by_side.py RUNEXP

Needs lm-eval, accelerate, transformers and torch. Fails if a log-likelihood differs by more than 1e-3, or a metric.
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1")
ROOT = pathlib.Path(__file__).resolve().parents[3]
ADAPTER = ROOT / "plugins/lm_eval/tessera_lm.py"
LENGTH = 128
TASKS = ("own_choice", "own_last", "own_pages")
SETTINGS = {
    "own_choice": (
        "multiple_choice",
        'doc_to_text: "{{query}}"\ndoc_to_target: gold\ndoc_to_choice: choices',
        ("acc", "acc_norm"),
    ),
    "own_last": (
        "loglikelihood",
        'doc_to_text: "{{context}}"\ndoc_to_target: "{{target}}"\ntarget_delimiter: ""',
        ("perplexity", "acc"),
    ),
    "own_pages": (
        "loglikelihood_rolling",
        'doc_to_text: ""\ndoc_to_target: "{{page}}"',
        ("word_perplexity", "byte_perplexity", "bits_per_byte"),
    ),
}


def documents():
    return "\n".join(file.read_text() for file in sorted((ROOT / "docs").glob("*.md")))


def write_tasks(folder, text):
    draw = random.Random(3)
    lines = [line for line in text.split("\n") if len(line.split()) > 8]

    def question(number):
        words = draw.choice(lines).split()
        begin = len(words) // 2
        choices = [" ".join(draw.choice(lines).split()[-4:]) for _ in range(3)]
        gold = draw.randrange(4)
        choices.insert(gold, " ".join(words[begin:]))
        # The harness moves spaces at the end of a context to the continuation.
        return {"query": " ".join(words[:begin]) + "  " * (number % 7 == 0), "choices": choices, "gold": gold}

    def last_word(number):
        begin = draw.randrange(len(text) - 900)
        words = text[begin : begin + (50, 300, 800)[number % 3]].split(" ")
        return {"context": " ".join(words[:-1]), "target": " " + words[-1]}

    def page(number):
        begin = draw.randrange(len(text) - 4000)
        return {"page": text[begin : begin + (30, 700, 3500)[number % 3]]}

    for task, make, count in zip(TASKS, (question, last_word, page), (80, 60, 9)):
        with open(folder / f"{task}.jsonl", "w") as file:
            file.writelines(json.dumps(make(i)) + "\n" for i in range(count))
        kind, fields, metrics = SETTINGS[task]
        names = "".join(f"\n  - metric: {metric}" for metric in metrics)
        (folder / f"{task}.yaml").write_text(
            f"task: {task}\ndataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {folder}/{task}.jsonl\n"
            f"test_split: test\noutput_type: {kind}\n{fields}\nmetric_list:{names}\nmetadata:\n  version: 1\n"
        )


def make_models(folder, text):
    """Models that were trained a little, so that some tokens are likelier than others."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=["<|end|>"], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([text], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|end|>", eos_token="<|end|>")
    torch.manual_seed(1)
    sizes = {"vocab_size": len(fast), "bos_token_id": 0, "eos_token_id": 0}
    no_dropout = {"resid_pdrop": 0, "attn_pdrop": 0, "embd_pdrop": 0}
    gpt2 = GPT2Config(n_positions=LENGTH, n_embd=64, n_layer=2, n_head=4, **no_dropout, **sizes)
    llama = LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=LENGTH,
        **sizes,
    )
    ids = torch.tensor(fast.encode(text[:100000]))
    for name, model in (("gpt2", GPT2LMHeadModel(gpt2)), ("llama", LlamaForCausalLM(llama))):
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        for _ in range(60):
            begins = torch.randint(0, len(ids) - 65, (16,))
            rows = torch.stack([ids[begin : begin + 64] for begin in begins])
            loss = model(input_ids=rows, labels=rows).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.save_pretrained(folder / name)
        fast.save_pretrained(folder / name)


def samples(folder, task):
    """The scores of each question, by its number."""
    (file,) = folder.glob(f"*/samples_{task}_*.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return {row["doc_id"]: [response[0] for response in row["resps"]] for row in rows}


def results(folder, task):
    (file,) = folder.glob("*/results_*.json")
    return {key.split(",")[0]: value for key, value in json.loads(file.read_text())["results"][task].items() if "," in key}


def compare(ours, theirs, task):
    """The largest difference of a log-likelihood."""
    worst = 0.0
    expected = samples(theirs, task)
    assert samples(ours, task).keys() == expected.keys()
    for number, responses in samples(ours, task).items():
        for got, want in zip(responses, expected[number], strict=True):
            if isinstance(got, list):
                assert str(got[1]) == str(want[1]), f"{task} {number}: greedy {got[1]}, expected {want[1]}"
                got, want = got[0], want[0]
            worst = max(worst, abs(float(got) - float(want)))
    for metric in SETTINGS[task][2]:
        got, want = results(ours, task)[metric], results(theirs, task)[metric]
        assert abs(got - want) <= 1e-4 * abs(want), f"{task} {metric}: {got}, expected {want}"
    assert worst <= 1e-3, f"{task}: a log-likelihood differs by {worst}"
    return worst


def evaluate_in_training(runexp, folder, model, theirs):
    """eval.harness gives the harness's metrics."""
    requests = folder / "requests.jsonl"
    arguments = ["--tokenizer", folder / model, "--max_length", str(LENGTH), "--include_path", folder]
    run([sys.executable, ADAPTER, "requests", "--tasks", "own_choice,own_last", *arguments, "--output", requests])
    flags = [f"--config={folder}/run_{model}", f"--job_log_dir={folder}/run_{model}", f"--set=eval.harness={requests}"]
    text = folder / "text.txt"
    text.write_text(documents()[:20000])
    run([runexp, *flags, "--mode=eval", f"--set=input.path={text}", "--set=eval_inputs={}"])
    line = json.loads((folder / f"run_{model}/eval_out/harness.jsonl").read_text().splitlines()[-1])
    for task in TASKS[:2]:
        for metric, name in (("acc", "accuracy"), ("acc_norm", "accuracy_norm"), ("perplexity", "perplexity")):
            if metric not in SETTINGS[task][2]:
                continue
            got, want = line[f"questions/{task}_{name}"], results(theirs, task)[metric]
            assert abs(got - want) <= 1e-4 * abs(want), f"eval.harness {task}_{name}: {got}, expected {want}"


def run(command):
    done = subprocess.run([str(each) for each in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}")


def main(runexp):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text = documents()
        write_tasks(folder, text)
        make_models(folder, text)
        for model in ("gpt2", "llama"):
            place = [f"--job_log_dir={folder}/run_{model}", f"--set=seq_len={LENGTH}", f"--set=path={folder}/{model}"]
            run([runexp, "--exp=hf.Pretrained", "--mode=import", f"--input={folder}/{model}", *place])
            shared = ["--include_path", folder, "--tasks", ",".join(TASKS), "--log_samples", "--output_path"]
            theirs, ours = folder / f"hf_{model}", folder / f"tessera_{model}"
            of_hf = ["--model", "hf", "--model_args", f"pretrained={folder}/{model},max_length={LENGTH}", "--device", "cpu"]
            run([sys.executable, "-m", "lm_eval", "run", *of_hf, "--batch_size", "8", *shared, theirs])
            of_run = f"run={folder}/run_{model},tokenizer={folder}/{model},runexp={runexp}"
            run([sys.executable, ADAPTER, "run", "--model", "tessera", "--model_args", of_run, *shared, ours])
            for task in TASKS:
                print(f"{model} {task}: log-likelihoods differ by at most {compare(ours, theirs, task):.2g}", flush=True)
            evaluate_in_training(runexp, folder, model, theirs)
            print(f"{model}: eval.harness gives the harness's metrics", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
