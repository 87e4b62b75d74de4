# SPDX-License-Identifier: Apache-2.0
"""Small random GPT-2, Llama and Mixtral models, saved and evaluated by `transformers`, as references for
tests/tasks/interop. `python3 tests/golden/hugging_face.py` rewrites hugging_face/<name>/ beside it:
config.json, weights as safetensors (some in shards) and scores.safetensors (ids and f32 logits).
`hugging_face.py NAME...` rewrites only those.

`hugging_face.py --check DIR...` loads Tessera's exports with `transformers` and compares the logits
with Tessera's in DIR/scores.safetensors.
"""
import pathlib
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig
from transformers import LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

HERE = pathlib.Path(__file__).parent / "hugging_face"
VOCAB, EMBED, HEADS, LAYERS, SEQ, BATCH = 48, 16, 4, 2, 20, 2


def randomise(model):
    """Randomizes all weights: biases of 0 or scales of 1 could hide errors."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            is_scale = weight.dim() == 1 and name.endswith("weight")
            weight.copy_(1.0 + 0.3 * noise if is_scale else 0.25 * noise)


def ids():
    generator = torch.Generator().manual_seed(11)
    return torch.randint(0, VOCAB, (BATCH, SEQ), generator=generator)


def logits_of(folder):
    """Logits in f32, from the weights as saved."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return model.eval()(ids()).logits.contiguous()


def gpt2(**changes):
    config = GPT2Config(vocab_size=VOCAB, n_positions=24, n_embd=EMBED, n_layer=LAYERS,
                        n_head=HEADS, **changes)
    return GPT2LMHeadModel(config)


def llama(**changes):
    config = LlamaConfig(vocab_size=VOCAB, hidden_size=EMBED, intermediate_size=40,
                         num_hidden_layers=LAYERS, num_attention_heads=HEADS,
                         max_position_embeddings=64, **changes)
    return LlamaForCausalLM(config)


def mixtral(**changes):
    config = MixtralConfig(vocab_size=VOCAB, hidden_size=EMBED, intermediate_size=8,
                           num_hidden_layers=LAYERS, num_attention_heads=HEADS,
                           num_key_value_heads=2, max_position_embeddings=64, **changes)
    return MixtralForCausalLM(config)


# For each model: a factory, the dtype of its file, and the shard size.
MODELS = {
    "gpt2": (lambda: gpt2(), torch.float32, "1GB"),
    "gpt2_untied": (lambda: gpt2(tie_word_embeddings=False, n_inner=40, activation_function="gelu",
                                 layer_norm_epsilon=1e-3), torch.bfloat16, "6KB"),
    "llama": (lambda: llama(num_key_value_heads=2), torch.float32, "8KB"),
    "llama_biases": (lambda: llama(attention_bias=True, mlp_bias=True, rms_norm_eps=1e-3,
                                   rope_theta=500.0, hidden_act="gelu_pytorch_tanh"),
                     torch.bfloat16, "1GB"),
    "llama_scaled": (lambda: llama(num_key_value_heads=1, head_dim=8, tie_word_embeddings=True,
                                   rope_scaling={"rope_type": "llama3", "factor": 8.0,
                                                 "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                                 "original_max_position_embeddings": 16}),
                     torch.float16, "1GB"),
    "llama_stretched": (lambda: llama(num_key_value_heads=2, tie_word_embeddings=True,
                                      rope_scaling={"rope_type": "linear", "factor": 4.0}),
                        torch.float32, "1GB"),
    "mixtral": (lambda: mixtral(num_local_experts=4), torch.float32, "8KB"),
    "mixtral_tied": (lambda: mixtral(num_local_experts=5, num_experts_per_tok=3, head_dim=8,
                                     tie_word_embeddings=True, sliding_window=64,
                                     hidden_act="gelu_pytorch_tanh", rms_norm_eps=1e-3,
                                     router_aux_loss_coef=0.02, router_jitter_noise=0.1,
                                     rope_parameters={"rope_type": "linear", "factor": 4.0,
                                                      "rope_theta": 500.0}),
                     torch.bfloat16, "1GB"),
}


def write(name):
    make, dtype, shard = MODELS[name]
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model = make()
    randomise(model)
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_file({"ids": ids(), "logits": logits_of(folder)}, folder / "scores.safetensors")
    print(f"{folder}: {sum(f.stat().st_size for f in folder.iterdir())} bytes")


def check(folder):
    scores = load_file(pathlib.Path(folder) / "scores.safetensors")
    model, report = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                         output_loading_info=True)
    for what, names in report.items():
        if names:
            sys.exit(f"{folder}: {what}: {names}")
    with torch.no_grad():
        logits = model.eval()(scores["ids"].long()).logits
    difference = (logits - scores["logits"]).abs().max().item()
    print(f"{folder}: {type(model).__name__}, logits differ by at most {difference:.3g}")
    if not difference <= 1e-4:
        sys.exit(f"{folder}: logits differ by {difference}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"]:
        for each in sys.argv[2:]:
            check(each)
    else:
        for each in sys.argv[1:] or MODELS:
            write(each)
