# SPDX-License-Identifier: Apache-2.0
"""Small random models of all families, saved and evaluated by `transformers`, as references for
tests/tasks/interop. `python3 tests/golden/hugging_face.py` rewrites hugging_face/<name>/ beside it:
config.json, weights as safetensors (some in shards), scores.safetensors (ids and f32 logits; of
masked models also labels, -100 where none counts; of linear attention also spread_of_forms(); where
rotations depend on the length also continued()) and
gradients/ (of the mean loss of the labels, or of the next token, in the form of a model).
`hugging_face.py NAME...` rewrites only those.

quantised/<name>/ has files with quantised weights, and in dequantised.safetensors the weights that
`transformers` makes of them; a model has scores.safetensors, too.

`hugging_face.py --check-training DIR ORIGINAL ...` repeats the training steps of Tessera's runs.
`hugging_face.py --check DIR...` loads Tessera's exports with `transformers` and compares the logits
with Tessera's in DIR/scores.safetensors.
"""
import json
import pathlib
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import (AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM,
                          AutoModelForSeq2SeqLM, FineGrainedFP8Config, Mxfp4Config)
from transformers.integrations.finegrained_fp8 import _dequantize_fp8_weight
from transformers.integrations.mxfp4 import convert_moe_packed_tensors
from transformers.models.qwen3_next import modeling_qwen3_next
from transformers.quantizers import quantizer_finegrained_fp8

HERE = pathlib.Path(__file__).parent / "hugging_face"
QUANTISED_HERE = HERE.parent / "quantised"
VOCAB, EMBED, HEADS, LAYERS, SEQ, BATCH = 48, 16, 4, 2, 20, 2


def randomise(model):
    """Randomizes all weights: biases of 0 or scales of 1 could hide errors."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            is_matrix = weight.dim() > 1 and "bias" not in name
            # The norms of Gemma add 1 to their weight.
            mean = 1.0 if name.endswith("weight") and not is_matrix and weight.abs().max() > 0 else 0.0
            weight.copy_(0.25 * noise if is_matrix else mean + 0.5 * noise)
        for name, buffer in model.named_buffers():
            if name in model.state_dict():
                buffer.add_(torch.randn(buffer.shape, generator=generator))


MASKED = ("bert", "roberta", "modernbert")


def auto_model(model_type):
    if model_type == "t5":
        return AutoModelForSeq2SeqLM
    return AutoModelForMaskedLM if model_type in MASKED else AutoModelForCausalLM


def batch(config, tokens):
    """Ids, of causal models below `tokens`, and labels. Ids of masked models are above all special
    ones, and each third has a label."""
    generator = torch.Generator().manual_seed(11)
    if config.model_type == "t5":
        encoder_ids = torch.randint(0, config.vocab_size, (BATCH, 13), generator=generator)
        ids = torch.randint(0, config.vocab_size, (BATCH, SEQ), generator=generator)
        labels = ids.roll(-1, 1)
        labels[:, -1] = -100
        return {"ids": ids, "encoder_ids": encoder_ids, "labels": labels}
    if config.model_type not in MASKED:
        ids = torch.randint(0, tokens, (BATCH, SEQ), generator=generator)
        return {"ids": ids, "labels": ids}
    ids, labels = torch.randint(4, config.vocab_size, (2, BATCH, SEQ), generator=generator)
    labels[:, torch.arange(SEQ) % 3 != 1] = -100
    return {"ids": ids.clone(), "labels": labels.clone()}


def as_arguments(scores):
    """The ids as arguments of forward()."""
    if "encoder_ids" not in scores:
        return {"input_ids": scores["ids"].long()}
    return {"input_ids": scores["encoder_ids"].long(), "decoder_input_ids": scores["ids"].long()}


def in_f32(folder, scores):
    """The model with gradients, and its logits."""
    model_type = AutoConfig.from_pretrained(folder).model_type
    model = auto_model(model_type).from_pretrained(folder, dtype=torch.float32,
                                                   attn_implementation="eager").eval()
    result = model(**as_arguments(scores), labels=scores["labels"])
    result.loss.backward()
    return model, result.logits.detach().contiguous()


def spread_of_forms(folder, scores):
    """The largest difference of logits, and of gradients, between linear attention in chunks and
    token by token, relative to the largest element."""
    def distance(a, b):
        return ((a - b).abs().max() / a.abs().max()).item()

    model, logits = in_f32(folder, scores)
    chunked = modeling_qwen3_next.torch_chunk_gated_delta_rule
    modeling_qwen3_next.torch_chunk_gated_delta_rule = (
        modeling_qwen3_next.torch_recurrent_gated_delta_rule)
    other, other_logits = in_f32(folder, scores)
    modeling_qwen3_next.torch_chunk_gated_delta_rule = chunked
    return torch.tensor([distance(logits, other_logits), max(
        distance(a.grad, b.grad) for a, b in zip(model.parameters(), other.parameters()))])


def continued(folder, ids, length=38):
    """The ids and what the model adds to them greedily, with a cache, up to this length."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                 attn_implementation="eager").eval()
    ids, inputs, cache = ids.tolist(), ids[None], None
    with torch.no_grad():
        while len(ids) < length:
            result = model(inputs.long(), past_key_values=cache, use_cache=True)
            inputs, cache = result.logits[:, -1:].argmax(-1), result.past_key_values
            ids.append(inputs.item())
    return torch.tensor(ids)


