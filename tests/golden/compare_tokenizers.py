#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Tessera's ids with those of `tokenizers` and `tiktoken` on difficult and random text.

  compare_tokenizers.py BENCH_TOKENIZERS [--bytes=1000000] [--seed=1] TOKENIZER...
  compare_tokenizers.py BENCH_TOKENIZERS --text=FILE [--tokens=10000000] TOKENIZER...

BENCH_TOKENIZERS is the program (ninja bench_tokenizers). A TOKENIZER is a tokenizer.json, a
directory with GPT-2's two files, or NAME=PATH with a file of ranks in the .tiktoken format. NAME is
one of tiktoken's (cl100k_base, o200k_base); a tokenizer.json is generated for it. Prints every
difference; the exit code is nonzero if there is any. With --text, compares the first so many tokens
of a file instead (lines of JSON with the field "text", or text), and names the first difference.
"""
import argparse
import base64
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

TRICKY = [
    "", " ", "  ", "\n", "\r\n", "\t", "a", " a", "a ", "  a", "a  b", "a   b\n\n\n  c  ",
    "I'm you're we've he'll she'd it's don't I'M YOU'RE WE'VE HE'LL IT'S DON'T 's 't '\u017f x'\u017f",
    "' s 're' 'll'' ''d '' 'S'T'RE'VE'M'LL'D", "\u2019s don\u2019t \u2019re",
    "1 12 123 1234 12345 1234567890 3.14159 1,000,000 \u00bd \u2167 \u0663\u0664 \u096a\u096b\u096c\u096d",
    "x=1;\n\tif (y) {\n\t\treturn 0;\n\t}\n", "    four\n        eight\n   three \n",
    "trailing   ", "trailing\n\n", "trailing \n ", "\n\n\nleading", "a\r\n\r\nb\rc\n\rd", "a\n \n b",
    "\u00a0nbsp\u00a0\u00a0x \u2003em \u3000ideographic \u200b zero \u2028 line \u2029 para \u0085 next",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01 \u3053\u3093\u306b\u3061\u306f\u3001\u30ab\u30bf\u30ab\u30ca \ud55c\uad6d\uc5b4 \u4e2d\u6587abc\u4e2d\u6587 123\u4e2d",
    "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f44d\U0001f3fd \u2764\ufe0f \U0001f1e9\U0001f1ea \U0001f3f3\ufe0f\u200d\U0001f308 \U0001f9d1\u200d\U0001f4bb",
    "e\u0301 \u00e9 n\u0303 a\u0323\u0302 a\u0302\u0323 \u1e69 s\u0323\u0307 \ufb01 \uff21 \u00b2 \u2460 \u212b \u2126",
    "\u0301mark \u0301 \u0301\u0301\u0301 \u0915\u094d\u0937\u093f \u0e19\u0e49\u0e33 \u0626\u0644\u0639\u0631\u0628\u064a\u0629 \u05e2\u05b4\u05d1\u05b0\u05e8\u05b4\u05d9\u05ea",
    "Stra\u00dfe \u00c4pfel \u0130stanbul \u01c5 \u01c8ubav \u1c90\u10d0 DZ\u01c4 HTTPServer iPhone McDonald XMLHttpRequest ABCdefGHI aB Ab",
    "a\u02b0b \u02b0A \u02b0 A\u02b0B \u00aa \u00ba\u00baA \u16ee \u3007 \u2183",
    "https://example.com/a/b?c=d&e=%20f#g user@example.org //// /\n/ ;/\r\n// ---- ==== **bold** `code`",
    "(\"quoted\") [x] {y} <z> $10 \u20ac20 50% a_b __init__ @user #tag ~/path C:\\dir\\",
    "\x00\x01\x02 \x7f \x1b[0m \ufeffbom \ufffd \ufffe \U0010ffff \ue000",
    "<|endoftext|> <|endoftext|><|endoftext|> x<|endoftext|>y <| endoftext|> <|endoftext <|fim_prefix|>",
    "<EOT> <META> x<META_START>y <s>hello</s> <unk> [INST]",
    "a" * 300, "A" * 300, " " * 300, "\n" * 100 + "x", "ab" * 200, "!" * 100 + "\n\n", "\u4e2d" * 100,
    "aA" * 50, "\u0301" * 50 + "A", "9" * 50, "'" * 20, "\u3000" * 20 + "a", " \t" * 30 + "\n" + " \t" * 5 + "x",
]
POOLS = [
    "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", " \t\n\r\x0b\x0c", "   \n",
    "'\u2019sStTdDmMlLrReEvV", ".,;:!?-_/\\()[]{}<>|@#$%^&*+=~`\"'", "\u00e9\u00e8\u00fc\u00df\u00d8\u00e5\u0301\u0308\u0327",
    "\u0410\u0411\u0412\u0430\u0431\u0432\u044f\u042f", "\u03b1\u03b2\u03b3\u03a9\u03c2\u03c3", "\u4e2d\u6587\u65e5\u672c\u8a9e\u306e\u30ab",
    "\uac00\ub098\ub2e4\u1100\u1161\u11a8", "\U0001f600\U0001f44d\U0001f3fd\u200d\ufe0f\u2764", "\u00a0\u2003\u3000\u2028\u0085\u200b\u180e\ufeff",
    "\u0663\u0966\u00bd\u2167\u00b2\u2460", "\u0915\u094d\u0937\u0e01\u0e31\u0627\u0644\u064e\u05d0\u05b0", "\u01c5\u02b0\u00aa\u16ee\u1d2c\u0345",
]
WORDS = ("the of and to in a is that for it as was with be by on not he i this are or his from at which but have an had they "
         "you were their one all we can her has there been if more when will would who so no The In It don't I'm we've "
         "function return import def class int float void self None True HTTP XML").split()
KNOWN = {}
SPECIAL = ["<|endoftext|>", "<|fim_prefix|>", "<EOT>", "<META>", "<|endofprompt|>"]


def assigned(code):
    """Whether the references know the character: they normalize with Unicode 13 or older."""
    if unicodedata.category(chr(code)) in ("Cs", "Cn"):
        return False
    if code not in KNOWN:
        from tokenizers import normalizers
        text = "a\u0316" + chr(code) + "\u0301\u0316" + chr(code)
        KNOWN[code] = all(getattr(normalizers, form)().normalize_str(text) == unicodedata.normalize(form, text) for form in ("NFKC", "NFD"))
    return KNOWN[code]


def fuzzed(rng):
    """A text of a few to a few hundred characters: a sequence of runs from random pools."""
    parts = []
    for _ in range(rng.randrange(1, 40)):
        kind = rng.random()
        if kind < 0.35:
            parts.append(rng.choice(["", " ", " ", "\n"]) + rng.choice(WORDS))
        elif kind < 0.8:
            pool = rng.choice(POOLS)
            parts.append("".join(rng.choice(pool) for _ in range(rng.choice([1, 1, 2, 3, 8]))))
        elif kind < 0.97:
            code = rng.choice([rng.randrange(0x250), rng.randrange(0x3000), rng.randrange(0x20000), rng.randrange(0x110000)])
            parts.append(chr(code) * rng.choice([1, 1, 1, 2]) if assigned(code) else "?")
        else:
            parts.append(rng.choice(SPECIAL))
    return "".join(parts)


def texts_of(size, seed):
    rng = random.Random(seed)
    texts, total = list(TRICKY), 0
    while total < size:
        texts.append(fuzzed(rng))
        total += len(texts[-1].encode())
    return texts


def run_ours(program, tokenizer, texts, special, folder):
    records, ids = os.path.join(folder, "records"), os.path.join(folder, "ids")
    with open(records, "wb") as out:
        for text in texts:
            raw = text.encode()
            out.write(struct.pack("<I", len(raw)) + raw)
    subprocess.run([program, "encode", tokenizer, records, ids] + (["special"] if special else []), check=True)
    data, at, result = open(ids, "rb").read(), 0, []
    while at < len(data):
        (count,) = struct.unpack_from("<I", data, at)
        result.append(list(struct.unpack_from(f"<{count}i", data, at + 4)))
        at += 4 + 4 * count
    assert len(result) == len(texts)
    return result


def bytes_to_unicode():
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {b: chr(b) for b in kept}
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + len(table) - len(kept))
    return table


def parts_of(ranks, token):
    """The two tokens whose merge makes `token`: its parts just before the merge of its rank."""
    parts = [bytes([b]) for b in token]
    while len(parts) > 2:
        best = min(range(len(parts) - 1), key=lambda i: ranks.get(parts[i] + parts[i + 1], 1 << 60))
        if ranks.get(parts[best] + parts[best + 1], 1 << 60) >= ranks[token]:
            break
        parts[best:best + 2] = [parts[best] + parts[best + 1]]
    return parts if len(parts) == 2 else None


def json_of_ranks(ranks, pattern, special):
    """A tokenizer.json for a vocabulary of tiktoken."""
    table = bytes_to_unicode()
    write = lambda token: "".join(table[b] for b in token)
    merges = []
    for token in sorted(ranks, key=ranks.get):
        parts = parts_of(ranks, token) if len(token) > 1 else None
        if parts:
            merges.append([write(parts[0]), write(parts[1])])
    added = [{"id": i, "content": t, "special": True, "normalized": False, "lstrip": False, "rstrip": False, "single_word": False}
             for t, i in special.items()]
    steps = [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
             {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}, "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": True,
                      # With special tokens, because the library assigns its own ids to missing
                      # ones.
                      "vocab": {**{write(t): i for t, i in ranks.items()}, **special}, "merges": merges}}


# The pattern in the files of `tokenizers`, with the same meaning as tiktoken's.
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def read_ranks(path):
    with open(path, "rb") as lines:
        return {base64.b64decode(t): int(r) for t, r in (line.split() for line in lines if line.strip())}


def references(argument, folder):
    """(argument for the program, {name of a reference: (plain, with special)})"""
    import tiktoken
    import tiktoken_ext.openai_public as public
    from tokenizers import Tokenizer

    def of_tiktoken(encoding):
        return (lambda t: encoding.encode_ordinary(t), lambda t: encoding.encode(t, allowed_special="all"))

    def of_json(path):
        plain, special = Tokenizer.from_file(path), Tokenizer.from_file(path)
        plain.encode_special_tokens = True
        return (lambda t: plain.encode(t, add_special_tokens=False).ids, lambda t: special.encode(t, add_special_tokens=False).ids)

    if "=" in argument:
        name, path = argument.split("=", 1)
        ranks = read_ranks(path)
        tiktoken.load.load_tiktoken_bpe = public.load_tiktoken_bpe = lambda *_, **__: ranks
        setting = getattr(public, name)()
        pattern = setting["pat_str"] if name != "cl100k_base" else CL100K
        made = os.path.join(folder, "tokenizer.json")
        json.dump(json_of_ranks(ranks, pattern, setting["special_tokens"]), open(made, "w"), ensure_ascii=False)
        setting = dict(setting, explicit_n_vocab=None)
        return made, {"tiktoken": of_tiktoken(tiktoken.Encoding(**setting)), "tokenizers": of_json(made)}
    if os.path.isdir(argument):
        vocab = next(p for p in (os.path.join(argument, n) for n in ("vocab.json", "encoder.json")) if os.path.exists(p))
        merges = next(p for p in (os.path.join(argument, n) for n in ("merges.txt", "vocab.bpe")) if os.path.exists(p))
        from tokenizers import ByteLevelBPETokenizer
        plain, special = ByteLevelBPETokenizer(vocab, merges), ByteLevelBPETokenizer(vocab, merges)
        special.add_special_tokens(["<|endoftext|>"])
        table = {c: b for b, c in bytes_to_unicode().items()}
        ranks = {bytes(table[c] for c in t): i for t, i in json.load(open(vocab)).items() if t != "<|endoftext|>"}
        encoding = tiktoken.Encoding("gpt2", pat_str=public.r50k_pat_str, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256})
        return argument, {"tiktoken": of_tiktoken(encoding), "tokenizers": (lambda t: plain.encode(t).ids, lambda t: special.encode(t).ids)}
    return argument, {"tokenizers": of_json(argument)}


def documents_of(path):
    """(place, text) of each document: of lines of JSON, or about 100 kB of a text's whole lines."""
    if path.endswith(".jsonl"):
        for number, line in enumerate(open(path, "rb"), 1):
            yield f"line {number}", json.loads(line)["text"]
        return
    at = 0
    with open(path, "rb") as file:
        while lines := file.readlines(100_000):
            raw = b"".join(lines)
            yield f"byte {at}", raw.decode()
            at += len(raw)


