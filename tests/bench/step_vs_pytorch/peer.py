# SPDX-License-Identifier: Apache-2.0
"""The other side of the comparison: Llama in PyTorch, trained with FSDP2 (fully_shard) over gloo, or on GPUs over NCCL.
Started by compare.py and gpu.py.

    peer.py weights DIR --shape JSON --seed N     writes a Hugging Face directory with first weights
    peer.py train DIR --settings JSON             under torch.distributed.run: prints one JSON line a step (rank 0)
    peer.py gemm --precision P                    prints the rates of matrix products on one thread
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import sys
import time

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        width = c["hidden_size"]
        self.q_proj = nn.Linear(width, self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(width, self.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(width, self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, width, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, self.heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(b, t, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.kv_heads, self.head_dim).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        group = self.heads // self.kv_heads
        if x.is_cuda:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=group > 1)
        else:
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.up_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.down_proj = nn.Linear(c["intermediate_size"], c["hidden_size"], bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(c["hidden_size"], eps=c["rms_norm_eps"])
        self.self_attn = Attention(c)
        self.post_attention_layernorm = nn.RMSNorm(c["hidden_size"], eps=c["rms_norm_eps"])
        self.mlp = Mlp(c)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = nn.RMSNorm(c["hidden_size"], eps=c["rms_norm_eps"])


class Llama(nn.Module):
    """Parameter names are Hugging Face's."""

    def __init__(self, c):
        super().__init__()
        self.model = Decoder(c)
        self.lm_head = nn.Linear(c["hidden_size"], c["vocab_size"], bias=False)
        self.head_dim, self.theta = c["head_dim"], c["rope_theta"]

    def forward(self, tokens):
        here = tokens.device
        frequencies = 1.0 / self.theta ** (torch.arange(0, self.head_dim, 2, device=here).float() / self.head_dim)
        angles = torch.outer(torch.arange(tokens.shape[1], device=here).float(), frequencies).repeat(1, 2)
        x = self.model.embed_tokens(tokens)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return self.lm_head(self.model.norm(x))


def clip(model, s):
    """The norm before clipping. PyTorch's own is a sum in fp32, wrong by 1e-5 where a tensor has 16 million elements: enough
    to part two curves. For parity it is summed in fp64."""
    if not s["exact_norm"]:
        return nn.utils.clip_grad_norm_(model.parameters(), s["clip_norm"]).full_tensor()
    total = sum(p.grad.to_local().double().square().sum() for p in model.parameters())
    dist.all_reduce(total)
    nn.utils.clip_grads_with_norm_(model.parameters(), s["clip_norm"], total.sqrt().float())
    return total.sqrt()


def prepare(model, s):
    """Recompute of whole layers and torch.compile layer by layer, both as in TorchTitan, if the settings enable them."""
    layers = model.model.layers
    for name, layer in list(layers.named_children()):
        if s.get("recompute") == "block":
            layer = checkpoint_wrapper(layer)
        if s.get("compile"):
            layer = torch.compile(layer, fullgraph=True)
        layers.register_module(name, layer)


def shard(model, precision):
    """As TorchTitan does: embedding, every layer, norm + head together, and the rest."""
    policy = MixedPrecisionPolicy()
    if precision == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    parts = [model.model.embed_tokens, *model.model.layers, [model.model.norm, model.lm_head], model]
    for part in parts:
        fully_shard(part, mp_policy=policy)


