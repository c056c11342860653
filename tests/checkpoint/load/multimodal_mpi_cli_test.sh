# SPDX-License-Identifier: Apache-2.0
#
# The text parts of multimodal directories against transformers, which is given text alone: see
# tests/checkpoint/load/families.sh. Names of tensors and config.json in the forms of transformers 4 and 5, keys that
# are the default of their class left out.
# timeout: 900
# labels: slow
source "$TRIREME_SOURCE/tests/checkpoint/load/families.sh"

cat >kinds.py <<'PYTHON'
import json
from safetensors.torch import load_file, save_file
from transformers import (CLIPVisionConfig, Gemma3Config, Gemma3TextConfig, Idefics3Config, LlamaConfig, LlavaConfig,
                          LlavaNextConfig, Mistral3Config, MistralConfig, PixtralVisionConfig, Qwen2Config, Qwen2_5_VLConfig,
                          Qwen2VLConfig, Qwen3VLConfig, SiglipVisionConfig, SmolVLMConfig)

sizes = dict(vocab_size=257, hidden_size=48, intermediate_size=80, num_hidden_layers=4, num_attention_heads=8,
             num_key_value_heads=2, head_dim=10, max_position_embeddings=64, rms_norm_eps=1e-3, pad_token_id=None,
             bos_token_id=None, eos_token_id=1)
picture = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=32, patch_size=16)
visual = dict(depth=1, hidden_size=16, intermediate_size=24, num_heads=2, out_hidden_size=48)
image = dict(image_token_index=251)  # no byte of any text
tokens = dict(image_token_id=251, video_token_id=252, vision_start_token_id=253, vision_end_token_id=254)

def text(config_class=dict, **more):
    return config_class(**{key: value for key, value in dict(sizes, **more).items() if value != "leave out"})

gemma3 = dict(num_hidden_layers=7, num_key_value_heads=4, sliding_window=7, query_pre_attn_scalar=256, rms_norm_eps=1e-6)
linear = dict(full_attention=dict(rope_type="linear", rope_theta=5000.0, factor=3.0),
              sliding_attention=dict(rope_type="default", rope_theta=300.0))
qwen2 = dict(head_dim="leave out", num_attention_heads=4)

def mrope(*sections):
    return dict(rope_type="default", rope_theta=5000.0, mrope_section=list(sections))

kinds = {
    "gemma3": Gemma3Config(text_config=text(Gemma3TextConfig, **gemma3), vision_config=SiglipVisionConfig(**picture),
                           mm_tokens_per_image=4, **image),
    "gemma3-between": Gemma3Config(text_config=text(Gemma3TextConfig, **gemma3, rope_parameters=linear,
                                                    tie_word_embeddings=False),
                                   tie_word_embeddings=False, vision_config=SiglipVisionConfig(**picture),
                                   mm_tokens_per_image=4, **image),
    "mistral3": Mistral3Config(text_config=text(MistralConfig, sliding_window=None), tie_word_embeddings=False,
                               vision_config=PixtralVisionConfig(**picture), **image),
    "mistral3-between": Mistral3Config(text_config=text(MistralConfig, sliding_window=9), tie_word_embeddings=True,
                                       vision_config=PixtralVisionConfig(**picture), **image),
    "llava": LlavaConfig(text_config=text(LlamaConfig, num_attention_heads=8), vision_config=CLIPVisionConfig(**picture), **image),
    "llava_next-between": LlavaNextConfig(text_config=text(Qwen2Config, **qwen2), vision_config=CLIPVisionConfig(**picture),
                                          image_grid_pinpoints=[[32, 64]], **image),
    "qwen2_5_vl-flat": Qwen2_5_VLConfig(text_config=text(**qwen2, rope_parameters=mrope(2, 2, 2)), **tokens,
                                        vision_config=dict(visual, fullatt_block_indexes=[0])),
    "qwen2_vl-between": Qwen2VLConfig(text_config=text(**qwen2, rope_parameters=mrope(1, 3, 2)), tie_word_embeddings=True,
                                      vision_config=dict(depth=1, embed_dim=16, hidden_size=48, num_heads=2, mlp_ratio=2),
                                      **tokens),
    "qwen3_vl": Qwen3VLConfig(text_config=text(rope_parameters=mrope(2, 1, 2)), **tokens,
                              vision_config=dict(visual, deepstack_visual_indexes=[0])),
    "idefics3": Idefics3Config(text_config=text(LlamaConfig), vision_config=picture, image_token_id=251, scale_factor=1),
    "smolvlm": SmolVLMConfig(text_config=text(LlamaConfig), vision_config=picture, image_token_id=251, scale_factor=1),
}