def save_scores(folder, tokens):
    """Logits and gradients in f32, from the weights as saved."""
    config = AutoConfig.from_pretrained(folder)
    scores = batch(config, tokens)
    model, logits = in_f32(folder, scores)
    if config.model_type == "qwen3_next":
        scores["spread"] = spread_of_forms(folder, scores)
    if "encoder_ids" in scores:
        scores["generated"] = model.generate(scores["encoder_ids"], do_sample=False,
                                             max_new_tokens=12, use_cache=False)
    if (getattr(config, "rope_parameters", None) or {}).get("rope_type") in ("dynamic", "longrope"):
        scores["continued"] = torch.stack(
            [continued(folder, scores["ids"].flatten()[:prompt]) for prompt in (5, 24)])
    if config.model_type not in MASKED:
        del scores["labels"]
    save_file(scores | {"logits": logits},
              folder / "scores.safetensors")
    for weight in model.parameters():
        weight.data = weight.grad
    model.save_pretrained(folder / "gradients")
    for file in (folder / "gradients").glob("*.json"):
        file.unlink()


def gpt2(**changes):
    return "gpt2", dict(vocab_size=VOCAB, n_positions=24, n_embd=EMBED, n_layer=LAYERS, n_head=HEADS,
                        **changes)


def like_llama(model_type, **changes):
    sizes = dict(vocab_size=VOCAB, hidden_size=EMBED, intermediate_size=24, num_hidden_layers=LAYERS,
                 num_attention_heads=HEADS, max_position_embeddings=64)
    return model_type, sizes | changes


def llama(**changes):
    return like_llama("llama", **changes)


def mixtral(**changes):
    return like_llama("mixtral", intermediate_size=8, num_key_value_heads=2, **changes)


def deepseek(model_type, **changes):
    sizes = dict(num_key_value_heads=HEADS, q_lora_rank=12, kv_lora_rank=8, qk_nope_head_dim=6,
                 qk_rope_head_dim=4, v_head_dim=5, num_experts_per_tok=3, moe_intermediate_size=8,
                 first_k_dense_replace=1)
    return like_llama(model_type, **(sizes | changes))


def masked(model_type, **changes):
    sizes = dict(vocab_size=29, hidden_size=12, intermediate_size=10, num_hidden_layers=2,
                 num_attention_heads=2, max_position_embeddings=24)
    return model_type, sizes | changes


