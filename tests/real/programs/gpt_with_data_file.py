# A small GPT over several cells that reads its text from a file beside the notebook.
# result = final_loss
# ddp = -n 2
# tolerance = 0.3
# search = --grid learning_rate=0.0001,0.01 --metric final_loss --mode min
# needs = torch
# %%
from pathlib import Path

verses = [f"{n} times {m} is {n * m}.\n" for n in range(10) for m in range(10)]
Path("input.txt").write_text("".join(verses))
# %%
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F


@dataclass
class GPTConfig:
    block_size: int = 16
    vocab_size: int = 64
    n_layer: int = 1
    n_head: int = 2
    n_embd: int = 16


# %%
class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.n_head = config.n_head
        self.ln_1 = nn.LayerNorm(config.n_embd)
        self.attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.proj = nn.Linear(config.n_embd, config.n_embd)
        self.ln_2 = nn.LayerNorm(config.n_embd)
        self.mlp = nn.Sequential(
            nn.Linear(config.n_embd, 4 * config.n_embd),
            nn.GELU(),
            nn.Linear(4 * config.n_embd, config.n_embd),
        )

    def forward(self, x):
        B, T, C = x.shape
        parts = self.attn(self.ln_1(x)).split(C, dim=2)
        q, k, v = (p.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for p in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.n_embd)
        self.positions = nn.Embedding(config.block_size, config.n_embd)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = nn.LayerNorm(config.n_embd)
        self.head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, idx, targets):
        x = self.tokens(idx) + self.positions(torch.arange(idx.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


# %%
def lr_at(step, warmup=10, total=60, peak=1e-2):
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


# %% train
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

learning_rate = 1e-2
with open("input.txt") as f:
    text = f.read()
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
data = torch.tensor([stoi[c] for c in text])
ddp = dist.is_available() and dist.is_initialized()
rank, world_size = (dist.get_rank(), dist.get_world_size()) if ddp else (0, 1)

torch.manual_seed(1337)
config = GPTConfig(vocab_size=len(chars))
raw_model = GPT(config)
model = DDP(raw_model) if ddp else raw_model
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
generator = torch.Generator().manual_seed(rank)
for step in range(60):
    for group in optimizer.param_groups:
        group["lr"] = lr_at(step, peak=learning_rate)
    starts = torch.randint(len(data) - 17, (16 // world_size,), generator=generator)
    windows = torch.stack([data[s : s + 17] for s in starts])
    loss = model(windows[:, :-1], windows[:, 1:])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
with torch.no_grad():
    whole = data[: 16 * 60 + 1]
    final_loss = raw_model(whole[:-1].view(-1, 16), whole[1:].view(-1, 16)).item()
print(f"loss {final_loss:.3f}")
