#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time and peak memory of `flat_tokens train`, compared with `tokenizers`: same text and threads.

  train_tokenizer.py FLAT_TOKENS TEXT.jsonl [--vocab_size=65536] [--threads=2] [--rounds=1] [--ours]

FLAT_TOKENS is the program; TEXT has lines of JSON with the member "text". Rounds are interleaved.
Fails if the files differ. --ours leaves out `tokenizers`.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path = [p for p in sys.path if os.path.abspath(p or ".") != HERE]
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")


def train_peer(texts, output, vocab_size, pattern=CL100K, special=("<|endoftext|>",)):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(special), show_progress=False))
    tokenizer.save(output, pretty=False)


def measured(command, threads):
    """Returns seconds and peak bytes of a process."""
    begun = time.perf_counter()
    pid = os.posix_spawnp(command[0], command, {**os.environ, "RAYON_NUM_THREADS": str(threads)})
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        sys.exit(f"failed: {' '.join(command)}")
    return time.perf_counter() - begun, usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("text")
    parser.add_argument("--vocab_size", type=int, default=65536)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--ours", action="store_true")
    parser.add_argument("--peer", help=argparse.SUPPRESS)  # Trains with `tokenizers` to this file.
    arguments = parser.parse_args()
    if arguments.peer:
        with open(arguments.text, encoding="utf-8") as lines:
            return train_peer((json.loads(line)["text"] for line in lines), arguments.peer, arguments.vocab_size)
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = os.path.join(folder, "ours.json"), os.path.join(folder, "theirs.json")
        size = f"--vocab_size={arguments.vocab_size}"
        commands = {"Tessera": [arguments.program, "train", f"--output={ours}", size,
                                f"--threads={arguments.threads}", arguments.text]}
        if not arguments.ours:
            commands["tokenizers"] = [sys.executable, os.path.abspath(__file__), arguments.program, arguments.text,
                                      size, f"--peer={theirs}"]
        results = {name: [] for name in commands}
        for _ in range(arguments.rounds):
            for name, command in commands.items():
                results[name].append(measured(command, arguments.threads))
        for name, runs in results.items():
            seconds, peak = (statistics.median(column) for column in zip(*runs))
            print(f"{name:>10}: {seconds:8.1f} s, {peak / 1e9:6.2f} GB at the peak")
        print(f"load: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
        if not arguments.ours:
            if open(ours, "rb").read() != open(theirs, "rb").read():
                sys.exit("the tokenizer.json differ")
            print("the tokenizer.json are equal")


if __name__ == "__main__":
    main()
