#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lets lm-evaluation-harness score a run of Tessera: the harness's own command line with the model `tessera`.

    plugins/lm_eval/tessera_lm.py run --model tessera --model_args run=runs/X,tokenizer=DIR --tasks arc_easy

Instead of `run`, `requests` writes the requests of tasks to a file, for --mode=score and evaluation during training
(--set eval.harness=FILE):

    plugins/lm_eval/tessera_lm.py requests --tasks arc_easy --tokenizer DIR --max_length 1024 --output arc.jsonl

model_args:
    run         the run's directory
    tokenizer   a directory that transformers' AutoTokenizer loads
    max_length  tokens that the model reads (default: seq_len of the run's training input)
    checkpoint  a step (default: newest)
    runexp      the program (default: runexp of this tree)
    flags       further flags, separated by spaces: flags=--devices=2 --threads=8
Only log-likelihoods are scored: tasks that generate text are refused. docs/evaluation.md has an example.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import tomllib

from lm_eval import utils
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from transformers import AutoTokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]


def request_line(context, continuation, **about):
    """One line of the file that --mode=score reads, from lists of ids."""
    return json.dumps({"context_ids": context, "continuation_ids": continuation, **about}) + "\n"


class TokensOfTexts(TemplateLM):
    """How the harness encodes texts, as its backend `hf`; scores come from a subclass."""

    def __init__(self, tokenizer, max_length):
        super().__init__()
        self.tokenizer = AutoTokenizer.from_pretrained(tokenizer)
        self.max_length = max_length

    @property
    def eot_token_id(self):
        return self.tokenizer.eos_token_id

    @property
    def prefix_token_id(self):
        begin = self.tokenizer.bos_token_id
        return self.eot_token_id if begin is None else begin

    def tok_encode(self, string, add_special_tokens=None, **kwargs):
        begins = add_special_tokens is None and string.startswith(self.tokenizer.decode(self.prefix_token_id))
        if add_special_tokens is None and not begins:
            return self.tokenizer.encode(string)
        return self.tokenizer.encode(string, add_special_tokens=bool(add_special_tokens))

    def fitting(self, context, continuation):
        """The end of a context that, with the continuation, has at most max_length + 1 tokens."""
        if len(continuation) > self.max_length:
            raise ValueError(f"a continuation has {len(continuation)} tokens, expected at most {self.max_length}")
        return context[-(self.max_length + 1 - len(continuation)) :], continuation

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        windows, counts = [], []
        for request in requests:
            tokens = utils.get_rolling_token_windows(
                token_list=self.tok_encode(request.args[0]),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length,
                context_len=1,
            )
            of_text = [(None, *utils.make_disjoint_window(window)) for window in tokens]
            windows += of_text
            counts.append(len(of_text))
        scores = iter(self._loglikelihood_tokens(windows))
        return [sum(next(scores)[0] for _ in range(count)) for count in counts]

    def generate_until(self, requests, disable_tqdm=False):
        sys.exit("tessera scores log-likelihoods; tasks of generate_until cannot be run")


@register_model("tessera")
class TesseraLM(TokensOfTexts):
    def __init__(self, run, tokenizer, max_length=None, checkpoint="newest", runexp=None, flags="", **unused):
        super().__init__(tokenizer, int(max_length or trained_length(run)))
        self.command = [str(runexp or ROOT / "runexp"), f"--config={run}", f"--job_log_dir={run}", "--mode=score"]
        self.command += [f"--checkpoint={checkpoint}", *flags.split()]

    def _loglikelihood_tokens(self, requests, **kwargs):
        with tempfile.TemporaryDirectory() as folder:
            source, result = (pathlib.Path(folder) / name for name in ("requests.jsonl", "scores.jsonl"))
            with source.open("w") as file:
                for _, context, continuation in requests:
                    file.write(request_line(*self.fitting(context, continuation)))
            subprocess.run([*self.command, f"--requests={source}", f"--output={result}"], check=True)
            scores = [json.loads(line) for line in result.read_text().splitlines()]
        # A value that is not finite is null.
        return [(float("nan") if (value := each["log_likelihood"]) is None else value, each["is_greedy"]) for each in scores]


class RequestCollector(TokensOfTexts):
    """Keeps the ids of all requests, and scores nothing."""

    def _loglikelihood_tokens(self, requests, **kwargs):
        self.requests = [self.fitting(context, continuation) for _, context, continuation in requests]
        return [(0.0, False)] * len(requests)


def trained_length(run):
    """seq_len of the run's training input."""
    with open(pathlib.Path(run) / "hparams.toml", "rb") as file:
        return tomllib.load(file)["input"]["seq_len"]


def answer_of(task, instance):
    """Whether the answer of a request is a right one, and the characters by which acc_norm divides."""
    if task.OUTPUT_TYPE == "loglikelihood":
        return {"is_target": True}
    choices = task.doc_to_choice(instance.doc)
    target = task.doc_to_target(instance.doc)
    targets = [choices.index(each) if isinstance(each, str) else each for each in (target if isinstance(target, list) else [target])]
    return {"is_target": instance.idx in targets, "characters": len(choices[instance.idx])}


def write_requests(arguments):
    """Writes the requests of tasks with their task, question and what answer_of() says."""
    from lm_eval.tasks import TaskManager

    collector = RequestCollector(arguments.tokenizer, arguments.max_length)
    tasks = TaskManager(include_path=arguments.include_path).load(arguments.tasks.split(","))["tasks"]
    for name, task in tasks.items():
        if task.OUTPUT_TYPE not in ("multiple_choice", "loglikelihood") or getattr(task, "multiple_input", 0):
            sys.exit(f"task {name} is {task.OUTPUT_TYPE}; expected loglikelihood, or multiple_choice with one context")
    count = 0
    with open(arguments.output, "w") as file:
        for name, task in tasks.items():
            task.build_all_requests(limit=arguments.limit)
            collector.loglikelihood(task.instances, disable_tqdm=True)
            for instance, request in zip(task.instances, collector.requests, strict=True):
                about = {"task": name, "example": instance.doc_id, **answer_of(task, instance)}
                file.write(request_line(*request, **about))
            count += len(task.instances)
    print(f"{count} requests in {arguments.output}")


def main():
    if sys.argv[1:2] == ["requests"]:
        parser = argparse.ArgumentParser(prog="tessera_lm.py requests")
        parser.add_argument("--tasks", required=True, help="names, separated by commas")
        parser.add_argument("--tokenizer", required=True, help="a directory that AutoTokenizer loads")
        parser.add_argument("--max_length", type=int, required=True, help="tokens that the model reads")
        parser.add_argument("--output", required=True, help="the file of requests")
        parser.add_argument("--include_path", help="a folder with the tasks' YAML files")
        parser.add_argument("--limit", type=int, help="questions of each task (default: all)")
        write_requests(parser.parse_args(sys.argv[2:]))
    elif len(sys.argv) == 1 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
    else:
        from lm_eval.__main__ import cli_evaluate

        cli_evaluate()


if __name__ == "__main__":
    main()
