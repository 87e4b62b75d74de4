#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speed of Tessera's tokenizers compared with `tokenizers`, `tiktoken` and `gigatoken`, those that
are installed: same text, documents and threads.

  tokenizers.py BENCH_TOKENIZERS TOKENIZER TEXT [--threads=1] [--rounds=3]

BENCH_TOKENIZERS is the program (ninja bench_tokenizers); TOKENIZER is a tokenizer.json, or a
directory with GPT-2's two files. Rounds are interleaved, and each is a new process: its first pass
over the text, which fills caches of words, and the fastest of the others. Reports megabytes (10^6
bytes) per second of processor time of a core, and of wall time: the medians of all rounds.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path = [p for p in sys.path if os.path.abspath(p or ".") != HERE]


def documents_of(text):
    """Splits text like the program: at the first empty line after a thousand bytes."""
    documents = []
    while text:
        gap = text.find(b"\n\n", min(1000, len(text)))
        end = len(text) if gap < 0 else gap + 2
        documents.append(text[:end].decode())
        text = text[end:]
    return documents


def peers(path, threads):
    """{name: function of the documents}"""
    found = {}
    try:
        import gigatoken
        if not os.path.isdir(path):
            giga = gigatoken.Tokenizer(path)
            found["gigatoken"] = lambda texts: giga.encode_batch(texts, parallel=threads > 1)
    except (ImportError, RuntimeError) as error:  # RuntimeError: an unknown pattern.
        print(f"no gigatoken: {str(error).splitlines()[0]}", file=sys.stderr)
    import tokenizers

    if not os.path.isdir(path):
        found["tokenizers"] = tokenizers.Tokenizer.from_file(path).encode_batch_fast
        return found
    import tiktoken
    import tiktoken_ext.openai_public as public
    sys.path.append(os.path.join(HERE, "../golden"))
    from compare_tokenizers import bytes_to_unicode

    vocab, merges = ([os.path.join(path, n) for n in names if os.path.exists(os.path.join(path, n))][0]
                     for names in (("vocab.json", "encoder.json"), ("merges.txt", "vocab.bpe")))
    table = {c: b for b, c in bytes_to_unicode().items()}
    ranks = {bytes(table[c] for c in t): i for t, i in json.load(open(vocab)).items() if t != "<|endoftext|>"}
    encoding = tiktoken.Encoding("gpt2", pat_str=public.r50k_pat_str, mergeable_ranks=ranks, special_tokens={})
    found["tiktoken"] = lambda texts: encoding.encode_ordinary_batch(texts, num_threads=threads)
    found["tokenizers"] = tokenizers.ByteLevelBPETokenizer(vocab, merges)._tokenizer.encode_batch_fast
    return found


def measure_peer(name, path, text, threads, passes):
    """Prints the rates of the first pass and of the best pass, as the program does."""
    raw = open(text, "rb").read()
    documents = documents_of(raw)
    encode = peers(path, threads)[name]
    encode(documents[:1])  # What is made on first use.
    rates = []
    for _ in range(passes):
        wall, processor = time.perf_counter(), time.process_time()
        encode(documents)
        rates.append((len(raw) / 1e6 / (time.process_time() - processor), len(raw) / 1e6 / (time.perf_counter() - wall)))
    cores, walls = zip(*rates)
    print(json.dumps({"first_a_core": cores[0], "a_core": max(cores), "megabytes_per_second": max(walls)}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("tokenizer")
    parser.add_argument("text")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--passes", type=int, default=6, help="of a process; slow peers take two")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(arguments.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if arguments.threads > 1 else "false"
    if arguments.peer:
        return measure_peer(arguments.peer, arguments.tokenizer, arguments.text, arguments.threads, arguments.passes)
    rates = {}
    for _ in range(arguments.rounds):
        ours = [arguments.program, "speed", arguments.tokenizer, arguments.text, str(arguments.threads), str(arguments.passes)]
        commands = {"tessera": ours}
        for name in peers(arguments.tokenizer, arguments.threads):
            passes = arguments.passes if name == "gigatoken" else min(2, arguments.passes)
            commands[name] = [sys.executable, os.path.abspath(__file__), *ours[:1], *ours[2:4], f"--threads={arguments.threads}",
                              f"--peer={name}", f"--passes={passes}"]
        for name, command in commands.items():
            rates.setdefault(name, []).append(json.loads(subprocess.check_output(command, stderr=subprocess.DEVNULL)))
    columns = ("first_a_core", "a_core", "megabytes_per_second")
    medians = {name: [statistics.median(each[c] for each in of) for c in columns] for name, of in rates.items()}
    print("MB/s: first pass a core, best pass a core, best pass of wall time; Tessera is … times as fast")
    for name, of in medians.items():
        times = " ".join(f"{mine / its:6.2f}" for mine, its in zip(medians["tessera"], of))
        print(f"{name:12}" + " ".join(f"{value:8.1f}" for value in of) + "   " + times)


if __name__ == "__main__":
    main()
