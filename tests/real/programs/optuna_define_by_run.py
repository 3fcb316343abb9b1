# An Optuna study whose objective declares parameters as it goes; each trial is a whole study.
# result = best_value
# search = --grid seed=0,1 --metric best_value --mode min
# needs = optuna
# %%
import optuna

optuna.logging.set_verbosity(optuna.logging.WARNING)


def objective(trial):
    kind = trial.suggest_categorical("kind", ["linear", "bent"])
    x = trial.suggest_float("x", -3, 3)
    if kind == "linear":
        return abs(x - 1) + 0.2
    bend = trial.suggest_float("bend", 0.1, 2.0, log=True)
    return (x - 1) ** 2 * bend


# %% train
seed = 0
study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
study.optimize(objective, n_trials=25)
best_value = study.best_value
