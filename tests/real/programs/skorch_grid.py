# A torch module as a scikit-learn estimator of skorch, in a grid search.
# result = best_score
# fit =
# tolerance = 0.1
# search = --grid max_epochs=1,8 --metric best_score
# needs = torch, skorch, sklearn
# %%
import numpy as np
import torch
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV
from skorch import NeuralNetClassifier
from torch import nn

X, y = make_classification(300, 10, n_informative=6, random_state=0)
X, y = X.astype(np.float32), y.astype(np.int64)


class Classifier(nn.Module):
    def __init__(self, hidden=8):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, hidden), nn.ReLU(), nn.Linear(hidden, 2))

    def forward(self, X):
        return self.layers(X)


# %% train
max_epochs = 8
torch.manual_seed(0)
net = NeuralNetClassifier(
    Classifier,
    criterion=nn.CrossEntropyLoss,
    max_epochs=max_epochs,
    lr=0.1,
    verbose=0,
    train_split=None,
)
search = GridSearchCV(net, {"module__hidden": [4, 16], "lr": [0.02, 0.2]}, cv=3, refit=False)
search.fit(X, y)
best_score = float(search.best_score_)
