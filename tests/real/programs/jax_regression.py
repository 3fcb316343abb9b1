# JAX: a jitted step of gradient descent, whose processes find each other by jax.distributed.
# result = final_loss
# ddp = -n 2
# tolerance = 1e-5
# search = --grid lr=0.001,0.2 --metric final_loss --mode min
# needs = jax
# %%
import os

import numpy as np

rng = np.random.default_rng(0)
x = rng.normal(size=(128, 5)).astype("float32")
y = np.tanh(x @ np.arange(5, dtype="float32"))
# %% train
import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils

lr = 0.2
if int(os.environ.get("WORLD_SIZE", 1)) > 1:
    jax.distributed.initialize()
mine = slice(jax.process_index(), None, jax.process_count())


def predict(params, inputs):
    return jnp.tanh(jnp.tanh(inputs @ params["w1"]) @ params["w2"])


@jax.jit
def gradients(params, inputs, targets):
    def loss(params):
        return jnp.mean((predict(params, inputs) - targets) ** 2)

    return jax.grad(loss)(params)


keys = jax.random.split(jax.random.key(0))
params = {"w1": jax.random.normal(keys[0], (5, 8)), "w2": jax.random.normal(keys[1], (8,))}
for step in range(20):
    grads = gradients(params, x[mine], y[mine])
    if jax.process_count() > 1:
        grads = multihost_utils.process_allgather(grads)
        grads = jax.tree.map(lambda g: g.mean(0), grads)
    params = jax.tree.map(lambda p, g: p - lr * g, params, grads)
final_loss = float(jnp.mean((predict(params, x) - y) ** 2))
