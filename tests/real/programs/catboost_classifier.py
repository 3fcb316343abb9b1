# catboost with a categorical column.
# result = accuracy
# search = --grid depth=1,4 --metric accuracy
# needs = catboost, pandas
# %%
import numpy as np
import pandas as pd
from catboost import CatBoostClassifier, Pool

rng = np.random.default_rng(0)
frame = pd.DataFrame(
    {
        "colour": rng.choice(["red", "green", "blue"], 500),
        "size": rng.normal(size=500),
        "weight": rng.normal(size=500),
    }
)
labels = ((frame.colour == "red") ^ (frame["size"] * frame.weight > 0)).astype(int)
train_pool = Pool(frame[:400], labels[:400], cat_features=["colour"])
test_pool = Pool(frame[400:], labels[400:], cat_features=["colour"])
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
model.fit(train_pool, eval_set=test_pool)
accuracy = model.score(test_pool)
