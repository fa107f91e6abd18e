"""Bayes by Backprop written by hand in JAX: one `lax.scan` over an epoch, `vmap` over models. The yardstick for speed.

Written as somebody would who wants it fast and nothing else: parameters in a list of arrays, Adam inline, the KL in
closed form for a Normal prior and at the sample for a scale mixture, TF32 products.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

__all__ = ["steps_by_hand"]

BATCH, SIZES = 128, (784, 400, 400, 10)
PI, SCALE1, SCALE2 = 0.5, 0.75, 0.1


def steps_by_hand(prior: str, models: int, epochs: int, inputs: Any, targets: Any) -> float:
    """Microseconds of a step of all models together: the median over epochs. Rows are arrays."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_default_matmul_precision", "tensorfloat32")
    x_all, y_all = jnp.asarray(inputs), jnp.asarray(targets)
    rows, steps = x_all.shape[0], x_all.shape[0] // BATCH

    def log_normal(w, scale):
        return -0.5 * (w / scale) ** 2 - jnp.log(scale)

    def loss(parameters, key, x, y):
        means, rhos = parameters
        kl, weights = 0.0, []
        for number, (mean, rho) in enumerate(zip(means, rhos, strict=True)):
            std = jax.nn.softplus(rho)
            w = mean + std * jax.random.normal(jax.random.fold_in(key, number), mean.shape)
            if prior == "normal":
                kl += jnp.sum(0.5 * (std**2 + mean**2 - 1.0) - jnp.log(std))
            else:
                pair = jnp.stack((jnp.log(PI) + log_normal(w, SCALE1), jnp.log1p(-PI) + log_normal(w, SCALE2)))
                kl -= jnp.sum(jnp.log(std)) + jnp.sum(jax.nn.logsumexp(pair, axis=0))
            weights.append(w)
        h = x
        for number in range(len(SIZES) - 1):
            h = h @ weights[2 * number] + weights[2 * number + 1]
            h = jax.nn.relu(h) if number < len(SIZES) - 2 else h
        picked = jnp.take_along_axis(jax.nn.log_softmax(h), y[:, None], axis=1)
        return kl / rows - picked.mean()

    def step(carry, chosen):
        parameters, first, second, t, key = carry
        gradient = jax.grad(loss)(parameters, jax.random.fold_in(key, t), x_all[chosen], y_all[chosen])
        t = t + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)
        k1, k2 = 1.0 - 0.9**t, 1.0 - 0.999**t
        move = lambda p, m, v: p - 1e-3 * (m / k1) / (jnp.sqrt(v / k2) + 1e-8)  # noqa: E731
        return (jax.tree.map(move, parameters, first, second), first, second, t, key), None

    def epoch(carry):
        order = jax.random.permutation(jax.random.fold_in(carry[4], carry[3]), rows)[: steps * BATCH]
        return jax.lax.scan(step, carry, order.reshape(steps, BATCH))[0]

    def start(key):
        means = []
        for inputs_, outputs in zip(SIZES, SIZES[1:], strict=False):
            key, part = jax.random.split(key)
            means += [jax.random.normal(part, (inputs_, outputs)) / inputs_**0.5, jnp.zeros(outputs)]
        rhos = [jnp.full(mean.shape, -4.0) for mean in means]
        zeros = lambda: jax.tree.map(jnp.zeros_like, (means, rhos))  # noqa: E731
        return (means, rhos), zeros(), zeros(), jnp.zeros((), jnp.int32), key

    run = jax.jit(epoch if models == 1 else jax.vmap(epoch), donate_argnums=0)
    keys = jax.random.split(jax.random.key(0), models)
    carry = start(keys[0]) if models == 1 else jax.vmap(start)(keys)
    times = []
    for _ in range(epochs + 2):  # the second call compiles once more, for the types that the first one returned
        jax.block_until_ready(carry)
        begun = time.perf_counter()
        carry = jax.block_until_ready(run(carry))
        times.append((time.perf_counter() - begun) / steps * 1e6)
    return statistics.median(times[2:])
