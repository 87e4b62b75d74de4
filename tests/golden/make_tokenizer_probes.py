#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tokenizers/probes.json: checksums of the ids of `tokenizers` 0.23.3 for every code point.

  pip install tokenizers==0.23.3; make_tokenizer_probes.py

Each pre-tokenizer splits a text "aXa " for every code point X. The vocabulary has other ids at the
beginning and at the end of a word, so the ids show every split. Of each block of 0x4000 code
points, the CRC-32 of the ids as bytes is recorded.
"""
import json
import pathlib
import zlib

import tokenizers
from tokenizers import Tokenizer

assert tokenizers.__version__ == "0.23.3", tokenizers.__version__
BLOCK = 0x4000
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
CL100K = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CONTRACTIONS + "?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CONTRACTIONS + "?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
KIMI = r"[\p{Han}]+|" + O200K.replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]").replace("/", "")
DEEPSEEK = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^RN\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[RN]*"""
            r"|\s*[RN]+|\s+(?!\S)|\s+").replace("RN", "\r\n")  # The file has the characters themselves.
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
QWEN35 = CL100K.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]").replace("{1,3}", "")


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


STEPS = [
    {"type": "Whitespace"}, {"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Isolated"},
    {"type": "Digits", "individual_digits": True},
    split(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"),
    split(CL100K), split(CL100K.replace("{1,3}", "")), split(QWEN35), split(O200K),
    split(O200K.replace(CONTRACTIONS + "?", "").replace("{1,3}", "")), split(KIMI), split(BLOOM),
    sequence(split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(DEEPSEEK)),
    # Falcon: steps after ByteLevel.
    sequence({"type": "Punctuation", "behavior": "Contiguous"},
             {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
             {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]")),
] + [split(pattern) for pattern in [
    r"\w", r"[\w]+", r"\W+", r"\b", r"\p{Word}", r"\p{Letter}+", r"\p{Han}", r"\p{Arabic}", r"\p{Common}", r"\p{Kawi}",
    r"\p{Tutg}", r"(?i)[a-z]+", r"[[:alpha:]]+", r"[[:punct:]]+", r"[[:upper:]]", r"\s+$", r"\p{L}{1,3}+"]]


def main():
    vocabulary = {}
    for letter in "a ":
        for token in (letter, "##" + letter, letter + "</w>", "##" + letter + "</w>"):
            vocabulary[token] = len(vocabulary)
    vocabulary["?"] = len(vocabulary)
    model = {"type": "BPE", "unk_token": "?", "continuing_subword_prefix": "##", "end_of_word_suffix": "</w>",
             "vocab": vocabulary, "merges": []}
    texts = ["".join(f"a{chr(code)}a " for code in range(begin, begin + BLOCK) if not 0xD800 <= code < 0xE000)
             for begin in range(0, 0x110000, BLOCK)]
    lines = []
    for step in STEPS:
        tokenizer = Tokenizer.from_str(json.dumps({"pre_tokenizer": step, "model": model, "version": "1.0", "added_tokens": []}))
        sums = [zlib.crc32(bytes(tokenizer.encode(text).ids)) for text in texts]
        lines.append(json.dumps({"pre_tokenizer": step, "sums": " ".join(f"{each:08x}" for each in sums)}))
        print(step, flush=True)
    path = pathlib.Path(__file__).parent / "tokenizers/probes.json"
    path.write_text(json.dumps({"model": model})[:-1] + ', "probes": [\n' + ",\n".join(lines) + "\n]}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
