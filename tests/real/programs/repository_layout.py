# A notebook below notebooks/ that imports a package beside that folder by sys.path.append("..").
# result = score
# ddp = -n 2
# search = --grid depth=1,3 --metric score
# %%
from pathlib import Path

for name in ("notebooks", "src/mymodels"):
    Path(name).mkdir(parents=True, exist_ok=True)
Path("src/mymodels/__init__.py").write_text("from .net import evaluate\n")
Path("src/mymodels/net.py").write_text(
    "from .helpers import weight\n\n\ndef evaluate(depth):\n    return weight(depth) * 10\n"
)
Path("src/mymodels/helpers.py").write_text("def weight(depth):\n    return depth + 0.5\n")
#: %cd notebooks
# %%
import sys

sys.path.append("..")
sys.path.append("../src")
# %% train
from mymodels import evaluate

depth = 2
score = evaluate(depth)
