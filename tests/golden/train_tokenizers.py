#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goldens of trained tokenizers: texts, and what `tokenizers` trains on them.

  tests/golden/train_tokenizers.py            rewrites trained_tokenizers/

The texts have seven scripts, many ties, runs of one letter, special tokens, and a special token that
a merge makes again.
"""
import json
import os
import random
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "../bench"))
from train_tokenizer import CL100K, train_peer  # noqa: E402

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
FOLDER = os.path.join(HERE, "trained_tokenizers")
SENTENCES = [
    "The quick brown fox doesn't jump over 12345 lazy dogs; hello, hello there!\n",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Съешь ещё!\n",
    "天地玄黃,宇宙洪荒。日月盈昃,辰宿列張。天地日月,天地宇宙。\n",
    "いろはにほへと ちりぬるを わかよたれそ つねならむ。いろは、いろは。\n",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Την ψυχή, την ψυχοφθόρα.\n",
    "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر\n",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण को राम ने मारा\n",
    "for (int i = 0; i < 10; ++i) {\n    total += values[i] * 2;\n\n}\r\n",
    "aaaa aaaaa aaaaaaaaa baaab  abababab bababa ====== ----\n",
    "<|endoftext|> hello<|endoftext|> 😀😀😀 \t é e\u0301\n"]


def main():
    random.seed(1)
    texts = ["".join(random.choice(SENTENCES) for _ in range(random.randrange(1, 6))) for _ in range(8)] + [""]
    texts += [" ".join("".join(random.choices("abc", k=random.randrange(1, 9))) for _ in range(20)) for _ in range(2)]
    os.makedirs(FOLDER, exist_ok=True)
    with open(os.path.join(FOLDER, "texts.jsonl"), "w", encoding="utf-8") as out:
        out.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    train_peer(texts, os.path.join(FOLDER, "cl100k.json"), 440, CL100K)
    train_peer(texts, os.path.join(FOLDER, "gpt2.json"), 380, GPT2, ["<|endoftext|>", "hello"])
    train_peer(texts, os.path.join(FOLDER, "all.json"), 100000)


if __name__ == "__main__":
    main()