def own_name(name):
    """The name of a tensor of the text part in a text model; None for others."""
    for begin, own in (("language_model.model.", "model."), ("language_model.lm_head.", "lm_head."),
                       ("model.language_model.", "model."), ("model.text_model.", "model."), ("lm_head.", "lm_head."),
                       ("model.layers.", "model.layers."), ("model.embed_tokens.", "model.embed_tokens."),
                       ("model.norm.", "model.norm.")):
        if name.startswith(begin):
            return own + name[len(begin):]
    return None

def between(name):
    """As transformers 4.52 to 4.57 wrote them."""
    own = own_name(name)
    if own is None:
        return name if name.startswith("model.") else "model." + name
    return own if own.startswith("lm_head.") else own.replace("model.", "model.language_model.", 1)

def finish(kind):
    """Rewrites what transformers 5 has saved as others publish it."""
    config = json.load(open(kind + "/config.json"))
    inner = config["text_config"]
    if kind == "gemma3":  # the defaults of Gemma3TextConfig, as in gemma-3-4b-it
        for key in ("num_attention_heads", "num_key_value_heads", "query_pre_attn_scalar", "hidden_activation", "rms_norm_eps",
                    "layer_types", "rope_parameters", "attention_bias", "tie_word_embeddings", "model_type"):
            del inner[key]
        del config["tie_word_embeddings"]
    if kind == "gemma3-between":  # the dialect of transformers 4
        rope = inner.pop("rope_parameters")
        inner.update(rope_theta=5000.0, rope_local_base_freq=300.0, rope_scaling=dict(rope_type="linear", factor=3.0))
        assert rope["full_attention"]["factor"] == 3.0
    if kind == "mistral3":  # as Mistral-Small-3.1: neither table sets tie_word_embeddings
        del inner["tie_word_embeddings"], config["tie_word_embeddings"]
    if kind == "llava":  # the defaults of LlamaConfig are not ours, but one
        inner.update(num_attention_heads=8, architectures=["LlamaForCausalLM"], _name_or_path="somewhere")
        config.update(vocab_size=257, ignore_index=-100)
    if kind.endswith("-flat"):  # as Qwen2.5-VL is published
        rope = inner.pop("rope_parameters")
        inner.update(rope_theta=rope["rope_theta"], rope_scaling=dict(type="mrope", mrope_section=rope["mrope_section"]))
        inner.pop("model_type")
        inner.pop("layer_types")
        config.update(inner)
        del config["text_config"]
        config["vision_config"]["model_type"] = "qwen2_5_vl"
    json.dump(config, open(kind + "/config.json", "w"), indent=1)
    if kind.endswith("-between"):
        tensors = load_file(kind + "/model.safetensors")
        save_file({between(name): value for name, value in tensors.items()}, kind + "/model.safetensors",
                  metadata=dict(format="pt"))

def aside(*kinds):
    """The import reports ignored tensors of a kind in one line, with their number and bytes."""
    printed = dict(part.split("\n", 1) for part in open("imports.txt").read().split("$ trireme ") if part)
    for kind in kinds:
        sizes = [value.nbytes for name, value in load_file(kind + "/model.safetensors").items() if own_name(name) is None]
        (imported,) = [text for command, text in printed.items() if command.startswith(f"import\t{kind}\t")]
        lines = [line for line in imported.splitlines() if "is a multimodal model: its text part is read" in line]
        assert len(lines) == 1, imported
        assert f"; {len(sizes)} other tensors (" in lines[0] and len(sizes) > 10, (len(sizes), lines)
        shown, unit = lines[0].split("other tensors (")[1].split(")")[0].split()
        scale = {"B": 1, "KiB": 2**10, "MiB": 2**20}[unit]
        assert abs(float(shown) * scale / sum(sizes) - 1) < 0.06, (lines, sum(sizes))
PYTHON

program models
expect_done
for class in Gemma3 Mistral3 Llava LlavaNext Qwen2VL Qwen2_5_VL Qwen3VL Idefics3 SmolVLM; do
  grep -q " ${class}ForConditionalGeneration " out.txt || fail "models does not list ${class}ForConditionalGeneration"
done
hold_to_transformers gemma3 mistral3
mv err-of-1.txt imports.txt
brief=1 hold_to_transformers gemma3-between mistral3-between llava llava_next-between qwen2_5_vl-flat qwen2_vl-between \
  qwen3_vl idefics3 smolvlm
cat err-of-1.txt >>imports.txt
ask aside gemma3 gemma3-between mistral3 mistral3-between llava llava_next-between qwen2_5_vl-flat qwen2_vl-between qwen3_vl \
  idefics3 smolvlm
grep -q '"MistralForCausalLM"' mistral3-exported/config.json || fail 'the class of the text part'
