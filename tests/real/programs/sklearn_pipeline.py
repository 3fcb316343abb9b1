# A pipeline over columns of two kinds in GridSearchCV.
# result = scores
# fit =
# tolerance = 1e-9
# needs = sklearn
# %%
import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

rng = np.random.default_rng(0)
X = np.column_stack([rng.normal(size=(300, 3)), rng.integers(0, 4, 300)])
y = (X[:, 0] + (X[:, 3] == 2) + rng.normal(scale=0.3, size=300) > 0.4).astype(int)


class Clip(BaseEstimator, TransformerMixin):
    def __init__(self, limit=2.0):
        self.limit = limit

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return np.clip(X, -self.limit, self.limit)


# %% train
columns = ColumnTransformer(
    [
        ("numbers", make_pipeline(Clip(), StandardScaler()), [0, 1, 2]),
        ("kinds", OneHotEncoder(handle_unknown="ignore"), [3]),
    ]
)
grid = GridSearchCV(
    make_pipeline(columns, LogisticRegression(max_iter=200)),
    {
        "columntransformer__numbers__clip__limit": [0.5, 2.0],
        "logisticregression__C": [0.01, 1.0],
    },
    cv=StratifiedKFold(3),
    scoring="roc_auc",
)
grid.fit(X, y)
scores = [float(grid.best_score_), *grid.cv_results_["mean_test_score"]]
