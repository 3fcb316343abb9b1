# A perceptron in plain numpy, searched; nothing of torch.
# result = error
# search = --grid eta=0.0001,0.5 --metric error --mode min
# %%
import numpy as np

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 4))
y = np.sign(X @ np.array([1.0, -2.0, 0.5, 0.0]) + 0.1)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


# %% train
eta = 0.1
w, b = np.zeros(4), 0.0
for epoch in range(30):
    p = sigmoid(X @ w + b)
    gradient = p - (y > 0)
    w -= eta * X.T @ gradient / len(X)
    b -= eta * gradient.mean()
error = float(np.mean(np.log1p(np.exp(-y * (X @ w + b)))))
print(f"{error:.4f}")
