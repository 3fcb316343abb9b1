# xgboost's scikit-learn interface with early stopping on a held-out part.
# result = accuracy
# search = --grid max_depth=1,4 --metric accuracy
# needs = xgboost, sklearn
# %%
import xgboost as xgb
from sklearn.datasets import make_classification
from sklearn.metrics import accuracy_score
from sklearn.model_selection import train_test_split

X, y = make_classification(n_samples=600, n_features=12, n_informative=6, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
# %% train
max_depth = 4
model = xgb.XGBClassifier(
    n_estimators=40,
    max_depth=max_depth,
    learning_rate=0.2,
    eval_metric="logloss",
    early_stopping_rounds=5,
    n_jobs=1,
    random_state=0,
)
model.fit(X_train, y_train, eval_set=[(X_test, y_test)], verbose=False)
accuracy = accuracy_score(y_test, model.predict(X_test))
