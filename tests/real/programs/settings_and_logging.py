# A notebook that sets up libraries and logging in its first cell and counts on it everywhere.
# result = seen
# ddp = -n 2
# search = --grid width=1,2 --metric n_bits
# tolerance = 0
# needs = torch
# last = torch's default dtype, for one
# %%
import decimal
import logging
import os
import sys
import warnings

import numpy as np
import torch

logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s", force=True)
log = logging.getLogger("train")
torch.set_default_dtype(torch.float64)
torch.use_deterministic_algorithms(True)
np.seterr(divide="raise")
np.set_printoptions(precision=2)
decimal.getcontext().prec = 8
warnings.filterwarnings("error", message="bad idea")
sys.setrecursionlimit(4321)
os.environ["DATA_FLAVOUR"] = "vanilla"
# %% train
width = 1
log.info("a line that is shown")
try:
    np.ones(1) / np.zeros(1)
    raised = 0
except FloatingPointError:
    raised = 1
try:
    warnings.warn("bad idea")
    warned = 0
except UserWarning:
    warned = 1
seen = {
    "bits": torch.finfo(torch.ones(1).dtype).bits,
    "deterministic": int(torch.are_deterministic_algorithms_enabled()),
    "raised": raised,
    "warned": warned,
    "digits": len(str(decimal.Decimal(1) / 3)),
    "printed": len(str(np.array([1 / 3]))),
    "level": logging.getLogger().level,
    "recursion": sys.getrecursionlimit(),
    "environment": len(os.environ["DATA_FLAVOUR"]),
}
n_bits = torch.finfo(torch.ones(width).dtype).bits * width
