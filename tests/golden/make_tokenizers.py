#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goldens of tokenizers: ids from `tokenizers`, `tiktoken` and `sentencepiece` for difficult text.

  tests/golden/make_tokenizers.py            rewrites tokenizers/*.golden.json
  tests/golden/make_tokenizers.py --train    first retrains the small vocabularies on docs/

Each golden has texts, or bytes in base64, and the ids without and with special tokens. Bytes that
are not valid UTF-8 are split as if each were U+FFFD, and then encoded as the original bytes.
"""
import base64
import glob
import io
import json
import os
import random
import sys

import regex
import sentencepiece
import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from compare_tokenizers import CL100K, TRICKY, bytes_to_unicode, fuzzed

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "tokenizers")
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
QWEN2 = CL100K.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK = [r"[\r\n]", r"\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u0391-\u03c9\u0410-\u044f]+", r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
            r"\s+$", r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"]
ALPHABET = pre_tokenizers.ByteLevel.alphabet()
INVALID = [b"\xff", b"a\xffb", b"the \xffquick\xfe \xc3", b"\xe4\xb8", b"\xe4\xb8\xad\xe4\xb8 x", b"\xed\xa0\x80\xed\xb0\x80", b"\xc0\x80 \xf5\x80\x80\x80",
           b"\xf0\x9f\x98", b"\xf0\x9f\x98\x80\x80\x80", b"don\xe2\x80t \x80\x80  \x80\n", b"1\xff2 \xff3", b"\xfe\xff\x00t\x00h\x00e"]


def our_text():
    paths = sorted(glob.glob(os.path.join(HERE, "../../docs/**/*.md"), recursive=True)) + [os.path.join(HERE, "../../README.md")]
    return "".join(open(path, encoding="utf-8").read() for path in paths)


def split(pattern, behavior="isolated"):
    return pre_tokenizers.Split(Regex(pattern), behavior)


def byte_level(**arguments):
    return pre_tokenizers.ByteLevel(**{"add_prefix_space": False, "use_regex": False, **arguments})


def trained(model, pre_tokenizer, normalizer=None, size=600, alphabet=ALPHABET, special=(), **arguments):
    tokenizer = Tokenizer(model)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, special_tokens=list(special), show_progress=False, **arguments)
    # Trained on lines: without a pre-tokenizer each text is one word.
    tokenizer.train_from_iterator(our_text().split("\n"), trainer)
    return tokenizer


def save(tokenizer, name, merges_as_text=False, **model):
    value = json.loads(tokenizer.to_str())
    value["model"].update(model)
    if merges_as_text:
        value["model"]["merges"] = [" ".join(pair) for pair in value["model"]["merges"]]
    with open(os.path.join(FOLDER, name + ".json"), "w") as out:
        json.dump(value, out, ensure_ascii=False, separators=(",", ":"))
        out.write("\n")


