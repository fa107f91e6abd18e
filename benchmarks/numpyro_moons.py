"""The same network and prior as benchmarks/hmc.py under NumPyro's NUTS; run by a Python that has numpyro, see there.

    python benchmarks/numpyro_moons.py DATA.npz OUT.npz CHAINS WARM_UP SAMPLES SEED CORES

Recipe: non-centred scales HalfNormal(1) per layer, target acceptance 0.8, chains in parallel on so many
cores. Writes the logits of all samples at the places of the grid, and the seconds of the run with its compilation.
"""

import os
import sys
import time

import numpy as np

# One device for each chain, side by side on as many cores as there are: affinity says how many.
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[7])])
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={sys.argv[3]}"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpyro  # noqa: E402
import numpyro.distributions as dist  # noqa: E402
from numpyro.infer import MCMC, NUTS  # noqa: E402

WIDTHS = (2, 5, 5, 2)


def logits(sample, x):
    for layer in range(3):
        tau = sample[f"tau{layer}"]
        x = x @ (tau * sample[f"w{layer}"]) + tau * sample[f"b{layer}"]
        x = jnp.tanh(x) if layer < 2 else x
    return x


def model(x, y):
    sample = {}
    for layer, (inputs, outputs) in enumerate(zip(WIDTHS[:-1], WIDTHS[1:])):
        sample[f"tau{layer}"] = numpyro.sample(f"tau{layer}", dist.HalfNormal(1.0))
        shape = [inputs, outputs]
        sample[f"w{layer}"] = numpyro.sample(f"w{layer}", dist.Normal(0, 1).expand(shape).to_event(2))
        sample[f"b{layer}"] = numpyro.sample(f"b{layer}", dist.Normal(0, 1).expand([outputs]).to_event(1))
    numpyro.sample("y", dist.Categorical(logits=logits(sample, x)), obs=y)


def main() -> None:
    chains, warm_up, samples, seed = (int(a) for a in sys.argv[3:7])
    data = np.load(sys.argv[1])
    x, y = jnp.asarray(data["x"]), jnp.asarray(data["y"])
    started, worked = time.perf_counter(), time.process_time()
    kernel = NUTS(model, target_accept_prob=0.8)
    run = MCMC(kernel, num_warmup=warm_up, num_samples=samples, num_chains=chains, progress_bar=False)
    run.run(jax.random.key(seed), x, y, extra_fields=("diverging", "num_steps"))
    found = run.get_samples(group_by_chain=True)
    jax.block_until_ready(found)
    seconds, cpu = time.perf_counter() - started, time.process_time() - worked
    each = jax.jit(jax.vmap(jax.vmap(logits, in_axes=(0, None)), in_axes=(0, None)))
    fields = run.get_extra_fields(group_by_chain=True)
    held = jax.nn.softmax(each(found, jnp.asarray(data["x_test"])), axis=-1).mean((0, 1))
    pieces = np.array_split(data["grid"], 40)
    whole = [np.asarray(jax.nn.softmax(each(found, jnp.asarray(p)), axis=-1)[..., 1].mean((0, 1))) for p in pieces]
    np.savez(
        sys.argv[2],
        traced=np.asarray(each(found, jnp.asarray(data["places"]))),
        whole=np.concatenate(whole),
        held=np.asarray(held),
        seconds=seconds,
        cpu_seconds=cpu,
        divergences=int(fields["diverging"].sum()),
        steps=float(fields["num_steps"].mean()),
        version=numpyro.__version__,
    )


if __name__ == "__main__":
    main()
