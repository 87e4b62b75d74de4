#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speed of Tessera's tokenizers compared with `tokenizers` and `tiktoken`: same text, documents and
threads.

  tokenizers.py BENCH_TOKENIZERS TOKENIZER TEXT [--threads=1] [--rounds=3]

BENCH_TOKENIZERS is the program (ninja bench_tokenizers); TOKENIZER is a tokenizer.json, or a
directory with GPT-2's two files. Rounds are interleaved. Reports megabytes (10^6 bytes) per second
of wall time, and per core in processor time: the best of all rounds.
"""
import argparse
import json
import os
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
    import tokenizers

    if not os.path.isdir(path):
        library = tokenizers.Tokenizer.from_file(path)
        return {"tokenizers": library.encode_batch_fast}
    import tiktoken
    import tiktoken_ext.openai_public as public
    sys.path.append(os.path.join(HERE, "../golden"))
    from compare_tokenizers import bytes_to_unicode

    vocab, merges = ([os.path.join(path, n) for n in names if os.path.exists(os.path.join(path, n))][0]
                     for names in (("vocab.json", "encoder.json"), ("merges.txt", "vocab.bpe")))
    table = {c: b for b, c in bytes_to_unicode().items()}
    ranks = {bytes(table[c] for c in t): i for t, i in json.load(open(vocab)).items() if t != "<|endoftext|>"}
    encoding = tiktoken.Encoding("gpt2", pat_str=public.r50k_pat_str, mergeable_ranks=ranks, special_tokens={})
    library = tokenizers.ByteLevelBPETokenizer(vocab, merges)
    return {"tokenizers": library._tokenizer.encode_batch_fast,
            "tiktoken": lambda texts: encoding.encode_ordinary_batch(texts, num_threads=threads)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("tokenizer")
    parser.add_argument("text")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(arguments.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if arguments.threads > 1 else "false"
    raw = open(arguments.text, "rb").read()
    documents = documents_of(raw)
    best = {}

    def note(name, wall, core):
        old = best.get(name, (0, 0))
        best[name] = (max(old[0], wall), max(old[1], core))

    others = peers(arguments.tokenizer, arguments.threads)
    for _ in range(arguments.rounds):
        ours = json.loads(subprocess.check_output([arguments.program, "speed", arguments.tokenizer, arguments.text, str(arguments.threads)]))
        note("tessera", ours["megabytes_per_second"], ours["a_core"])
        for name, encode in others.items():
            wall, processor = time.perf_counter(), time.process_time()
            encode(documents)
            note(name, len(raw) / 1e6 / (time.perf_counter() - wall), len(raw) / 1e6 / (time.process_time() - processor))
    for name, (wall, core) in best.items():
        print(f"{name:12} {wall:7.1f} MB/s  {core:7.1f} MB/s a core  tessera is {best['tessera'][0] / wall:5.1f} and {best['tessera'][1] / core:5.1f} times as fast")


if __name__ == "__main__":
    main()