def optimizer_for(model, s):
    decayed = [p for n, p in model.named_parameters() if "norm" not in n]
    steady = [p for n, p in model.named_parameters() if "norm" in n]
    groups = [{"params": decayed, "weight_decay": s["weight_decay"]}, {"params": steady, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=s["lr"], betas=(0.9, 0.95), eps=s["eps"], fused=True)


class Batches:
    """Samples in the file's order: sequence j of rank r in a step that starts at sample c is c + r * micro + j."""

    def __init__(self, s, rank, ranks):
        self.tokens = numpy.fromfile(s["tokens"], dtype=s.get("token_type", "uint16")).astype(numpy.int64)
        self.s, self.rank, self.ranks = s, rank, ranks

    def step(self, step):
        t, micro = self.s["seq_len"], self.s["micro"]
        count = (len(self.tokens) - 1) // t
        first = step * micro * self.ranks + self.rank * micro
        rows = [self.tokens[(first + j) % count * t :][: t + 1] for j in range(micro)]
        rows = torch.from_numpy(numpy.stack(rows))
        rows = rows.to(self.s.get("device", "cpu"))
        return rows[:, :-1], rows[:, 1:]


def build(directory, device):
    """The model with the weights of the directory; with random weights if it has none."""
    with torch.device(device):
        model = Llama(json.loads((directory / "config.json").read_text()))
    weights = directory / "model.safetensors"
    if weights.exists():
        model.load_state_dict(load_file(weights))
    return model


def train(directory, s):
    device = s.get("device", "cpu")
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    torch.set_num_threads(s["threads"])
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = build(directory, device)
    prepare(model, s)
    shard(model, s["precision"])
    optimizer, batches = optimizer_for(model, s), Batches(s, rank, ranks)
    for step in range(s["steps"]):
        began = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = s["lr"] * min(1, (step + 1) / s.get("warmup_steps", 1))
        inputs, targets = batches.step(step)
        logits = model(inputs)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
        loss.backward()
        norm = clip(model, s)
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().double() / ranks
        dist.all_reduce(mean)
        mean = mean.cpu()  # waits for the device
        seconds = time.perf_counter() - began
        if rank == 0:
            print(json.dumps({"step": step + 1, "time": time.time(), "loss": mean.item(), "grad_norm": norm.item(), "step_seconds": seconds,
                              "peak_bytes": torch.cuda.max_memory_allocated() if device == "cuda" else 0}), flush=True)
    dist.destroy_process_group()
    # Skips Python's finalization, in which a thread of torch that requests the interpreter lock sometimes aborts the process
    # (pytorch/pytorch #90549, #179291).
    sys.stdout.flush()
    os._exit(0)


def write_weights(directory, c, seed, std=None):
    """Values on which attention is far from uniform and norms matter, so that a mistake in either shows in the loss. With `std` as a
    training begins: norms are 1, all else is drawn with that deviation."""
    torch.manual_seed(seed)
    weights = {}
    for name, value in Llama(c).state_dict().items():
        if std is not None:
            weights[name] = torch.ones_like(value) if "norm" in name else std * torch.randn_like(value)
        elif "norm" in name:
            weights[name] = 1 + 0.2 * torch.randn_like(value)
        else:
            gain = 1.4 if "q_proj" in name or "k_proj" in name else 0.8
            weights[name] = torch.randn_like(value) * (0.05 if "embed" in name else gain / math.sqrt(value.shape[1]))
    directory.mkdir(parents=True, exist_ok=True)
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps(c, indent=2))


def gemm_rate(product, dtype):
    """GFLOP/s of x w^T at the shape of the benchmark's feed-forward part: the median of 100, as a step's time is a median.
    The best of a few is up to 20% above it where a virtual machine's clock jumps."""
    x, w = torch.randn(1024, 512).to(dtype), torch.randn(1376, 512).to(dtype)
    seconds = []
    for _ in range(100):
        began = time.perf_counter()
        product(x, w)
        seconds.append(time.perf_counter() - began)
    return 2e-9 * 1024 * 512 * 1376 / statistics.median(seconds)


def print_gemm(dtype):
    torch.set_num_threads(1)
    products = {
        "at::mm": lambda x, w: torch.mm(x, w.t()),
        "onednn": lambda x, w: torch.ops.mkldnn._linear_pointwise(x, w, None, "none", [], ""),
    }
    rates = {}
    for name, product in products.items():
        try:
            rates[name] = round(gemm_rate(product, dtype))
        except RuntimeError:  # not on this CPU
            pass
    print(json.dumps(rates))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["weights", "train", "gemm"])
    parser.add_argument("directory", type=pathlib.Path, nargs="?")
    parser.add_argument("--shape", type=json.loads)
    parser.add_argument("--settings", type=json.loads)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--std", type=float, help="of weights: as a training begins")
    parser.add_argument("--precision", choices=["fp32", "bf16"])
    a = parser.parse_args()
    if a.action == "gemm":
        if a.precision is None:
            parser.error("gemm needs --precision fp32 or bf16")
        print_gemm(torch.float32 if a.precision == "fp32" else torch.bfloat16)
    elif a.action == "weights":
        write_weights(a.directory, a.shape, a.seed, a.std)
    else:
        train(a.directory, a.settings)


if __name__ == "__main__":
    sys.exit(main())
