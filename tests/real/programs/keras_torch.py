# Keras with torch below it; its ranks do not share fit(), so it is searched only.
# result = val_loss
# search = --grid units=1,16 --metric val_loss --mode min
# needs = torch, keras
# %%
import numpy as np

rng = np.random.default_rng(0)
x = rng.normal(size=(400, 6)).astype("float32")
y = np.tanh(x.sum(1, keepdims=True)).astype("float32")
# %% train
import os

os.environ["KERAS_BACKEND"] = "torch"
import keras

units = 16
keras.utils.set_random_seed(0)
model = keras.Sequential(
    [keras.Input((6,)), keras.layers.Dense(units, activation="tanh"), keras.layers.Dense(1)]
)
model.compile(optimizer=keras.optimizers.Adam(0.02), loss="mse", metrics=["mae"])
history = model.fit(x, y, validation_split=0.25, epochs=8, batch_size=32, verbose=2)
val_loss = history.history["val_loss"][-1]