def t5(**changes):
    sizes = dict(vocab_size=29, d_model=10, d_kv=3, d_ff=8, num_layers=2, num_heads=3,
                 relative_attention_num_buckets=8, relative_attention_max_distance=9,
                 pad_token_id=0, decoder_start_token_id=0)
    return "t5", sizes | changes


def rope(kind, theta, **changes):
    return dict(rope_type=kind, rope_theta=theta, **changes)


SLIDING, FULL = "sliding_attention", "full_attention"
F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
# For each model: its configuration, the dtype of its file, and the shard size.
MODELS = {
    "gpt2": (gpt2(), F32, "1GB"),
    "gpt2_untied": (gpt2(tie_word_embeddings=False, n_inner=40, activation_function="gelu",
                         layer_norm_epsilon=1e-3), BF16, "6KB"),
    "llama": (llama(num_key_value_heads=2), F32, "8KB"),
    "llama_biases": (llama(attention_bias=True, mlp_bias=True, rms_norm_eps=1e-3, rope_theta=500.0,
                           hidden_act="gelu_pytorch_tanh"), BF16, "1GB"),
    "llama_scaled": (llama(num_key_value_heads=1, head_dim=8, tie_word_embeddings=True,
                           rope_scaling={"rope_type": "llama3", "factor": 8.0,
                                         "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                         "original_max_position_embeddings": 16}), F16, "1GB"),
    "llama_stretched": (llama(num_key_value_heads=2, tie_word_embeddings=True,
                              rope_scaling={"rope_type": "linear", "factor": 4.0}), F32, "1GB"),
    "llama_dynamic": (llama(hidden_size=12, num_attention_heads=2, num_key_value_heads=1,
                            intermediate_size=10, max_position_embeddings=16, head_dim=6,
                            rope_scaling={"rope_type": "dynamic", "factor": 4.0}), F32, "1GB"),
    "llama_odd": (llama(hidden_size=18, intermediate_size=11, num_attention_heads=3,
                        num_key_value_heads=1, head_dim=10), F32, "1GB"),
    "mistral": (like_llama("mistral", intermediate_size=10, num_key_value_heads=2,
                           sliding_window=None, head_dim=6), F32, "1GB"),
    "mixtral": (mixtral(num_local_experts=4), F32, "8KB"),
    "mixtral_tied": (mixtral(num_local_experts=5, num_experts_per_tok=3, head_dim=8,
                             tie_word_embeddings=True, sliding_window=64,
                             hidden_act="gelu_pytorch_tanh", rms_norm_eps=1e-3,
                             router_aux_loss_coef=0.02, router_jitter_noise=0.1,
                             rope_parameters=rope("linear", 500.0, factor=4.0)), BF16, "1GB"),
    "qwen2": (like_llama("qwen2", vocab_size=45, num_key_value_heads=2, tie_word_embeddings=True),
              F32, "1GB"),
    "qwen3": (like_llama("qwen3", num_key_value_heads=1, head_dim=6), BF16, "1GB"),
    "qwen3_moe": (like_llama("qwen3_moe", hidden_size=12, intermediate_size=14,
                             num_hidden_layers=3, num_key_value_heads=2, head_dim=4,
                             moe_intermediate_size=4, num_experts=5, num_experts_per_tok=2,
                             mlp_only_layers=[0], norm_topk_prob=True), F32, "1GB"),
    "qwen3_moe_scores": (like_llama("qwen3_moe", hidden_size=12, intermediate_size=10,
                                    num_hidden_layers=3, num_key_value_heads=2, head_dim=4,
                                    moe_intermediate_size=8, num_experts=4,
                                    num_experts_per_tok=3, decoder_sparse_step=2), F32, "1GB"),
    "qwen3_next": (like_llama(
        "qwen3_next", hidden_size=8, num_hidden_layers=4, num_attention_heads=2, head_dim=8,
        num_key_value_heads=1, intermediate_size=6, moe_intermediate_size=4, mlp_only_layers=[1],
        shared_expert_intermediate_size=8, num_experts=3, num_experts_per_tok=2,
        linear_key_head_dim=5, linear_value_head_dim=3, linear_num_key_heads=2,
        linear_num_value_heads=6), F32, "1GB"),
    "qwen3_yarn": (like_llama(
        "qwen3", intermediate_size=10, num_key_value_heads=2, head_dim=8, rope_parameters=rope(
            "yarn", 1e4, factor=4.0, original_max_position_embeddings=16)), F32, "1GB"),
    "olmo2": (like_llama("olmo2", num_key_value_heads=2), F32, "1GB"),
    "phi3": (like_llama("phi3", num_key_value_heads=2, tie_word_embeddings=True), F32, "1GB"),
    "phi3_long": (like_llama("phi3", num_key_value_heads=2, max_position_embeddings=64,
                             original_max_position_embeddings=16, rope_parameters=dict(
                                 rope_type="longrope", rope_theta=1e4,
                                 original_max_position_embeddings=16, short_factor=[1.0, 1.2],
                                 long_factor=[1.5, 4.0])), F32, "1GB"),
    "phi4_mini": (like_llama("phi3", num_attention_heads=2, num_key_value_heads=1,
                             rope_parameters=rope("default", 1e4, partial_rotary_factor=0.75)),
                  BF16, "1GB"),
    "starcoder2": (like_llama("starcoder2", num_key_value_heads=2), F32, "1GB"),
    "smollm3": (like_llama("smollm3", num_hidden_layers=4, num_key_value_heads=2,
                           intermediate_size=10), F32, "1GB"),
    "smollm3_listed": (like_llama("smollm3", num_hidden_layers=3, num_key_value_heads=1,
                                  no_rope_layers=[0, 1, 1], tie_word_embeddings=False), F16, "1GB"),
    "pythia": (like_llama("gpt_neox", num_attention_heads=2, rope_parameters=rope(
        "default", 1e4, partial_rotary_factor=0.25)), F32, "1GB"),
    "gpt_neox": (like_llama("gpt_neox", use_parallel_residual=False, tie_word_embeddings=True,
                            rope_parameters=rope("default", 500.0, partial_rotary_factor=1.0)),
                 F32, "1GB"),
    "mistral_window": (like_llama("mistral", num_key_value_heads=1, sliding_window=5), BF16, "1GB"),
    "qwen2_window": (like_llama("qwen2", num_key_value_heads=2, use_sliding_window=True,
                                sliding_window=5, max_window_layers=1), F32, "1GB"),
    "phi3_window": (like_llama("phi3", intermediate_size=10, num_key_value_heads=4,
                               sliding_window=7), F32, "1GB"),
    "smollm3_window": (like_llama("smollm3", num_key_value_heads=2, use_sliding_window=True,
                                  sliding_window=5, no_rope_layers=[1, 0]), F32, "1GB"),
    "olmo3": (like_llama("olmo3", num_hidden_layers=4, num_key_value_heads=2, sliding_window=5,
                         intermediate_size=12), F32, "1GB"),
    "olmo3_yarn": (like_llama(
        "olmo3", head_dim=8, num_key_value_heads=1, sliding_window=5, layer_types=[SLIDING, FULL],
        rope_parameters={SLIDING: rope("default", 5e5), FULL: rope(
            "yarn", 5e5, factor=4.0, original_max_position_embeddings=16, beta_fast=32.0,
            beta_slow=1.0, attention_factor=1.2)}), BF16, "1GB"),
    "gemma2": (like_llama("gemma2", intermediate_size=10, num_key_value_heads=2, head_dim=6,
                          sliding_window=5, query_pre_attn_scalar=24), F32, "1GB"),
    "gemma3": (like_llama("gemma3_text", num_hidden_layers=3, num_key_value_heads=1, head_dim=6,
                          intermediate_size=12, sliding_window=5, query_pre_attn_scalar=24,
                          layer_types=[SLIDING, SLIDING, FULL], rope_parameters={
                              SLIDING: rope("default", 1e4),
                              FULL: rope("linear", 1e6, factor=8.0)}), F32, "1GB"),
    "olmoe": (like_llama("olmoe", num_key_value_heads=2, num_experts=4, num_experts_per_tok=2,
                         intermediate_size=8), F32, "1GB"),
    "deepseek_v2": (deepseek("deepseek_v2", hidden_size=12, intermediate_size=14,
                             q_lora_rank=7, moe_intermediate_size=4, n_routed_experts=8,
                             n_shared_experts=2, n_group=4, topk_group=2,
                             topk_method="group_limited_greedy",
                             routed_scaling_factor=2.0), F32, "1GB"),
    "deepseek_v2_lite": (deepseek("deepseek_v2", q_lora_rank=None, n_routed_experts=4,
                                  n_shared_experts=1), BF16, "1GB"),
    "deepseek_v3": (deepseek("deepseek_v3", hidden_size=12, intermediate_size=14,
                             q_lora_rank=7, moe_intermediate_size=4, n_routed_experts=8,
                             n_shared_experts=1, n_group=4, topk_group=2,
                             num_mtp_layers=0), F32, "1GB"),
    "deepseek_v3_yarn": (deepseek(
        "deepseek_v3", hidden_size=12, intermediate_size=10, q_lora_rank=7, n_routed_experts=4,
        n_shared_experts=1, n_group=1, topk_group=1, num_mtp_layers=0, rope_parameters=rope(
            "yarn", 1e4, factor=4.0, original_max_position_embeddings=16, beta_fast=32.0,
            beta_slow=1.0, mscale=0.7, mscale_all_dim=1.0)), F32, "1GB"),
    "gpt_oss": (like_llama("gpt_oss", intermediate_size=8, num_local_experts=4,
                           num_experts_per_tok=2, num_key_value_heads=2, head_dim=6,
                           sliding_window=5, router_aux_loss_coef=0.02, swiglu_limit=0.5,
                           rope_parameters=rope("yarn", 15e4, factor=4.0, beta_fast=32.0,
                                                beta_slow=1.0, truncate=False,
                                                original_max_position_embeddings=16)), F32, "1GB"),
    "gpt_oss_plain": (like_llama("gpt_oss", hidden_size=12, intermediate_size=8, head_dim=4,
                                 num_attention_heads=3, num_key_value_heads=1, num_local_experts=3,
                                 num_experts_per_tok=1, layer_types=[FULL, SLIDING],
                                 sliding_window=7, attention_bias=False, tie_word_embeddings=True,
                                 rope_parameters=rope("default", 1e4)), BF16, "8KB"),
    "granite": (like_llama("granite", num_key_value_heads=2, embedding_multiplier=12.0,
                           attention_multiplier=0.1, residual_multiplier=0.22,
                           logits_scaling=8.0), F32, "1GB"),
    "bert": (masked("bert"), F32, "6KB"),
    "bert_odd": (masked("bert", hidden_size=15, num_attention_heads=3, intermediate_size=7,
                        vocab_size=23, type_vocab_size=3, hidden_act="gelu_new", layer_norm_eps=1e-3), BF16, "1GB"),
    "roberta": (masked("roberta", hidden_size=10, num_attention_heads=1, hidden_act="relu",
                       type_vocab_size=1, pad_token_id=2), F16, "1GB"),
    "modernbert": (masked("modernbert", num_hidden_layers=3, local_attention=7), F32, "6KB"),
    "modernbert_biases": (masked(
        "modernbert", hidden_size=18, num_attention_heads=3, intermediate_size=9, local_attention=4,
        layer_types=[SLIDING, FULL], norm_bias=True, attention_bias=True, mlp_bias=True,
        classifier_bias=True, tie_word_embeddings=False, hidden_activation="silu", norm_eps=1e-3,
        classifier_activation="gelu_new", rope_parameters={
            SLIDING: rope("default", 100.0), FULL: rope("linear", 1e4, factor=2.0)}), BF16, "1GB"),
    "t5": (t5(), F32, "4KB"),
    "t5_v1_1": (t5(num_decoder_layers=3, feed_forward_proj="gated-gelu", tie_word_embeddings=False,
                   num_heads=2, d_kv=4, layer_norm_epsilon=1e-3, decoder_start_token_id=3),
                BF16, "1GB"),
    "gemma": (like_llama("gemma", hidden_size=18, intermediate_size=10, num_attention_heads=3,
                         num_key_value_heads=1, head_dim=8), F32, "1GB"),
}


def new_folder(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def write_quantised(folder, tensors, settings, **members):
    config = members | {"quantization_config": settings}
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def fp8(weight, block, scale_dtype=F32):
    """The values as e4m3, and the scale of each block; blocks at the edges may be smaller."""
    rows, columns = weight.shape[-2:]
    padding = (0, -columns % block[1], 0, -rows % block[0])
    blocks = torch.nn.functional.pad(weight.float(), padding)
    blocks = blocks.unflatten(-1, (-1, block[1])).unflatten(-3, (-1, block[0]))
    scales = (blocks.abs().amax((-3, -1)) / 448).to(scale_dtype)
    values = (blocks / scales.float()[..., :, None, :, None]).flatten(-2).flatten(-3, -2)
    values = values[..., :rows, :columns].to(torch.float8_e4m3fn).contiguous()
    return {"": values, "_scale_inv": scales.contiguous()}


def mxfp4(shape, scales):
    """Random blocks, each with all codes, for a weight [experts, inputs, outputs]."""
    experts, inputs, outputs = shape
    generator = torch.Generator().manual_seed(5)
    codes = torch.rand((2, experts, outputs, inputs // 32, 16), generator=generator).argsort(-1)
    return {"_blocks": (codes[0] | codes[1] << 4).to(torch.uint8),
            "_scales": scales.reshape(experts, outputs, inputs // 32).to(torch.uint8)}


def write_quantised_model(folder, config, quantise, settings, loading):
    """`quantise` returns the tensors in place of one, by the end of their names, or None."""
    model = AutoModelForCausalLM.from_config(config, dtype=BF16)
    randomise(model)
    model.save_pretrained(folder)
    tensors = {}
    for name, weight in load_file(folder / "model.safetensors").items():
        for end, tensor in (quantise(name, weight) or {"": weight}).items():
            tensors[name + end] = tensor
    members = json.loads((folder / "config.json").read_text())
    write_quantised(folder, tensors, settings, **members)
    loaded = AutoModelForCausalLM.from_pretrained(
        folder, dtype="auto", attn_implementation="eager", quantization_config=loading).eval()
    # A model that was loaded from quantised files would be saved as such.
    plain = AutoModelForCausalLM.from_config(config, dtype=BF16)
    plain.load_state_dict(loaded.state_dict())
    plain.save_pretrained(folder / "plain")
    (folder / "plain/model.safetensors").rename(folder / "dequantised.safetensors")
    shutil.rmtree(folder / "plain")
    (folder / "generation_config.json").unlink(missing_ok=True)
    logits = loaded.float()(ids()).logits.detach().contiguous()
    save_file({"ids": ids(), "logits": logits}, folder / "scores.safetensors")


def deepseek_v3_fp8(folder):
    block = [2, 4]
    quantizer_finegrained_fp8.is_accelerate_available = lambda: True  # Needed for GPUs only.
    model_type, members = deepseek("deepseek_v3", n_routed_experts=4, n_shared_experts=1, n_group=2,
                                   topk_group=1, num_mtp_layers=0, num_experts_per_tok=2)
    config = AutoConfig.for_model(model_type, pad_token_id=None, bos_token_id=None,
                                  eos_token_id=None, **members)
    write_quantised_model(
        folder, config, lambda name, weight: fp8(weight, block) if "proj" in name else None,
        dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=block,
             modules_to_not_convert=["lm_head"]), FineGrainedFP8Config(dequantize=True))


def gpt_oss_mxfp4(folder):
    model_type, members = like_llama(
        "gpt_oss", hidden_size=32, intermediate_size=32, num_key_value_heads=2, head_dim=8,
        num_local_experts=3, num_experts_per_tok=2, sliding_window=5, rope_parameters=rope(
            "yarn", 1e4, factor=4.0, original_max_position_embeddings=16, beta_fast=32.0,
            beta_slow=1.0, truncate=False))
    config = AutoConfig.for_model(model_type, pad_token_id=None, bos_token_id=None,
                                  eos_token_id=None, **members)
    generator = torch.Generator().manual_seed(3)

    def quantise(name, weight):
        if not name.endswith("_proj"):
            return None
        return mxfp4(weight.shape, torch.randint(121, 126, (weight.numel() // 32,),
                                                 generator=generator))

    write_quantised_model(folder, config, quantise, dict(
        quant_method="mxfp4", modules_to_not_convert=[
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
            "lm_head"]), Mxfp4Config(dequantize=True))


def fp8_edges(folder):
    """Smaller blocks at the edges, several matrices in one tensor, all values, extreme scales. The
    loader of `transformers` 5.24 does not read the first, so this is its function for gradients."""
    block = [4, 3]
    noise = torch.randn((3, 7, 10), generator=torch.Generator().manual_seed(9))
    extremes = torch.tensor([0.0, 1e-40, 1e-38, -3e-5, 7e35, 3e38, torch.inf, torch.nan])
    every = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).reshape(16, 16)
    weights = {"plain": fp8(noise[0], block), "stacked": fp8(noise, block, BF16),
               "half": fp8(noise[1, :, :2], block, F16),
               "every": {"": every, "_scale_inv": extremes.repeat(3).reshape(4, 6)}}
    write_quantised(
        folder, {name + end: tensor for name, tensors in weights.items()
                 for end, tensor in tensors.items()},
        dict(quant_method="fp8", weight_block_size=block), dtype="bfloat16")
    save_file({f"{str(dtype).removeprefix('torch.')}.{name}": _dequantize_fp8_weight(
        tensors[""], tensors["_scale_inv"], block, F32).to(dtype)
        for name, tensors in weights.items() for dtype in (F32, BF16, F16)},
        folder / "dequantised.safetensors")


def mxfp4_scales(folder):
    """All scales with all codes."""
    experts, inputs, outputs = 2, 64, 64
    tensors = mxfp4((experts, inputs, outputs), torch.arange(256))
    write_quantised(folder, {"w" + end: tensor for end, tensor in tensors.items()},
                    dict(quant_method="mxfp4"))
    save_file({"w": convert_moe_packed_tensors(tensors["_blocks"], tensors["_scales"])},
              folder / "dequantised.safetensors")


QUANTISED = {"deepseek_v3_fp8": deepseek_v3_fp8, "gpt_oss_mxfp4": gpt_oss_mxfp4,
             "fp8_edges": fp8_edges, "mxfp4_scales": mxfp4_scales}


def write(name):
    if name in QUANTISED:
        QUANTISED[name](new_folder(QUANTISED_HERE / name))
        return
    (model_type, members), dtype, shard = MODELS[name]
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    special = dict(pad_token_id=None, bos_token_id=None, eos_token_id=None)
    if model_type == "modernbert":
        special |= dict(cls_token_id=None, sep_token_id=None)
    config = AutoConfig.for_model(model_type, **(special | members))
    model = auto_model(model_type).from_config(config)
    is_untied_t5 = model_type == "t5" and members.get("tie_word_embeddings") is False
    if is_untied_t5:  # transformers 5 ties them in any case, but reads files in which they differ.
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
    tokens = config.vocab_size
    if name == "qwen2":  # As in the published models, the table has rows without a token.
        model.resize_token_embeddings(pad_to_multiple_of=VOCAB)
    randomise(model)
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    if is_untied_t5:
        config = json.loads((folder / "config.json").read_text())
        config |= dict(tie_word_embeddings=False)
        (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_scores(folder, tokens)
    files = [file for file in folder.rglob("*") if file.is_file()]
    print(f"{folder}: {sum(file.stat().st_size for file in files)} bytes")


def check(folder):
    scores = load_file(pathlib.Path(folder) / "scores.safetensors")
    auto = auto_model(AutoConfig.from_pretrained(folder).model_type)
    model, report = auto.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    for what, names in report.items():
        if names:
            sys.exit(f"{folder}: {what}: {names}")
    with torch.no_grad():
        logits = model.eval()(**as_arguments(scores)).logits
    difference = (logits - scores["logits"]).abs().max().item()
    print(f"{folder}: {type(model).__name__}, logits differ by at most {difference:.3g}")
    if not difference <= 1e-4:
        sys.exit(f"{folder}: logits differ by {difference}")


def losses_of(folder, batches, seed):
    """Losses of training steps of AdamW in bf16 with weights in f32. Seeds above 0 change each
    weight by about a rounding to bf16."""
    generator = torch.Generator().manual_seed(seed)
    auto = auto_model(AutoConfig.from_pretrained(folder).model_type)
    model = auto.from_pretrained(folder, dtype=BF16, attn_implementation="eager",
                                 experts_implementation="batched_mm").train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if hasattr(module, "jitter_noise"):
            module.jitter_noise = 0.0
    exact = auto.from_pretrained(folder, dtype=F32)
    weights = {}
    for name, weight in exact.named_parameters():
        noise = torch.randn(weight.shape, generator=generator) * 2**-9 * (seed > 0)
        weights[name] = (weight.detach() * (1 + noise)).requires_grad_()
    optimizer = torch.optim.AdamW(weights.values(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8,
                                  weight_decay=0.01)
    losses = []
    for batch in batches:
        cast = {name: weight.to(BF16) for name, weight in weights.items()}
        logits = torch.func.functional_call(model, cast, kwargs=as_arguments(batch)).logits.float()
        terms = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(),
                                                  reduction="none") * batch["weights"].flatten()
        loss = terms.sum() / batch["weights"].sum()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return torch.tensor(losses)


def check_training(folder, original):
    """The losses of Tessera's run, in DIR/training.safetensors with its batches, differ from the
    nearest run of PyTorch by no more than two of these differ from each other."""
    tensors = load_file(pathlib.Path(folder) / "training.safetensors")
    ours = tensors.pop("losses").flatten()
    steps = len(ours)
    names = {"ids": torch.long, "encoder_ids": torch.long, "labels": torch.long, "weights": F32}
    batches = [{name: tensors[name].chunk(steps)[i].to(dtype) for name, dtype in names.items()
                if name in tensors} for i in range(steps)]
    runs = torch.stack([losses_of(original, batches, seed) for seed in range(8)])
    spread = (runs.amax(0) - runs.amin(0)).max().item()
    difference = (ours - runs).abs().amax(1).min().item()
    print(f"{folder}: loss {ours[0]:.4f} to {ours[-1]:.4f}, from PyTorch's {difference:.2g}, "
          f"between its seeds {spread:.2g}")
    return difference <= spread


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check-training"]:
        folders = sys.argv[2:]
        results = [check_training(*each) for each in zip(folders[::2], folders[1::2])]
        sys.exit(0 if all(results) else 1)
    if sys.argv[1:2] == ["--check"]:
        for each in sys.argv[2:]:
            check(each)
    else:
        for each in sys.argv[1:] or MODELS | QUANTISED:
            write(each)
