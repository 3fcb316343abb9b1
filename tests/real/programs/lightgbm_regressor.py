# lightgbm's own interface with early stopping.
# result = rmse
# search = --grid num_leaves=2,15 --metric valid_0-l2 --mode min
# needs = lightgbm, sklearn
# %%
import lightgbm as lgb
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.model_selection import train_test_split

X, y = make_friedman1(n_samples=800, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
# %% train
num_leaves = 15
params = {
    "objective": "regression",
    "metric": "l2",
    "num_leaves": num_leaves,
    "learning_rate": 0.1,
    "num_threads": 1,
    "seed": 0,
    "verbose": -1,
}
train_data = lgb.Dataset(X_train, y_train)
valid_data = lgb.Dataset(X_test, y_test, reference=train_data)
booster = lgb.train(
    params,
    train_data,
    num_boost_round=60,
    valid_sets=[valid_data],
    callbacks=[lgb.early_stopping(10), lgb.log_evaluation(20)],
)
rmse = float(np.sqrt(np.mean((booster.predict(X_test) - y_test) ** 2)))