def compare_file(program, path, tokens, tokenizer, calls, folder):
    """Compares until so many tokens are equal; returns whether they are."""
    equal, size, batch = 0, 0, []

    def compare():
        nonlocal equal
        for (place, text), ours in zip(batch, run_ours(program, tokenizer, [t for _, t in batch], False, folder)):
            theirs = calls[False](text)
            if ours != theirs:
                at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
                print(f"{path}, {place}: token {at} differs, after {equal + at} equal ones: ours {ours[at:at + 8]}, theirs {theirs[at:at + 8]}")
                return False
            equal += len(ours)
        return True

    for document in documents_of(path):
        batch.append(document)
        size += len(document[1])
        if size > 1 << 22:
            if not compare():
                return False
            size, batch = 0, []
            if equal >= tokens:
                break
    if not compare():
        return False
    print(f"{path}: {equal} tokens of {tokenizer} are equal")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("tokenizers", nargs="+")
    parser.add_argument("--bytes", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=5)
    parser.add_argument("--text")
    parser.add_argument("--tokens", type=int, default=10_000_000)
    arguments = parser.parse_args()
    if arguments.text:
        results = []
        for argument in arguments.tokenizers:
            with tempfile.TemporaryDirectory() as folder:
                tokenizer, others = references(argument, folder)
                for calls in others.values():
                    results.append(compare_file(arguments.program, arguments.text, arguments.tokens, tokenizer, calls, folder))
        sys.exit(not all(results))
    texts = texts_of(arguments.bytes, arguments.seed)
    size = sum(len(t.encode()) for t in texts)
    different = 0
    for argument in arguments.tokenizers:
        with tempfile.TemporaryDirectory() as folder:
            tokenizer, others = references(argument, folder)
            for special in (False, True):
                ours = run_ours(arguments.program, tokenizer, texts, special, folder)
                for name, calls in others.items():
                    wrong = [(t, o, c) for t, o, c in zip(texts, ours, map(calls[special], texts)) if o != c]
                    different += len(wrong)
                    print(f"{argument} against {name}{' with special tokens' if special else ''}: "
                          f"{len(wrong)} of {len(texts)} texts ({size} bytes) differ")
                    for text, o, c in sorted(wrong, key=lambda w: len(w[0]))[:arguments.show]:
                        print(f"  {text!r}\n    ours   {o[:40]}\n    theirs {c[:40]}")
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
