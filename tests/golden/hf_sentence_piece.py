# SPDX-License-Identifier: Apache-2.0
"""Loads exported tokenizers with `transformers` and compares their ids with Tessera's, for
tests/tasks/interop/hf_tokenizer_test.cc.

`python3 tests/golden/hf_sentence_piece.py DIR...`: DIR has the files of an export and texts.json, a
list of objects with `text`, `ids`, `with_special` (special tokens as names in the text are
recognized) and `decoded`.

The same ids in another order are a tie: the parts of a run of spaces or of equal digits have the
same score in every order, and SentencePiece adds scores in 32 bits, so rounding decides. At most
one text in a hundred may have a tie. Texts with an accent after a character that is normalized to
several characters are skipped, because `tokenizers` loses the accent.
"""
import json
import pathlib
import sys
import unicodedata

from transformers import AutoTokenizer

MARK = "\u2581"  # A literal mark in the text would be decoded as a space.


def is_tie(got, expected):
    return got != expected and sorted(got) == sorted(expected)


def loses_accent(text):
    return any(unicodedata.normalize("NFKC", before) != before
               and unicodedata.category(after).startswith("M")
               for before, after in zip(text, text[1:]))


def check(folder):
    cases = json.loads((pathlib.Path(folder) / "texts.json").read_text(encoding="utf-8"))
    if "Precompiled" in (pathlib.Path(folder) / "tokenizer.json").read_text(encoding="utf-8"):
        cases = [case for case in cases if not loses_accent(case["text"])]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    wrong, ties = [], 0
    for case in cases:
        text = case["text"]
        plain = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        special = tokenizer.encode(text, add_special_tokens=False)
        if is_tie(plain, case["ids"]) or is_tie(special, case["with_special"]):
            ties += 1
            continue
        decoded = case["decoded"] if MARK in text else tokenizer.decode(plain)
        if (plain, special, decoded) != (case["ids"], case["with_special"], case["decoded"]):
            wrong.append((text, plain, case["ids"], special, case["with_special"], decoded,
                          case["decoded"]))
    print(f"{folder}: {type(tokenizer).__name__}, of {len(cases)} texts {len(wrong)} differ, "
          f"{ties} ties")
    for text, *values in sorted(wrong, key=lambda each: len(each[0]))[:8]:
        print(f"  {text[:200]!r}")
        for what, got, expected in zip(("plain", "special", "decoded"), values[::2], values[1::2]):
            if got != expected:
                print(f"    {what}: got {got[:60]!r}\n    expected {expected[:60]!r}")
    return not wrong and 100 * ties <= len(cases) and len(cases) > 300


if __name__ == "__main__":
    results = [check(each) for each in sys.argv[1:]]
    sys.exit(0 if all(results) else 1)
