# A notebook that goes into another folder and works with the files there.
# result = mean
# ddp = -n 2
# search = --grid power=1,2 --metric mean
# %%
#: %mkdir -p project/data
#: %cd project
from pathlib import Path

import numpy as np

np.savetxt("data/values.csv", np.arange(10.0), delimiter=",")
# %%
#: %cd data
# %% train
import csv

power = 1
with open("values.csv") as f:
    rows = [float(row[0]) for row in csv.reader(f)]
assert Path.cwd().name == "data"
mean = sum(row**power for row in rows) / len(rows)