def train_gpt2():
    tokenizer = trained(models.BPE(), byte_level(use_regex=True), special=["<|endoftext|>"])
    os.makedirs(os.path.join(FOLDER, "gpt2"), exist_ok=True)
    value = json.loads(tokenizer.to_str())["model"]
    json.dump(value["vocab"], open(os.path.join(FOLDER, "gpt2/vocab.json"), "w"))
    with open(os.path.join(FOLDER, "gpt2/merges.txt"), "w") as out:
        out.write("#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in value["merges"]))


def train_llama3():
    tokenizer = trained(models.BPE(), pre_tokenizers.Sequence([split(CL100K), byte_level()]))
    tokenizer.add_special_tokens([AddedToken("<|begin_of_text|>", special=True, normalized=False), AddedToken("<|end_of_text|>", special=True, normalized=False)])
    start = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", start)])
    tokenizer.decoder = decoders.ByteLevel()
    # Removes the longest merges, so that only whole words give their tokens.
    value = json.loads(tokenizer.to_str())["model"]
    save(tokenizer, "llama3", ignore_merges=True, merges=value["merges"][:-40])


def train_qwen2():
    tokenizer = trained(models.BPE(), pre_tokenizers.Sequence([split(QWEN2), byte_level()]), normalizers.NFC())
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    save(tokenizer, "qwen2", merges_as_text=True)


def train_o200k():
    tokenizer = trained(models.BPE(), pre_tokenizers.Sequence([split(O200K), byte_level()]))
    tokenizer.add_special_tokens(["<|endoftext|>", "<|endofprompt|>"])
    save(tokenizer, "o200k")


def train_added():
    tokenizer = trained(models.BPE(), byte_level(add_prefix_space=True, use_regex=True), normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]))
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(2, 9)])
    tokenizer.add_tokens([AddedToken("McDonald", normalized=True), AddedToken("HTTP", normalized=False), AddedToken("all", single_word=True, normalized=False),
                          AddedToken("<left>", lstrip=True), AddedToken("<right>", rstrip=True), AddedToken("<both>", lstrip=True, rstrip=True, normalized=False)])
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True), AddedToken("<|fim_prefix|>", special=True, normalized=True), AddedToken("<EOT>", special=True, lstrip=True)])
    save(tokenizer, "added")


def train_llama2():
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer = trained(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True), pre_tokenizers.Split("\u2581", "merged_with_next"), normalizer,
                        size=700, alphabet=[], special=special)
    value = json.loads(tokenizer.to_str())
    value["added_tokens"] = value["added_tokens"][:3]
    value["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(value))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    save(tokenizer, "llama2")


def train_deepseek():
    steps = [split(p) for p in DEEPSEEK] + [pre_tokenizers.Digits(individual_digits=True), byte_level()]
    save(trained(models.BPE(), pre_tokenizers.Sequence(steps)), "deepseek")


def train_clip():
    pattern = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    tokenizer = trained(models.BPE(unk_token="<|endoftext|>"), pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "removed", invert=True), byte_level()]),
                        normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]),
                        size=800, special=["<|startoftext|>", "<|endoftext|>"], end_of_word_suffix="</w>")
    save(tokenizer, "clip", end_of_word_suffix="</w>")


def train_metaspace():
    tokenizer = trained(models.BPE(unk_token="<unk>", fuse_unk=False), pre_tokenizers.Sequence([pre_tokenizers.Metaspace("\u2581", "first"), pre_tokenizers.Punctuation("merged_with_previous"), pre_tokenizers.Digits()]),
                        normalizers.Sequence([normalizers.NFKD(), normalizers.Strip()]), alphabet=[], special=["<unk>"], limit_alphabet=80)
    tokenizer.decoder = decoders.Metaspace("\u2581", "first")
    save(tokenizer, "metaspace")


def train_sentencepiece():
    for name, arguments in {"unigram": {}, "bpe": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False)}.items():
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(our_text().split("\n")), model_writer=model, vocab_size=700, character_coverage=0.999 if arguments else 1.0,
                                                 user_defined_symbols=["<user>"], minloglevel=2, **arguments)
        open(os.path.join(FOLDER, name + ".model"), "wb").write(model.getvalue())


def ranks_of(vocabulary):
    table = {c: b for b, c in bytes_to_unicode().items()}
    return {bytes(table[c] for c in token): i for token, i in vocabulary.items() if all(c in table for c in token)}


def encoding_of(name, pattern, vocabulary, special):
    return tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks_of({t: i for t, i in vocabulary.items() if t not in special}), special_tokens=special)


def of_bytes(encoding, pattern, raw):
    """Encodes bytes: words are split as if each invalid byte were U+FFFD."""
    shown, pieces = [], []
    for character in raw.decode("utf-8", "surrogateescape"):
        broken = 0xdc80 <= ord(character) <= 0xdcff
        shown.append("\ufffd" if broken else character)
        pieces.append(bytes([ord(character) - 0xdc00]) if broken else character.encode())
    ids, at = [], 0
    for word in regex.findall(pattern, "".join(shown)):
        ids += encoding._core_bpe.encode_single_piece(b"".join(pieces[at:at + len(word)]))
        at += len(word)
    assert at == len(shown)
    return ids


