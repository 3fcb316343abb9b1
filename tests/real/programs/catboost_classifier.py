# catboost with a categorical column.
# result = accuracy
# search = --grid depth=1,4 --metric accuracy
# needs = catboost, pandas
# %%
import numpy as np
import pandas as pd
from catboost import CatBoostClassifier

rng = np.random.default_rng(0)
frame = pd.DataFrame(
    {
        "colour": rng.choice(["red", "green", "blue"], 500),
        "size": rng.normal(size=500),
        "weight": rng.normal(size=500),
    }
)
labels = ((frame.colour == "red") ^ (frame["size"] + rng.normal(size=500) > 0)).astype(int)
# %% train
depth = 4
model = CatBoostClassifier(
    iterations=60,
    depth=depth,
    learning_rate=0.2,
    random_seed=0,
    thread_count=1,
    verbose=20,
    allow_writing_files=False,
)
model.fit(frame[:400], labels[:400], cat_features=["colour"], eval_set=(frame[400:], labels[400:]))
accuracy = model.score(frame[400:], labels[400:])
