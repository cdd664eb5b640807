"""The other side of the parity tests: transformers' models with our weights, and what they give."""

import numpy as np
import parity_models as models
import torch
import transformers

from mimesis_jax.models import spec as specs

# On shared cores several threads spin against each other, and one gives the same numbers each time.
torch.set_num_threads(1)


def _common(spec: specs.Spec) -> dict:
    return dict(
        vocab_size=spec.vocab,
        hidden_size=spec.width,
        intermediate_size=spec.mlp,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        num_key_value_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        rms_norm_eps=spec.eps,
        tie_word_embeddings=spec.tied,
        max_position_embeddings=512,
        attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": spec.rope_theta},
    )


def build(architecture: str, spec: specs.Spec):
    """A fresh fp32 model of theirs in evaluation mode."""
    sizes = _common(spec)
    if architecture == "qwen3_5":
        sizes["rope_parameters"]["partial_rotary_factor"] = spec.rotary_dim / spec.head_dim
        config = transformers.Qwen3_5TextConfig(
            **sizes,
            linear_num_key_heads=spec.linear_key_heads,
            linear_num_value_heads=spec.linear_value_heads,
            linear_key_head_dim=spec.linear_key_dim,
            linear_value_head_dim=spec.linear_value_dim,
        )
        model = transformers.Qwen3_5ForCausalLM(config)
    elif architecture == "qwen3":
        model = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**sizes))
    elif architecture == "qwen2":
        del sizes["head_dim"]
        model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**sizes))
    else:
        if spec.rope_scaling is not None:
            scaling = spec.rope_scaling
            sizes["rope_parameters"] |= {
                "rope_type": "llama3",
                "factor": scaling.factor,
                "low_freq_factor": scaling.low_freq_factor,
                "high_freq_factor": scaling.high_freq_factor,
                "original_max_position_embeddings": scaling.original_length,
            }
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
    return model.float().eval()


def reference(family: str) -> dict:
    """What their model gives for the two sequences, each run alone.

    logits: [n, V] fp32 of each; narrow: the same by the model in bf16; gradient: of the summed
    loss, fp32, as our parameters.
    """
    architecture, spec = models.FAMILIES[family]
    model = build(architecture, spec)
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    values = models.theirs(spec, models.params(spec), shapes)
    for name, parameter in model.named_parameters():
        parameter.data = torch.tensor(values[name], dtype=torch.float32)
    logits = []
    for ids, weight in zip(models.tokens(), models.weights(), strict=True):
        out = model(torch.tensor(ids, dtype=torch.long)[None]).logits[0]
        (out * torch.tensor(weight, dtype=torch.float32)).sum().backward()
        logits.append(out.detach().numpy())
    read = {name: p.grad.numpy() for name, p in model.named_parameters()}
    model = model.to(torch.bfloat16)
    with torch.no_grad():
        narrow = [
            model(torch.tensor(ids, dtype=torch.long)[None]).logits[0].float().numpy()
            for ids in models.tokens()
        ]
    gradient = models.ours(spec, read)
    return {"logits": logits, "narrow": narrow, "gradient": gradient}


def golden(family: str) -> dict[str, np.ndarray]:
    """The reference as the small arrays that are stored.

    logits [sum of lengths, V] fp32; narrow, the bits [.., V] uint16 of the bf16 logits; and a
    sketch of each parameter's gradient, in the order of the leaves.
    """
    found = reference(family)
    bits = np.concatenate(found["narrow"]).astype(np.float32).view(np.uint32) >> 16
    return {
        "logits": np.concatenate(found["logits"]),
        "narrow": bits.astype(np.uint16),
        "gradient": np.stack(list(models.sketch(found["gradient"]).values())),
    }