def texts():
    rng = random.Random(7)
    short = [t if len(t) < 150 else t[:75] for t in TRICKY]
    more = ["McDonald mcdonald HTTP http all allure tall all. \u00e9all", "a <left> b <right> c <both> d<left>e<right> f", "  two   three    four     five", "x  <both>  <both>  y",
            "<user> a<user>b", "\u2581under \u2581\u2581score", "I\u0307stanbul \u0130 \u1e9e \ufb03 \u2460 \u00bd \uff28\uff34\uff34\uff30", "'\u212a k\u212a \u017ft"]
    return short + more + [fuzzed(rng) for _ in range(50)]


def write(name, cases):
    path = os.path.join(FOLDER, name + ".golden.json")
    with open(path, "w") as out:
        out.write("[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]\n")
    print(f"{path}: {len(cases)} texts, {os.path.getsize(path)} bytes")


def write_json_goldens():
    for path in sorted(glob.glob(os.path.join(FOLDER, "*.json"))):
        if path.endswith(".golden.json"):
            continue
        plain, special = Tokenizer.from_file(path), Tokenizer.from_file(path)
        plain.encode_special_tokens = True
        ids = lambda tokenizer, text: tokenizer.encode(text, add_special_tokens=False).ids
        cases = [{"text": t, "ids": ids(plain, t), "with_special": ids(special, t)} for t in texts()]
        if plain.decoder is not None:
            for case in cases:
                case["decoded"] = plain.decode(case["ids"])
        name = os.path.basename(path)[:-5]
        if name == "o200k":
            value = json.load(open(path))
            names = {t["content"]: t["id"] for t in value["added_tokens"]}
            encoding = encoding_of(name, O200K, value["model"]["vocab"], names)
            for case in cases:
                assert encoding.encode_ordinary(case["text"]) == case["ids"], case
                assert encoding.encode(case["text"], allowed_special="all") == case["with_special"], case
            cases += [{"bytes": base64.b64encode(raw).decode(), "ids": of_bytes(encoding, O200K, raw)} for raw in INVALID]
        write(name, cases)


def write_gpt2_golden():
    vocabulary = json.load(open(os.path.join(FOLDER, "gpt2/vocab.json")))
    names = {"<|endoftext|>": vocabulary["<|endoftext|>"]}
    encoding = encoding_of("gpt2", GPT2, vocabulary, names)
    cases = [{"text": t, "ids": encoding.encode_ordinary(t), "with_special": encoding.encode(t, allowed_special="all")} for t in texts()]
    cases += [{"bytes": base64.b64encode(raw).decode(), "ids": of_bytes(encoding, GPT2, raw)} for raw in INVALID]
    write("gpt2", cases)


def write_sentencepiece_goldens():
    for path in sorted(glob.glob(os.path.join(FOLDER, "*.model"))):
        processor = sentencepiece.SentencePieceProcessor(model_file=path)
        cases = [{"text": t, "ids": processor.encode(t), "decoded": processor.decode(processor.encode(t))} for t in texts()]
        cases += [{"bytes": base64.b64encode(raw).decode(), "ids": processor.encode(raw)} for raw in INVALID]
        write(os.path.basename(path)[:-6], cases)


def main():
    os.makedirs(FOLDER, exist_ok=True)
    if "--train" in sys.argv[1:]:
        for train in (train_gpt2, train_llama3, train_qwen2, train_o200k, train_added, train_llama2, train_deepseek, train_clip, train_metaspace, train_sentencepiece):
            train()
    write_json_goldens()
    write_gpt2_golden()
    write_sentencepiece_goldens()


if __name__ == "__main__":
    main()
