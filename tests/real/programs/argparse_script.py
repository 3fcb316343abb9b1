# A script with argparse and a main(), with the defaults of its options.
# result = best_acc
# plain = python
# ddp = -n 2
# tolerance = 1e-6
# search = --grid lr=0.001,1.0 --metric best_acc
# needs = torch
# %% train
import argparse
import random

import torch
from torch import nn

lr = 0.5


def parse_args():
    parser = argparse.ArgumentParser(description="Train a linear classifier")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=lr)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-cuda", action="store_true")
    return parser.parse_args()


def main():
    args = parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() and not args.no_cuda else "cpu"
    x = torch.randn(200, 6, device=device)
    y = (x @ torch.tensor([1.0, -1, 2, 0, 0.5, -2], device=device) > 0).long()
    model = nn.Linear(6, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    best = 0.0
    for _ in range(args.epochs):
        optimizer.zero_grad()
        out = model(x)
        nn.functional.cross_entropy(out, y).backward()
        optimizer.step()
        best = max(best, (out.argmax(1) == y).float().mean().item())
    return best


if __name__ == "__main__":
    best_acc = main()
