# hyperopt's fmin over a space with a conditional part; each trial is a whole minimisation.
# result = best_loss
# search = --grid seed=0,1 --metric best_loss --mode min
# needs = hyperopt
# %%
import numpy as np
from hyperopt import STATUS_OK, Trials, fmin, hp, tpe

space = hp.choice(
    "model",
    [
        {"kind": "svm", "C": hp.loguniform("C", np.log(0.01), np.log(100))},
        {"kind": "tree", "depth": hp.quniform("depth", 1, 8, 1)},
    ],
)


def objective(config):
    if config["kind"] == "svm":
        loss = (np.log10(config["C"]) - 1) ** 2
    else:
        loss = abs(config["depth"] - 5) + 0.5
    return {"loss": loss, "status": STATUS_OK}


# %% train
seed = 0
trials = Trials()
best = fmin(
    objective,
    space,
    algo=tpe.suggest,
    max_evals=30,
    trials=trials,
    rstate=np.random.default_rng(seed),
    show_progressbar=False,
)
best_loss = float(trials.best_trial["result"]["loss"])
